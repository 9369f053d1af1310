from __future__ import annotations

import json

import pytest


def test_generations_stand_side_by_side_with_the_reasons_last(fagen):
    result = fagen("explain", "v3", "v2", "v1", "--shape", "4,4096,4096,16,16")
    assert result.exit_code == 0
    assert result.stdout.count("4,4096,4096,16,16") == 2, "forward and backward"
    for row in ("HBM, MiB", "other, GFLOP", "CTAs at a time", "bound by tensor core, us"):
        assert row in result.stdout
    lines = result.stdout.splitlines()
    reasons = [line.split(":")[0] for line in lines if line.startswith("v")]
    assert reasons == ["v1 over standard", "v2 over v1", "v3 over v2"]


def test_json_has_the_same_numbers(fagen):
    result = fagen("explain", "v2", "--json", "--mask", "none", "--head-dim", "64")
    standard, v2 = json.loads(result.stdout)
    assert (standard["name"], v2["name"]) == ("standard", "v2")
    assert standard["forward"]["matmul_flops"] == 4 * 64 * 8 * 16 * 2048 * 2048
    assert v2["forward"]["occupancy"]["waves"] > 1


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("v5",), "v1, v2, v3"),
        (("v2", "--device", "h300"), "h200"),
        (("v2", "--head-dim", "60"), "multiples of 8"),
        (("v2", "--mask", "diagonal"), "causal"),
        ((), "Missing argument"),
    ],
    ids=str,
)
def test_what_is_not_there_is_a_usage_error(fagen, words, allowed):
    result = fagen("explain", *words)
    assert result.exit_code == 2
    assert allowed in " ".join(result.stderr.replace("│", " ").split())


def test_a_device_that_cannot_run_a_generation_is_an_error(fagen):
    result = fagen("explain", "v3", "--device", "a100")
    assert result.exit_code == 1
    assert "sm_80" in result.stderr
