"""A kernel's one argument on one set of shapes and strides: all of it but addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fagen.hw.dtypes import DTYPES
from fagen.plan import descales, maps, params
from fagen.plan.descales import Step
from fagen.plan.kernels import KernelPlan
from fagen.plan.launch import Launch, Shape
from fagen.plan.maps import Operand, Strides
from fagen.plan.params import Param
from fagen.plan.tensor_map import TensorMap
from fagen.plan.workspaces import workspaces

FLOAT_BYTES, OFFSET_BYTES = 4, 4  # of an element
COUNTERS_BYTES, SEED_BYTES = 8, 8


@dataclass(frozen=True)
class Arguments:
    """What launchers of a planned kernel are made from, beside its `Launch`."""

    params: tuple[Param, ...]
    addresses: tuple[str, ...]  # what a launcher takes, in this order; 0 for what there is not
    numbers: dict[str, int | float]  # by parameter
    maps: dict[str, TensorMap]  # by tensor
    extents: dict[str, int]  # bytes from the first to the last element of what each of `addresses` names


def arguments(
    kernel: KernelPlan,
    shape: Shape,
    launch: Launch,
    strides: Mapping[str, Strides],
    steps: Mapping[str, Step] | None = None,
) -> Arguments:
    """For tensors of these strides; the launch is the kernel's on that shape, and not empty.

    `strides` has q, k, v and out, in the backward also dout, dq, dk and dv; that of a transposed v, whose
    rows are of keys, is along head_dim_v. `steps` has the descales of 8-bit q, k and v.
    Raises PlanError for a tensor that TMA cannot describe.
    """
    steps = steps or {}
    plan, problem = kernel.plan, kernel.plan.spec.problem
    batch, rows_q, rows_k = shape.batch, shape.seqlen_q, shape.seqlen_k
    if problem.layout == "thd":
        batch, rows_q, rows_k = 1, shape.rows_q, shape.rows_k
    q = (batch, rows_q, shape.heads_q, problem.head_dim)
    k = (batch, rows_k, shape.heads_kv, problem.head_dim)
    v = (batch, rows_k, shape.heads_kv, problem.dim_v)
    if problem.v_transposed:
        v = (batch, problem.dim_v, shape.heads_kv, rows_k)
    out = (batch, rows_q, shape.heads_q, problem.dim_v)
    sizes = {"q": q, "dq": q, "k": k, "dk": k, "v": v, "dv": v, "out": out, "dout": out}
    operands = {name: Operand(*sizes[name], own) for name, own in strides.items()}
    element, out_element = DTYPES[problem.dtype].bytes, DTYPES[problem.dtype_out].bytes
    extents = {
        name: operand.extent * (out_element if name == "out" else element)
        for name, operand in operands.items()
    }
    extents["lse"] = extents["dlse"] = FLOAT_BYTES * shape.heads_q * shape.rows_q
    extents["o_sum"] = 0  # but of v1
    extents["row_stats"] = 2 * extents["lse"]  # v1's
    extents["counters"], extents["seed"] = COUNTERS_BYTES, SEED_BYTES
    extents["cu_seqlens_q"] = extents["cu_seqlens_k"] = OFFSET_BYTES * (shape.batch + 1)
    for name, step in steps.items():
        extents[name] = FLOAT_BYTES * descales.extent(problem, name, shape, step)
    extents |= workspaces(plan, shape)
    mapped = {name: own for name, own in operands.items() if any(p.is_map_of(name) for p in kernel.params)}
    return Arguments(
        params=kernel.params,
        addresses=params.FORWARD if plan.direction == "forward" else params.BACKWARD,
        numbers=launch.scalars._asdict() | _stride_numbers(strides) | _stride_numbers(steps),
        maps=maps.maps(plan, mapped, 1 << launch.scalars.group_log2),
        extents=extents,
    )


def _stride_numbers(strides: Mapping[str, Strides | Step]) -> dict[str, int]:
    return {
        f"{name}_{axis}_stride": value
        for name, own in strides.items()
        for axis, value in own._asdict().items()
    }
