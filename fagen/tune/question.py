"""What is to be tuned: the passes of a problem on a shape, and the specs that may answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fagen.bench.shapes import NamedShape
from fagen.errors import SpecError, TuneError
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Problem, Spec
from fagen.tune.entry import digest, problem_key
from fagen.tune.space import reason


@dataclass(frozen=True)
class Question:
    """One problem on one shape."""

    name: str  # of the shape
    problem: Problem
    shape: Shape
    specs: Mapping[str, Spec]  # by the name of their base; with this problem laid over it


def questions(asked: Iterable[tuple[Spec, Sequence[NamedShape]]]) -> tuple[Question, ...]:
    """The problem of every shape laid over the specs that go with it; specs that become one problem compete.

    Of several specs those made for the shape's head sizes do; where there are none, those made for the next
    larger ones; where there are none either, all.

    Raises TuneError for two specs of one name, and if no spec can have the problem of any shape.
    """
    found: dict[object, tuple[NamedShape, dict[str, Spec]]] = {}
    refused: list[str] = []
    made_for: dict[str, Problem] = {}
    for spec, shapes in asked:
        if spec.name in made_for:
            raise TuneError(f"two specs are named {spec.name}; allowed: each name once")
        made_for[spec.name] = spec.problem
        for named in shapes:
            try:
                laid = load_spec(spec, named.problem)
            except SpecError as error:
                refused.append(f"  {named.name}: {spec.name}: {reason(error)}")
                continue
            key = named.name, named.shape, digest(problem_key(laid.problem, "backward"))
            found.setdefault(key, (named, {}))[1][spec.name] = laid
    if not found:
        raise TuneError("\n".join(["no spec can have the problem of any shape:", *refused]))
    return tuple(
        Question(named.name, next(iter(specs.values())).problem, named.shape, _nearest(specs, made_for))
        for named, specs in found.values()
    )


def _nearest(specs: Mapping[str, Spec], made_for: Mapping[str, Problem]) -> dict[str, Spec]:
    """Of specs with one problem those that had the nearest head sizes that hold its own; if none do, all."""
    columns: dict[str, int] = {}  # of q and v together, more than there are
    for name, spec in specs.items():
        own, problem = made_for[name], spec.problem
        if own.head_dim >= problem.head_dim and own.dim_v >= problem.dim_v:
            columns[name] = own.head_dim - problem.head_dim + own.dim_v - problem.dim_v
    least = min(columns.values(), default=None)
    return {name: spec for name, spec in specs.items() if columns.get(name) == least}
