"""Measurements are kept as they are made, and read again whatever became of the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_workers import WHERE

from fagen.plan.launch import Shape
from fagen.tune.journal import FILE, Journal, Record, records

SHAPE = Shape(2, 4096, 4096, 32, 8)
QUESTION = ("k", SHAPE, "forward", 5, "r")


@pytest.fixture
def record(mine) -> Record:
    return Record(WHERE, mine(tune={}), "k", SHAPE, "forward", 1e-3, 5, 1.1e-3, "r", 2.2e-3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "below" / FILE


def test_what_is_appended_is_known_at_once_and_to_the_next_process(path: Path, record: Record) -> None:
    journal = Journal(path)
    assert journal.find(WHERE, *QUESTION) is None
    journal.append([record])
    assert journal.find(WHERE, *QUESTION) == record
    assert Journal(path).find(WHERE, *QUESTION) == record
    assert list(records(path.parent)) == [record]
    assert record.ratio == pytest.approx(0.5)


def test_it_answers_no_other_question(path: Path, record: Record) -> None:
    journal = Journal(path)
    journal.append([record])
    for at, other in enumerate(("x", Shape(2, 4096, 4096, 32, 32), "backward", 10, "x")):
        question: Any = [*QUESTION[:at], other, *QUESTION[at + 1 :]]
        assert journal.find(WHERE, *question) is None
    assert journal.find(replace(WHERE, driver="590"), *QUESTION) is None


def test_of_two_answers_the_later_one_counts(path: Path, record: Record) -> None:
    Journal(path).append([record, replace(record, seconds=2e-3)])
    found = Journal(path).find(WHERE, *QUESTION)
    assert found and found.seconds == 2e-3


TORN = ['{"where": {"gpu"', "\n\n", "[]\n", '{"spec": {"name": "a"}}\n', "\x00", "[" * 100_000]


@pytest.mark.parametrize("torn", TORN, ids=range(len(TORN)))
def test_what_cannot_be_read_is_left_out_and_harms_nothing_after_it(
    path: Path, record: Record, torn: str
) -> None:
    Journal(path).append([record])
    with path.open("a") as file:
        file.write(torn)
    other = replace(record, kernels="other")
    Journal(path).append([other])
    assert list(records(path.parent)) == [record, other]


def test_without_a_path_it_forgets_at_the_end(record: Record) -> None:
    journal = Journal(None)
    journal.append([record])
    assert journal.find(WHERE, *QUESTION) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernels", ["k"]),
        ("direction", {}),
        ("rounds", "many"),
        ("seconds", 0),
        ("seconds", 10**400),
        ("spec", "specs/h200_fa3.yaml"),
        ("seconds", float("nan")),
        ("reference_seconds", None),
        ("where", {"gpu": ["H200"], "driver": "1", "nvrtc": "1", "headers": "1"}),
        ("shape", {"batch": [1], "seqlen_q": 1, "seqlen_k": 1, "heads_q": 1, "heads_kv": 1}),
        ("shape", {"batch": 1, "seqlen_q": 1, "seqlen_k": 1, "heads_q": 1, "heads_kv": 0}),
    ],
)
def test_a_value_that_cannot_be_is_left_out(path: Path, record: Record, key: str, value: Any) -> None:
    Journal(path).append([record])
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}) + "\n")
    assert list(records(path.parent)) == []
    assert Journal(path).find(WHERE, *QUESTION) is None


def test_a_full_disk_is_an_error_that_names_the_journal(record: Record) -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        Journal(Path("/dev/full")).append([record])
