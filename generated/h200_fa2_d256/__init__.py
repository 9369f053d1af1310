"""h200_fa2_d256: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {'name': 'h200_fa2_d256',
 'family': 'v2',
 'arch': 'sm_90a',
 'device': 'h200',
 'problem': {'dtype': 'bf16', 'head_dim': 256, 'mask': 'causal'},
 'schedule': {'tile': {'q': 128, 'kv': 48},
              'stages': {'kv': 3},
              'roles': {'math': {'warps': 8}},
              'q_operand': 'registers',
              'ctas_per_sm': 1}}

attention = load(SPEC)
