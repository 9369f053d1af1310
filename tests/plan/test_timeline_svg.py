"""The drawn timeline: a bar for each event of its steady state, light and dark."""

import xml.etree.ElementTree as ET

from fagen.plan import timeline_svg
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.svg import standalone
from fagen.plan.timeline_roles import ENGINES, LOAD, STALL
from fagen.plan.v3_time import typical_timeline

SHAPE = Shape(batch=2, seqlen_q=256, seqlen_k=256, heads_q=16, heads_kv=16)
SVG = "{http://www.w3.org/2000/svg}"


def test_there_is_a_bar_for_each_event(v3_spec):
    shown = typical_timeline(plan(v3_spec({"softmax": {"rescale": "always"}})), SHAPE)
    root = ET.fromstring(timeline_svg.render(shown, "a < b"))
    assert root.findtext(f"{SVG}title") == "a < b"
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    assert len(bars) > 2 * 2 * 2 * len(shown.roles)
    assert {bar.get("class") for bar in bars} == {"Q", "K", "V", "S", "softmax", "PV", "O", STALL}
    labels = {text.text for text in root.iter(f"{SVG}text")}
    assert {LOAD, "math 0", "math 1", *ENGINES} <= labels


def test_a_file_of_its_own_brings_its_colours(v3_spec):
    text = standalone(timeline_svg.render(typical_timeline(plan(v3_spec()), SHAPE), "t"), "a < b")
    assert "a < b" in [each.text for each in ET.fromstring(text).iter(f"{SVG}text")]
    assert "prefers-color-scheme: dark" in text and "--s0:" in text
    assert "href" not in text
