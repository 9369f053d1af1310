"""h100_fp8: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {'name': 'h100_fp8',
 'family': 'v3',
 'arch': 'sm_90a',
 'device': 'h100',
 'problem': {'dtype': 'e4m3',
             'out_dtype': 'bf16',
             'head_dim': 128,
             'mask': 'causal',
             'passes': ('forward',)},
 'schedule': {'tile': {'q': 128}, 'roles': {'math': {'pingpong': False}}}}

attention = load(SPEC)
