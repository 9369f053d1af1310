"""h200_fa2: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {'name': 'h200_fa2',
 'family': 'v2',
 'arch': 'sm_90a',
 'device': 'h200',
 'problem': {'dtype': 'bf16', 'head_dim': 128, 'mask': 'causal'},
 'schedule': {'tile': {'q': 256, 'kv': 64},
              'stages': {'kv': 3},
              'roles': {'math': {'warps': 8}},
              'q_operand': 'shared',
              'ctas_per_sm': 1}}

attention = load(SPEC)
