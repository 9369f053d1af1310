"""Cold start of many processes on one cache directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fagen
from fagen.compile.cache import ENV
from fagen.paths import SPECS

pytestmark = pytest.mark.gpu

PROCESSES = 8
CHANGES = ({}, {"problem.head_dim": 64}, {"problem.dtype": "fp16", "problem.mask": "none"})
WORK = f"""
import torch, fagen
from fagen.ops import reference
from fagen.ops.checks import torch_dtype
for changes in {CHANGES!r}:
    op = fagen.load({str(SPECS / "a100_fa2.yaml")!r}, changes)
    problem = op.spec.problem
    sizes = (2, 200, 4, problem.head_dim)
    q, k, v = (torch.randn(sizes, dtype=torch_dtype(problem), device="cuda") for _ in "qkv")
    exact, _ = reference.attention(problem, q, k, v)
    plain, _ = reference.plain_attention(problem, q, k, v)
    error = (op(q, k, v).double() - exact).abs().max().item()
    assert error <= reference.allowed_error(problem, plain, exact), (op, error)
"""


def test_processes_share_an_empty_cache(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        ENV: str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(Path(fagen.__file__).parents[1]), *sys.path]),
    }
    workers = [
        subprocess.Popen([sys.executable, "-c", WORK], env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    for worker in workers:
        _, said = worker.communicate(timeout=240)
        assert worker.returncode == 0, said
    entries = sorted(entry.name for entry in tmp_path.iterdir())
    assert len(entries) == len(CHANGES), entries  # nothing temporary stays
    for entry in tmp_path.iterdir():
        files = {path.name for path in entry.iterdir()}
        assert files == {"kernel.cu", "kernel.cubin", "meta.json"}
        assert (entry / "kernel.cubin").read_bytes().startswith(b"\x7fELF"), "machine code"
