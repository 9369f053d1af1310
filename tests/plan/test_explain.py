"""The plan's explanation: one structure in three prints, with everything a reader needs in it."""

import json
import re

import pytest
from rich.console import Console

from fagen.errors import PlanError
from fagen.plan import explain, io
from fagen.plan.formulas import FORMULAS
from fagen.plan.launch import Shape
from fagen.plan.planner import plan
from fagen.spec.model import Schedule, Spec
from fagen.spec.schema import leaves, schema_of

SHAPE = Shape(4, 4096, 4096, 16, 16)


def planned(mask="causal", **schedule):
    problem = {"dtype": "bf16", "head_dim": 128, "mask": mask}
    return plan(
        Spec.model_validate(
            {"name": "sample", "family": "v2", "arch": "sm_80", "problem": problem, "schedule": schedule}
        )
    )


def printed(plan, shape=SHAPE):
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(explain.to_tables(plan, shape))
    return console.export_text()


def test_json_is_plain_data_with_the_plans_numbers():
    p = planned(tile={"q": 128, "kv": 64})
    read = json.loads(json.dumps(explain.to_json(p, SHAPE)))
    assert read["kernel"]["kernel"] == p.symbol
    assert read["launch"]["dynamic_shared_memory_bytes"] == p.smem_bytes
    assert read["launch"]["grid"] == 4 * 16 * 4096 // 128
    assert [buffer["offset"] for buffer in read["shared_memory_map"]] == [b.offset for b in p.buffers]
    for account in p.accounts:
        rows = read["budget_" + account.resource.lower().replace(" ", "_")]
        assert [row[account.unit] for row in rows] == [
            *(term.value for term in account.terms),
            account.used,
            account.allowed,
        ]


def test_schedule_says_who_chose_each_key():
    rows = {row["key"]: row for row in explain.to_json(planned(tile={"q": 128}))["schedule"]}
    assert rows["tile.q"] == {"key": "tile.q", "value": 128, "chosen_by": "spec"}
    assert rows["tile.kv"]["chosen_by"] == "planner"
    assert len(rows) == 9


def test_mask_alignment_and_batch_invariance_are_stated():
    kernel = explain.to_json(planned())["kernel"]
    assert kernel["mask"] == "causal: bottom-right, query i sees key j <= i + S_k - S_q"
    assert "no split-KV" in kernel["batch_invariant"]


def test_traffic_is_the_io_models():
    p = planned()
    at = io.setting(p, SHAPE)
    rows = explain.to_json(p, SHAPE)["traffic"]
    moved = {(row["algorithm"], row["pass"], row["level"]): row["bytes"] for row in rows}
    assert moved == {(f.algorithm, f.direction, f.level): io.evaluate(f, at) for f in FORMULAS}
    assert {row["growth_of_one_head"] for row in rows} >= {"Θ(N² d²/M)", "Θ(N² + N d)"}


def test_every_number_of_a_section_is_in_all_three_prints():
    p = planned()
    text, page = printed(p, explain.DEFAULT_SHAPE), explain.to_markdown(p)
    for section in explain.sections(p):
        assert section.title in text
        assert f"## {section.title}\n" in page
    for buffer in explain.to_json(p)["shared_memory_map"]:
        assert f"{buffer['bytes']:,}" in text
        assert f"{buffer['bytes']:,}" in page


def test_sections_have_distinct_json_keys_and_full_rows():
    p = planned()
    assert len(explain.to_json(p)) == len(explain.sections(p))
    for section in explain.sections(p):
        assert all(len(row) == len(section.columns) for row in section.rows)


def test_markdown_is_deterministic_and_its_tables_are_regular():
    page = explain.to_markdown(planned())
    assert page == explain.to_markdown(planned())
    for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.M):
        pipes = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(pipes) == 1
    assert page.startswith("# The plan of sample\n")


def test_grouped_heads_read_k_and_v_of_each_kv_head_once():
    p = planned()
    few, many = (
        next(
            row["bytes"]
            for row in explain.to_json(p, Shape(1, 1024, 1024, 16, heads))["traffic"]
            if (row["algorithm"], row["pass"], row["level"]) == ("v2", "forward", "HBM")
        )
        for heads in (2, 16)
    )
    assert many - few == 14 * 1024 * 256 * 2


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("shape", [Shape(1, 0, 5, 1, 1), Shape(1, 5, 0, 1, 1), Shape(1, 1, 1, 1, 1)])
def test_degenerate_shapes_can_be_explained(mask, shape):
    prediction = explain.to_json(planned(mask), shape)["predicted_forward"]
    assert prediction["flop"] == 2 * shape.seqlen_q * shape.seqlen_k * 256
    assert prediction["tflop_s"] >= 0


