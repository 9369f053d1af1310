"""Named shapes to measure and tune on: those of a YAML file, specs/shapes/models.yaml, and the papers'."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fagen.errors import Issue, SpecError, did_you_mean
from fagen.plan.launch import INT32_MAX, Shape
from fagen.spec.findings import found
from fagen.spec.model import NAME_PATTERN, NAME_RULE, Spec, Window
from fagen.spec.problem import problem_issues
from fagen.spec.read import read
from fagen.spec.tree import Node, to_python, without

SIZES = ("batch", "seqlen_q", "seqlen_k", "heads_q", "heads_kv")
OTHER_SIZE = {"seqlen_k": "seqlen_q", "heads_kv": "heads_q"}  # what a size is if it is left out
PROBLEM = ("head_dim", "head_dim_v", "mask", "layout", "dtype", "softcap")
REQUIRED = ("batch", "seqlen_q", "heads_q", "head_dim")
# What a shape that leaves a key out has; without layout or dtype it has the spec's.
DEFAULTS = {"head_dim_v": None, "mask": "none", "softcap": None}

# FlashAttention-2 (arXiv 2307.08691), section 4.1.
TOKENS = 16384
HIDDEN = 2048


@dataclass(frozen=True)
class NamedShape:
    """One call of attention that somebody makes: what a spec's problem is to be, and the sizes."""

    name: str  # "llama3_8b_prefill_8k"
    problem: Mapping[str, Any]  # spec overrides: {"problem.head_dim": 128, "problem.mask": "causal"}
    shape: Shape


def read_shapes(path: Path) -> tuple[NamedShape, ...]:
    """The shapes of a YAML file: a mapping of names to the keys SIZES and PROBLEM.

    REQUIRED must be there; sizes left out are as OTHER_SIZE says, other keys as DEFAULTS. Raises SpecError,
    which carries everything that is wrong, each with file:line and key.
    """
    node, issues = read(path)
    entries: dict[str, Node] = node.value
    if not entries:
        issues.append(Issue(node.where, "file", "names no shape; allowed: `name: {batch: ..., ...}` lines"))
    for name, entry in entries.items():
        issues += _issues(name, entry)
    if issues:
        raise SpecError(issues)
    return tuple(_shape(name, to_python(entry)) for name, entry in entries.items())


def paper_shapes(spec: Spec, seqlens: Sequence[int]) -> tuple[NamedShape, ...]:
    """FlashAttention-2's: TOKENS tokens or one sequence, heads that make a hidden dimension of about HIDDEN.

    At each length without a mask and causal; a spec with a sliding window keeps that.
    """
    problem = spec.problem
    masks: Iterable[Any] = ("none", "causal")
    if isinstance(problem.mask, Window):
        masks = (problem.mask.model_dump(),)
    heads = max(1, HIDDEN // problem.head_dim)
    return tuple(
        NamedShape(
            f"d{problem.head_dim}_{'window' if isinstance(mask, Mapping) else mask}_{length}",
            {"problem.mask": mask},
            Shape(max(1, TOKENS // length), length, length, heads, heads),
        )
        for mask in masks
        for length in seqlens
    )


def _issues(name: str, entry: Node) -> Iterator[Issue]:
    if not re.fullmatch(NAME_PATTERN, name):
        yield Issue(entry.where, name, f"is no name of a shape; allowed: {NAME_RULE}")
    keys = entry.value
    if not isinstance(keys, dict):
        yield Issue(entry.where, name, f"{found(keys)}; allowed: a mapping of {', '.join(REQUIRED)}, ...")
        return
    known = (*SIZES, *PROBLEM)
    for key, node in keys.items():
        if key not in known:
            message = f"is not a key here; allowed: {', '.join(known)}"
            yield Issue(node.where, f"{name}.{key}", message, did_you_mean(key, known))
    for key in REQUIRED:
        if key not in keys:
            yield Issue(entry.where, f"{name}.{key}", "is missing; allowed: a whole number from 1")
    sizes = {key: keys[key].value for key in SIZES if key in keys}
    wrong = [key for key, value in sizes.items() if not _is_size(value)]
    for key in wrong:
        yield Issue(
            keys[key].where,
            f"{name}.{key}",
            f"{found(sizes[key])}; allowed: whole numbers from 1 to {INT32_MAX}",
        )
    if not wrong and {"heads_q", "heads_kv"} <= sizes.keys() and sizes["heads_q"] % sizes["heads_kv"]:
        message = f"is {sizes['heads_q']}; allowed: multiples of heads_kv = {sizes['heads_kv']}"
        yield Issue(keys["heads_q"].where, f"{name}.heads_q", message)
    yield from problem_issues(without(entry, *keys.keys() - set(PROBLEM)), name)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= INT32_MAX


def _shape(name: str, keys: Mapping[str, Any]) -> NamedShape:
    sizes = {size: keys.get(size, keys.get(OTHER_SIZE.get(size, size))) for size in SIZES}
    problem = {f"problem.{key}": value for key, value in {**DEFAULTS, **keys}.items() if key in PROBLEM}
    return NamedShape(name, problem, Shape(**sizes))
