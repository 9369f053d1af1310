"""Generations of attention side by side for one shape, and why each is faster than the one before.

Bytes are the IO model's (`io.py`). FLOP are what a kernel executes: of each block that the mask leaves all of
it, of standard attention all pairs. They are split into those of the matrix products and all others:

- standard: 6 per score (scale, maximum, subtract, exp, sum, divide). Backward, which has kept P: 5 per score
  (P times dP, sum, subtract, multiply, scale).
- v1: 6 per score (no division, but a factor for P). At every K/V block O, l and m are brought up to date in
  memory: 2 for each column of O (by two factors), 9 for each row (two exponentials with their subtractions,
  the maximum, l, its reciprocal). Backward: 6 per score (scale, subtract, exp, divide by l; subtract,
  multiply); at every K/V block D = rowsum(dO * O), 2 for each column of O; once the scales of dQ and dK.
- v2, v3: 5 per score. At every K/V block 5 for each row and 1 for each column of O, where the schedule
  rescales at each of them; 2 for each row where that is lazy; 1 where row maxima are not looked for, which
  saves 1 per score. Once for each row the division of O, and LSE. Backward: 5 per score (scale, subtract,
  exp; subtract, multiply); at every K/V block 1 for each column of Q, the sum into dQ; once D, and the scales
  of dQ and dK.

Times are lower bounds: each engine for itself, on the SM with the most CTAs, all of them equally long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fagen.hw.arch import ARCHES
from fagen.hw.device import DEVICES, Device
from fagen.plan import engines, io
from fagen.plan.blocks import Blocks
from fagen.plan.formulas import FORMULAS, STATISTIC
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape, queries_per_tile
from fagen.plan.planner import plan
from fagen.plan.workspaces import workspaces
from fagen.spec.model import Spec

STANDARD = "standard"
FAMILIES = ("v1", "v2", "v3")
PASSES = ("forward", "backward")

# What each generation does that the one before does not.
IDEAS = {
    "v1": "S and P never leave the SM: the softmax goes block by block",
    "v2": "a CTA per Q block, whose O, l and m stay in registers over all keys",
    "v3": "wgmma multiplies while other warps load by TMA or take a softmax",
}
NOTABLE = 1.05  # ratios closer to 1 are not worth a word


@dataclass(frozen=True)
class Occupancy:
    """How the CTAs of the kernel that multiplies fill the device."""

    ctas: int
    ctas_at_a_time: int  # SMs * CTAs that one SM holds
    warps_per_sm: int  # on the SM with the most CTAs
    waves: float  # CTAs / CTAs at a time
    balance: float  # work of the mean SM over that of the SM with the most CTAs, 0 to 1


@dataclass(frozen=True)
class PassCost:
    """What one pass of one generation asks of the device."""

    matmul_flops: int
    other_flops: int  # exponentials among them
    exponentials: int
    hbm_bytes: int
    l2_bytes: int | None  # asked of L2; None: not modelled
    memory: dict[str, int]  # bytes beyond inputs, outputs and their gradients, by what they hold
    occupancy: Occupancy | None  # None: several kernels, which a library chooses
    seconds: dict[str, float]  # lower bounds, by engine

    @property
    def intensity(self) -> float:
        """Matmul FLOP per byte of HBM."""
        return self.matmul_flops / self.hbm_bytes if self.hbm_bytes else 0.0

    @property
    def balance(self) -> float:
        """Work of the mean SM over that of the SM with the most CTAs; 1 for a library's kernels."""
        return self.occupancy.balance if self.occupancy else 1.0

    @property
    def bound(self) -> str:
        """The engine that takes longest."""
        return max(self.seconds, key=self.seconds.__getitem__)


@dataclass(frozen=True)
class Generation:
    """What both passes of one generation cost."""

    name: str  # "standard" | "v1" | "v2" | "v3"
    forward: PassCost
    backward: PassCost

    @property
    def passes(self) -> tuple[PassCost, PassCost]:
        """Forward and backward."""
        return self.forward, self.backward


