"""What tuning found as one HTML page: the winners, the model against the clock, what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fagen.bench.html.legend import of_marks
from fagen.bench.html.plots import Panel, settings
from fagen.bench.html.prediction import Pair, accuracy, draw
from fagen.page.page import Section, render, table
from fagen.tune import report
from fagen.tune.journal import Record
from fagen.tune.outcome import Outcome
from fagen.tune.store import Where, problem_key

WINNERS = "The fastest right variant of each pass and shape; times are medians, on the device."
TIMED = (
    "Every variant that was timed, the cost model against the clock: the further up, the slower it was "
    "expected to be; the further right, the slower it was. On the line both agree; dashed: 10% off."
)


def page(outcomes: Sequence[Outcome], records: Iterable[Record], where: Where) -> str:
    """The page, self-contained. Of `records`, those of the outcomes' shapes made at `where` are shown.

    Needs matplotlib: see bench.html.plots.check_installed.
    """
    measured = [record for record in records if record.where == where]
    families = sorted({record.spec.family for record in measured})
    with settings():
        panels = [
            panel for i, outcome in enumerate(outcomes) if (panel := _panel(i, outcome, measured, families))
        ]
    plots = f'{of_marks(families, "family")}<div class="panels">{"".join(map(str, panels))}</div>'
    rows = [row for outcome in outcomes for row in report.rows(outcome)]
    sections = [
        Section("Winners", table((*report.TEXTS, *report.NUMBERS), rows) if rows else "", WINNERS),
        Section("Predicted against measured", plots if panels else "", TIMED),
        Section(
            "Refused", _list("refused", report.refusals(outcomes)), "What the rules and the planner refused."
        ),
        Section(
            "Left out",
            _list("left out", report.failures(outcomes)),
            "What was not built, not run or not right.",
        ),
    ]
    machine = f"{where.gpu}, driver {where.driver}, NVRTC {where.nvrtc}"
    return render("What tuning found", [section for section in sections if section.html], machine)


def _panel(
    number: int, outcome: Outcome, measured: Sequence[Record], families: Sequence[str]
) -> Panel | None:
    pairs: dict[str, Pair] = {}
    for record in sorted(measured, key=lambda record: record.rounds):  # the last has the most rounds
        if _is_about(record, outcome):
            pairs[record.kernels] = _pair(record, outcome)
    if not pairs:
        return None
    shown = list(pairs.values())
    svg = draw(f"tuned{number}", shown, families, [pair for pair in shown if pair.label])
    return Panel(f"{outcome.question.name}, {outcome.direction}", svg, accuracy(shown, "variant"))


def _is_about(record: Record, outcome: Outcome) -> bool:
    question, direction = outcome.question, outcome.direction
    return (record.direction, record.shape) == (direction, question.shape) and (
        problem_key(record.spec.problem, direction) == problem_key(question.problem, direction)
    )


def _pair(record: Record, outcome: Outcome) -> Pair:
    label, name = "", record.spec.name
    if record.kernels == record.reference:
        label = "as it stands"
    if outcome.winner and record.kernels == outcome.winner.variant.key:
        label = "winner"
    return Pair(record.predicted * 1e6, record.seconds * 1e6, label, name, record.spec.family)


def _list(heading: str, lines: Iterable[str]) -> str:
    """Markup; the heading that each line begins with on a terminal stands above them all."""
    items = "".join(f"<li>{escape(line.removeprefix(f'{heading}: '))}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""
