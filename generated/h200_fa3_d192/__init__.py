"""h200_fa3_d192: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {'name': 'h200_fa3_d192',
 'family': 'v3',
 'arch': 'sm_90a',
 'device': 'h200',
 'problem': {'dtype': 'bf16', 'head_dim': 192, 'head_dim_v': 128, 'mask': 'causal'},
 'schedule': {'tile': {'q': 128, 'kv': 96}, 'stages': {'q': 2}}}

attention = load(SPEC)
