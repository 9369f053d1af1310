"""A result of tuning: what it answers, what it holds for, and how it stands in a file."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pydantic import TypeAdapter

from fagen.plan.ir import Tiling
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Problem, Spec


@dataclass(frozen=True)
class Where:
    """What a measurement holds for; see `where.py`."""

    gpu: str  # product name, "NVIDIA H200"
    driver: str  # "580.159.03"
    nvrtc: str  # "13.0"
    headers: str  # hash of fagen's version, its templates and its device headers

    def difference(self, other: Where) -> str:
        """What another machine has else, in words; empty where they are equal."""
        mine, theirs = asdict(self), asdict(other)
        return ", ".join(
            f"{name} {mine[name]} (here {theirs[name]})" for name in mine if mine[name] != theirs[name]
        )


@dataclass(frozen=True)
class Entry:
    """The fastest spec found for one pass of a problem on one shape."""

    problem: Problem
    shape: Shape  # that was timed
    direction: str  # "forward" | "backward"
    where: Where
    spec: Spec  # of the arch of that GPU; for a backward: with the forward found before it
    tiling: Tiling  # what the planner made of the spec
    seconds: float  # median, on the device
    beat: str  # name of the spec that was the fastest as it stood
    beat_seconds: float
    asked: str  # digest of what it was the best of
    timed: int  # variants
    feasible: int
    rank: int = 0  # see `outcome.Winner`; 0: not known
    measured: str = ""  # the day, "2026-11-30"
    budget: float | None = None  # seconds that cut it short; None: nothing did

    @property
    def bucket(self) -> Shape:
        """The shapes that it is an answer for."""
        return bucket(self.shape)


_SHAPE, _WHERE, _ENTRY = TypeAdapter(Shape), TypeAdapter(Where), TypeAdapter(Entry)


def bucket(shape: Shape) -> Shape:
    """Shapes as large as `shape`: lengths and batch * heads_kv to the nearest power of two, the same group.

    All K/V heads stand in the batch.
    """
    return Shape(
        batch=_power(shape.batch * shape.heads_kv),
        seqlen_q=_power(shape.seqlen_q),
        seqlen_k=_power(shape.seqlen_k),
        heads_q=shape.heads_q // max(1, shape.heads_kv),
        heads_kv=1,
        tokens_q=None if shape.tokens_q is None else _power(shape.tokens_q),
        tokens_k=None if shape.tokens_k is None else _power(shape.tokens_k),
    )


def _power(size: int) -> int:
    return 2 ** round(math.log2(size)) if size > 0 else 0


def distance(a: Shape, b: Shape) -> float:
    """How far two shapes of a bucket are from each other, in powers of two."""
    pairs = zip(asdict(a).values(), asdict(b).values(), strict=True)
    return sum(abs(math.log2(max(1, x or 1) / max(1, y or 1))) for x, y in pairs)


def problem_key(problem: Problem, direction: str) -> dict[str, Any]:
    """What of a problem decides the kernels of a pass, as JSON has it."""
    key = problem.model_dump(mode="json") | {"head_dim_v": problem.dim_v}
    del key["passes"]
    if direction == "forward":
        del key["deterministic"]
    return key


def digest(value: Any, length: int = 16) -> str:
    """A short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:length]


def to_json(entry: Entry) -> dict[str, Any]:
    """An entry as plain values."""
    plain = {field.name: getattr(entry, field.name) for field in fields(entry)}
    return plain | {
        "problem": entry.problem.model_dump(mode="json", exclude_unset=True),
        "shape": asdict(entry.shape),
        "where": asdict(entry.where),
        "spec": entry.spec.model_dump(mode="json", exclude_unset=True),
        "tiling": asdict(entry.tiling),
    }


def from_json(data: Mapping[str, Any]) -> Entry:
    """What `to_json` made.

    Raises one of DAMAGE for what it did not make.
    """
    return _ENTRY.validate_python(
        {
            **data,
            "problem": load_spec({**data["spec"], "problem": data["problem"]}).problem,
            "shape": shape_of(data["shape"]),
            "where": _WHERE.validate_python(data["where"]),
            "spec": load_spec(data["spec"]),
            "tiling": Tiling(**data["tiling"]),
            "seconds": duration(data["seconds"]),
            "beat_seconds": duration(data["beat_seconds"]),
        }
    )


def shape_of(data: Any) -> Shape:
    """The shape that a file has. Raises ValueError."""
    shape = _SHAPE.validate_python(data)
    if min(shape.batch, shape.heads_q, shape.heads_kv) < 1 or shape.heads_q % shape.heads_kv:
        raise ValueError(f"{shape} is no shape")
    return shape


def duration(seconds: Any) -> float:
    """The time that a file has for something. Raises one of DAMAGE for what is none."""
    if not 0 < float(seconds) < math.inf:
        raise ValueError(f"{seconds} s; allowed: more than 0")
    return float(seconds)
