from __future__ import annotations

import pytest
from rich.console import Console

from fagen.bench.compare import DETERMINISTIC, QUANTISING
from fagen.bench.peers.installed import PEERS
from fagen.bench.table import markdown, terminal_table, terminal_tables

FLOPS = 4 * 16 * 16 * 1024 * 1024 * 128  # of the first case


def text(results) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(terminal_table(results))
    return capture.get()


def test_table_has_a_row_per_case(todo, timed):
    results = [timed(todo[0], 1e-3, flash=2e-3, slow=4e-3), timed(todo[1], None, flash=1e-3, slow=1e-3)]
    _, heading, first, second, *_ = text(results).splitlines()
    assert heading.split() == ["spec", "mode", "shape", "ms", "fagen", "plan", "flash", "slow", "best"]
    spec, mode, shape, ms, ours, plan, flash, _, best = first.split()
    assert (spec, mode, shape, ms) == ("h200_fa2", "fwd", "d128_none_1024", "1.000")
    assert (ours, flash) == (f"{FLOPS / 1e-3 / 1e12:.0f}", f"{FLOPS / 2e-3 / 1e12:.1f}")
    assert float(plan) > 100 and float(best) == 2.0
    assert second.split()[3:5] == ["-", "-"] and second.split()[-1] == "-"


def test_who_was_timed_nowhere_has_no_column(todo, timed):
    assert "gone" not in text([timed(todo[0], 1e-3, flash=2e-3, gone=None)])


def test_the_deterministic_op_is_not_one_of_the_others(todo, timed):
    heading = text([timed(todo[0], 1e-3, **{DETERMINISTIC: 1e-4})]).split("h200_fa2")[0]
    assert "nistic" in heading and "best" not in heading


@pytest.mark.parametrize(
    ("name", "mode", "own"),
    [
        ("h200_fa3_d64_short", "fwd+bwd", [DETERMINISTIC]),
        ("h200_fp8_d64", "fwd", [QUANTISING, "fagen bf16"]),
    ],
)
def test_all_peers_fit_160_columns(paper_cases, timed, name, mode, own):
    (case, *_) = paper_cases(f"{name}.yaml", (16384,), (mode,))
    peers = [name for name, peer in PEERS.items() if peer.is_fp8 == case.spec.problem.is_fp8]
    others = dict.fromkeys((*peers, *own), 0.123)
    lines = text([timed(case, 0.1, **others)]).splitlines()
    row = next(line for line in lines if line.startswith(name))
    assert row.split()[0] == name
    assert len(row.split()) == 3 + 3 + len(others) + 1
    assert "\u2026" not in "".join(lines), "nothing is cut off"


def test_8_bits_have_a_table_of_their_own(todo, paper_cases, timed):
    (eight, *_) = paper_cases("h200_fp8.yaml", (1024,), ("fwd",))
    results = [timed(eight, 1e-3, **{"FA3 FP8": 2e-3}), timed(todo[0], 1e-3, FA3=2e-3)]
    headings = [[column.header for column in table.columns] for table in terminal_tables(results)]
    assert ["FA3" in one for one in headings] == [True, False]
    assert ["FA3\nFP8" in one for one in headings] == [False, True]
    assert len(list(terminal_tables(results[:1]))) == 1


def test_no_results_is_an_empty_table():
    assert text([]).split()[0] == "spec"


def test_markdown_says_what_it_is_of_and_what_it_was_measured_on(todo, timed):
    found = markdown([timed(todo[2], 1e-3, flash=2e-3)], {"device": "a GPU"}, {"flash": "2.0"})
    heading, ruler, row, *rest = found.splitlines()
    assert heading.startswith(
        "| spec | mode | shape | B,Sq,Sk,Hq,Hkv | d | mask | ms | fagen | plan | flash |"
    )
    assert ruler.count("|") == heading.count("|") == row.count("|")
    assert row.startswith("| h200_fa2 | fwd | d128_causal_1024 | 16,1024,1024,16,16 | 128 | causal | 1.000 |")
    assert "visible (query, key) pairs only" in found and "2.000 x flash" in found
    assert rest[-3:] == ["Measured on: device a GPU.", "", "Peers: flash: 2.0."]
