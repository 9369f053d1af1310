"""The page of what tuning found."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fake_workers import WHERE, FakeWorkers

from fagen.bench.shapes import NamedShape
from fagen.plan.launch import Shape
from fagen.tune.html import page
from fagen.tune.journal import Record, records

pytest.importorskip("matplotlib")
LONG = NamedShape("long", {"problem.mask": "none"}, Shape(2, 4096, 4096, 8, 8))


@pytest.fixture
def tuned(bench, mine):
    """Outcomes, and what the journal has of them."""
    outcomes = bench.tune(mine(), workers=FakeWorkers(unbuildable="stages_q_2"))
    return outcomes, list(records(bench.folder))


def points(text: str) -> list[str]:
    return re.findall(r"<title>(\S+): measured", text)


def test_every_variant_that_was_timed_is_shown_once(tuned):
    outcomes, found = tuned
    shown = points(page(outcomes, found, WHERE))
    assert sorted(shown) == sorted({record.spec.name for record in found})


def test_the_winner_and_what_it_beat_are_named(tuned):
    outcomes, found = tuned
    (outcome,) = outcomes
    text = page(outcomes, found, WHERE)
    assert f"{outcome.winner.seconds * 1e6:,.1f}" in text
    assert text.count(">winner</text>") == text.count(">as it stands</text>") == 1


def test_the_measurement_with_the_most_rounds_counts(tuned):
    outcomes, found = tuned
    better = replace(found[0], rounds=1000, seconds=0.5)
    assert "measured 500,000.0 us" in page(outcomes, [better, *found], WHERE)


def test_other_machines_shapes_and_passes_are_not_shown(tuned):
    outcomes, found = tuned

    def shown(**changes: object) -> list[str]:
        return points(page(outcomes, [replace(record, **changes) for record in found], WHERE))

    assert shown()
    assert not shown(where=replace(WHERE, gpu="NVIDIA H100"))
    assert not shown(shape=LONG.shape)
    assert not shown(direction="backward")


def test_what_was_dropped_is_there_with_its_reason(bench, mine):
    spec = mine(tune={"tile.q": [64, 192], "tile.kv": [64, 240], "stages.kv": [2, 6]})
    outcomes = bench.tune(spec, workers=FakeWorkers(unbuildable="tile_q_192"))
    text = page(outcomes, records(bench.folder), WHERE)
    assert outcomes[0].refused and "<li>mine, tile.q 64, tile.kv 240" in text
    assert outcomes[0].failures and "<li>mine__tile_q_192" in text and "spills 8 bytes" in text


def test_nothing_found_is_a_page_too():
    none: list[Record] = []
    assert "What tuning found" in page([], none, WHERE)


def test_a_browser_finds_nothing_wrong(bench, mine, chromium, tmp_path):
    outcomes = bench.tune(mine(), workers=FakeWorkers(), shapes=[LONG], exhaustive=True)
    path = tmp_path / "tune.html"
    path.write_text(page(outcomes, records(bench.folder), WHERE), encoding="utf-8")
    for scheme in ("light", "dark"):
        chromium.look(path, scheme, 1000).must_be_fine()
