"""The map of shared memory: all of it, once, to scale."""

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from fagen.plan import smem_svg
from fagen.plan.budget import SMEM_CTA
from fagen.plan.kernels import main_kernel
from fagen.plan.smem_svg import HEIGHT, TOP

SVG = "{http://www.w3.org/2000/svg}"


def spans(root):
    """(name, top, height) of everything in the bar, by what is said of it."""
    rects = [r for r in root.iter(f"{SVG}rect") if r.get("class") in ("buffer", "free")]
    return [(r.findtext(f"{SVG}title", ""), float(r.attrib["y"]), float(r.attrib["height"])) for r in rects]


def test_every_buffer_is_drawn_once_and_to_scale_and_the_rest_is_free(drawn):
    for plan in drawn:
        root = ET.fromstring(smem_svg.render(plan))
        limit = next(account.allowed for account in plan.accounts if account.resource == SMEM_CTA)
        wanted = [(b.name, b.offset, b.bytes) for b in plan.buffers]
        kernel = main_kernel(plan)
        if plan.barriers:
            words = kernel.smem_bytes - kernel.barriers_offset
            wanted.append(("barriers", kernel.barriers_offset, words))
        if kernel.smem_bytes < limit:
            wanted.append(("free", kernel.smem_bytes, limit - kernel.smem_bytes))
        found = spans(root)
        assert [says.split(":")[0] for says, _, _ in found] == [name for name, _, _ in wanted]
        for (says, top, height), (_, offset, size) in zip(found, wanted, strict=True):
            assert f"{size:,} B" in says
            assert top == pytest.approx(TOP + HEIGHT * offset / limit, abs=0.1)
            assert height == pytest.approx(HEIGHT * size / limit, abs=0.1)


def test_every_stage_and_every_word_has_its_cell(drawn):
    for plan in drawn:
        root = ET.fromstring(smem_svg.render(plan))
        cells = [path for path in root.iter(f"{SVG}path") if path.get("class") == "cell"]
        assert len(cells) == sum(buffer.stages - 1 for buffer in plan.buffers)
        words = [r.findtext(f"{SVG}title") for r in root.iter(f"{SVG}rect") if r.get("class") == "word"]
        assert words == [f"{b.name}, stage {i}" for b in plan.barriers for i in range(b.stages)]
        texts = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
        assert all(barrier.name in texts and barrier.meaning in texts for barrier in plan.barriers)


def test_labels_are_in_order_and_do_not_meet(drawn):
    for plan in drawn:
        root = ET.fromstring(smem_svg.render(plan))
        at = [float(t.attrib["y"]) for t in root.iter(f"{SVG}text") if t.get("x") == f"{smem_svg.LABEL}"]
        height = float(root.attrib["height"])
        assert all(low + smem_svg.STEP <= high + 0.11 for low, high in pairwise(at))
        assert at[-1] + 20 <= height
