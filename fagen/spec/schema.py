"""The shape of a spec as JSON schema: for editors, and for messages that say what is allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel

from fagen.spec.model import Schedule, Spec

Schema = dict[str, Any]


def json_schema() -> Schema:
    """JSON schema of a spec file: `Spec`, with `extends`, and with the values of `tune` spelled out."""
    spec = schema_of(Spec)
    properties = dict(spec["properties"])
    problem = properties["problem"]
    properties["problem"] = {key: value for key, value in problem.items() if key != "required"}
    properties["tune"] = {
        "description": properties["tune"]["description"],
        "type": "object",
        "properties": {
            key: {"type": "array", "items": value, "minItems": 1}
            for key, value in leaves(schema_of(Schedule)).items()
        },
        "additionalProperties": False,
    }
    extends = {
        "description": "spec in the same directory whose problem, schedule and tune this one builds on",
        "type": "string",
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "fagen spec",
        **{key: value for key, value in spec.items() if key not in ("title", "properties", "required")},
        "properties": {"extends": extends, **properties},
        "required": ["name"],
        "if": {"required": ["extends"]},
        "else": {
            "required": [key for key in spec["required"] if key != "name"],
            "properties": {"problem": {"required": problem["required"]}},
        },
    }


def json_text() -> str:
    """`json_schema` as the text of specs/fagen.schema.json."""
    return json.dumps(json_schema(), indent=2) + "\n"


@cache
def schema_of(model: type[BaseModel]) -> Schema:
    """JSON schema of `model` with every reference written out. Shared: do not change it."""
    schema = model.model_json_schema()
    return _inlined(schema, schema.pop("$defs", {}))


def _inlined(schema: Any, defs: Schema) -> Any:
    if isinstance(schema, list):
        return [_inlined(part, defs) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        # A default of a section only repeats the defaults of its keys.
        return _inlined(defs[schema["$ref"].rsplit("/", 1)[1]], defs)
    # A default of null only says that the key may be left out; editors would insert it.
    kept = {key: part for key, part in schema.items() if key != "default" or part is not None}
    inlined = {key: _inlined(part, defs) for key, part in kept.items()}
    if "properties" not in schema and isinstance(schema.get("title"), str):
        del inlined["title"]  # pydantic's title of a field only repeats its key
    return inlined


def leaves(schema: Schema, prefix: str = "") -> dict[str, Schema]:
    """Dotted key -> schema of every key that is not a section of its own."""
    found: dict[str, Schema] = {}
    for key, part in schema["properties"].items():
        found |= leaves(part, f"{prefix}{key}.") if "properties" in part else {f"{prefix}{key}": part}
    return found


def choices(schema: Schema) -> Iterator[str]:
    """The words that a value may be."""
    for branch in branches(schema):
        yield from map(str, branch.get("enum", [branch["const"]] if "const" in branch else []))


def branches(schema: Schema) -> list[Schema]:
    """The kinds of value that `schema` takes, less null: that only says what leaving the key out says."""
    return [branch for branch in schema.get("anyOf", [schema]) if branch.get("type") != "null"]


def mappings(schema: Schema) -> dict[str, Schema]:
    """The mappings with keys of their own that a value may be: title -> schemas of the keys of each."""
    return {kind["title"]: kind["properties"] for kind in branches(schema) if "properties" in kind}


def items(schema: Schema) -> Schema:
    """What the values of a list may be; null, where it may be one of them, is a word as any other."""
    each = schema["items"]
    if "anyOf" not in each:
        return each
    return {"anyOf": [{"const": "null"} if kind.get("type") == "null" else kind for kind in each["anyOf"]]}


def allowed(schema: Schema) -> str:
    """What a value may be, in words."""
    return " or ".join(_allowed(branch) for branch in branches(schema))


def _allowed(schema: Schema) -> str:
    if words := list(choices(schema)):
        return ", ".join(words)
    match schema.get("type"):
        case "integer" | "number":
            kind = "whole numbers" if schema["type"] == "integer" else "numbers"
            if "multipleOf" in schema:
                kind = f"multiples of {schema['multipleOf']}"
            if "exclusiveMinimum" in schema:
                low = f"above {schema['exclusiveMinimum']:g} and up"
            else:
                low = f"from {schema['minimum']:g}"
            return f"{kind} {low} to {schema['maximum']:.10g}"
        case "boolean":
            return "true, false"
        case "string":
            return schema["patternErrorMessage"]
        case "array":
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            count = f" ({least} of them)" if least == most else f" (at least {least})" if least else ""
            return f"a list of {allowed(items(schema))}{count}"
        case "object" if "properties" in schema:
            return f"a mapping with {', '.join(schema['properties'])}"
        case "object":
            return f"a mapping to {allowed(schema['additionalProperties'])}"
    return "values"
