"""The IO model against Nsight Compute: `python -m fagen.bench.traffic [SPEC.yaml]` on a machine with both.

Each case is run once on a cold L2, under `ncu`, in a process of its own. Bytes that a kernel writes may stay
in L2 when it ends, so a second kernel, which only reads, follows it: what that one makes L2 write back is
counted as written by the first.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from fagen.bench.compare import Case, cases
from fagen.bench.expected import random_inputs
from fagen.bench.machine import arch_of_device
from fagen.errors import FagenError, LaunchError
from fagen.ops.load import load
from fagen.paths import SPECS
from fagen.plan import io
from fagen.plan.formulas import formula
from fagen.spec.load import load_spec

SEQLENS = (4096, 16384)
FLUSH_BYTES = 2**29  # several times the L2 of any GPU

# Metric: bytes of one unit of it. L2 is what the SMs ask, without what its two halves ask of each other.
READ, WRITTEN, L2 = "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sectors_srcunit_tex.sum"
UNIT_BYTES = {READ: 1, WRITTEN: 1, L2: 32}


@dataclass(frozen=True)
class Traffic:
    """Bytes of one forward on a cold L2."""

    read: int
    written: int  # while the kernel ran
    left_in_l2: int  # written back after it
    l2: int  # asked of L2 by the SMs

    @property
    def hbm(self) -> int:
        """All that crossed the memory bus."""
        return self.read + self.written + self.left_in_l2


def traffic_cases(spec: Path) -> list[Case]:
    """The spec with its masks at each of SEQLENS, planned for this machine's GPU."""
    return cases([load_spec(spec)], SEQLENS, arch_of_device(0))


def launch_cold(todo: Iterable[Case]) -> None:
    """Run each case's op, with LSE, once on an L2 that holds nothing of it; the profiler sees only that."""
    flush = _flusher()
    for case in todo:
        op = load(case.spec)
        inputs = random_inputs(case.spec.problem, case.shape, seed=0, device="cuda")
        op(*inputs, return_lse=True)  # builds, loads, allocates
        flush()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        op(*inputs, return_lse=True)
        flush()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def _flusher() -> Callable[[], object]:
    """A call that fills L2 with lines that need no writing back."""
    buffer = torch.zeros(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    return lambda: buffer.amax()


def profile(spec: Path) -> str:
    """ncu's CSV of `launch_cold`. Raises LaunchError where ncu is missing or may not read the counters."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise LaunchError("measuring traffic needs Nsight Compute: no `ncu` on PATH")
    # Nothing may touch the caches between the two kernels: neither ncu's own flush nor kernel replay, which
    # saves and restores memory. If ncu needs several passes, the whole process runs again.
    options = "--clock-control none --cache-control none --replay-mode application --profile-from-start off"
    output = ("--csv", "--print-units", "base", "--metrics", ",".join(UNIT_BYTES))
    code = (
        "import sys, pathlib; from fagen.bench.traffic import launch_cold, traffic_cases; "
        "launch_cold(traffic_cases(pathlib.Path(sys.argv[1])))"
    )
    command = [ncu, *options.split(), *output, sys.executable, "-c", code, str(spec)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LaunchError(f"ncu ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def read_profile(text: str) -> list[Traffic]:
    """One Traffic per fagen kernel in ncu's CSV, with what the kernels after it made L2 write back.

    Raises LaunchError where there is none.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]  # the others are ncu's progress
    found: list[dict[str, int]] = []
    for row in csv.DictReader(lines):
        metric = row["Metric Name"]
        count = UNIT_BYTES[metric] * round(float(row["Metric Value"].replace(",", "")))
        if row["Kernel Name"].startswith("fagen_"):
            if not found or metric in found[-1]:
                found.append({"left": 0})
            found[-1][metric] = count
        elif metric == WRITTEN:
            found[-1]["left"] += count
    if not found:
        raise LaunchError(f"ncu saw no kernel:\n{text}")
    return [Traffic(one[READ], one[WRITTEN], one["left"], one[L2]) for one in found]


def table(todo: Sequence[Case], measured: Sequence[Traffic]) -> Table:
    """Measured bytes beside the model's, in MiB, with their ratio."""
    made = Table("spec", "mask", title="MiB of one forward, cold L2", box=None, pad_edge=False)
    for heading in ("S", "read", "written", "left in L2", "HBM", "model", "x", "L2", "model", "x"):
        made.add_column(heading, justify="right", no_wrap=True)
    for case, traffic in zip(todo, measured, strict=True):
        at = io.setting(case.plan, case.shape)
        hbm, l2 = (io.evaluate(formula("v2", "forward", level), at) for level in ("HBM", "L2"))
        made.add_row(
            case.spec_name,
            case.mask,
            str(case.shape.seqlen_q),
            *map(_mebibytes, (traffic.read, traffic.written, traffic.left_in_l2)),
            *(_mebibytes(traffic.hbm), _mebibytes(hbm), f"{traffic.hbm / hbm:.3f}"),
            *(_mebibytes(traffic.l2), _mebibytes(l2), f"{traffic.l2 / l2:.3f}"),
        )
    return made


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f}"


def main() -> None:
    """Profile the spec named on the command line, h200_fa2 if none, and print the table."""
    spec = Path(sys.argv[1]) if len(sys.argv) > 1 else SPECS / "h200_fa2.yaml"
    try:
        todo = traffic_cases(spec)
        Console(width=160).print(table(todo, read_profile(profile(spec))))
    except FagenError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
