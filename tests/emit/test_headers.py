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
from fagen.plan.planner import plan
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
        planned = plan(spec, arch)
    except PlanError as error:
        assert arch != spec.arch and "wanted" in str(error)
        return
    artifact = compile_source(render(planned), Cache(None))  # raises for more than small spills
    assert artifact.seconds <= 15  # 3 s on an idle machine; CI's are shared


@pytest.mark.parametrize(
    ("family", "arch", "mask", "head_dims"),
    [
        ("v2", "sm_80", "causal", range(8, 257, 8)),
        ("v2", "sm_89", "causal", range(8, 257, 8)),
        ("v2", "sm_90a", "causal", range(8, 257, 8)),
        ("v3", "sm_90a", "causal", v3.COLUMNS),
        ("v3", "sm_90a", "none", v3.COLUMNS),
    ],
)
def test_what_the_planner_chooses_compiles_without_more_than_small_spills(family, arch, mask, head_dims):
    for head_dim in head_dims:
        problem = {"dtype": "bf16", "head_dim": head_dim, "mask": mask}
        spec = load_spec({"name": "planned", "family": family, "arch": arch, "problem": problem})
        compile_source(render(plan(spec)), Cache(None))