@dataclass(frozen=True)
class _Counts:
    """How often the loops of a pass come to something, over all heads."""

    scores: int  # of blocks that are multiplied
    rows: int  # queries
    steps: int  # pairs of a query and a K/V block
    keys: int


def generations(
    names: Sequence[str], shape: Shape, head_dim: int, mask: str, device: str
) -> tuple[Generation, ...]:
    """Standard attention and those of FAMILIES in `names`, oldest first, as the planner schedules them; bf16.

    `mask` is "none" or "causal", `device` a key of DEVICES. Raises PlanError where one does not run there.
    """
    problem = {"dtype": "bf16", "head_dim": head_dim, "mask": mask}

    def planned(family: str, direction: str) -> Plan:
        target = {"arch": DEVICES[device].arch, "device": device}
        spec = {"name": f"explain_{family}", "family": family, **target, "problem": problem}
        return plan(Spec.model_validate(spec), direction=direction)

    return (
        Generation(
            STANDARD, *(_standard(planned("v2", "forward"), direction, shape) for direction in PASSES)
        ),
        *(
            Generation(family, *(_family(planned(family, direction), shape) for direction in PASSES))
            for family in FAMILIES
            if family in names
        ),
    )


def why(before: Generation, now: Generation) -> str:
    """One line: what `now` does that those before do not, what that saves in both passes, what it costs."""
    less, more = [], []
    for what, unit, amount in _QUANTITIES:
        old, new = amount(before), amount(now)
        if max(old, new) > NOTABLE * min(old, new):
            (less if new < old else more).append(f"{what} {_number(new)}{unit}, not {_number(old)}")
    text = f"{now.name} over {before.name}: {IDEAS[now.name]}. Less: {'; '.join(less) or 'nothing'}"
    return f"{text}. More: {'; '.join(more)}." if more else f"{text}."


_QUANTITIES: tuple[tuple[str, str, Callable[[Generation], float]], ...] = (
    ("HBM", " MiB", lambda g: sum(one.hbm_bytes for one in g.passes) / 2**20),
    ("memory beside the tensors", " MiB", lambda g: max(sum(c.memory.values()) for c in g.passes) / 2**20),
    ("idle SMs in the forward", "%", lambda g: 100 * (1 - g.forward.balance)),
    ("other FLOP", " G", lambda g: sum(one.other_flops for one in g.passes) / 1e9),
    ("matmul FLOP", " G", lambda g: sum(one.matmul_flops for one in g.passes) / 1e9),
    ("tensor cores at least", " us", lambda g: 1e6 * sum(one.seconds[engines.TENSOR] for one in g.passes)),
)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _standard(sizes: Plan, direction: str, shape: Shape) -> PassCost:
    """Of S = Q K^T, softmax and P V as kernels of their own; of the plan only sizes and device count."""
    problem, forward = sizes.spec.problem, direction == "forward"
    at = io.setting(sizes, shape)
    scores = shape.batch * shape.heads_q * shape.seqlen_q * shape.seqlen_k
    return _cost(
        sizes.device,
        sizes.arch.tensor_flops,
        matmul_flops=(2 if forward else 4) * (problem.head_dim + problem.dim_v) * scores,
        other_flops=(6 if forward else 5) * scores,
        exponentials=scores if forward else 0,
        moved=_bytes(STANDARD, direction, at),
        memory={name: scores * at.element_bytes for name in (("S", "P") if forward else ("P", "dP", "dS"))},
        occupancy=None,
    )


def _family(planned: Plan, shape: Shape) -> PassCost:
    problem, forward = planned.spec.problem, planned.direction == "forward"
    counts = _counts(planned, shape)
    d, dv = problem.head_dim, problem.dim_v
    other, exponentials = (_forward if forward else _backward)(planned, counts)
    arch = planned.arch
    return _cost(
        planned.device,
        arch.tensor_flops if forward and planned.spec.family == "v3" else arch.mma_flops,
        matmul_flops=(2 * (d + dv) if forward else 6 * d + 4 * dv) * counts.scores,
        other_flops=other,
        exponentials=exponentials,
        moved=_bytes(io.algorithm(planned), planned.direction, io.setting(planned, shape)),
        memory=_memory(planned, shape),
        occupancy=_occupancy(planned, shape),
    )


