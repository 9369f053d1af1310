"""The search space of a pass: every choice from the specs' `tune:` lists that the planner finds to fit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any

from fagen.errors import PlanError, SpecError, TuneError
from fagen.plan.ir import Plan
from fagen.plan.planner import plan
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.entry import digest, problem_key

MOST = 20_000  # choices of a spec: about 10 s of planning
SHOWN = 5  # refused choices in an error
NUMBER = re.compile(r"\d[\d,]*")
NAME = re.compile(r"^[a-z0-9_]+: ")  # of the spec, which the planner's messages begin with
AS_IT_STANDS = "as it stands"


@dataclass(frozen=True)
class Variant:
    """A spec with one choice of its `tune:` lists laid over it, and the plan of the pass that is tuned."""

    spec: Spec  # its name tells the choice; has no `tune:` itself
    base: str  # name of the spec that it came from, before a shape's problem was laid over it
    choice: Mapping[str, Any]  # schedule key -> value; empty: the spec as it stands
    plan: Plan

    @property
    def as_it_stands(self) -> bool:
        """Whether nothing was chosen."""
        return not self.choice

    @cached_property
    def key(self) -> str:
        """The same for variants whose kernels are the same."""
        planned = self.plan
        return digest(
            [
                self.spec.family,
                planned.arch.name,
                planned.direction,
                problem_key(self.spec.problem, planned.direction),
                asdict(planned.tiling),
                self.spec.schedule.allow,
            ]
        )

    def __str__(self) -> str:
        return words(self.choice)


@dataclass(frozen=True)
class Space:
    """What may be timed, no two of it the same kernels, and what may not."""

    variants: tuple[Variant, ...]
    refused: tuple[tuple[str, str], ...]  # the choice in words, why the rules or the planner refuse it

    @property
    def digest(self) -> str:
        """The same for spaces of the same kernels."""
        return digest(sorted(variant.key for variant in self.variants))


def space(specs: Mapping[str, Spec], direction: str, arch: str) -> Space:
    """All variants of `specs`, by the name of their base, for a pass on `arch`; each as it stands goes first.

    A list for a key of `backward.` is of the backward alone, every other of the forward alone. Raises
    TuneError if a spec has more than MOST choices, if a spec is named as another's variant is, or if nothing
    fits; the message has the bytes wanted and allowed.
    """
    variants: dict[str, Variant] = {}
    named: dict[str, Variant] = {}
    refused = []
    for base, spec in specs.items():
        for choice in _choices(base, spec, direction):
            try:
                variant = _variant(base, spec, choice, direction, arch)
            except (SpecError, PlanError) as error:
                refused.append((f"{base}, {words(choice)}", reason(error)))
            else:
                twin = named.setdefault(variant.spec.name, variant)
                if twin.key != variant.key:
                    raise TuneError(
                        f"{twin.base}, {twin}, and {base}, {variant}, are both named {twin.spec.name}; "
                        "allowed: each name once"
                    )
                variants.setdefault(variant.key, variant)
    if not variants:
        raise TuneError(_nothing_fits(list(specs), direction, arch, refused))
    return Space(tuple(variants.values()), tuple(refused))


def words(choice: Mapping[str, Any]) -> str:
    """A choice for people: "tile.q 128, stages.kv 2"."""
    return ", ".join(f"{key} {_word(value)}" for key, value in choice.items()) or AS_IT_STANDS


def reason(error: SpecError | PlanError) -> str:
    """What is wrong with a choice, in one line: what it wants and what is allowed."""
    if isinstance(error, SpecError):
        return "; ".join(f"{issue.key} {issue.message}" for issue in error.issues)
    first, *lines = str(error).splitlines()
    return "; ".join(line for line in lines if " wanted, " in line) or NAME.sub("", first)


def _nothing_fits(names: Sequence[str], direction: str, arch: str, refused: Sequence[tuple[str, str]]) -> str:
    lines = [f"  {choice}: {why}" for choice, why in refused[:SHOWN]]
    if len(refused) > SHOWN:
        lines.append(f"  and {len(refused) - SHOWN} more")
    return "\n".join([f"{', '.join(names)}: no variant of the {direction} can run on {arch}:", *lines])


def by_kind(refused: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What is refused, choices and why, in words: a line for each kind of reason, with one's numbers."""
    kinds: dict[str, dict[str, str]] = {}
    for choice, why in refused:
        kinds.setdefault(NUMBER.sub("N", why), {})[choice] = why
    for alike in kinds.values():
        choice, why = next(iter(alike.items()))
        others = f" (and {len(alike) - 1} more for the like)" if len(alike) > 1 else ""
        yield f"{choice}: {why}{others}"


def _choices(base: str, spec: Spec, direction: str) -> Iterator[dict[str, Any]]:
    """The spec as it stands, then every combination of its lists."""
    lists = {
        key: values
        for key, values in spec.tune.items()
        if key.startswith("backward.") == (direction == "backward")
    }
    count = math.prod(map(len, lists.values()))
    if count > MOST:
        sizes = ", ".join(f"{key} {len(values)}" for key, values in lists.items())
        raise TuneError(f"{base}: tune has {count:,} choices ({sizes}); allowed: up to {MOST:,}")
    yield {}
    if lists:
        for values in product(*lists.values()):
            yield dict(zip(lists, values, strict=True))


def _variant(base: str, spec: Spec, choice: Mapping[str, Any], direction: str, arch: str) -> Variant:
    """Raises SpecError or PlanError where it cannot be."""
    overrides: dict[str, Any] = {f"schedule.{key}": value for key, value in choice.items()}
    if spec.arch != arch:
        overrides |= {"arch": arch, "device": None}
    chosen = load_spec(spec.model_copy(update={"tune": {}}), overrides)
    return Variant(chosen, base, choice, plan(chosen, direction=direction))


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_word(child)}" for key, child in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
