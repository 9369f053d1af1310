"""h200_fa1: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {'name': 'h200_fa1',
 'family': 'v1',
 'arch': 'sm_90a',
 'device': 'h200',
 'problem': {'dtype': 'bf16', 'head_dim': 128, 'mask': 'causal'}}

attention = load(SPEC)
