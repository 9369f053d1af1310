"""The specs in specs/ load, and are what their names say."""

from pathlib import Path

import pytest

from fagen.paths import SPECS, TEMPLATES
from fagen.spec.load import load_spec

FILES = sorted([*SPECS.glob("*.yaml"), *SPECS.glob("tuned/*.yaml")])  # beside them: shapes/


def test_paths_point_at_the_data() -> None:
    assert FILES
    assert TEMPLATES.is_dir()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_spec_loads_under_its_own_name_and_points_editors_at_the_schema(path: Path) -> None:
    spec = load_spec(path)
    assert spec.name == path.stem
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    schema = path.parent / first.partition("$schema=")[2]
    assert schema.resolve() == SPECS / "fagen.schema.json"


@pytest.mark.parametrize(
    ("name", "arch", "device", "head_dim"),
    [
        ("a100_fa2", "sm_80", "a100", 128),
        ("rtx4090_fa2", "sm_89", "rtx4090", 128),
        ("rtx5090_fa2", "sm_120a", "rtx5090", 128),
        ("h200_fa2", "sm_90a", "h200", 128),
        ("h200_fa2_d64", "sm_90a", "h200", 64),
        ("h200_fa2_d256", "sm_90a", "h200", 256),
    ],
)
def test_fa2_specs(name: str, arch: str, device: str, head_dim: int) -> None:
    spec = load_spec(SPECS / f"{name}.yaml")
    assert (spec.family, spec.arch, spec.device) == ("v2", arch, device)
    assert spec.problem.model_dump(exclude={"head_dim_v"}) == {
        "dtype": "bf16",
        "out_dtype": None,
        "fp8": None,
        "v_transposed": False,
        "head_dim": head_dim,
        "layout": "bshd",
        "mask": "causal",
        "softcap": None,
        "dropout": False,
        "deterministic": False,
        "passes": ("forward", "backward"),
    }


@pytest.mark.parametrize(
    ("name", "device", "head_dims", "tile"),
    [
        ("h200_fa3", "h200", (128, 128), (128, 128)),
        ("h100_fa3", "h100", (128, 128), (128, 128)),
        ("h200_fa3_d64", "h200", (64, 64), (192, 128)),
        ("h200_fa3_d64_short", "h200", (64, 64), (128, 128)),
        ("h200_fa3_d96", "h200", (96, 96), (128, 128)),
        ("h200_fa3_d192", "h200", (192, 128), (128, 96)),
        ("h200_fa3_d256", "h200", (256, 256), (128, 64)),
    ],
)
def test_fa3_specs(name: str, device: str, head_dims: tuple[int, int], tile: tuple[int, int]) -> None:
    spec = load_spec(SPECS / f"{name}.yaml")
    assert (spec.family, spec.arch, spec.device) == ("v3", "sm_90a", device)
    problem = spec.problem
    assert (problem.dtype, problem.layout, problem.mask) == ("bf16", "bshd", "causal")
    assert (problem.head_dim, problem.dim_v) == head_dims
    assert (spec.schedule.tile.q, spec.schedule.tile.kv) == tile


@pytest.mark.parametrize(
    ("name", "device", "head_dim", "tile"),
    [
        ("h200_fp8", "h200", 128, (128, None)),
        ("h100_fp8", "h100", 128, (128, None)),
        ("h200_fp8_d64", "h200", 64, (192, 128)),
        ("h200_fp8_d256", "h200", 256, (128, None)),
    ],
)
def test_fp8_specs(name: str, device: str, head_dim: int, tile: tuple[int, int | None]) -> None:
    spec = load_spec(SPECS / f"{name}.yaml")
    assert (spec.family, spec.arch, spec.device) == ("v3", "sm_90a", device)
    problem = spec.problem
    assert (problem.dtype, problem.dtype_out, problem.passes) == ("e4m3", "bf16", ("forward",))
    assert (problem.head_dim, problem.dim_v, problem.mask) == (head_dim, head_dim, "causal")
    assert (spec.schedule.tile.q, spec.schedule.tile.kv) == tile
    assert not problem.scales_blocks
