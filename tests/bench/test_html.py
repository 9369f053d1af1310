"""The HTML report, made of a bench's JSON document."""

from __future__ import annotations

import copy
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fagen.bench.html import plots
from fagen.bench.html.entries import entries, labels, names
from fagen.bench.html.report import report
from fagen.errors import FagenError

pytest.importorskip("matplotlib")
SAMPLE: dict[str, Any] = json.loads((Path(__file__).parent / "sample.json").read_text(encoding="utf-8"))
HEADINGS = [
    "Summary",
    "Speed against sequence length",
    "Speed by shape",
    "Speed-up",
    "Peak memory",
    "Roofline",
    "Predicted against measured",
    "Not timed",
    "All measurements",
    "Machine and versions",
]
HOSTILE = '<script>alert(1)</script><img src=http://example.com/x onerror="alert(2)">\' & $x^2$'


class Page(HTMLParser):
    """What a page has."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for key, value in attrs:
            assert not key.startswith("on"), f"{tag} has {key}"
            if key == "id":
                self.ids.append(value or "")
            if key in ("href", "src", "xlink:href", "action", "data"):
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def document(cases: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """The sample, with these cases and no summary."""
    return copy.deepcopy(SAMPLE | {"cases": cases, "summary": [], "refused": []} | changes)


def case(shape: str, /, **changes: Any) -> dict[str, Any]:
    """The forward case of the sample on one shape."""
    found = (each for each in SAMPLE["cases"] if (each["shape_name"], each["mode"]) == (shape, "fwd"))
    return copy.deepcopy(next(found)) | changes


@pytest.fixture(scope="module")
def text() -> str:
    return report(SAMPLE)


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def headings(text: str) -> list[str]:
    return re.findall("<h2>(.*?)</h2>", text)


def test_every_section_is_there(text):
    assert headings(text) == HEADINGS


def test_every_case_and_contender_is_there(page):
    for each in SAMPLE["cases"]:
        assert each["shape_name"] in page.texts
        for name, found in each["contenders"].items():
            assert name in page.texts
            if found["median_us"]:
                assert f"{found['median_us']:,.1f}" in page.texts
                assert f"{found['quartiles_us'][0]:,.1f} to {found['quartiles_us'][2]:,.1f}" in page.texts
            else:
                assert found["problem"] in page.texts


def test_what_was_left_out_is_there_with_its_reason(page):
    (refused,) = SAMPLE["refused"]
    assert refused["reason"] in page.texts
    assert f"{refused['shape_name']} ({refused['mode']})" in page.texts


def test_the_machine_the_versions_and_how_flops_are_counted_are_there(page, text):
    for value in (*SAMPLE["machine"].values(), *SAMPLE["peers"].values()):
        assert value in page.texts
    assert SAMPLE["flops"] in text


def test_it_is_self_contained(page, text):
    assert all(link.startswith("#") for link in page.links)
    assert "://" not in text and "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}


def test_what_is_referred_to_is_there_once(page, text):
    wanted = {link[1:] for link in page.links} | set(re.findall(r"url\(#([\w-]+)\)", text))
    assert wanted <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_it_stays_small(text):
    assert len(text.encode()) / len(SAMPLE["cases"]) < 9_000  # with up to ten contenders


def test_texts_of_the_document_are_escaped():
    each = case("llama3_8b_decode_8k", shape_name=HOSTILE, spec=HOSTILE, bound=HOSTILE)
    each["contenders"][HOSTILE] = each["contenders"]["fagen"]
    each["contenders"]["other"] = each["contenders"]["fagen"] | {"median_us": None, "problem": HOSTILE}
    summary = [{"mode": "fwd", "peer": HOSTILE, "cases": 1, "mean": 1, "worst": 1, "worst_case": HOSTILE}]
    machine = {"device": HOSTILE, HOSTILE: HOSTILE}
    changes = {"peers": {HOSTILE: HOSTILE}, "flops": HOSTILE, "summary": summary, "machine": machine}
    found = Page(report(document([each], **changes)))
    assert not found.tags & {"script", "img"}
    assert found.texts.count(HOSTILE) > 5


@pytest.mark.parametrize("only_ours", [False, True])
def test_one_case_is_enough(only_ours):
    each = case("d128_causal_4096")
    if only_ours:
        each["contenders"] = {"fagen": each["contenders"]["fagen"]}
    found = headings(report(document([each])))
    one_point = {"Summary", "Speed by shape", "Peak memory", "Not timed"}
    assert found == [
        name for name in HEADINGS if name not in one_point | ({"Speed-up"} if only_ours else set())
    ]


def test_no_case_at_all():
    text = report({"machine": {}, "peers": {}, "cases": [], "refused": [], "summary": []})
    assert headings(text) == []
    assert "0 cases" in text


def test_nobody_was_timed():
    each = case("d128_causal_4096")
    for found in each["contenders"].values():
        found |= {"median_us": None, "quartiles_us": None, "tflops": None, "problem": "cannot run: no"}
    text = report(document([each]))
    assert "Roofline" not in headings(text) and "Predicted against measured" not in headings(text)
    assert "cannot run: no" in text


@pytest.mark.parametrize(
    "tflops, says", [(0.0234, "0.023"), (1.2e-5, "1.2e-05"), (3.06, "3.1"), (612.34, "612.3")]
)
def test_small_speeds_keep_their_digits(tflops, says):
    each = case("llama3_8b_decode_8k")
    each["contenders"] = {"fagen": each["contenders"]["fagen"] | {"tflops": tflops}}
    text = report(document([each]))
    assert f"<td>{says}</td>" in text and f"fagen, llama3_8b_decode_8k: {says} TFLOP/s" in text
    assert "e\N{MINUS SIGN}" not in text, "a power of ten beside an axis"


@pytest.mark.parametrize("tflops", [1e-4, 0.05, 5.0, 600.0])
def test_both_roofs_are_named(tflops):
    each = case("llama3_8b_decode_8k")
    each["contenders"]["fagen"]["tflops"] = tflops
    text = report(document([each]))
    assert ">tensor cores, 989 TFLOP/s<" in text and ">HBM, 4.8 TB/s<" in text


def test_a_wrong_result_is_marked_and_has_no_speed():
    each = case("d128_causal_4096")
    each["contenders"]["FA3"] |= {
        "median_us": None,
        "quartiles_us": None,
        "tflops": None,
        "error": 0.5,
        "problem": "wrong: error 5.00e-01; allowed 7.81e-03",
    }
    text = report(document([case("d128_causal_1024"), each]))
    assert "<td class=bad>5.0e-01</td>" in text
    assert text.count("<td class=bad>") == 1
    assert "<title>FA3, d128_causal_4096: wrong: error 5.00e-01; allowed 7.81e-03</title>" in text


def test_ratios_say_how_much_faster_ours_is():
    each = case("d128_causal_4096")
    contenders = {name: each["contenders"][name] for name in ("fagen", "FA3", "FA4")}
    for found, time in zip(contenders.values(), (100, 150, 80), strict=True):
        found["median_us"] = time
    text = report(document([each | {"contenders": contenders}]))
    assert re.search(r'<td class="fast" style="--by:58%">1\.50</td>', text)
    assert re.search(r'<td class="slow" style="--by:32%">0\.80</td>', text)


def test_the_models_error_is_stated():
    both = [case("d128_causal_4096"), case("d128_none_4096")]
    for each, predicted in zip(both, (110, 96), strict=True):
        each["predicted_us"], each["contenders"]["fagen"]["median_us"] = predicted, 100
    rms = math.sqrt((0.1**2 + 0.04**2) / 2)
    text = report(document(both))
    assert f"rms {rms:.1%}, at worst +10.0% (h200_fa3, d128_causal_4096, fwd), 2 cases" in text


def test_ours_comes_first_and_others_keep_their_places():
    first = case("d128_causal_4096")
    first["contenders"] = {name: first["contenders"][name] for name in ("FA4", "fagen")}
    found = entries(document([first, case("d128_none_4096")]))
    assert names(found)[:3] == ["fagen", "FA4", "torch flash"]


def test_two_specs_on_one_shape_are_told_apart():
    found = entries(document([case("d128_causal_4096"), case("d128_causal_4096", spec="h200_fa2")]))
    assert list(labels(found).values()) == ["d128_causal_4096, h200_fa3", "d128_causal_4096, h200_fa2"]


@pytest.mark.parametrize(
    "mask, says",
    [("none", "no mask"), ("causal", "causal mask"), ({"window": [4095, 0]}, "window 4095, 0")],
)
def test_masks_in_words(mask, says):
    each = case("d128_causal_4096")
    each["problem"]["mask"] = mask
    assert entries(document([each]))[0].mask == says


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(FagenError, match=r"needs matplotlib: pip install 'fagen\[report\]'"):
        plots.check_installed()


@pytest.mark.parametrize("scheme, width", [("light", 1000), ("dark", 1500)])
def test_a_browser_finds_nothing_wrong(text, chromium, tmp_path, scheme, width):
    path = tmp_path / "bench.html"
    path.write_text(text, encoding="utf-8")
    chromium.look(path, scheme, width).must_be_fine()


def test_a_browser_does_not_mind_long_names(chromium, tmp_path):
    long = "name" * 40
    each = case("llama3_8b_decode_8k", shape_name=long, spec=long)
    each["contenders"] = {long + name: found for name, found in each["contenders"].items()} | each[
        "contenders"
    ]
    path = tmp_path / "long.html"
    path.write_text(report(document([each, case("d128_none_4096")])), encoding="utf-8")
    chromium.look(path, "light", 900).must_be_fine()
