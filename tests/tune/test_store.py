"""What tuning found, kept: found again for the same machine alone."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from fake_workers import WHERE

from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.load import load_spec
from fagen.tune.store import Entry, Store, bucket

SHAPE = Shape(2, 4096, 4096, 32, 8)


@pytest.fixture
def entry(mine) -> Entry:
    spec = mine(tune={})
    return Entry(
        problem=spec.problem,
        shape=SHAPE,
        direction="forward",
        where=WHERE,
        spec=spec,
        tiling=plan(spec).tiling,
        seconds=1e-3,
        beat="mine",
        beat_seconds=1.1e-3,
        asked="x",
        rank=3,
        timed=12,
        feasible=60,
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def find(store: Store, entry: Entry, shape: Shape = SHAPE) -> Entry | None:
    return store.find(entry.problem, shape, entry.direction, WHERE)


def test_what_was_put_is_found_whole(store: Store, entry: Entry) -> None:
    assert find(store, entry) is None
    store.put(entry)
    assert find(store, entry) == entry
    assert list(store.entries(WHERE)) == [entry]


@pytest.mark.parametrize(
    "shape",
    [Shape(2, 3600, 5000, 32, 8), Shape(4, 4096, 4096, 16, 4), Shape(1, 4096, 4096, 68, 17)],
)
def test_shapes_about_as_large_with_the_same_group_share_an_entry(
    store: Store, entry: Entry, shape: Shape
) -> None:
    store.put(entry)
    assert find(store, entry, shape) == entry


@pytest.mark.parametrize(
    "shape",
    [
        Shape(2, 8192, 4096, 32, 8),
        Shape(2, 1, 4096, 32, 8),
        Shape(8, 4096, 4096, 32, 8),
        Shape(2, 4096, 4096, 8, 8),
    ],
)
def test_other_lengths_batches_and_groups_do_not(store: Store, entry: Entry, shape: Shape) -> None:
    store.put(entry)
    assert find(store, entry, shape) is None


def test_of_several_in_a_bucket_the_nearest_is_found(store: Store, entry: Entry) -> None:
    near = replace(entry, shape=Shape(2, 3500, 3500, 32, 8))
    store.put(entry)
    store.put(near)
    assert find(store, entry, Shape(2, 3600, 3600, 32, 8)) == near
    assert find(store, entry) == entry


def test_a_bucket_is_its_own_bucket() -> None:
    for shape in (SHAPE, Shape(3, 1, 700, 6, 2), Shape(1, 0, 5, 1, 1), Shape(4, 512, 512, 8, 8, 1500, 1500)):
        assert bucket(bucket(shape)) == bucket(shape)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"where": {"gpu": "NVIDIA H100"}}, "gpu NVIDIA H100 (here NVIDIA H200)"),
        ({"where": {"driver": "535.1"}}, "driver 535.1 (here 580.1)"),
        ({"where": {"nvrtc": "12.8"}}, "nvrtc 12.8 (here 13.0)"),
        ({"where": {"headers": "b"}}, "headers b (here a)"),
        ({"tiling": {"kv": 64}}, "planned otherwise"),
        ({"spec": {"family": "v9"}}, "damaged"),
        ({"shape": {"batch": "many"}}, "damaged"),
        ({"shape": {"batch": None}}, "damaged"),
        ({"shape": {"heads_kv": float("inf")}}, "damaged"),
        ({"seconds": float("nan")}, "damaged"),
        ({"seconds": 10**400}, "damaged"),
        ({"seconds": None, "nonsense": 1}, "damaged"),
        ({"budget": "long"}, "damaged"),
        ({"budget": [60]}, "damaged"),
        ({"rank": "first"}, "damaged"),
        ({"timed": None}, "damaged"),
        ({"beat": None}, "damaged"),
        ({"measured": 5}, "damaged"),
    ],
)
def test_an_entry_of_other_circumstances_is_ignored_with_a_note(
    store: Store, entry: Entry, edit: dict, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.put(entry)
    assert path
    data = json.loads(path.read_text())
    for key, value in edit.items():
        data[key] = {**data[key], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(data))
    with caplog.at_level(logging.WARNING, "fagen"):
        assert find(store, entry) is None
    (record,) = caplog.records
    assert str(path) in record.getMessage() and why in record.getMessage()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "\x00\xff", "[" * 100_000], ids=lambda text: repr(text[:2])
)
def test_a_damaged_file_is_ignored_and_replaced(store: Store, entry: Entry, text: str) -> None:
    path = store.put(entry)
    assert path
    path.write_text(text)
    assert find(store, entry) is None and list(store.entries(WHERE)) == []
    store.put(entry)
    assert find(store, entry) == entry


def test_an_entry_of_this_machine_is_found_beside_that_of_another_without_a_note(
    store: Store, entry: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(replace(entry, where=replace(WHERE, gpu="NVIDIA A100")))
    store.put(entry)
    assert find(store, entry) == entry
    assert not caplog.records


def test_problems_differ_by_layout_and_mask_not_by_passes(store: Store, entry: Entry) -> None:
    store.put(entry)
    both = load_spec(entry.spec, {"problem.passes": ["forward", "backward"], "problem.deterministic": True})
    assert store.find(both.problem, SHAPE, "forward", WHERE) == entry
    for key, value in (("problem.layout", "bhsd"), ("problem.mask", "none"), ("problem.dtype", "fp16")):
        other = load_spec(entry.spec, {key: value}).problem
        assert store.find(other, SHAPE, "forward", WHERE) is None
    assert store.find(both.problem, SHAPE, "backward", WHERE) is None


def test_without_a_root_nothing_is_kept(entry: Entry) -> None:
    store = Store(None)
    assert store.put(entry) is None
    assert find(store, entry) is None and list(store.entries(WHERE)) == []
