"""What the tests of dispatch share: an op that computes by the reference, and GPUs that are not there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import Tensor

from fagen.dispatch.target import Target
from fagen.hw.device import DEVICES
from fagen.ops import reference, reference_gradients
from fagen.ops.backward import Inputs
from fagen.ops.layout import Packing
from fagen.ops.reference_gradients import Gradients
from fagen.plan.launch import Shape
from fagen.spec.model import Spec
from fagen.tune.store import Where

SHAPE = Shape(batch=4, seqlen_q=2048, seqlen_k=2048, heads_q=16, heads_kv=16)
HERE = Where("NVIDIA H200", "580.1", "13.0", "abc")


class ReferenceOp:
    """Takes the place of an AttentionOp."""

    def __init__(self, spec: Spec):
        self.spec, self.name = spec, spec.name
        self.calls = 0

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, *packing: Any, return_lse: bool, **options: Any
    ) -> Any:
        given = Packing(*packing) if packing[0] is not None else None
        out, lse, _ = self.forward(q, k, v, given, None, None, options["scale"], options["dropout_p"])
        return (out, lse) if return_lse else out

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        packing: Packing | None,
        descales: None,
        seed: Tensor | None,
        scale: float | None,
        dropout_p: float,
    ) -> tuple[Tensor, Tensor, None]:
        self.calls += 1
        offsets = () if packing is None else packing.offsets
        out, lse = reference.attention(self.spec.problem, q, k, v, *offsets, scale=scale)
        return out.to(q.dtype).contiguous(), lse.float(), None

    def backward(self, given: Inputs, scale: float | None, dropout_p: float) -> Gradients:
        inputs = given.q, given.k, given.v
        options = {"dout": given.dout, "dlse": given.dlse, "scale": scale}
        with ThreadPoolExecutor(1) as thread:  # where torch lets it differentiate
            found = thread.submit(reference_gradients.gradients, self.spec.problem, *inputs, **options)
            return Gradients(*(x.to(given.q.dtype) for x in found.result()))


def gpu(device: str = "h200") -> Target:
    """A GPU that is not there."""
    return Target(DEVICES[device], 0, f"NVIDIA {device.upper()}")
