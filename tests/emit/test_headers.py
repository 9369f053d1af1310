"""Every device header compiles alone, for every arch; so does every kernel that the planner lets through."""

import pytest

from fagen.compile.cache import Cache
from fagen.compile.headers import EMULATED
from fagen.compile.nvrtc import compile_source
from fagen.emit.render import render
from fagen.emit.source import Source
from fagen.errors import PlanError
from fagen.hw.arch import ARCHES
from fagen.paths import SPECS, TEMPLATES
from fagen.plan import v3
from fagen.plan.kernels import kernels
from fagen.plan.planner import plan, plans
from fagen.spec.load import load_spec

INCLUDE = TEMPLATES / "include"
HEADERS = sorted(
    name
    for path in INCLUDE.rglob("*.cuh")
    if not (name := path.relative_to(INCLUDE).as_posix()).startswith(EMULATED)
)
SHIPPED = [load_spec(path) for path in sorted(SPECS.glob("*.yaml"))]
HOLDING = [(spec, arch.name) for spec in SHIPPED for arch in ARCHES.values() if spec.family in arch.families]


@pytest.mark.parametrize("arch", ARCHES)
def test_every_header_compiles_alone(arch):
    for header in HEADERS:
        text = f'#include "{header}"\nextern "C" __global__ void alone() {{}}\n'
        compile_source(Source("alone", "alone", arch, text, threads=32, smem_bytes=0), Cache(None))


@pytest.mark.parametrize(
    ("spec", "arch"), [pytest.param(*pair, id=f"{pair[0].name}-{pair[1]}") for pair in HOLDING]
)
def test_shipped_specs_compile_for_their_arch_and_others_that_hold_them(spec, arch):
    try:
        planned = plans(spec, arch)
    except PlanError as error:
        assert arch != spec.arch and "wanted" in str(error)
        return
    for kernel in (kernel for one in planned for kernel in kernels(one)):
        artifact = compile_source(render(kernel), Cache(None))  # raises for more than small spills
        assert artifact.seconds <= 15  # 3 s on an idle machine; CI's are shared


@pytest.mark.parametrize(
    ("family", "direction", "arch", "head_dims", "features"),
    [
        ("v2", "forward", "sm_80", range(8, 257, 8), {"mask": "causal"}),
        ("v2", "forward", "sm_89", range(8, 257, 8), {"mask": "causal"}),
        ("v2", "forward", "sm_90a", range(8, 257, 8), {"mask": "causal"}),
        ("v2", "backward", "sm_80", range(32, 257, 32), {"mask": "causal"}),
        ("v2", "backward", "sm_89", range(32, 257, 32), {"mask": "causal"}),
        ("v2", "backward", "sm_90a", range(32, 257, 32), {"mask": "causal"}),
        ("v2", "backward", "sm_90a", range(32, 257, 32), {"mask": {"window": (64, 64)}, "softcap": 30}),
        ("v2", "backward", "sm_80", range(32, 257, 32), {"mask": "causal", "dropout": True, "layout": "thd"}),
        ("v2", "backward", "sm_90a", range(32, 257, 32), {"dropout": True, "deterministic": True}),
        ("v3", "forward", "sm_90a", v3.COLUMNS, {"mask": "causal"}),
        ("v3", "forward", "sm_90a", v3.COLUMNS, {"mask": "none"}),
    ],
    ids=str,
)
def test_what_the_planner_chooses_compiles_without_more_than_small_spills(
    family, direction, arch, head_dims, features
):
    for head_dim in head_dims:
        problem = {"dtype": "bf16", "head_dim": head_dim, **features}
        spec = load_spec({"name": "planned", "family": family, "arch": arch, "problem": problem})
        for kernel in kernels(plan(spec, direction=direction)):
            compile_source(render(kernel), Cache(None))
