from __future__ import annotations

import pytest
import torch

from fagen.bench.modes import MODES
from fagen.bench.passes import in_mode


@pytest.fixture
def attention():
    """out = q + 2 k + 3 v, and its inputs."""
    inputs = [torch.ones(3) for _ in "qkv"]
    calls = []

    def call():
        calls.append(1)
        q, k, v = inputs
        return q + 2 * k + 3 * v

    return call, inputs, calls


@pytest.mark.parametrize("mode", MODES)
def test_each_call_gives_what_the_mode_says(attention, mode):
    call, inputs, calls = attention
    timed = in_mode(mode, call, inputs, torch.ones(3))
    before = len(calls)
    for _ in range(2):
        found = timed()
    wanted = {"forward": [6.0], "backward": [1.0, 2.0, 3.0]}
    found = [found] if mode == "fwd" else found
    assert [x[0].item() for x in found] == [x for name in MODES[mode] for x in wanted[name]]
    assert len(calls) - before == (0 if mode == "bwd" else 2), "a backward alone has its forward behind it"
    assert found[0].grad_fn is None or mode == "fwd+bwd", "a forward alone keeps nothing"
