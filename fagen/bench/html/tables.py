"""The tables of a report: summary, what was not timed, every measurement, the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fagen.bench.html.entries import MODES, OURS, Contender, Entry, by_kind, caption, decimal, names
from fagen.page.page import table

NOTHING = "-"
FEW = 12  # tables of measurements that are open from the start; where there are more, all are closed


def summary(document: Mapping[str, Any]) -> str:
    """Markup: a table for each mode; empty where no two were timed in the same case."""
    head = ("peer", "cases", "geometric mean", "worst", "worst case")
    tables = []
    for mode, words in MODES.items():
        rows = [
            (one["peer"], one["cases"], f"{one['mean']:.2f} x", f"{one['worst']:.2f} x", one["worst_case"])
            for one in document.get("summary") or ()
            if one["mode"] == mode
        ]
        if rows:
            tables.append(f"<div><h3>{words.capitalize()}</h3>{table(head, rows)}</div>")
    return f'<div class="beside">{"".join(tables)}</div>' if tables else ""


def not_timed(document: Mapping[str, Any], cases: Sequence[Entry]) -> str:
    """Markup: who was not timed, why, and all cases that share the reason; empty where all were timed."""
    why: dict[tuple[str, str], dict[str, list[str]]] = {}

    def add(name: str, reason: str, shape_name: str, mode: str) -> None:
        why.setdefault((name, reason), {}).setdefault(shape_name, []).append(mode)

    for case in cases:
        for name, found in case.contenders.items():
            if found.problem:
                add(name, found.problem, case.shape_name, case.mode)
    for one in document.get("refused") or ():
        add(f"{OURS} ({one['spec']})", one["reason"], one["shape_name"], one["mode"])
    rows = [
        (name, reason, "; ".join(f"{shape} ({', '.join(modes)})" for shape, modes in where.items()))
        for (name, reason), where in why.items()
    ]
    return table(("who", "why", "where"), rows) if rows else ""


def measurements(cases: Sequence[Entry]) -> str:
    """Markup: a table for each head size, mask and mode."""
    known, kinds = names(cases), by_kind(cases)
    opened = " open" if len(kinds) <= FEW else ""
    return "\n".join(
        f"<details{opened}><summary>{escape(f'{caption(mode, d, mask)}: {rest}')}</summary>"
        f"{_measured(own, known)}</details>"
        for (mode, d, mask, rest), own in kinds.items()
    )


def machine(document: Mapping[str, Any]) -> str:
    """Markup: the machine, the peers' versions."""
    rows = [(str(key).replace("_", " "), value) for key, value in (document.get("machine") or {}).items()]
    rows += list((document.get("peers") or {}).items())
    return table(("what", "value"), rows) if rows else ""


def _measured(cases: Sequence[Entry], known: Sequence[str]) -> str:
    head = (
        *("case", "contender", "median (us)", "quartiles (us)", "TFLOP/s", "speed-up"),
        *("error", "allowed", "peak (MiB)"),
    )
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    rows = "\n".join(row for case in cases for row in _rows(case, known))
    return (
        f'<div class="wide"><table class="measured"><thead><tr>{top}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _rows(case: Entry, known: Sequence[str]) -> Iterator[str]:
    name = f"{escape(case.shape_name)}<small>{escape(case.sizes)}</small>"
    there = [each for each in known if each in case.contenders]
    first = f'<th scope="rowgroup" rowspan="{len(there)}">{name}</th>'
    for each in there:
        found = case.contenders[each]
        yield f"<tr>{first}<td class=text>{escape(each)}</td>{''.join(_cells(case, found))}</tr>"
        first = ""


def _cells(case: Entry, found: Contender) -> Iterator[str]:
    wrong = found.error is not None and case.allowed_error is not None and found.error > case.allowed_error
    if found.microseconds is None:
        yield f'<td colspan="4" class="why">{escape(found.problem or "not timed")}</td>'
    else:
        quartiles = [_number(value, ",.1f") for value in found.quartiles]
        yield f"<td>{_number(found.microseconds, ',.1f')}</td>"
        yield f"<td>{f'{quartiles[0]} to {quartiles[-1]}' if quartiles else NOTHING}</td>"
        yield f"<td>{NOTHING if found.tflops is None else decimal(found.tflops)}</td>"
        yield f"<td>{_number(case.ratio(found.name), '.2f', ' x')}</td>"
    yield f"<td{' class=bad' if wrong else ''}>{_number(found.error, '.1e')}</td>"
    yield f"<td>{_number(case.allowed_error, '.1e')}</td>"
    yield f"<td>{_number(found.peak_bytes and found.peak_bytes / 2**20, ',.1f')}</td>"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return NOTHING if value is None else f"{value:{form}}{unit}"
