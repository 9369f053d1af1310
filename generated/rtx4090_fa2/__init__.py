"""rtx4090_fa2: printed by fagen from its spec; change the spec, not this file."""

from fagen import load

SPEC = {'name': 'rtx4090_fa2',
 'family': 'v2',
 'arch': 'sm_89',
 'device': 'rtx4090',
 'problem': {'dtype': 'bf16', 'head_dim': 128, 'mask': 'causal'}}

attention = load(SPEC)
