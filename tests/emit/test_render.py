"""What the templates print: deterministic, strict, and by the rules that keep them readable."""

import re

import pytest
from jinja2 import UndefinedError

from fagen.emit.context import context
from fagen.emit.env import environment
from fagen.emit.render import render
from fagen.paths import SPECS, TEMPLATES
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

SHIPPED = sorted(SPECS.glob("*.yaml"))
HEADERS = sorted((TEMPLATES / "include").rglob("*.cuh"))
KERNELS = sorted(TEMPLATES.rglob("*.cu.j2"))


def planned(**overrides):
    return plan(load_spec(SPECS / "a100_fa2.yaml", {k.replace("__", "."): v for k, v in overrides.items()}))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_same_plan_prints_same_text(path):
    first, second = (render(plan(load_spec(path))) for _ in range(2))
    assert first == second
    assert first.symbol == f"fagen_{path.stem}_fwd"
    assert f"{first.symbol}(const __grid_constant__ Params p)" in first.text


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
        ({"schedule__scheduler": "in_order"}, r"sched::in_order\(p, blockIdx.x\)"),
        ({"schedule__scheduler": "longest_first"}, r"sched::longest_first\(p, blockIdx.x\)"),
        ({"schedule__q_operand": "registers"}, r"mma::RegisterA<"),
        ({"problem__mask": "none"}, r"kCausal = false;"),
        ({"problem__mask": "causal"}, r"kCausal = true;"),
        ({"problem__dtype": "fp16"}, r"using T = __half;"),
        ({"problem__head_dim": 72}, r"kDim = 72;"),
        ({"problem__head_dim_v": 40}, r"kDimV = 40;"),
    ],
)
def test_every_spec_key_reaches_the_kernel(overrides, line):
    assert re.search(line, render(planned(**overrides)).text)


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
        assert len(text.splitlines()) <= 170, path


def test_every_include_exists():
    for path in (*HEADERS, *KERNELS):
        for name in re.findall(r'#include "(fagen/[^"{]+)"', path.read_text()):
            assert (TEMPLATES / "include" / name).is_file(), f"{path}: {name}"