def _counts(planned: Plan, shape: Shape) -> _Counts:
    queries = queries_per_tile(planned, shape.heads_q // shape.heads_kv)
    blocks = Blocks(shape.seqlen_q, shape.seqlen_k, queries, planned.tiling.kv, planned.spec.problem.window)
    heads = shape.batch * shape.heads_q
    return _Counts(
        scores=heads * blocks.left * queries * planned.tiling.kv,
        rows=heads * shape.seqlen_q,
        steps=heads * blocks.left * queries,
        keys=shape.batch * shape.heads_kv * shape.seqlen_k,
    )


def _forward(planned: Plan, n: _Counts) -> tuple[int, int]:
    """FLOP but those of the products, and how many of them are exponentials."""
    dv, tiling = planned.spec.problem.dim_v, planned.tiling
    if planned.spec.family == "v1":
        return 6 * n.scores + (2 * dv + 9) * n.steps, n.scores + 2 * n.steps
    last = (dv + 3) * n.rows
    if tiling.rescales:
        return 5 * n.scores + (dv + 5) * n.steps + last, n.scores + n.steps
    if tiling.growth is None:
        return 5 * n.scores + 2 * n.steps + last, n.scores
    return 4 * n.scores + n.steps + last, n.scores


def _backward(planned: Plan, n: _Counts) -> tuple[int, int]:
    d, dv = planned.spec.problem.head_dim, planned.spec.problem.dim_v
    if planned.spec.family == "v1":
        return 6 * n.scores + 2 * dv * n.steps + d * (n.rows + n.keys), n.scores
    return 5 * n.scores + d * n.steps + (2 * dv + 1 + d) * n.rows + d * n.keys, n.scores


def _memory(planned: Plan, shape: Shape) -> dict[str, int]:
    rows = shape.batch * shape.heads_q * shape.seqlen_q
    made = workspaces(planned, shape)
    if planned.spec.family == "v1":
        return {"l, m": 2 * STATISTIC * rows, **made}
    kept = {"LSE": STATISTIC * rows}
    if planned.direction == "forward":
        return kept
    return kept | {name: made[name] for name in ("row_stats", "dq_sum")}


def _occupancy(planned: Plan, shape: Shape) -> Occupancy:
    grid, sms, tiling = io.main_launch(planned, shape).grid, planned.device.sms, planned.tiling
    at_a_time = sms * tiling.ctas_per_sm
    fullest = -(-grid // sms)
    return Occupancy(
        ctas=grid,
        ctas_at_a_time=at_a_time,
        warps_per_sm=min(fullest, tiling.ctas_per_sm) * tiling.threads // 32,
        waves=grid / at_a_time,
        balance=grid / (sms * fullest) if grid else 1.0,
    )


def _bytes(algorithm: str, direction: str, at: io.Setting) -> dict[str, int]:
    """By level, as far as there is a formula for it."""
    return {
        one.level: io.evaluate(one, at)
        for one in FORMULAS
        if (one.algorithm, one.direction) == (algorithm, direction) and one.level != "paper"
    }


def _cost(
    device: Device,
    tensor_flops: int,
    matmul_flops: int,
    other_flops: int,
    exponentials: int,
    moved: dict[str, int],
    memory: dict[str, int],
    occupancy: Occupancy | None,
) -> PassCost:
    arch = ARCHES[device.arch]
    balance = occupancy.balance if occupancy else 1.0
    clocks = device.sms * device.clock_hz * balance  # of all SMs, per second
    seconds = {
        engines.TENSOR: matmul_flops / (clocks * tensor_flops),
        engines.MUFU: exponentials / (clocks * arch.mufu_per_clk),
        engines.FMA: (other_flops - exponentials) / (clocks * arch.fma_per_clk),
        engines.HBM: moved["HBM"] / device.hbm_bytes_per_s,
    }
    if "L2" in moved:
        seconds[engines.L2] = moved["L2"] / device.l2_bytes_per_s
    return PassCost(
        matmul_flops, other_flops, exponentials, moved["HBM"], moved.get("L2"), memory, occupancy, seconds
    )
