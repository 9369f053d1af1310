"""How many times as fast as each peer fagen is, as a table whose cells are coloured by it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log2
from statistics import geometric_mean

from fagen.bench.html.entries import MODES, OURS, Entry, by_kind, labels

NOTHING = "-"


def heat_map(cases: Sequence[Entry], names: Sequence[str]) -> str:
    """Markup: a table for each mode, a row for each case, a column for each peer; empty without a peer."""
    peers = [name for name in names if name != OURS]
    found = {mode: [case for case in cases if case.mode == mode] for mode in MODES}
    tables = [_table(MODES[mode].capitalize(), own, peers) for mode, own in found.items() if own and peers]
    return f'{_scale()}<div class="heat-maps">{"".join(tables)}</div>' if tables else ""


def _table(caption: str, cases: Sequence[Entry], names: Sequence[str]) -> str:
    peers = [name for name in names if any(name in case.contenders for case in cases)]
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in peers)
    ordered = [case for own in by_kind(cases).values() for case in own]
    ordered.sort(key=lambda case: not case.is_paper)  # those with names of their own come last
    label = labels(cases)
    rows = [_row(case, label[case], peers) for case in ordered]
    return (
        f'<div class="wide"><table class="heat"><caption>{escape(caption)}</caption>'
        f'<thead><tr><th scope="col" class="text">case</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody><tfoot>{_means(cases, peers)}</tfoot></table></div>"
    )


def _row(case: Entry, label: str, peers: Sequence[str]) -> str:
    cells = "".join(_cell(case, peer) for peer in peers)
    words = escape(f"{case.spec}, {case.sizes}", quote=True)
    return f'<tr><th scope="row" title="{words}">{escape(label)}</th>{cells}</tr>\n'


def _cell(case: Entry, peer: str) -> str:
    ratio, found = case.ratio(peer), case.contenders.get(peer)
    if ratio is not None:
        return _coloured(ratio)
    problem = next((one.problem for one in (found, case.ours) if one and one.problem), "")
    return f'<td title="{escape(problem, quote=True)}">{NOTHING}</td>' if problem else f"<td>{NOTHING}</td>"


def _means(cases: Sequence[Entry], peers: Sequence[str]) -> str:
    cells = ""
    for peer in peers:
        ratios = [ratio for case in cases if (ratio := case.ratio(peer))]
        cells += _coloured(geometric_mean(ratios)) if ratios else f"<td>{NOTHING}</td>"
    return f'<tr><th scope="row">geometric mean</th>{cells}</tr>'


def _coloured(ratio: float) -> str:
    share = min(1.0, abs(log2(ratio)))  # full colour at half and at twice the speed
    side = "fast" if ratio >= 1 else "slow"
    return f'<td class="{side}" style="--by:{share:.0%}">{ratio:.2f}</td>'


def _scale() -> str:
    steps = "".join(_coloured(2 ** (step / 4)) for step in range(-4, 5))
    return f'<table class="heat scale" aria-label="scale"><tbody><tr>{steps}</tr></tbody></table>'
