from __future__ import annotations

import pytest

from fagen.bench import numerics
from fagen.paths import SPECS

FP8 = SPECS / "h200_fp8.yaml"


def test_prints_a_row_for_each_way_and_says_who_computed(fagen):
    result = fagen("numerics", FP8, "--device", "model", "--shape", "1,128,256,1,1", "--dist", "normal")
    assert result.exit_code == 0
    assert "model" in result.stdout and "normal" in result.stdout and "1,128,256,1,1" in result.stdout
    for words in (("standard", "fp16"), ("fagen", "bf16"), ("fagen", "e4m3", "block", "yes")):
        assert any(line.split()[: len(words)] == list(words) for line in result.stdout.splitlines()), words
    per_tensor = next(
        line for line in result.stdout.splitlines() if line.split()[:3] == ["fagen", "e4m3", "tensor"]
    )
    assert per_tensor.split()[-1] == "1.00"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device", "gpu"), "allowed: emu, model"),
        (("--dist", "cauchy"), "outliers"),
        (("--shape", "1,2"), "five whole numbers"),
        (("--shape", "1,0,64,1,1"), "Sq and Sk must be at least 1"),
        (("--shape", "1,64,0,1,1"), "Sq and Sk must be at least 1"),
        (("--seed", 2**32), "4294967295"),
    ],
)
def test_arguments_that_it_does_not_take(fagen, words, message):
    result = fagen("numerics", FP8, *words)
    assert result.exit_code == 2 and message in result.stderr.replace("\n", " ")


def test_problems_are_printed_as_they_are(fagen, monkeypatch):
    """Also what looks like rich's markup."""
    problem = "q_descale: is missing; allowed: [batch, heads_kv] [/]"

    def measure(spec, shape, dist, seed, runner):
        return (numerics.Row(way, problem=problem) for way in numerics.ways(spec, runner.device))

    monkeypatch.setattr(numerics, "measure", measure)
    result = fagen("numerics", FP8, "--device", "model")
    assert result.exit_code == 1 and problem in " ".join(result.stdout.split())


def test_a_16_bit_spec_is_refused(fagen, a100):
    result = fagen("numerics", a100, "--device", "model")
    assert result.exit_code == 1 and "problem.dtype: is bf16; allowed: e4m3, e5m2" in result.stderr
