"""The picture of roles and barriers: nothing of the plan is missing."""

import xml.etree.ElementTree as ET
from collections import Counter

from fagen.plan import pipeline_svg
from fagen.plan.planner import pipeline

SVG = "{http://www.w3.org/2000/svg}"


def test_every_role_buffer_and_barrier_is_in_it(drawn):
    for plan in drawn:
        root = ET.fromstring(pipeline_svg.render(plan))
        texts = [text.text or "" for text in root.iter(f"{SVG}text")]
        pipe = pipeline(plan)
        assert {role.name for role in pipe.roles} <= set(texts)
        assert all(texts.count(buffer.name) == 1 for buffer in plan.buffers)
        words = " ".join(texts)
        assert all(f"{barrier.name}:" in words for barrier in plan.barriers)
        assert all(f"{turn.name}: {turn.arrivals} arrivals" in texts for turn in pipe.turns)


def test_a_square_is_a_stage(drawn):
    for plan in drawn:
        root = ET.fromstring(pipeline_svg.render(plan))
        squares = Counter(r.get("class") for r in root.iter(f"{SVG}rect"))
        assert squares["stage"] == sum(buffer.stages for buffer in plan.buffers)


def test_who_has_done_with_a_buffer_says_so_unless_it_is_filled_once(drawn):
    for plan in drawn:
        root = ET.fromstring(pipeline_svg.render(plan))
        dashed = [path for path in root.iter(f"{SVG}path") if path.get("class") == "arrow dashed"]
        passages = pipeline(plan).passages
        assert len(dashed) == 2 * sum(bool(p.empty) and p.way != "exchange" for p in passages)
