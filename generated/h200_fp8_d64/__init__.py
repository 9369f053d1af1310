"""h200_fp8_d64: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {'name': 'h200_fp8_d64',
 'family': 'v3',
 'arch': 'sm_90a',
 'device': 'h200',
 'problem': {'dtype': 'e4m3',
             'out_dtype': 'bf16',
             'head_dim': 64,
             'mask': 'causal',
             'passes': ('forward',)},
 'schedule': {'tile': {'q': 192, 'kv': 128}, 'stages': {'kv': 3}}}

attention = load(SPEC)
