"""Seconds of the passes of v1 and v2: the engines model's cycles of a CTA's tiles, handed out to the SMs."""

from __future__ import annotations

from dataclasses import replace

from fagen.hw.dtypes import DTYPES
from fagen.plan import v2_backward_engines, v2_engines, work_items
from fagen.plan.blocks import Blocks
from fagen.plan.budget import SMEM_CTA
from fagen.plan.efficiency import MmaSync
from fagen.plan.io import main_launch
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.v2_budget import REGISTERS
from fagen.plan.workspaces import workspaces


def seconds(plan: Plan, shape: Shape, costs: MmaSync) -> tuple[float, str]:
    """Seconds but for the launch, and bound: of the CTAs, and of the kernels around them."""
    cycles = _v1(plan, shape) if plan.spec.family == "v1" else _v2(plan, shape, costs)
    around = _around(plan, shape) / plan.device.hbm_bytes_per_s
    return cycles / plan.device.clock_hz + around, plan.engines.bound.engine


def _v1(plan: Plan, shape: Shape) -> float:
    """Cycles: a CTA per head."""
    tiling, engines, device = plan.tiling, plan.engines, plan.device
    heads = shape.batch * (shape.heads_q if plan.direction == "forward" else shape.heads_kv)
    visits = 1 if plan.direction == "forward" else shape.heads_q // max(1, shape.heads_kv)
    blocks = Blocks(shape.seqlen_q, shape.seqlen_k, tiling.q, tiling.kv, plan.spec.problem.window)
    steps = -(-heads // (device.sms * tiling.ctas_per_sm)) * visits * blocks.left
    per_step = engines.tile_flops * device.sms * device.clock_hz / (engines.tflops * 1e12)
    return steps * per_step * tiling.ctas_per_sm


def _v2(plan: Plan, shape: Shape, costs: MmaSync) -> float:
    """Cycles of the slot with the longest list of CTAs, each for a Q tile, in the backward for a K/V tile.

    A slot gets an equal share of its SM; where there are too few CTAs to fill all slots, a larger one.
    """
    tiling, device, window = plan.tiling, plan.device, plan.spec.problem.window
    blocks = Blocks(shape.seqlen_q, shape.seqlen_k, tiling.q, tiling.kv, window)  # of one query head
    pairs, visits, tile_cycles = shape.batch * shape.heads_q, 1, v2_engines.tile_cycles
    if plan.direction == "backward":
        pairs, visits = shape.batch * shape.heads_kv, shape.heads_q // max(1, shape.heads_kv)
        blocks, tile_cycles = blocks.transposed, v2_backward_engines.tile_cycles
    ctas = pairs * blocks.along_q
    if not ctas:
        return 0.0
    resident = replace(tiling, ctas_per_sm=min(_room(plan), -(-ctas // device.sms)))
    slots = device.sms * resident.ctas_per_sm
    per_tile = tile_cycles(plan.engines.loads, resident, costs) * resident.ctas_per_sm
    if window == (None, None):
        return -(-ctas // slots) * (costs.cta + visits * blocks.along_kv * per_tile)
    # In the backward the first tile has the most to do.
    turned = plan.direction == "backward" and tiling.longest_first
    return work_items.busy(
        lambda tile: costs.cta + visits * per_tile * blocks.of(blocks.along_q - 1 - tile if turned else tile),
        tiles=blocks.along_q,
        pairs=pairs,
        abreast=main_launch(plan, shape).scalars.heads_abreast if tiling.longest_first else None,
        slots=slots,
        hand_out=work_items.as_freed,
    )


def _room(plan: Plan) -> int:
    """CTAs that an SM has room for: as many as asked for, or more, where they ask for less than they may."""
    arch, used = plan.arch, {account.resource: account.used for account in plan.accounts}
    by_memory = arch.smem_per_sm // (used[SMEM_CTA] + arch.smem_reserved_per_cta)
    by_registers = arch.registers_per_sm // (used[REGISTERS] * plan.tiling.threads)
    return max(plan.tiling.ctas_per_sm, min(by_memory, by_registers))


def _around(plan: Plan, shape: Shape) -> int:
    """Bytes that the kernels before and after v2's backward move: those of O and dO, dQ and its sum."""
    if plan.direction == "forward" or plan.spec.family == "v1":
        return 0
    problem, sizes = plan.spec.problem, workspaces(plan, shape)
    element = DTYPES[problem.dtype].bytes
    rows = shape.rows_q * shape.heads_q
    return rows * (2 * problem.dim_v + problem.head_dim) * element + 2 * sizes["dq_sum"] + sizes["row_stats"]
