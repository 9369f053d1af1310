"""A spec before it is checked: plain values, each with the place it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Node:
    """A value and where it stands: a scalar's own line, the line of its key for a mapping or a list.

    `value` is a dict of str to Node, a tuple of Nodes, or a scalar.
    """

    value: Any
    where: str  # "specs/a.yaml:12", "<dict>" or "<override>"


def from_python(value: Any, where: str) -> Node:
    """`value` as a tree whose every part stands at `where`; lists become tuples."""
    if isinstance(value, Mapping):
        return Node({key: from_python(child, where) for key, child in value.items()}, where)
    if isinstance(value, list | tuple):
        return Node(tuple(from_python(child, where) for child in value), where)
    return Node(value, where)


def to_python(node: Node) -> Any:
    """The plain value of `node`: dicts, tuples and scalars."""
    if isinstance(node.value, dict):
        return {key: to_python(child) for key, child in node.value.items()}
    if isinstance(node.value, tuple):
        return tuple(to_python(child) for child in node.value)
    return node.value


def merge(base: Node, top: Node) -> Node:
    """`base` with the values of `top` laid over it: mappings key by key, anything else as a whole."""
    if not (isinstance(base.value, dict) and isinstance(top.value, dict)):
        return top
    merged = dict(base.value)
    for key, child in top.value.items():
        merged[key] = merge(merged[key], child) if key in merged else child
    return replace(base, value=merged)


def without(node: Node, *keys: str) -> Node:
    """`node` less some of its keys; a node that is no mapping as it is."""
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={key: child for key, child in node.value.items() if key not in keys})


def where(node: Node, key: str) -> str:
    """Where dotted `key` stands under `node`, or its nearest parent that does."""
    for name, child in _children(node):
        if key == name:
            return child.where
        if key.startswith((f"{name}.", f"{name}[")):
            return where(child, key[len(name) :].removeprefix("."))
    return node.where


def _children(node: Node) -> list[tuple[str, Node]]:
    if isinstance(node.value, dict):
        return [(str(key), child) for key, child in node.value.items()]
    if isinstance(node.value, tuple):
        return [(f"[{index}]", child) for index, child in enumerate(node.value)]
    return []
