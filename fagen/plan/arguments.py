"""The kernel's one argument on one set of shapes and strides: all of it but addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fagen.hw.dtypes import DTYPES
from fagen.plan import maps, params
from fagen.plan.ir import Plan
from fagen.plan.launch import Launch, Shape
from fagen.plan.maps import Operand, Strides
from fagen.plan.params import Param
from fagen.plan.tensor_map import TensorMap

LSE_BYTES, OFFSET_BYTES = 4, 4  # of an element
COUNTERS_BYTES = 8


@dataclass(frozen=True)
class Arguments:
    """What launchers of a planned kernel are made from, beside its `Launch`."""

    params: tuple[Param, ...]
    numbers: dict[str, int | float]  # by parameter
    maps: dict[str, TensorMap]  # by tensor
    extents: dict[str, int]  # bytes from the first to the last element of what params.ADDRESSES names


def arguments(plan: Plan, shape: Shape, launch: Launch, strides: Mapping[str, Strides]) -> Arguments:
    """For tensors q, k, v and out of these strides; the launch is that of the shape, and not empty.

    Raises PlanError for a tensor that TMA cannot describe.
    """
    problem, scalars = plan.spec.problem, launch.scalars
    batch, rows_q, rows_k = shape.batch, shape.seqlen_q, shape.seqlen_k
    if problem.layout == "thd":
        batch, rows_q, rows_k = 1, scalars.tokens_q, scalars.tokens_k
    operands = {
        "q": Operand(batch, rows_q, shape.heads_q, problem.head_dim, strides["q"]),
        "k": Operand(batch, rows_k, shape.heads_kv, problem.head_dim, strides["k"]),
        "v": Operand(batch, rows_k, shape.heads_kv, problem.dim_v, strides["v"]),
        "out": Operand(batch, rows_q, shape.heads_q, problem.dim_v, strides["out"]),
    }
    element = DTYPES[problem.dtype].bytes
    extents = {name: operand.extent * element for name, operand in operands.items()}
    extents["lse"] = LSE_BYTES * shape.heads_q * scalars.tokens_q
    extents["counters"] = COUNTERS_BYTES
    extents["cu_seqlens_q"] = extents["cu_seqlens_k"] = OFFSET_BYTES * (shape.batch + 1)
    fields = params.forward(plan)
    mapped = {name: own for name, own in operands.items() if any(p.name == f"{name}_map" for p in fields)}
    return Arguments(
        params=fields,
        numbers=scalars._asdict() | _stride_numbers(strides),
        maps=maps.maps(plan, mapped, 1 << scalars.group_log2),
        extents=extents,
    )


def _stride_numbers(strides: Mapping[str, Strides]) -> dict[str, int]:
    return {
        f"{name}_{axis}_stride": value
        for name, own in strides.items()
        for axis, value in own._asdict().items()
    }
