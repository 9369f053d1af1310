"""The plan's explanation: one structure in three prints, with everything a reader needs in it."""

import json
import re

import pytest
from rich.console import Console

from fagen.errors import PlanError
from fagen.plan import explain, io
from fagen.plan.formulas import FORMULAS
from fagen.plan.kernels import kernels, main_kernel
from fagen.plan.launch import Shape
from fagen.plan.planner import plan, plans
from fagen.plan.workspaces import workspaces
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
    (kernel,) = kernels(p)
    assert read["kernels"] == [
        {
            "kernel": "forward",
            "symbol": kernel.symbol,
            "grid": 4 * 16 * 4096 // 128,
            "threads_per_cta": p.tiling.threads,
            "dynamic_shared_memory_bytes": kernel.smem_bytes,
        }
    ]
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
    problem = explain.to_json(planned())["problem"]
    assert problem["mask"] == "causal: bottom-right, query i sees key j <= i + S_k - S_q"
    assert "no split-KV" in problem["batch_invariant"]


def test_traffic_is_the_io_models():
    p = planned()
    at = io.setting(p, SHAPE)
    rows = explain.to_json(p, SHAPE)["traffic"]
    moved = {(row["algorithm"], row["level"]): row["bytes"] for row in rows}
    forward = [f for f in FORMULAS if f.direction == "forward"]
    shown = {("standard", "paper"), ("standard", "HBM"), ("v1", "paper"), ("v2", "L2"), ("v2", "HBM")}
    bytes_of = {(f.algorithm, f.level): io.evaluate(f, at) for f in forward}
    assert moved == {key: bytes_of[key] for key in shown}
    assert {row["growth_of_one_head"] for row in rows} >= {"Θ(N² d²/M)", "Θ(N² + N d)"}


def test_every_number_of_a_section_is_in_all_three_prints():
    p = planned()
    text, page = printed(p, explain.DEFAULT_SHAPE), explain.to_markdown([p])
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
    page = explain.to_markdown([planned()])
    assert page == explain.to_markdown([planned()])
    for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.M):
        pipes = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(pipes) == 1
    assert page.startswith("# The forward of sample\n")


def test_grouped_heads_read_k_and_v_of_each_kv_head_once():
    p = planned()
    few, many = (
        next(
            row["bytes"]
            for row in explain.to_json(p, Shape(1, 1024, 1024, 16, heads))["traffic"]
            if (row["algorithm"], row["level"]) == ("v2", "HBM")
        )
        for heads in (2, 16)
    )
    assert many - few == 14 * 1024 * 256 * 2


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("shape", [Shape(1, 0, 5, 1, 1), Shape(1, 5, 0, 1, 1), Shape(1, 1, 1, 1, 1)])
def test_degenerate_shapes_can_be_explained(mask, shape):
    prediction = explain.to_json(planned(mask), shape)["prediction"]
    assert prediction["flop"] == 2 * shape.seqlen_q * shape.seqlen_k * 256
    assert prediction["tflop_s"] >= 0


def test_a_shape_beyond_the_grid_is_refused():
    with pytest.raises(PlanError, match="allowed"):
        explain.to_json(planned(), Shape(2**20, 2**20, 1, 1, 1))


# The backward


def test_a_page_has_the_sections_of_the_forward_and_then_of_the_backward(v2_spec):
    page = explain.to_markdown(plans(v2_spec()))
    forward, backward = page.split("# The backward of t\n")
    assert forward.startswith("# The forward of t\n")
    titles = [re.findall(r"^## (.*)", text, flags=re.M) for text in (forward, backward)]
    assert titles[0] == titles[1]


