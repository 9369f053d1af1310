"""The FP8 example runs as it stands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fagen.paths import SPECS

FILE = SPECS.parent / "examples" / "fp8.py"


@pytest.mark.skipif(not FILE.exists(), reason="an installed fagen has no examples")
def test_it_attends_as_exactly_as_8_bits_can() -> None:
    done = subprocess.run([sys.executable, FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "torch.bfloat16" in done.stdout
    assert 1e-3 < float(done.stdout.split()[-1]) < 3e-2