def test_a_shape_beyond_the_grid_is_refused():
    with pytest.raises(PlanError, match="allowed"):
        explain.to_json(planned(), Shape(2**20, 2**20, 1, 1, 1))


# v3


def v3_sections(v3_spec, mask: object = "causal", **schedule):
    p = plan(v3_spec(schedule, mask=mask))
    return p, json.loads(json.dumps(explain.to_json(p, SHAPE)))


def test_v3_shows_every_schedule_key_that_it_has(v3_spec):
    _, found = v3_sections(v3_spec, softmax={"exp2": {"polynomial": 0.25}})
    rows = {row["key"]: row["value"] for row in found["schedule"]}
    assert set(rows) == {key for key in leaves(schema_of(Schedule)) if key not in ("q_operand", "allow")}
    assert rows["softmax.exp2"] == "polynomial: 0.25"
    assert rows["roles.math.pingpong"] is True
    assert "| `roles.math.pingpong` | true | planner |" in explain.to_markdown(plan(v3_spec()))


def test_v3_shows_its_roles_and_the_registers_that_they_hold(v3_spec):
    p, found = v3_sections(v3_spec, tile={"q": 128, "kv": 128})
    assert [row["role"] for row in found["roles"]] == ["load", "math 0", "math 1"]
    assert 32 * sum(row["warps"] for row in found["roles"]) == p.tiling.threads
    assert [row["registers_of_a_thread"] for row in found["roles"]] == [24, 240, 240]
    assert found["roles"][2]["does"] == "rows 64 to 127 of Q; in turns, by named barriers"


def test_v3_shows_its_barriers_up_to_the_end_of_shared_memory(v3_spec):
    p, found = v3_sections(v3_spec)
    last = found["barriers"][-1]
    assert found["barriers"][0]["offset"] == p.barriers_offset
    assert last["mbarrier"] == p.barriers[-1].name
    assert last["offset"] + 8 * last["stages"] == p.smem_bytes


def test_only_v3_has_roles_and_barriers_to_show(v3_spec):
    shown = set(v3_sections(v3_spec)[1]) - set(explain.to_json(planned()))
    assert {"roles", "barriers"} <= shown


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ((128, 0), "query i sees key i + S_k - S_q - 128 <= j <= i + S_k - S_q + 0"),
        ((None, 3), "query i sees key j <= i + S_k - S_q + 3"),
        ((7, None), "query i sees key i + S_k - S_q - 7 <= j"),
    ],
    ids=str,
)
def test_a_window_says_where_it_stands(window, said, v3_spec):
    _, found = v3_sections(v3_spec, mask={"window": window})
    assert found["kernel"]["mask"] == f"window: bottom-right, {said}"


def test_rescaling_together_is_stated_where_it_happens(v3_spec):
    def said(rescale: object, **schedule) -> str:
        softmax = {"rescale": rescale}
        return v3_sections(v3_spec, softmax=softmax, **schedule)[1]["kernel"]["batch_invariant"]

    assert "rescale" not in said("always")
    assert "share a warp decide together" in said({"lazy": 8})
    assert "share a warp decide together" in said({"growth": 30})
    assert "those of the query heads of one K/V head among them" in said({"lazy": 8}, pack_gqa=True)


@pytest.mark.parametrize(
    ("rescale", "said"),
    [(None, "growth: 30"), ("always", "always"), ({"lazy": 0.5}, "lazy: 0.5"), ({"growth": 0}, "growth: 0")],
    ids=str,
)
def test_the_rule_of_rescaling_reads_as_in_a_spec(rescale, said, v3_spec):
    rows = v3_sections(v3_spec, softmax={"rescale": rescale})[1]["schedule"]
    assert {row["key"]: row["value"] for row in rows}["softmax.rescale"] == said


@pytest.mark.parametrize(
    ("kv", "said"), [(128, "a buffer of its own"), (176, "straight from registers")], ids=str
)
def test_the_way_of_o_is_stated(kv, said, v3_spec):
    page = explain.to_markdown(plan(v3_spec({"tile": {"q": 128, "kv": kv}})))
    assert f"O leaves {'through ' if kv == 128 else ''}{said}." in page
    assert "O leaves through the buffer of Q." in explain.to_markdown(planned())


@pytest.mark.parametrize(("scheduler", "by_counter"), [("persistent", False), ("persistent_lpt", True)])
def test_who_hands_out_work_items_is_stated(scheduler, by_counter, v3_spec):
    _, found = v3_sections(v3_spec, scheduler=scheduler)
    assert ("a counter in global memory" in found["roles"][0]["does"]) == by_counter
