"""The kernels compile for the arch whose instructions they are about, on any machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from machine import source

from fagen.compile.nvrtc import compile_source

DEFINES = {
    "wgmma": {"FORMS": (1 << 20) - 1, "MAX_N": 24},
    "pipeline": {"WITHOUT": 0},
}
EMULATED = {"refusals"}  # would hang or fail


@pytest.mark.parametrize("name", sorted({p.stem for p in Path(__file__).parent.glob("*.cu")} - EMULATED))
def test_it_compiles_without_complaint(name):
    compile_source(source(name, 128, 0, DEFINES.get(name, {})))  # raises for spills and C75xx notes
