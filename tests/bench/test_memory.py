from __future__ import annotations

import json
import sys

import pytest
import torch
from rich.console import Console

from fagen.bench import memory
from fagen.errors import ArgumentError


def test_the_slope_tells_linear_from_quadratic():
    lengths = memory.SEQLENS
    assert memory.slope({n: 1000 * n for n in lengths}) == pytest.approx(1)
    assert memory.slope({n: 96 * n * n for n in lengths}) == pytest.approx(2)
    assert memory.slope({n: 96 * n * n + 9000 * n for n in lengths}) > 1.95, (
        "what is linear hides only the start"
    )


@pytest.mark.parametrize("failure", [torch.OutOfMemoryError("no"), ArgumentError("workspaces: 9 bytes")])
def test_a_curve_ends_where_it_no_longer_fits(failure):
    def measure(seqlen: int) -> int:
        if seqlen > 1000:
            raise failure
        return 7 * seqlen

    assert memory.curve(measure, (256, 512, 1024, 2048)) == {256: 7 * 256, 512: 7 * 512}


def test_table_and_json_have_every_point_and_the_slope():
    curves = {"standard": {256: 2**20, 512: 2**22}, "v2": {256: 2**20, 512: 2**21, 1024: 2**22}}
    console = Console(width=120)
    with console.capture() as capture:
        console.print(memory.table(curves))
    lines = [line.split() for line in capture.get().splitlines()]
    assert ["1024", "-", "4.0"] in lines
    assert lines[-1] == ["grows", "with", "S^", "2.00", "1.00"]
    found = json.loads(json.dumps(memory.to_json(curves, {"device": "a GPU"})))
    assert found["peak_bytes"]["standard"] == {"256": 2**20, "512": 2**22}
    assert found["slope"] == {"standard": 2.0, "v2": 1.0}


@pytest.mark.parametrize(
    ("words", "says"),
    [([], "usage"), (["--help"], "usage"), (["a", "b"], "usage"), (["no/out.json"], "no directory no")],
)
def test_a_file_that_cannot_be_is_refused_before_any_work(monkeypatch, tmp_path, words, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["memory", *words])
    monkeypatch.setattr(memory, "arch_of_device", lambda _: pytest.fail("looks for a GPU"))
    with pytest.raises(SystemExit, match=says):
        memory.main()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["memory", str(tmp_path / "out.json")])
    with pytest.raises(SystemExit, match="fagen doctor"):
        memory.main()


@pytest.mark.gpu
def test_on_a_gpu_ours_is_linear_and_standard_attention_is_not():
    for name, attention in memory.contenders().items():
        memory.peak(attention, 256)
        found = memory.slope(memory.curve(lambda n, own=attention: memory.peak(own, n), (1024, 2048, 4096)))
        assert found > 1.8 if name == "standard" else found < 1.05
