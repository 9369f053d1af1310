"""h200_fa2_d64: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {'name': 'h200_fa2_d64',
 'family': 'v2',
 'arch': 'sm_90a',
 'device': 'h200',
 'problem': {'dtype': 'bf16', 'head_dim': 64, 'mask': 'causal'},
 'schedule': {'tile': {'q': 128, 'kv': 96},
              'stages': {'kv': 3},
              'roles': {'math': {'warps': 4}},
              'q_operand': 'registers',
              'ctas_per_sm': 2}}

attention = load(SPEC)
