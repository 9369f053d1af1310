"""Standard attention, v1 and v2 in time, both passes, and why: `python -m fagen.bench.generations`.

128 heads of 128 columns, so that v1, which has one CTA for each, can fill a GPU; bf16. A contender counts as
right where it is as close to standard attention as two roundings to bf16 may be apart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from fagen.bench import passes
from fagen.bench.allocated import Allocator, CudaAllocator
from fagen.bench.case import Case
from fagen.bench.check import Check
from fagen.bench.clock import Clock, CudaClock
from fagen.bench.compare import Call, Result, compare
from fagen.bench.expected import largest_difference, random_inputs, random_like
from fagen.bench.machine import arch_of_device
from fagen.bench.modes import MODES
from fagen.bench.standard import standard_attention
from fagen.errors import FagenError
from fagen.ops.load import load
from fagen.paths import SPECS
from fagen.plan.generations import STANDARD, why
from fagen.plan.generations import generations as plan_generations
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

SPEC_FILES = {"v1": "h200_fa1.yaml", "v2": "h200_fa2.yaml"}
SHAPES = (Shape(8, 2048, 2048, 16, 16), Shape(8, 8192, 8192, 16, 16))
MASKS = ("none", "causal")
TIMED = ("fwd", "bwd")  # modes
ROUNDS = 5  # the slowest takes a quarter of a second
ALLOWED = 2**-5  # of the largest value


def generation_cases(arch: str) -> list[Case]:
    """Both passes of v2 with each of MASKS at SHAPES: whose FLOP count for all."""
    return [
        Case("v2", mode, str(shape), shape, tuple(plan(spec, arch, direction) for direction in MODES[mode]))
        for shape in SHAPES
        for mask in MASKS
        for spec in [load_spec(SPECS / SPEC_FILES["v2"], _overrides(mask))]
        for mode in TIMED
    ]


def _overrides(mask: object) -> dict[str, object]:
    return {"problem.mask": mask, "problem.layout": "bhsd"}


def run(case: Case, clock: Clock, allocator: Allocator) -> Result:
    """Standard attention first, then the generations by age, on the same tensors of the current GPU."""
    problem = case.spec.problem
    inputs = random_inputs(problem, case.shape, seed=0, device="cuda")
    dout = random_like(inputs[0], seed=1)
    attentions: dict[str, Callable[[], Tensor]] = {
        STANDARD: partial(standard_attention, *inputs, causal=problem.mask == "causal")
    }
    for name, file in SPEC_FILES.items():
        attentions[name] = partial(load(SPECS / file, _overrides(problem.mask)), *inputs)

    contenders: dict[str, Callable[[], Call]] = {
        name: partial(passes.in_mode, case.mode, attention, inputs, dout)
        for name, attention in attentions.items()
    }
    check = Check(partial(distance, contenders[STANDARD]()()), ALLOWED)
    return compare(case, check, contenders, clock, allocator, ROUNDS)


def distance(wanted: Tensor | Sequence[Tensor], found: Tensor | Sequence[Tensor]) -> float:
    """The largest difference of out, or of the worst gradient, as a share of its largest value."""
    if isinstance(wanted, Tensor) and isinstance(found, Tensor):
        wanted, found = [wanted], [found]
    shares = [largest_difference(a, b) / b.abs().max().item() for a, b in zip(found, wanted, strict=True)]
    return torch.tensor(shares).max().item()  # NaN where one is


def table(results: Sequence[Result]) -> Table:
    """Times and TFLOP/s of each, and how many times as fast as the one before it is."""
    names = [STANDARD, *SPEC_FILES]
    made = Table("mode", "mask", box=None, pad_edge=False)
    for heading in ("S", *(f"{name} {unit}" for name in names for unit in ("ms", "TFLOP/s", "x"))):
        made.add_column(heading, justify="right", no_wrap=True)
    made.caption, made.caption_justify = "x: as fast as the one before, times", "left"
    for result in results:
        cells = [result.case.mode, result.case.mask, str(result.case.shape.seqlen_q)]
        for index, name in enumerate(names):
            seconds, ratio = result.outcomes[name].median, index and result.ratio(names[index - 1], name)
            cells.append("-" if seconds is None else f"{seconds * 1e3:,.3f}")
            cells.append("-" if seconds is None else f"{result.tflops(name):,.1f}")
            cells.append(f"{ratio:.2f}" if ratio else "-")
        made.add_row(*cells)
    return made


def main() -> None:
    """Time all cases on device 0, print the table, what could not run, and the models' reasons."""
    if sys.argv[1:]:
        sys.exit("usage: python -m fagen.bench.generations")
    try:
        results = [run(case, CudaClock(), CudaAllocator()) for case in generation_cases(arch_of_device(0))]
    except FagenError as error:
        sys.exit(f"error: {error}")
    console = Console(width=160)
    console.print(table(results))
    for result in results:
        for name, outcome in result.outcomes.items():
            if outcome.problem:
                console.print(f"{result.case}: {name} {outcome.problem}", markup=False)
    for result in results[:: len(TIMED)]:
        case = result.case
        made = plan_generations(tuple(SPEC_FILES), case.shape, case.spec.problem.head_dim, case.mask, "h200")
        console.print(f"\nmask {case.mask}, S {case.shape.seqlen_q}, by the models")
        for before, now in pairwise(made):
            console.print(why(before, now))


if __name__ == "__main__":
    main()
