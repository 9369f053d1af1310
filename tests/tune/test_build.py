from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fagen.compile import report
from fagen.compile.cache import ENV
from fagen.errors import CompileError, PlanError
from fagen.paths import SPECS
from fagen.spec.load import load_spec
from fagen.tune.build import build, find, keep

SPEC = load_spec(SPECS / "a100_fa2.yaml", {"problem.head_dim": 64})
ASKED = SPEC, "sm_80", "forward"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Go to a node of a cluster, each of which has a cache of its own."""

    def go(name: str) -> Path:
        cache = tmp_path / name
        monkeypatch.setenv(ENV, str(cache))
        return cache

    return go


def files(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


def test_what_one_node_built_another_need_not_build(node):
    there = node("there")
    program = build(*ASKED)
    assert not program.cached
    here = node("here")
    keep(*ASKED, program)
    assert files(here) == files(there)
    assert build(*ASKED).cached


def test_what_this_node_would_build_otherwise_is_not_kept(node):
    node("there")
    other = replace(build(*ASKED), key="0" * 64)  # with another NVRTC, or other headers
    here = node("here")
    keep(*ASKED, other)
    assert files(here) == {}


def test_what_is_built_is_found_where_it_was_built(node):
    node("there")
    assert find(*ASKED) is None
    build(*ASKED)
    found = find(*ASKED)
    assert found and found == build(*ASKED)
    node("here")
    assert find(*ASKED) is None


def test_what_is_found_is_refused_as_it_was_when_it_was_built(node, monkeypatch):
    def refuse(*_: object) -> None:
        raise CompileError("spills 8 bytes")

    node("there")
    build(*ASKED)
    monkeypatch.setattr(report, "check", refuse)
    with pytest.raises(CompileError, match="spills"):
        find(*ASKED)


def test_what_is_damaged_is_not_found(node):
    there = node("there")
    build(*ASKED)
    for binary in there.rglob("kernel.cubin"):
        binary.write_bytes(b"")
    assert find(*ASKED) is None


def test_what_cannot_be_planned_is_an_error():
    with pytest.raises(PlanError, match="family"):
        build(load_spec(SPECS / "h200_fa3.yaml"), "sm_80", "forward")
