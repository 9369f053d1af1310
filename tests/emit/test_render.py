"""What the templates print: deterministic, strict, and by the rules that keep them readable."""

import re

import pytest
from jinja2 import UndefinedError

from fagen.emit.context import context
from fagen.emit.env import environment
from fagen.emit.render import render
from fagen.paths import SPECS, TEMPLATES
from fagen.plan.kernels import kernels, main_kernel
from fagen.plan.planner import plan, plans
from fagen.spec.load import load_spec

SHIPPED = sorted(SPECS.glob("*.yaml"))
HEADERS = sorted((TEMPLATES / "include").rglob("*.cuh"))
KERNELS = sorted(TEMPLATES.rglob("*.cu.j2"))


def planned(spec="a100_fa2", direction="forward", **overrides):
    """The kernel that multiplies."""
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    return main_kernel(plan(load_spec(SPECS / f"{spec}.yaml", changes), direction=direction))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_same_plan_prints_same_text(path):
    spec = load_spec(path)
    first, second = ([render(kernel) for one in plans(spec) for kernel in kernels(one)] for _ in range(2))
    assert first == second
    symbols = [source.symbol.removeprefix(f"fagen_{path.stem}_") for source in first]
    assert symbols[0] == "fwd" and len(set(symbols)) == len(symbols)
    assert ("bwd" in symbols) == ("backward" in spec.problem.passes)
    for source in first:
        assert f"{source.symbol}(const __grid_constant__ Params p)" in source.text


def test_unknown_template_name_is_an_error():
    with pytest.raises(UndefinedError, match="no_such_name"):
        environment().from_string("{{ no_such_name }}").render(context(planned()))


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ({"schedule__tile__q": 64, "schedule__roles__math__warps": 4}, r"kTileQ = 64;"),
        ({"schedule__tile__kv": 32}, r"kTileKv = 32;"),
        ({"schedule__stages__kv": 3, "schedule__tile__kv": 32}, r"kStages = 3;"),
        ({"schedule__softmax__rescale": "always"}, r"kLazy = -1.0f;"),
        ({"schedule__softmax__rescale": {"lazy": 4.0}}, r"kLazy = 4.0f;"),
        ({"schedule__scheduler": "in_order"}, r"sched::in_order\(sched::Tiles"),
        ({"schedule__scheduler": "longest_first"}, r"sched::longest_first\(sched::Tiles"),
        ({"schedule__q_operand": "registers"}, r"mma::RegisterA<"),
        ({"schedule__softmax__exp2": "hardware"}, r"kPolynomial = 0.0f;"),
        ({"schedule__softmax__exp2": {"polynomial": 0.25}}, r"kPolynomial = 0.25f;"),
        ({"schedule__ctas_per_sm": 1}, r"kCtasPerSm = 1;"),
        ({"problem__mask": "none"}, r"attn::Mask<fagen::attn::kUnbounded, fagen::attn::kUnbounded>;"),
        ({"problem__mask": "causal"}, r"attn::Mask<fagen::attn::kUnbounded, 0>;"),
        ({"problem__mask": {"window": [96, 8]}}, r"attn::Mask<96, 8>;"),
        ({"problem__dtype": "fp16"}, r"using T = __half;"),
        ({"problem__head_dim": 72}, r"kDim = 72;"),
        ({"problem__head_dim_v": 40}, r"kDimV = 40;"),
        ({"problem__layout": "bshd"}, r"sched::SameLength;"),
        ({"problem__layout": "thd"}, r"sched::AnyLength;"),
        ({"problem__softcap": 30.0}, r"attn::softcap\(s, p.softcap_scale\)"),
        ({"problem__dropout": True}, r"attn::Dropout dropout\(p.seed, "),
    ],
)
def test_every_spec_key_reaches_the_v2_kernel(overrides, line):
    assert re.search(line, render(planned(**overrides)).text)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ({"schedule__backward__tile__q": 64}, r"kTileQ = 64;"),
        ({"schedule__backward__tile__kv": 64}, r"kTileKv = 64;"),
        ({"schedule__backward__stages__q": 1}, r"kStages = 1;"),
        ({"schedule__backward__stages__ds": 2, "schedule__backward__tile__kv": 64}, r"kDsStages = 2;"),
        ({"schedule__backward__warps": {"q": 1, "kv": 4}, "schedule__backward__tile__q": 64}, r"kWarps = 4;"),
        ({"schedule__backward__warps__q": 2}, r"kWarpsQ = 2;"),
        ({"schedule__backward__warps__dq": 4}, r"kWarpsDq = 4;"),
        ({"schedule__backward__ctas_per_sm": 1}, r"kCtasPerSm = 1;"),
        ({"schedule__backward__scheduler": "in_order"}, r"sched::in_order\(tiles, blockIdx.x\)"),
        ({"schedule__backward__scheduler": "longest_first"}, r"sched::longest_first\(tiles, blockIdx.x\)"),
        ({"problem__mask": {"window": [96, 8]}}, r"attn::Mask<96, 8>;"),
        ({"problem__dtype": "fp16"}, r"using T = __half;"),
        ({"problem__head_dim": 72}, r"QTile = fagen::smem::Tile<kTileQ, 96>;"),
        ({"problem__head_dim_v": 40}, r"VTile = fagen::smem::Tile<kTileKv, 64>;"),
        ({"problem__layout": "thd"}, r"sched::AnyLength;"),
        ({"problem__softcap": 30.0}, r"attn::softcap\(s, p.softcap_scale\)"),
        ({"problem__dropout": True}, r"attn::Dropout dropout\(p.seed, "),
        ({"problem__deterministic": True}, r"ptx::wait_for_signals\("),
    ],
)
def test_every_spec_key_reaches_the_backward_kernel(overrides, line):
    assert re.search(line, render(planned(direction="backward", **overrides)).text)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_kernel_has_the_code_of_a_feature_only_where_it_is_on(direction):
    text = render(planned(direction=direction)).text
    for word in ("softcap", "dropout", "Dropout", "turn", "AnyLength"):
        assert word not in text.replace("return", "")


