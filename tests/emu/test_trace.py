"""The trace of a real run: loads as Chrome's format, with one track per warp on which nothing overlaps."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest
import torch

import fagen
from fagen.emu import settings
from fagen.paths import SPECS
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

SPEC = load_spec(SPECS / "h200_fa2_d64.yaml")
WARPS = plan(SPEC).tiling.warps


@pytest.fixture(scope="module")
def events(tmp_path_factory) -> list[dict]:
    op = fagen.load(SPEC, device="emu")
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    q, k = torch.ones(1, 40, 1, 64).bfloat16(), torch.ones(1, 130, 1, 64).bfloat16()
    with settings.override(trace=path):
        op(q, k, k)
    return json.loads(path.read_text())["traceEvents"]


@pytest.fixture(scope="module")
def tracks(events) -> dict[tuple[int, int], list[dict]]:
    """What every warp of every CTA did, in the file's order."""
    spans = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[event["pid"], event["tid"]].append(event)
    return spans


def test_every_warp_has_a_named_track(events, tracks):
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {(0, warp): f"warp {warp}" for warp in range(WARPS)}
    assert set(tracks) == set(names)


def test_events_are_ordered_and_on_one_track_one_follows_the_other(events, tracks):
    times = [event["ts"] for event in events if "ts" in event]
    assert times == sorted(times)
    for spans in tracks.values():
        for before, after in pairwise(spans):
            assert before["ts"] + before["dur"] <= after["ts"]


def test_instructions_and_waits_are_named_with_their_lines(events):
    kinds = {event["name"].split(".")[0] for event in events}
    assert {"mma", "ldmatrix", "mbarrier wait", "__syncwarp"} <= kinds
    lines = [event["args"]["pc"] for event in events if event["ph"] != "M"]
    assert lines and all(line.startswith("forward.cu:") for line in lines)


def test_copies_in_flight_begin_before_they_end(events):
    begun = {event["id"]: event["ts"] for event in events if event["ph"] == "b"}
    ended = {event["id"]: event["ts"] for event in events if event["ph"] == "e"}
    assert begun and begun.keys() == ended.keys()
    assert all(begun[flight] <= ended[flight] for flight in begun)
