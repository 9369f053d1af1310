"""A bench's JSON document as one HTML page: pictures first, every number below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fagen.bench.html import memory, prediction, roofline, shapes, speed, tables
from fagen.bench.html.entries import Entry, bounds, entries, names
from fagen.bench.html.heat_map import heat_map
from fagen.bench.html.legend import of_bars, of_lines, of_marks
from fagen.bench.html.plots import Panel, settings
from fagen.page.page import Section, render

SUMMARY = "How many times as fast as each peer fagen is, over the cases in which both were timed."
SPEED = (
    "Higher is better; x where a contender was not timed. The pointer on a bar says whose it is, its case "
    "and time. FLOP are {flops}."
)
SHAPES = "As above: higher is better."
SIZES = "B: batch, S: sequence length, H: heads; two numbers: of queries and of keys."
HEAT_MAP = (
    "How many times as fast as each peer fagen is: 1 is equal, blue is faster, orange is slower. Colours end "
    "at half and at twice the speed. The pointer on a - says why there is no number."
)
MEMORY = (
    "The most that a call allocates beside its inputs; where masks differ, the larger. Rings: equal values. "
    "The papers' cases have as many tokens at every length, so memory linear in length is a level line."
)
ROOFLINE = (
    "fagen's cases under what the device's memory and tensor cores allow. Lines join cases that differ in "
    "length only. Colour and mark say which engine bounds a case, by the plan's models."
)
PREDICTION = (
    "Time of fagen's kernels, the plan's models against the clock. On the line they agree; dashed: 10% off. "
    "Named: the cases that are further off."
)
NOT_TIMED = "A contender that gives a wrong result or cannot run a case is not timed in it."
MEASUREMENTS = (
    "Device times, medians of up to {rounds} interleaved rounds and quartiles. Error: the largest difference "
    "from the fp64 reference; in a backward that of the worst gradient, as a share of what is allowed. "
    "Speed-up: how many times as fast fagen is."
)


def report(document: Mapping[str, Any]) -> str:
    """The page, self-contained. Needs matplotlib: see plots.check_installed."""
    cases, machine = entries(document), document.get("machine") or {}
    versions = ", ".join(
        f"{name} {machine[name]}" for name in ("fagen", "torch", "driver") if name in machine
    )
    count = f"{len(cases)} case{'' if len(cases) == 1 else 's'}"
    time = str(machine.get("time", "")).replace("T", " ").replace("+00:00", " UTC")
    with settings():
        sections = [section for section in _sections(document, cases) if section.html]
    lead = "; ".join(filter(None, (count, versions, time)))
    return render(f"Attention on {machine.get('device', 'no GPU')}", sections, lead)


def _sections(document: Mapping[str, Any], cases: Sequence[Entry]) -> list[Section]:
    known = names(cases)
    bars, lines, limits = of_bars(known), of_lines(known), of_marks(bounds(cases), "bound")
    by_length, by_shape = speed.panels(cases, known), shapes.panels(cases, known)
    counted = SPEED.format(flops=document.get("flops", ""))
    measured = MEASUREMENTS.format(rounds=document.get("rounds", "all"))
    return [
        Section("Summary", tables.summary(document), SUMMARY),
        _plots("Speed against sequence length", by_length, bars, counted),
        _plots("Speed by shape", by_shape, bars, f"{SHAPES if by_length else counted} {SIZES}", wide=True),
        Section("Speed-up", heat_map(cases, known), HEAT_MAP),
        _plots("Peak memory", memory.panels(cases, known), lines, MEMORY),
        _plots("Roofline", roofline.panels(cases), limits, ROOFLINE),
        _plots("Predicted against measured", prediction.panels(cases), limits, PREDICTION),
        Section("Not timed", tables.not_timed(document, cases), NOT_TIMED),
        Section("All measurements", tables.measurements(cases), measured),
        Section("Machine and versions", tables.machine(document)),
    ]


def _plots(heading: str, panels: Sequence[Panel], legend: str, note: str, *, wide: bool = False) -> Section:
    inner = "\n".join(map(str, panels))
    kind = "wide-panels" if wide else "panels"
    return Section(heading, f'{legend}<div class="{kind}">{inner}</div>' if panels else "", note)
