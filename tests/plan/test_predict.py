"""Predicted time of a shape: FLOP by counting, and where the model must not flatter."""

import pytest

from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.plan.predict import forward_flops, predict
from fagen.spec.model import Spec


def planned(mask="none"):
    problem = {"dtype": "bf16", "head_dim": 64, "head_dim_v": 128, "mask": mask}
    return plan(Spec.model_validate({"name": "s", "family": "v2", "arch": "sm_90a", "problem": problem}))


@pytest.mark.parametrize("lengths", [(5, 5), (3, 8), (8, 3), (1, 9), (9, 1), (0, 4), (4, 0)])
def test_flop_counts_visible_pairs(lengths):
    queries, keys = lengths
    visible = sum(j <= i + keys - queries for i in range(queries) for j in range(keys))
    shape = Shape(2, queries, keys, 6, 3)
    assert forward_flops(planned("causal"), shape) == 2 * 12 * visible * (64 + 128)
    assert forward_flops(planned(), shape) == 2 * 12 * queries * keys * (64 + 128)


def test_a_full_device_reaches_the_engines_speed_and_never_more():
    p = planned()
    speed = predict(p, Shape(8, 16384, 16384, 16, 16)).tflops
    assert 0.97 * p.engines.tflops < speed <= p.engines.tflops * 1.0001


def test_few_ctas_leave_most_of_the_device_idle():
    p = planned()
    one = predict(p, Shape(1, p.tiling.q, 8192, 1, 1))
    slots = p.device.sms * p.tiling.ctas_per_sm
    assert one.tflops == pytest.approx(p.engines.tflops / slots, rel=0.05)


def test_one_query_against_many_keys_is_bound_by_memory():
    p = planned()
    decode = predict(p, Shape(64, 1, 8192, 16, 1))
    moved = 64 * 8192 * (64 + 128) * 2
    assert decode.seconds >= moved / p.device.hbm_bytes_per_s


def test_causal_takes_about_half_as_long():
    shape = Shape(2, 16384, 16384, 16, 16)
    none, causal = predict(planned(), shape), predict(planned("causal"), shape)
    assert causal.seconds / none.seconds == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize(
    "lengths", [(0, 500), (500, 0), (1, 5000), (5000, 1), (5000, 5000), (777, 40_000)], ids=str
)
def test_time_is_that_of_the_tiles_that_a_walk_over_the_ctas_counts(mask, lengths):
    p = planned(mask)
    (queries, keys), heads = lengths, 2 * 16
    slots = p.device.sms * p.tiling.ctas_per_sm
    seen = [
        max(min(row + p.tiling.q, queries) + keys - queries, 0) if mask == "causal" else keys
        for row in range(0, queries, p.tiling.q)
    ]
    tiles = [-(-each // p.tiling.kv) for each in seen]
    longest = max(tiles, default=0)
    steps = (
        max(longest, heads * sum(tiles) / slots)
        if mask == "causal"
        else -(-heads * len(tiles) // slots) * longest
    )
    compute = steps * p.engines.tile_flops * slots / (p.engines.tflops * 1e12)
    found = predict(p, Shape(2, queries, keys, 16, 16))
    assert found.seconds == compute if found.bound != "HBM" else found.seconds > compute
