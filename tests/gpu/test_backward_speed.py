"""The backward's work is shared out evenly under a mask, too."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
import torch
from gpu_cases import Cases

from fagen.bench.clock import CudaClock, interleaved

SHARE = 0.65  # of the speed without a mask


@pytest.mark.alone
@pytest.mark.parametrize("seqlen", [4096, 8192, 16384])
def test_causal_is_nearly_as_fast(cases: Cases, seqlen: int) -> None:
    """In FLOP of visible pairs per second: half of those without a mask, and half the diagonal."""
    calls = []
    for mask in ("none", "causal"):
        op = cases.op(mask=mask)
        inputs = cases.inputs(op, 2, seqlen, seqlen, 16)
        dout = cases.dout(op, *inputs)
        kept: tuple[Any, ...] = getattr(torch.ops.fagen, op.name)(*inputs)
        backward = getattr(torch.ops.fagen, f"{op.name}_backward")

        def call(backward: Any = backward, given: tuple[Any, ...] = (dout, None, *inputs, *kept)) -> None:
            backward(*given)

        calls.append(call)
    without, causal = (median(times) for times in interleaved(calls, CudaClock()))
    pairs = (seqlen + 1) / (2 * seqlen)
    assert pairs / causal >= SHARE / without
