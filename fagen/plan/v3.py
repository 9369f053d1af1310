"""The v3 family for the planner: a load warpgroup (TMA), and 1 to 3 math warpgroups (wgmma) of 64 rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from fagen.errors import PlanError
from fagen.hw.arch import Arch
from fagen.plan import symbols, v3_engines, v3_pipeline
from fagen.plan.family import Family, choices, polynomial, rescale, stacked
from fagen.plan.ir import Barrier, Buffer, Tiling
from fagen.plan.v3_budget import BUDGET, LOAD_THREADS, register_file
from fagen.spec.model import Growth, Spec

# What a head lacks of them TMA fills with zeros. Panels have 128 or 64 bytes, if of 16 bits. Narrower ones
# cost as much as they save: 80 columns are 5% slower to 4% faster than 96, and 112 are slower than 128.
COLUMNS = (64, 96, 128, 160, 192, 224, 256)
WARPGROUP_ROWS = 64
WARPGROUPS = (1, 2, 3)
TILE_KV = range(32, 129, 16)  # 144 were slower (d = 96)
TILE_KV_FP8 = range(32, 193, 32)  # a product takes 32 keys
STAGES = (2,)
Q_STAGES = (2, 1)
LOAD_REGISTERS = {1: 24, 2: 24, 3: 32}  # by math warpgroups
# Where they transpose V as well, and where they load V^T, with K in a map of more dimensions.
TRANSPOSING_REGISTERS, TRANSPOSED_REGISTERS = 56, 40
TRANSPOSERS = LOAD_THREADS // 32 - 1  # beside the warp whose one lane loads
MAX_MATH_REGISTERS = 240  # as spec/model.py has it
# P reaches 2^growth. bf16 has the exponents of fp32, as O and the row sums do; in fp16 2^16 is infinite.
# Of e4m3, which an 8-bit P always has, the largest is 448: P starts at 2^(8 - growth), and a row of like
# scores is below that limit in each lane's share of a tile of up to 224 keys.
RESCALE = {
    "bf16": Growth(growth=30),
    "fp16": Growth(growth=15),
    "e4m3": Growth(growth=5),
    "e5m2": Growth(growth=5),
}
OUT_BYTES = 2  # of an element of O


def pad(columns: int) -> int:
    """Columns rounded up to what the kernel has panels for."""
    return next(size for size in COLUMNS if columns <= size)


def _candidates(spec: Spec, arch: Arch) -> Iterator[Tiling]:
    problem, schedule, math = spec.problem, spec.schedule, spec.schedule.roles.math
    masked = problem.window != (None, None)
    transposers = TRANSPOSERS if problem.is_fp8 and not problem.v_transposed else 0
    cluster = schedule.cluster or 1
    lazy, growth = rescale(schedule, RESCALE[problem.dtype])
    for warpgroups, kv, stages, q_stages, own_o in product(
        _warpgroups(spec, arch),
        choices(schedule.tile.kv, _tile_kv(spec)),
        choices(schedule.stages.kv, STAGES),
        choices(schedule.stages.q, Q_STAGES),
        (True, False),
    ):
        wanted = LOAD_REGISTERS[warpgroups]
        if problem.is_fp8:
            wanted = TRANSPOSING_REGISTERS if transposers else TRANSPOSED_REGISTERS
        load_registers = schedule.roles.load.registers or wanted
        yield Tiling(
            q=WARPGROUP_ROWS * warpgroups,
            kv=kv,
            warps=4 * warpgroups,
            stages=stages,
            ctas_per_sm=1,
            q_operand="shared",
            lazy_rescale=lazy,
            scheduler=schedule.scheduler or ("persistent_lpt" if masked and cluster == 1 else "persistent"),
            load_warps=LOAD_THREADS // 32,
            load_registers=load_registers,
            math_registers=math.registers or _math_registers(arch, warpgroups, load_registers),
            pingpong=warpgroups > 1 if math.pingpong is None else math.pingpong,
            overlap=math.overlap is not False,
            q_stages=q_stages,
            own_o=own_o,
            growth=growth,
            polynomial=polynomial(schedule),
            cluster=cluster,
            pack_gqa=bool(schedule.pack_gqa),
            softcap=problem.softcap is not None,
            is_fp8=problem.is_fp8,
            head_descales=problem.is_fp8 and not problem.scales_blocks,
            transposers=transposers,
            promote_every=schedule.accumulate.promote_every,
        )


def _tile_kv(spec: Spec) -> list[int]:
    """Lengths of K/V tiles to choose from."""
    if not spec.problem.is_fp8:
        return list(TILE_KV)
    wholes = [spec.schedule.accumulate.promote_every]  # in which a tile must go
    if spec.problem.fp8 is not None and spec.problem.scales_blocks:
        wholes.append(spec.problem.fp8.block)
    return [kv for kv in TILE_KV_FP8 if all(whole is None or whole % kv == 0 for whole in wholes)]


def _warpgroups(spec: Spec, arch: Arch) -> list[int]:
    """How many math warpgroups there may be. Raises PlanError where setmaxnreg could not move registers."""
    schedule, math = spec.schedule, spec.schedule.roles.math
    fitting = [
        count
        for count in WARPGROUPS
        if schedule.tile.q in (None, WARPGROUP_ROWS * count)
        and math.warps in (None, 4 * count)
        and not (math.pingpong and count == 1)
    ]
    started = {count: _start_registers(arch, count) for count in fitting}
    for key, given, is_right in (
        ("load", schedule.roles.load.registers, lambda given, start: given <= start),
        ("math", math.registers, lambda given, start: given >= start),
    ):
        possible = [count for count in fitting if given is None or is_right(given, started[count])]
        if fitting and not possible:
            allowed = " or ".join(
                f"{'up to' if key == 'load' else 'from'} {start} with {count}"
                for count, start in started.items()
            )
            raise PlanError(
                f"{spec.name}: schedule.roles.{key}.registers is {given}; allowed: {allowed} math warpgroups "
                "(load warps give up registers that a thread starts with, math warps take them)"
            )
        fitting = possible
    return fitting


def _start_registers(arch: Arch, warpgroups: int) -> int:
    """What a thread of such a CTA starts with, before setmaxnreg."""
    return min(MAX_MATH_REGISTERS, register_file(arch, warpgroups) // (LOAD_THREADS + 128 * warpgroups))


def _math_registers(arch: Arch, warpgroups: int, load_registers: int) -> int:
    """What the load warpgroup leaves each math thread, in eights."""
    left = register_file(arch, warpgroups) // LOAD_THREADS - load_registers
    return min(MAX_MATH_REGISTERS, left // warpgroups // 8 * 8)


def _preference(tiling: Tiling) -> tuple[int, ...]:
    """The next Q early; small Q tiles, as they share out evenly; long K/V tiles; O stored by TMA.

    8-bit products leave a warpgroup by itself too little time for its softmax.
    """
    alone = tiling.is_fp8 and tiling.q == WARPGROUP_ROWS
    return (alone, -tiling.q_stages, tiling.q, -tiling.kv, not tiling.own_o)


def _buffers(tiling: Tiling, dim: int, dim_v: int, element_bytes: int) -> tuple[Buffer, ...]:
    v = (dim_v, tiling.kv) if tiling.is_fp8 and not tiling.transposers else (tiling.kv, dim_v)
    tiles = [
        ("q", tiling.q, dim, tiling.q_stages),
        ("k", tiling.kv, dim, tiling.stages),
        ("v", *v, tiling.stages),
    ]
    if tiling.transposers:
        tiles.append(("vt", dim_v, tiling.kv, tiling.stages))
    buffers = stacked(tiles, element_bytes)
    if tiling.own_o:
        end = buffers[-1].offset + buffers[-1].bytes
        buffers += (Buffer("o", end, tiling.q, dim_v, 1, tiling.q * dim_v * OUT_BYTES),)
    return buffers


def _barriers(tiling: Tiling) -> tuple[Barrier, ...]:
    transposing = (
        Barrier("vt_full", tiling.stages, "the transposing warps have written V^T"),
        Barrier("vt_empty", tiling.stages, "every math warpgroup is done with V^T"),
        Barrier("v_end", tiling.stages, "no barrier: whether this is the end of V"),
    )
    descales = (Barrier("descales", tiling.q_stages, "no barrier: the descales of that work item"),)
    v_readers = "transposing warp" if tiling.transposers else "math warpgroup"
    return (
        Barrier("q_full", tiling.q_stages, "TMA has brought Q"),
        Barrier("q_empty", tiling.q_stages, "every math warpgroup is done with Q"),
        Barrier("k_full", tiling.stages, "TMA has brought K"),
        Barrier("k_empty", tiling.stages, "every math warpgroup is done with K"),
        Barrier("v_full", tiling.stages, "TMA has brought V"),
        Barrier("v_empty", tiling.stages, f"every {v_readers} is done with V"),
        Barrier("item", tiling.q_stages, "no barrier: the work item whose Q this is"),
        *(descales if tiling.head_descales else ()),
        *(transposing if tiling.transposers else ()),
    )


FAMILY = Family(
    keys=(
        "tile.q",
        "tile.kv",
        "stages.q",
        "stages.kv",
        "roles.load.registers",
        "roles.math.warps",
        "roles.math.registers",
        "roles.math.pingpong",
        "roles.math.overlap",
        "ctas_per_sm",
        "softmax.exp2",
        "softmax.rescale",
        "scheduler",
        "cluster",
        "pack_gqa",
    ),
    sizes=("tile.q", "tile.kv", "stages.q", "stages.kv", "roles.math.registers"),
    symbols=symbols.MEANINGS["v3"],
    pad=pad,
    padding=symbols.PADDING["v3"],
    candidates=_candidates,
    budget=BUDGET,
    predict=v3_engines.predict,
    preference=_preference,
    buffers=_buffers,
    barriers=_barriers,
    pipeline=v3_pipeline.forward,
)
