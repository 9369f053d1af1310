"""What is wrong with plain values, by key: pydantic's errors in the words of a spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fagen.errors import did_you_mean, shown
from fagen.spec.schema import Schema, allowed, branches, choices, items, mappings, schema_of


class Finding(NamedTuple):
    """One thing wrong with a spec: dotted key, what is wrong and what is allowed, a hint."""

    key: str
    message: str
    hint: str = ""


def findings(error: ValidationError, model: type[BaseModel]) -> list[Finding]:
    """What `error` says about a `model`: one finding a key, and none for one with wrong keys inside."""
    by_key: dict[str, Finding] = {}
    for detail in _meant(error.errors(include_url=False), schema_of(model)):
        finding = _finding(detail, schema_of(model))
        by_key.setdefault(finding.key, finding)
    return [f for f in by_key.values() if not any(inside(other, f.key) for other in by_key if other != f.key)]


def inside(key: str, outer: str) -> bool:
    """Whether `key` is `outer` or lies under it; everything lies under the empty key."""
    return not outer or key == outer or key.startswith((f"{outer}.", f"{outer}["))


def overlap(key: str, others: Iterable[str]) -> bool:
    """Whether `key` is, holds or lies under one of `others`."""
    return any(inside(key, other) or inside(other, key) for other in others)


def found(value: Any) -> str:
    """A value in the words of a message, e.g. "is `causl`"."""
    match value:
        case None:
            return "is empty (null)"
        case bool():
            return "is true (YAML reads yes and on so)" if value else "is false (YAML reads no and off so)"
        case int() | float():
            return f"is {value!r}"
        case str():
            return f"is {'the text ' if _looks_like_a_number(value) else ''}{shown(value)}"
        case dict():
            return "is a mapping"
        case tuple():
            return "is a list" if value else "is an empty list"
    return f"is a Python {type(value).__name__}"


def _looks_like_a_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _meant(details: list[ErrorDetails], root: Schema) -> list[ErrorDetails]:
    """Less what is wrong with one of several mappings that a value may be, where it lacks that one's key."""
    others = [
        branch
        for detail in details
        if detail["type"] == "missing" and (branch := detail["loc"][:-1])
        if branch[-1] in (kinds := mappings(_place(branch[:-1], root)[2])) and len(kinds) > 1
    ]
    return [d for d in details if not any(d["loc"][: len(other)] == other for other in others)]


def _finding(detail: ErrorDetails, root: Schema) -> Finding:
    key, parent, schema = _place(detail["loc"], root)
    value = detail["input"]
    match detail["type"]:
        case "missing":
            return Finding(key, f"is missing; allowed: {allowed(schema)}")
        case "extra_forbidden" | "invalid_key":
            siblings = parent.get("properties", {})
            hint = _right_key(detail["loc"][-1], siblings, root)
            return Finding(key, f"is not a key here; allowed: {', '.join(siblings)}", hint)
    words = list(choices(schema))
    match value:
        case None | False if "none" in words:
            hint = "did you mean `none`?"
        case str():
            hint = did_you_mean(value, words)
        case {**keys} if keys:
            hint = did_you_mean(next(iter(keys)), [key for kind in mappings(schema).values() for key in kind])
        case _:
            hint = ""
    return Finding(key, f"{found(value)}; allowed: {allowed(schema)}", hint)


def _right_key(name: object, siblings: Iterable[str], root: Schema) -> str:
    """A hint to the key meant: one of the siblings, or the same word in another section."""
    elsewhere = [key for key in _keys(root) if key.rsplit(".", 1)[-1] == name]
    return did_you_mean(name, siblings) or (f"did you mean `{elsewhere[0]}`?" if elsewhere else "")


def _keys(schema: Schema, prefix: str = "") -> Iterator[str]:
    """Every dotted key, sections before what they hold."""
    for key, part in schema.get("properties", {}).items():
        yield f"{prefix}{key}"
        yield from _keys(part, f"{prefix}{key}.")


def _place(loc: tuple[int | str, ...], root: Schema) -> tuple[str, Schema, Schema]:
    """Dotted key of a pydantic location, with the schemas of what holds it and of itself."""
    key, parent, schema = "", root, root
    for index, item in enumerate(loc):
        kinds = branches(schema)
        if len(kinds) > 1:  # pydantic names the branch of a union here, which is no part of the key
            if index < len(loc) - 1:
                schema = next(kind for kind in kinds if kind.get("title") == item)
            continue
        parent = kinds[0]
        if "items" in parent:
            key, schema = f"{key}[{item}]", items(parent)
        else:
            key = f"{key}.{item}".removeprefix(".")
            schema = parent.get("properties", {}).get(item) or parent.get("additionalProperties") or {}
    return key, parent, schema
