"""The IO model against Nsight Compute: `python -m fagen.bench.traffic [SPEC.yaml ...]` where there are both.

Standard attention and each spec, forward and backward. Each pass is run once on a cold L2, under `ncu`, in a
process of its own. Bytes that a pass writes may stay in L2 when it ends, so a last kernel, which only reads,
follows it: what that one makes L2 write back is counted as written by the pass.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from fagen.bench import passes
from fagen.bench.clock import l2_flush
from fagen.bench.expected import random_inputs, random_like
from fagen.bench.machine import arch_of_device
from fagen.bench.standard import standard_attention
from fagen.errors import FagenError, LaunchError
from fagen.ops.load import load
from fagen.paths import SPECS
from fagen.plan import io
from fagen.plan.formulas import FORMULAS
from fagen.plan.ir import Plan
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec
from fagen.spec.model import Spec

DEFAULT_SPECS = (SPECS / "h200_fa1.yaml", SPECS / "h200_fa2.yaml")
SEQLENS = (2048, 8192)
BATCH, HEADS = 9, 16  # v1 has a CTA for each: enough for the SMs of an H200
FLUSH = re.compile(r"\breduce_kernel\b")  # the kernel of `l2_flush`, which no pass has

# Metric: bytes of one unit of it. L2 is what the SMs ask, without what its two halves ask of each other.
READ, WRITTEN, L2 = "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sectors_srcunit_tex.sum"
UNIT_BYTES = {READ: 1, WRITTEN: 1, L2: 32}


@dataclass(frozen=True)
class Pass:
    """One pass to be measured, of a spec or of standard attention on the same tensors."""

    name: str  # the spec's, or "standard"
    plan: Plan  # of the spec's pass; of standard attention only the problem counts
    shape: Shape

    @property
    def algorithm(self) -> str:
        """Whose formulas it has."""
        return self.name if self.name == "standard" else io.algorithm(self.plan)

    @property
    def mask(self) -> str:
        """The mask in words."""
        return str(self.plan.spec.problem.mask)


@dataclass(frozen=True)
class Traffic:
    """Bytes of one pass on a cold L2."""

    read: int
    written: int  # while the kernels ran
    left_in_l2: int  # written back after them
    l2: int  # asked of L2 by the SMs

    @property
    def hbm(self) -> int:
        """All that crossed the memory bus."""
        return self.read + self.written + self.left_in_l2


def traffic_passes(specs: Sequence[Path]) -> list[Pass]:
    """Both passes of standard attention, without a mask, and of each spec with its masks, at SEQLENS."""
    arch = arch_of_device(0)
    shapes = [Shape(BATCH, length, length, HEADS, HEADS) for length in SEQLENS]
    todo: list[tuple[str, Spec]] = []
    for path in specs:
        own = load_spec(path)
        for mask in ("none", "causal"):
            todo.append((own.name, load_spec(own, {"problem.mask": mask, "problem.layout": "bhsd"})))
    return [
        Pass(name, plan(spec, arch, direction), shape)
        for shape in shapes
        for name, spec in (("standard", todo[0][1]), *todo)
        for direction in spec.problem.passes
    ]


def launch_cold(todo: Iterable[Pass]) -> None:
    """Run each pass once on an L2 that holds nothing of it; the profiler sees only that."""
    flush = l2_flush()
    for one in todo:
        call = _call(one)
        call()  # builds, loads, allocates
        flush()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        call()
        flush()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def _call(one: Pass) -> Callable[[], object]:
    spec = one.plan.spec
    inputs = random_inputs(spec.problem, one.shape, seed=0, device="cuda")
    if one.name == "standard":
        attention = partial(standard_attention, *inputs, causal=spec.problem.mask == "causal")
    else:
        op = load(spec)

        def attention():
            return op(*inputs, return_lse=True)[0]

    if one.plan.direction == "forward":
        return passes.forward(attention)
    return passes.backward(attention, inputs, random_like(inputs[0], seed=1))


def profile(specs: Sequence[Path]) -> str:
    """ncu's CSV of `launch_cold`. Raises LaunchError where ncu is missing or may not read the counters."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise LaunchError("measuring traffic needs Nsight Compute: no `ncu` on PATH")
    # Nothing may touch the caches between the kernels: neither ncu's own flush nor kernel replay, which saves
    # and restores memory. If ncu needs several passes, the whole process runs again.
    options = "--clock-control none --cache-control none --replay-mode application --profile-from-start off"
    output = ("--csv", "--print-units", "base", "--metrics", ",".join(UNIT_BYTES))
    code = (
        "import sys, pathlib; from fagen.bench.traffic import launch_cold, traffic_passes; "
        "launch_cold(traffic_passes([pathlib.Path(path) for path in sys.argv[1:]]))"
    )
    command = [ncu, *options.split(), *output, sys.executable, "-c", code, *map(str, specs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LaunchError(f"ncu ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def read_profile(text: str, count: int) -> list[Traffic]:
    """The Traffic of each of `count` passes in ncu's CSV: kernels up to the ones that flush L2, and those.

    Raises LaunchError where there are not so many.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]  # the others are ncu's progress
    found: list[Counter[str]] = []
    flushing = True
    for row in csv.DictReader(lines):
        metric, flushed = row["Metric Name"], flushing
        moved = UNIT_BYTES[metric] * round(float(row["Metric Value"].replace(",", "")))
        flushing = bool(FLUSH.search(row["Kernel Name"]))
        if not flushing:
            if flushed:
                found.append(Counter())
            found[-1][metric] += moved
        elif metric == WRITTEN and found:
            found[-1]["left"] += moved
    if len(found) != count:
        raise LaunchError(f"ncu saw {len(found)} passes, not {count}:\n{text}")
    return [Traffic(one[READ], one[WRITTEN], one["left"], one[L2]) for one in found]


def table(todo: Sequence[Pass], measured: Sequence[Traffic]) -> Table:
    """Measured bytes beside the model's, in MiB, with their ratio."""
    made = Table("spec", "pass", "mask", title="MiB of one pass, cold L2", box=None, pad_edge=False)
    for heading in ("S", "read", "written", "left in L2", "HBM", "model", "x", "L2", "model", "x"):
        made.add_column(heading, justify="right", no_wrap=True)
    for one, traffic in zip(todo, measured, strict=True):
        moved = model(one)
        made.add_row(
            *(one.name, one.plan.direction, one.mask, str(one.shape.seqlen_q)),
            *map(_mebibytes, (traffic.read, traffic.written, traffic.left_in_l2)),
            *_beside(traffic.hbm, moved["HBM"]),
            *_beside(traffic.l2, moved.get("L2")),
        )
    return made


def model(one: Pass) -> dict[str, int]:
    """What the IO model says of a pass, by level."""
    at = io.setting(one.plan, one.shape)
    return {
        formula.level: io.evaluate(formula, at)
        for formula in FORMULAS
        if (formula.algorithm, formula.direction) == (one.algorithm, one.plan.direction)
    }


def _beside(found: int, modelled: int | None) -> tuple[str, str, str]:
    if modelled is None:
        return _mebibytes(found), "-", "-"
    return _mebibytes(found), _mebibytes(modelled), f"{found / modelled:.3f}"


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f}"


def main() -> None:
    """Profile the specs named on the command line, DEFAULT_SPECS if none, and print the table."""
    specs = [Path(path) for path in sys.argv[1:]] or DEFAULT_SPECS
    try:
        todo = traffic_passes(specs)
        Console(width=160).print(table(todo, read_profile(profile(specs), len(todo))))
    except FagenError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