def test_the_backward_shows_its_kernels_workspaces_and_schedule(v2_spec):
    shape = Shape(2, 1000, 2000, 8, 2)
    p = plan(v2_spec(), direction="backward")
    found = explain.to_json(p, shape)
    tile = p.tiling
    q_tiles, kv_tiles = -(-1000 // tile.q), -(-2000 // tile.kv)
    assert [(row["kernel"], row["grid"]) for row in found["kernels"]] == [
        ("backward_prepare", 2 * 8 * q_tiles),
        ("backward", 2 * 2 * kv_tiles),
        ("backward_convert", 2 * 8 * q_tiles),
    ]
    assert found["launch"]["workspace_dq_sum_bytes"] == workspaces(p, shape)["dq_sum"]
    assert "workspace_turns_bytes" not in found["launch"]
    assert {row["key"] for row in found["schedule"]} == {
        key for key in leaves(schema_of(Schedule)) if key.startswith("backward.")
    }
    assert found["prediction"]["flop"] == 2 * 2 * 8 * 1000 * 2000 * 5 * 128
    assert {row["algorithm"] for row in found["traffic"]} == {"standard", "v1", "v2"}


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_order_of_the_sums_is_stated(deterministic, v2_spec):
    p = plan(v2_spec(deterministic=deterministic), direction="backward")
    found = explain.to_json(p)
    assert found["problem"]["deterministic"] is deterministic
    assert ("atomics" in found["problem"]["batch_invariant"]) is not deterministic
    assert ("workspace_turns_bytes" in found["launch"]) is deterministic


# v3


def v3_sections(v3_spec, mask: object = "causal", **schedule):
    p = plan(v3_spec(schedule, mask=mask))
    return p, json.loads(json.dumps(explain.to_json(p, SHAPE)))


def test_v3_shows_every_schedule_key_that_it_has(v3_spec):
    _, found = v3_sections(v3_spec, softmax={"exp2": {"polynomial": 0.25}})
    rows = {row["key"]: row["value"] for row in found["schedule"]}
    assert set(rows) == {
        key
        for key in leaves(schema_of(Schedule))
        if key not in ("q_operand", "allow", "accumulate.promote_every") and not key.startswith("backward.")
    }
    assert rows["softmax.exp2"] == "polynomial: 0.25"
    assert rows["roles.math.pingpong"] is True
    assert "| `roles.math.pingpong` | true | planner |" in explain.to_markdown([plan(v3_spec())])


def test_v3_shows_its_roles_and_the_registers_that_they_hold(v3_spec):
    p, found = v3_sections(v3_spec, tile={"q": 128, "kv": 128})
    assert [row["role"] for row in found["roles"]] == ["load", "math 0", "math 1"]
    assert 32 * sum(row["warps"] for row in found["roles"]) == p.tiling.threads
    assert [row["registers_of_a_thread"] for row in found["roles"]] == [24, 240, 240]
    assert found["roles"][2]["does"] == "rows 64 to 127 of Q; in turns, by named barriers"


def test_v3_shows_its_barriers_up_to_the_end_of_shared_memory(v3_spec):
    p, found = v3_sections(v3_spec)
    last = found["barriers"][-1]
    assert found["barriers"][0]["offset"] == main_kernel(p).barriers_offset
    assert last["mbarrier"] == p.barriers[-1].name
    assert last["offset"] + 8 * last["stages"] == main_kernel(p).smem_bytes


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
    assert found["problem"]["mask"] == f"window: bottom-right, {said}"


def test_rescaling_together_is_stated_where_it_happens(v3_spec):
    def said(rescale: object, **schedule) -> str:
        softmax = {"rescale": rescale}
        return v3_sections(v3_spec, softmax=softmax, **schedule)[1]["problem"]["batch_invariant"]

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
    page = explain.to_markdown([plan(v3_spec({"tile": {"q": 128, "kv": kv}}))])
    assert f"O leaves {'through ' if kv == 128 else ''}{said}." in page
    assert "O leaves through the buffer of Q." in explain.to_markdown([planned()])


@pytest.mark.parametrize(("scheduler", "by_counter"), [("persistent", False), ("persistent_lpt", True)])
def test_who_hands_out_work_items_is_stated(scheduler, by_counter, v3_spec):
    _, found = v3_sections(v3_spec, scheduler=scheduler)
    assert ("a counter in global memory" in found["roles"][0]["does"]) == by_counter