@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        ({"schedule__tile__q": 64}, ["kTileQ = 64;", "kWarpgroups = 1;"]),
        ({"schedule__tile": {"q": 192, "kv": 64}}, ["kTileQ = 192;", "kWarpgroups = 3;"]),
        ({"schedule__tile__kv": 80}, ["kTileKv = 80;"]),
        ({"schedule__stages__q": 1}, ["kQStages = 1;"]),
        ({"schedule__stages__kv": 3, "schedule__tile__kv": 64}, ["kStages = 3;"]),
        ({"schedule__roles__load__registers": 40}, ["kLoadRegisters = 40;"]),
        ({"schedule__roles__math__registers": 232}, ["kMathRegisters = 232;"]),
        ({"schedule__softmax__exp2": "hardware"}, ["kPolynomial = 0.0f;"]),
        ({"schedule__softmax__exp2": {"polynomial": 0.25}}, ["kPolynomial = 0.25f;"]),
        ({"schedule__softmax__rescale": "always"}, ["kLazy = -1.0f;"]),
        ({"schedule__softmax__rescale": {"lazy": 4.0}}, ["kLazy = 4.0f;"]),
        ({"schedule__softmax__rescale": {"growth": 10.0}}, ["kGrowth = 1024.0f;", "try_exponentiate"]),
        ({"schedule__scheduler": "in_order"}, ["sched::in_order(", "sched::Rounds<1>;"]),
        ({"schedule__scheduler": "longest_first"}, ["sched::longest_first(", "sched::Rounds<1>;"]),
        ({"schedule__scheduler": "persistent"}, ["sched::in_order(", "sched::Rounds<1>;"]),
        ({"schedule__scheduler": "persistent_lpt"}, ["sched::longest_first(", "sched::Counter;"]),
        (
            {"schedule__scheduler": "persistent", "schedule__cluster": 2},
            ["kCluster = 2;", "sched::Rounds<2>;"],
        ),
        ({"schedule__pack_gqa": True}, ["sched::Grouped;"]),
        ({"problem__layout": "bshd"}, ["sched::Batched;"]),
        ({"problem__softcap": 30.0}, ["attn::softcap(s, p.softcap_scale)"]),
        ({"problem__layout": "thd"}, ["sched::Packed;", "cu_seqlens_q;", "clear_results<128>"]),
        ({"problem__mask": {"window": [None, 8]}}, ["attn::Mask<fagen::attn::kUnbounded, 8>;"]),
        ({"problem__mask": {"window": [96, 0]}}, ["attn::Mask<96, 0>;"]),
        ({"problem__dtype": "fp16"}, ["using T = __half;"]),
        ({"problem__head_dim": 72}, ["KTile = fagen::smem::Tile<kTileKv, 96>;"]),
        ({"problem__head_dim_v": 40}, ["VTile = fagen::smem::Tile<kTileKv, 64>;"]),
    ],
)
def test_every_spec_key_reaches_the_v3_kernel(overrides, lines):
    text = render(planned("h200_fa3", **overrides)).text
    assert [line for line in lines if line not in text] == []


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("roles__math__pingpong", "turns.wait()"),
        ("roles__math__overlap", "ptx::wgmma_wait<1>()"),
    ],
)
def test_v3_has_the_code_of_a_switch_only_where_it_is_on(key, code):
    on, off = (
        render(planned("h200_fa3", "forward", **{f"schedule__{key}": value})).text for value in (True, False)
    )
    assert code in on and code not in off


def test_v3_stores_o_by_tma_where_shared_memory_has_room_for_it():
    both = [planned("h200_fa3", schedule__tile__kv=kv) for kv in (128, 176)]
    assert [kernel.plan.tiling.own_o for kernel in both] == [True, False]
    texts = [render(kernel).text for kernel in both]
    assert ["o_smem" in text for text in texts] == ["p.out_map" in text for text in texts] == [True, False]
    assert ["T* out;" in text for text in texts] == [False, True]


def test_registers_and_shared_q_print_different_kernels():
    held = render(planned(schedule__q_operand="registers", schedule__tile__kv=32)).text
    shared = render(planned(schedule__q_operand="shared", schedule__tile__kv=32)).text
    assert "SharedA" in shared and "RegisterA" not in shared and "RegisterA" in held


def test_inline_assembly_lives_in_ptx_headers_only():
    offenders = [path for path in (*HEADERS, *KERNELS) if re.search(r"\basm\b", path.read_text())]
    assert offenders and all(path.parent.name == "ptx" for path in offenders)


def test_templates_test_no_arch_and_stay_small():
    for path in KERNELS:
        text = path.read_text()
        assert "__CUDA_ARCH__" not in text
        assert len(text.splitlines()) <= 300, path


def test_every_include_exists():
    for path in (*HEADERS, *KERNELS):
        for name in re.findall(r'#include "(fagen/[^"{]+)"', path.read_text()):
            assert (TEMPLATES / "include" / name).is_file(), f"{path}: {name}"
