"""The README's example, word for word."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from typing import Any

import pytest
import torch

import fagen as package
from fagen.ops import reference
from fagen.paths import SPECS
from fagen.spec.model import Problem

README = SPECS.parent / "README.md"


pytestmark = pytest.mark.skipif(not README.exists(), reason="an installed fagen has no README")


def blocks(language: str) -> list[str]:
    """The README's code blocks in that language."""
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def block(language: str) -> str:
    """All of them, one after the other."""
    return "".join(blocks(language))


def test_every_command_does_what_it_says(fagen, tmp_path, monkeypatch):
    shutil.copytree(SPECS, tmp_path / "specs")
    (tmp_path / "specs" / "mine.yaml").write_text(block("yaml"))
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line, comments=True)[2:] for line in block("console").splitlines()]
    for words in commands:
        result = fagen(*words)
        assert result.exit_code == 0, (words, result.output)
    assert {words[0] for words in commands} == {"plan", "build", "run"}
    assert (tmp_path / "generated" / "mine" / "forward.cu").exists() and (tmp_path / "mine.json").exists()
    assert "from generated.mine import attention" in block("python")
    assert block("yaml").splitlines()[0].endswith("$schema=fagen.schema.json")  # as tests/spec asks of specs/


@pytest.mark.skipif(torch.cuda.is_available(), reason="CPU tensors are for machines without a GPU")
@pytest.mark.parametrize("said", ["from generated.h100_fp8 import", "fagen.explain("])
def test_examples_compute_attention(fagen, tmp_path, monkeypatch, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "generated"]:
        monkeypatch.delitem(sys.modules, name)
    assert fagen("build", SPECS / "h100_fp8.yaml").exit_code == 0
    (example,) = (text for text in blocks("python") if said in text)
    q, k, v = (torch.randn(1, 20, 2, 128, dtype=torch.bfloat16) for _ in "qkv")
    names: dict[str, Any] = {"fagen": package, "q": q, "k": k, "v": v}
    exec(example, names)
    exact, _ = reference.attention(Problem(dtype="bf16", head_dim=128, mask="causal"), q, k, v)
    assert reference.relative_error(names["out"], exact) <= reference.ALLOWED_RELATIVE_ERROR
