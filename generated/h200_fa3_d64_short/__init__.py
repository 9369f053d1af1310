"""h200_fa3_d64_short: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {'name': 'h200_fa3_d64_short',
 'family': 'v3',
 'arch': 'sm_90a',
 'device': 'h200',
 'problem': {'dtype': 'bf16', 'head_dim': 64, 'mask': 'causal'},
 'schedule': {'tile': {'q': 128, 'kv': 128},
              'stages': {'kv': 3},
              'roles': {'math': {'pingpong': False}}}}

attention = load(SPEC)
