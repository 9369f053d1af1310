"""Keys of a spec's problem outside of a spec, e.g. in a file of shapes."""

from __future__ import annotations

from dataclasses import replace

from pydantic import ValidationError

from fagen.errors import Issue
from fagen.spec.findings import findings
from fagen.spec.model import Problem
from fagen.spec.tree import Node, from_python, merge, to_python, where

_STAND_IN = {"dtype": "bf16", "head_dim": 64}  # what a problem must have


def problem_issues(keys: Node, key: str) -> list[Issue]:
    """What is wrong with problem keys, any of which may lack, in the mapping `keys` at dotted `key`."""
    whole = replace(merge(from_python(_STAND_IN, keys.where), keys), where=keys.where)
    try:
        Problem.model_validate(to_python(whole))
    except ValidationError as error:
        found = findings(error, Problem)
        return [Issue(where(whole, f.key), f"{key}.{f.key}", f.message, f.hint) for f in found]
    return []
