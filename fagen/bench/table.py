"""What a bench found as a table: on the terminal, and in Markdown as the documentation has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.table import Table

from fagen.bench.case import FLOPS
from fagen.bench.clock import ROUNDS
from fagen.bench.compare import DETERMINISTIC, OURS, QUANTISING, Result, is_ours
from fagen.bench.summary import contenders, summaries

NOTHING = "-"
BEST = "x best"
# Long headings in two lines, so that many peers fit side by side.
BROKEN = {
    "FlexAttention": "Flex-\nAttention",
    "FlashInfer": "Flash-\nInfer",
    DETERMINISTIC: "determi-\nnistic",
    QUANTISING: "quanti-\nsing",
}

Cell = Callable[[Result], str]


class Column(NamedTuple):
    """A heading, and what stands under it for each result."""

    heading: str
    cell: Cell
    right: bool = True  # aligned


NOTE = (
    f"ms of {OURS}; TFLOP/s of visible pairs, medians of up to {ROUNDS}; plan: as its models predict; "
    f"{BEST}: {OURS} against the fastest of the others"
)
WHAT = (
    Column("spec", lambda result: result.case.spec_name, right=False),
    Column("mode", lambda result: result.case.mode, right=False),
    Column("shape", lambda result: result.case.shape_name, right=False),
)
SIZES = (
    Column("B,Sq,Sk,Hq,Hkv", lambda result: str(result.case.shape)),
    Column("d", lambda result: _head_dims(result)),
    Column("mask", lambda result: result.case.mask, right=False),
)


def terminal_tables(results: Sequence[Result]) -> Iterator[Table]:
    """One of the cases of 16 bits and one of those of 8, which have other contenders."""
    for is_fp8 in (False, True):
        own = [result for result in results if result.case.spec.problem.is_fp8 == is_fp8]
        if own:
            yield terminal_table(own)


def terminal_table(results: Sequence[Result]) -> Table:
    """A row per case; peers that were timed nowhere have no column."""
    made = Table(box=None, pad_edge=False, caption=NOTE, caption_justify="left")
    columns = (*WHAT, *_figures(results))
    for column in columns:
        heading = BROKEN.get(column.heading, column.heading.replace(" ", "\n"))
        made.add_column(heading, justify="right" if column.right else "left", no_wrap=True, vertical="bottom")
    for result in results:
        made.add_row(*(column.cell(result) for column in columns))
    return made


def markdown(results: Sequence[Result], machine: dict[str, str], versions: dict[str, str]) -> str:
    """The same with every case's sizes, the summaries, and what it was measured on."""
    columns = (*WHAT, *SIZES, *_figures(results))
    rows = [
        [column.heading for column in columns],
        ["---:" if column.right else "---" for column in columns],
        *([column.cell(result) for column in columns] for result in results),
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", f"{NOTE}. FLOP are counted {FLOPS}.", ""]
    lines += [f"- {summary}" for summary in summaries(results)]
    measured_on = ", ".join(f"{key} {value}" for key, value in machine.items())
    lines += ["", f"Measured on: {measured_on}."]
    if versions:
        lines += ["", f"Peers: {', '.join(f'{name}: {version}' for name, version in versions.items())}."]
    return "\n".join(lines) + "\n"


def _figures(results: Sequence[Result]) -> Iterator[Column]:
    timed = [name for name in contenders(results) if any(result.tflops(name) for result in results)]
    peers = [name for name in timed if name != OURS]
    yield Column("ms", lambda result: _number(_milliseconds(result), ".3f"))
    yield Column(OURS, lambda result: _rounded(result.tflops(OURS)))
    yield Column("plan", lambda result: _rounded(result.case.predicted_tflops))
    for peer in peers:
        yield Column(peer, lambda result, peer=peer: _rounded(result.tflops(peer)))
    if not all(map(is_ours, peers)):
        yield Column(BEST, lambda result: _number(_against_the_best(result), ".3f"))


def _milliseconds(result: Result) -> float | None:
    seconds = result.outcomes[OURS].median
    return None if seconds is None else seconds * 1e3


def _against_the_best(result: Result) -> float | None:
    ratios = (result.ratio(name) for name in result.outcomes if not is_ours(name))
    return min((ratio for ratio in ratios if ratio), default=None)


def _head_dims(result: Result) -> str:
    problem = result.case.spec.problem
    sizes = dict.fromkeys((problem.head_dim, problem.dim_v))
    return ", ".join(map(str, sizes))


def _rounded(tflops: float | None) -> str:
    """Whole numbers, and decode's, which are small, with a digit more; two digits of what is less than 1."""
    return _number(tflops, ".0f" if tflops is None or tflops >= 100 else ".1f" if tflops >= 1 else ".2g")


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)
