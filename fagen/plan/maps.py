"""The tensor maps of a launch: how v3's TMA sees q, k, v and out.

Coordinates, innermost first:
- batched: (column, row, head, sequence);
- pack_gqa, q and out: (column, query head of the K/V head, row, K/V head, sequence);
- v_transposed: v (key, column, head, sequence), k (column, key of four, four, head, sequence), of which a
  box has two keys of every four (mma/key_order.cuh);
- packed sequences: (column, FAR - rows left, end, FAR, head), where `rows left` counts from the box's first
  row to the sequence's end, and `end` is that end among all tokens. The second and third dimension step by
  one row, and FAR steps along the fourth go FAR rows back, as addresses are 64 bits wide: FAR * WRAP is 2^64.
  So the box starts at row `end` - `rows left` of the tensor, while rows past the sequence's end are out of
  the second dimension's bounds: loaded as zeros and never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fagen.errors import LaunchError, PlanError
from fagen.hw.dtypes import DTYPES
from fagen.plan.ir import Plan
from fagen.plan.tensor_map import TensorMap
from fagen.plan.v3 import WARPGROUP_ROWS

FAR, WRAP = 2**30, 2**34  # rows, bytes; FAR is sched/packed.cuh's
ANY_STRIDE = 16  # bytes; of a dimension with one element, whose stride moves nothing but must be valid


class Strides(NamedTuple):
    """Elements between neighbours."""

    batch: int  # 0 where the sequences are packed
    row: int
    head: int


@dataclass(frozen=True)
class Operand:
    """q, k, v or out in global memory, where the elements of a row are adjacent."""

    batch: int  # 1 where the sequences are packed
    rows: int
    heads: int
    dim: int
    strides: Strides

    @property
    def extent(self) -> int:
        """Elements from the first to the last, both included."""
        sizes = (self.batch, self.rows, self.heads)
        if not all((*sizes, self.dim)):
            return 0
        return self.dim + sum((size - 1) * stride for size, stride in zip(sizes, self.strides, strict=True))


def maps(plan: Plan, operands: Mapping[str, Operand], group: int) -> dict[str, TensorMap]:
    """The maps of these operands, some of q, k, v and out, none of them empty; `group` heads share a Q tile.

    Raises PlanError for what TMA cannot describe.
    """
    found, problem = {}, plan.spec.problem
    for name, operand in operands.items():
        padded = plan.dim if name in ("q", "k") else plan.dim_v
        queries = name in ("q", "out")
        dtype = problem.dtype_out if name == "out" else problem.dtype
        rows = WARPGROUP_ROWS if queries else plan.tiling.kv // plan.tiling.cluster
        if problem.v_transposed and name == "v":
            found[name] = _batched(dtype, operand, plan.tiling.kv, plan.dim_v // plan.tiling.cluster)
        elif problem.v_transposed and name == "k":
            found[name] = _in_fours(plan, operand, padded)
        elif problem.layout == "thd":
            found[name] = _packed(dtype, operand, padded, rows)
        elif queries and plan.tiling.pack_gqa:
            found[name] = _grouped(dtype, operand, padded, group)
        else:
            found[name] = _batched(dtype, operand, padded, rows)
        try:
            found[name].check(address=0)
        except LaunchError as error:
            raise PlanError(f"{plan.spec.name}: {name}: {error}") from error
    return found


def _batched(dtype: str, operand: Operand, padded: int, rows: int) -> TensorMap:
    batch, row, head = _byte_strides(dtype, operand)
    dims = (operand.dim, operand.rows, operand.heads, operand.batch)
    return _tensor_map(dtype, dims, (row, head, batch), padded, (rows, 1, 1))


def _grouped(dtype: str, operand: Operand, padded: int, group: int) -> TensorMap:
    batch, row, head = _byte_strides(dtype, operand)
    dims = (operand.dim, group, operand.rows, operand.heads // group, operand.batch)
    box = (group, WARPGROUP_ROWS // group, 1, 1)
    return _tensor_map(dtype, dims, (head, row, head * group, batch), padded, box)


def _in_fours(plan: Plan, operand: Operand, padded: int) -> TensorMap:
    if operand.rows % 4:
        raise PlanError(
            f"{plan.spec.name}: seqlen_k is {operand.rows}; allowed with problem.v_transposed: multiples of 4"
        )
    dtype = plan.spec.problem.dtype
    batch, row, head = _byte_strides(dtype, operand)
    dims = (operand.dim, 4, operand.rows // 4, operand.heads, operand.batch)
    return _tensor_map(dtype, dims, (row, 4 * row, head, batch), padded, (2, plan.tiling.kv // 4, 1, 1))


def _packed(dtype: str, operand: Operand, padded: int, rows: int) -> TensorMap:
    _, row, head = _byte_strides(dtype, operand)
    dims = (operand.dim, FAR, operand.rows + 1, FAR + 1, operand.heads)
    return _tensor_map(dtype, dims, (row, row, WRAP - row, head), padded, (rows, 1, 1, 1))


def _byte_strides(dtype: str, operand: Operand) -> Strides:
    sizes = (operand.batch, operand.rows, operand.heads)
    element = DTYPES[dtype].bytes
    return Strides(
        *(
            stride * element if size > 1 else ANY_STRIDE
            for size, stride in zip(sizes, operand.strides, strict=True)
        )
    )


def _tensor_map(
    dtype: str, dims: tuple[int, ...], strides: tuple[int, ...], padded: int, box: tuple[int, ...]
) -> TensorMap:
    """Boxes have the columns of one panel of a row of `padded` columns; `box` is the rest of their sides."""
    element = DTYPES[dtype].bytes
    panel = next(span for span in (128, 64, 32) if padded * element % span == 0)  # bytes
    return TensorMap(dtype, dims, strides, (panel // element, *box), swizzle=panel)
