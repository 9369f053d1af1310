"""Generations side by side: what is counted, and that the reasons follow from the numbers."""

from dataclasses import replace

import pytest

from fagen.errors import PlanError
from fagen.plan.generations import Generation, generations, why
from fagen.plan.launch import Shape

SHAPE = Shape(8, 2048, 2048, 16, 16)
ROWS = 8 * 16 * 2048
PAIRS = ROWS * 2048


@pytest.fixture(scope="module")
def full() -> tuple[Generation, ...]:
    return generations(("v3", "v1", "v2"), SHAPE, 128, "none", "h200")


def test_standard_attention_comes_first_and_the_others_by_age(full):
    assert [one.name for one in full] == ["standard", "v1", "v2", "v3"]


def test_without_a_mask_all_multiply_the_same_and_the_backward_of_v1_and_v2_once_more(full):
    standard, *ours = full
    assert standard.forward.matmul_flops == 4 * 128 * PAIRS
    assert standard.backward.matmul_flops == 8 * 128 * PAIRS
    for one in ours:
        assert one.forward.matmul_flops == pytest.approx(4 * 128 * PAIRS, rel=0.1)  # tiles are whole
        assert one.backward.matmul_flops == pytest.approx(10 * 128 * PAIRS, rel=0.1)


def test_a_causal_mask_saves_standard_attention_nothing(full):
    causal = generations(("v1", "v2"), SHAPE, 128, "causal", "h200")
    assert causal[0] == full[0]
    for masked, whole in zip(causal[1:], full[1:3], strict=True):
        for one, other in zip(masked.passes, whole.passes, strict=True):
            assert 0.5 < one.matmul_flops / other.matmul_flops < 0.65


def test_other_flop_are_those_that_the_docstring_counts(full):
    standard, v1, v2, v3 = full
    assert (standard.forward.other_flops, standard.backward.other_flops) == (6 * PAIRS, 5 * PAIRS)
    assert standard.forward.exponentials == v2.forward.exponentials == v3.forward.exponentials == PAIRS
    per_score = [one.forward.other_flops / PAIRS for one in (v1, v2, v3)]
    assert per_score[0] > 5 + 3 * 128 / 256, "v1: O at every K/V block, of at most 256 rows"
    assert 5 < per_score[1] < 5.2, "v2 rescales lazily"
    assert 4 < per_score[2] < 4.2, "v3 looks for maxima only where it must"
    assert v2.backward.other_flops < v1.backward.other_flops


def test_memory_is_what_the_algorithms_keep(full):
    standard, v1, v2, v3 = full
    assert standard.forward.memory == {"S": 2 * PAIRS, "P": 2 * PAIRS}
    assert sum(standard.backward.memory.values()) == 6 * PAIRS
    assert v1.forward.memory == {"l, m": 8 * ROWS, "o_sum": 4 * 128 * ROWS}
    assert v1.backward.memory == {"l, m": 8 * ROWS, "dq_sum": 4 * 128 * ROWS}
    assert v2.forward.memory == v3.forward.memory == {"LSE": 4 * ROWS}
    assert v2.backward.memory == {"LSE": 4 * ROWS, "row_stats": 8 * ROWS, "dq_sum": 4 * 128 * ROWS}


def test_v1_has_a_cta_per_head_and_v2_one_per_tile(full):
    v1, v2 = full[1].forward.occupancy, full[2].forward.occupancy
    assert v1 and v2
    assert v1.ctas == 8 * 16
    assert v2.ctas == 8 * 16 * 2048 // (2048 // (v2.ctas // 128))
    few = generations(("v1",), replace(SHAPE, batch=1), 128, "none", "h200")[1].forward
    assert few.balance == pytest.approx(16 / 132)
    assert few.seconds["tensor core"] == pytest.approx(full[1].forward.seconds["tensor core"], rel=1e-6)


def test_the_bound_is_the_engine_that_takes_longest(full):
    for one in full:
        for cost in one.passes:
            assert cost.seconds[cost.bound] == max(cost.seconds.values())
    assert full[0].forward.bound == "HBM", "S and P"


def test_reasons_have_the_idea_and_what_became_less_and_more(full):
    standard, v1, v2, v3 = full
    assert why(standard, v1).startswith("v1 over standard: S and P never leave the SM")
    assert "memory beside the tensors 130 MiB, not 3,072" in why(standard, v1)
    less = why(v1, v2)
    assert "HBM " in less and "other FLOP" in less
    assert "memory beside the tensors" not in less, "both have a sum of dQ"
    assert "tensor cores at least" in why(v2, v3)


def test_what_hardly_changes_is_not_named(full):
    standard = full[0]
    assert why(standard, replace(standard, name="v1")).endswith("Less: nothing.")


def test_a_generation_that_the_device_cannot_run_is_refused():
    with pytest.raises(PlanError, match="v3"):
        generations(("v3",), SHAPE, 128, "none", "a100")


@pytest.mark.parametrize(
    "shape", [Shape(1, 0, 64, 2, 2), Shape(1, 64, 0, 2, 2), Shape(2, 1, 1, 4, 2)], ids=str
)
def test_small_and_empty_shapes_have_finite_costs(shape):
    for one in generations(("v2",), shape, 64, "causal", "h200"):
        for cost in one.passes:
            assert cost.hbm_bytes >= 0 and cost.intensity >= 0
