"""A pass of a variant, and what it is called with.

Variants are called straight, not as ops: hundreds of them leave no names in torch, and those of a backward
share one forward's results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fagen.bench.expected import random_inputs, random_like
from fagen.ops.backward import Backward, Inputs
from fagen.ops.descales import Descales
from fagen.ops.forward import Forward
from fagen.ops.layout import Packing
from fagen.ops.seed import draw_seed
from fagen.plan.launch import Shape
from fagen.spec.model import Spec

Pass = Callable[..., tuple[Any, ...]]

NAMES = {"forward": ("out", "LSE"), "backward": ("dq", "dk", "dv")}  # of what a pass returns


_loaded: dict[tuple[str, str], Pass] = {}  # a variant comes up in batch after batch


def load(spec: Spec, direction: str) -> Pass:
    """The pass, on CUDA tensors, or in the emulator where there is no GPU; built by its first call.

    The same arguments give the same object. Raises PlanError.
    """
    key = spec.model_dump_json(), direction
    if key not in _loaded:
        _loaded[key] = (Forward if direction == "forward" else Backward)(spec, None, None)
    return _loaded[key]


def arguments(spec: Spec, shape: Shape, direction: str, seed: int, device: str) -> tuple[Any, ...]:
    """Standard normal q, k, v (and dout) for the pass of any spec with this one's problem and family.

    A backward's out and LSE are those of this spec's forward. Nothing is dropped where dropout is possible.
    Raises what a forward raises.
    """
    q, k, v, *others = random_inputs(spec.problem, shape, seed, device)
    packing = Packing(*others[:4]) if spec.problem.layout == "thd" else None
    descales = Descales(*others[-3:]) if spec.problem.is_fp8 else None
    dropout = draw_seed(q, 0.0) if spec.problem.dropout else None
    if direction == "forward":
        return q, k, v, packing, descales, dropout
    with torch.no_grad():
        out, lse, row_stats = load(spec, "forward")(q, k, v, packing, descales, dropout)
    return (Inputs(random_like(out, seed + 1), None, q, k, v, out, lse, packing, dropout, row_stats),)
