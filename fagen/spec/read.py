"""A YAML file as a tree of plain values with line numbers; data only, and only so much of it.

Works on the parser's events, so that a file too large, too deep or with too many values (each alias counted
as all that it stands for) is refused before anything is built from it. Tags are refused altogether: no file
can name an object to build.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from fagen.errors import Issue, SpecError, did_you_mean, shown
from fagen.spec.tree import Node

MAX_BYTES = 64 * 1024
MAX_DEPTH = 16
MAX_VALUES = 4096

_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_YAML_TAG = "tag:yaml.org,2002:"
_TRUE = ("yes", "true", "on")  # what YAML 1.1 reads as true, in lower case


def read(path: Path) -> tuple[Node, list[Issue]]:
    """The mapping in `path`, and what is wrong with single values of it: tags, keys given twice, odd numbers.

    Raises SpecError, with those issues too, where the file cannot be read any further.
    """
    reader = _Reader(_text(path), lambda line: f"{path}:{line}")
    node = reader.document()
    if not isinstance(node.value, dict):
        message = "holds no mapping; allowed: `key: value` lines"
        raise SpecError([*reader.issues, Issue(node.where, "file", message)])
    return node, reader.issues


def read_value(text: str, key: str, where: str) -> Node:
    """The YAML value in `text`, which stands for `key` at `where`. Raises SpecError."""
    reader = _Reader(text, lambda line: where, key)
    node = reader.document()
    if reader.issues:
        raise SpecError(reader.issues)
    return node


def _text(path: Path) -> str:
    """What the file holds. Raises SpecError for anything but a small text file in UTF-8."""

    def refuse(message: str, hint: str = "") -> NoReturn:
        raise SpecError([Issue(str(path), "file", message, hint)])

    try:
        if path.is_dir():
            refuse("is a directory; allowed: a YAML file")
        if path.exists() and not path.is_file():  # a pipe or device might never end
            refuse("is not a regular file; allowed: a YAML file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        others = [other.name for other in path.parent.glob("*.yaml")]
        refuse("does not exist", did_you_mean(path.name, others))
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        refuse(f"cannot be read: {getattr(error, 'strerror', None) or error}")
    if len(data) > MAX_BYTES:
        refuse(f"is larger than the {MAX_BYTES} bytes allowed for a spec")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(f"is not UTF-8 text (byte {error.start}); allowed: a YAML file")


class _Reader:
    """Builds nodes from the events of one YAML text."""

    def __init__(self, text: str, place: Callable[[int], str], key: str = ""):
        self.text = text
        self.place = place  # 1-based line -> where
        self.key = key  # of the whole text
        self.issues: list[Issue] = []
        self.values = 0
        # Node and its count of values; None while the anchored node is still being read.
        self.anchors: dict[str, tuple[Node, int] | None] = {}

    def document(self) -> Node:
        """The only document of the text."""
        try:
            self.events = yaml.SafeLoader(self.text)
            self.events.get_event()  # start of stream
            if not self.events.check_event(yaml.DocumentStartEvent):
                self._stop(1, self.key, "is empty; allowed: one YAML document")
            self.events.get_event()
            node = self._node(self.key, 1)
            self.events.get_event()  # end of document
            extra = self.events.peek_event()
            if not isinstance(extra, yaml.StreamEndEvent):
                self._stop(_line(extra), self.key, "holds a second document; allowed: one YAML document")
            return node
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            self._stop(line, self.key, f"is not valid YAML: {error.problem or error.context}")
        except yaml.reader.ReaderError as error:
            line = self.text.count("\n", 0, error.position) + 1
            character = ascii(self.text[error.position])
            self._stop(line, self.key, f"holds the character {character}; allowed: printable text")

    def _node(self, key: str, depth: int, key_line: int = 0) -> Node:
        event = self.events.get_event()
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, key, line)
        self._count(1, key, line)
        if depth > MAX_DEPTH:
            self._stop(line, key, f"is nested more than {MAX_DEPTH} levels deep")
        if event.tag is not None:
            tag = event.tag.replace(_YAML_TAG, "!!", 1)
            self._note(line, key, f"has the tag {shown(tag)}; allowed: plain values, without tags")
        if event.anchor:
            self.anchors[event.anchor] = None
        before = self.values - 1
        if isinstance(event, yaml.ScalarEvent):
            node = Node(self._scalar(event, key), self.place(line))
        elif isinstance(event, yaml.SequenceStartEvent):
            node = Node(self._sequence(key, depth), self.place(key_line or line))
        else:
            node = Node(self._mapping(key, depth), self.place(key_line or line))
        if event.anchor:
            self.anchors[event.anchor] = (node, self.values - before)
        return node

    def _alias(self, event: yaml.AliasEvent, key: str, line: int) -> Node:
        if event.anchor not in self.anchors:
            self._stop(line, key, f"is `*{event.anchor}`, an alias of no anchor; allowed: anchors above it")
        anchored = self.anchors[event.anchor]
        if anchored is None:
            self._stop(line, key, f"is `*{event.anchor}`, an alias of what holds it; allowed: no cycles")
        node, values = anchored
        self._count(values, key, line)
        return node

    def _sequence(self, key: str, depth: int) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self.events.check_event(yaml.SequenceEndEvent):
            items.append(self._node(f"{key}[{len(items)}]", depth + 1))
        self.events.get_event()
        return tuple(items)

    def _mapping(self, key: str, depth: int) -> dict[str, Node]:
        children: dict[str, Node] = {}
        while not self.events.check_event(yaml.MappingEndEvent):
            line = _line(self.events.peek_event())
            name = self._name(key, depth)
            child_key = key if name is None else f"{key}.{name}".removeprefix(".")
            child = self._node(child_key, depth + 1, line)
            if name in children:
                self._note(line, child_key, f"is given twice; the first is at {children[name].where}")
            elif name is not None:
                children[name] = child
        self.events.get_event()
        return children

    def _name(self, parent: str, depth: int) -> str | None:
        """The next key of the mapping `parent`; None, with an issue, where it is not a word."""
        event = self.events.peek_event()
        if not isinstance(event, yaml.ScalarEvent):
            self._note(_line(event), parent, "has a key that is not a word; allowed: names of spec keys")
            self._node(parent, depth + 1)
            return None
        self.events.get_event()
        self._count(1, parent, _line(event))
        match self._kind(event):
            case _ if event.tag is not None:
                problem = f"has a tag on its key {shown(event.value)}; allowed: keys without tags"
            case "str":
                return event.value
            case "merge":
                problem = "has a merge key `<<`; allowed: `extends: NAME`, or the keys written out"
            case kind:
                problem = f"has the key {shown(event.value)}, which YAML reads as {kind}; allowed: words"
        self._note(_line(event), parent, problem)
        return None

    def _scalar(self, event: yaml.ScalarEvent, key: str) -> Any:
        """Plain value of a scalar: null, boolean, integer, float or, for all else, its text."""
        text = event.value
        match self._kind(event):
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE
            case "int" if _DECIMAL.fullmatch(text):
                return int(text)
            case "float" if _finite(text):
                return float(text)
            case "int" | "float":  # octal, hexadecimal, base 60, digit groups, infinity, not a number
                self._note(_line(event), key, f"is {shown(text)}; allowed: finite numbers in plain decimals")
        return text

    def _kind(self, event: yaml.ScalarEvent) -> str:
        if event.tag is not None:
            return "str"
        tag = self.events.resolve(yaml.ScalarNode, event.value, event.implicit)
        return tag.removeprefix(_YAML_TAG)

    def _count(self, values: int, key: str, line: int) -> None:
        self.values += values
        if self.values > MAX_VALUES:
            self._stop(line, key, f"makes more than {MAX_VALUES} values, with those that aliases repeat")

    def _note(self, line: int, key: str, message: str) -> None:
        self.issues.append(Issue(self.place(line), key or "file", message))

    def _stop(self, line: int, key: str, message: str) -> NoReturn:
        self._note(line, key, message)
        raise SpecError(self.issues)


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None  # the parser sets it
    return event.start_mark.line + 1


def _finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
