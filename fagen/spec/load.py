"""From YAML, or a mapping, to a checked `Spec`: `extends:`, overrides, every issue at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from fagen.errors import Issue, SpecError, did_you_mean, shown
from fagen.spec import rules
from fagen.spec.findings import findings, found, overlap
from fagen.spec.model import NAME_LENGTH, Spec
from fagen.spec.read import read, read_value
from fagen.spec.schema import leaves, schema_of
from fagen.spec.tree import Node, from_python, merge, to_python, where, without

_OVERRIDE = "<override>"
_ABSENT = object()

# Takes the place of keys that are wrong, so that the rules about the other keys can be asked all the same.
_STAND_IN = {"name": "a", "family": "v2", "arch": "sm_80", "problem": {"dtype": "fp16", "head_dim": 64}}


Source = str | Path | Mapping[str, Any] | Spec


def load_spec(source: Source, overrides: Mapping[str, Any] | None = None) -> Spec:
    """The spec in a file (str or Path), a mapping or a Spec, with `overrides` laid over it.

    Overrides go by dotted key, e.g. {"problem.head_dim": 64}. Where they change the kernel they add to its
    name (`a100_fa2__head_dim_64`), so that no two kernels share one; an override of `name` is kept as given.

    Raises SpecError, which carries everything that is wrong, each with file:line and key.
    """
    tree, issues = _tree(source)
    overrides = overrides or {}
    spec = _checked(reduce(_laid_over, overrides.items(), tree), issues)
    return spec if "name" in overrides else spec.model_copy(update={"name": _name(spec, to_python(tree))})


def parse_overrides(items: Iterable[str]) -> dict[str, Any]:
    """Overrides from the `key=value` texts of a command line; values are read as YAML. Raises SpecError."""
    overrides = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not key or not equals:
            message = f"is {shown(item)}; allowed: key=value, e.g. problem.head_dim=64"
            raise SpecError([Issue(_OVERRIDE, "override", message)])
        overrides[key] = to_python(read_value(text, key, _OVERRIDE))
    return overrides


def _laid_over(tree: Node, override: tuple[str, Any]) -> Node:
    """`tree` with an override laid over it: a section's keys one by one, any other value as a whole."""
    key, value = override
    if key in leaves(schema_of(Spec)):
        tree = merge(tree, _at(key, Node(None, _OVERRIDE)))
    return merge(tree, _at(key, from_python(value, _OVERRIDE)))


def _tree(source: Source) -> tuple[Node, list[Issue]]:
    if isinstance(source, Spec):
        source = source.model_dump(exclude_unset=True)
    if isinstance(source, Mapping):
        return from_python(source, "<dict>"), []
    return _read_chain(Path(source))


def _read_chain(path: Path) -> tuple[Node, list[Issue]]:
    """The file laid over all that it extends, and the issues of reading them."""
    chain = [path]
    tree, issues = read(path)
    while "extends" in tree.value:
        try:
            chain.append(_base_path(tree.value["extends"], chain))
            base, more = read(chain[-1])
        except SpecError as error:
            raise SpecError([*issues, *error.issues]) from None
        issues += more
        # A name belongs to one spec alone. What is missing is missing in the extending file.
        tree = replace(merge(without(base, "name"), without(tree, "extends")), where=tree.where)
    return tree, issues


def _base_path(link: Node, chain: list[Path]) -> Path:
    """The file that `extends: link` of the chain's last file names: in that file's directory, or below it."""
    folder = chain[-1].parent

    def refuse(problem: str, hint: str = "") -> NoReturn:
        message = f"{problem}; allowed: the name of a spec in {folder}"
        raise SpecError([Issue(link.where, "extends", message, hint)])

    name = link.value
    if not isinstance(name, str) or not name:
        refuse(found(name))
    path = folder / (name if name.endswith(".yaml") else f"{name}.yaml")
    try:
        real, exists = path.resolve(), path.is_file()
        inside = real.is_relative_to(folder.resolve())
        visited = [earlier.resolve() for earlier in chain]
    except (OSError, ValueError, RuntimeError):  # too long, a NUL character, a loop of links
        refuse(f"is {shown(name)}, which is no file name")
    if Path(name).is_absolute() or ".." in re.split(r"[/\\]", name) or not inside:
        refuse(f"is {shown(name)}, which may lead out of that directory")
    if real in visited:
        circle = " -> ".join(step.name for step in [*chain[visited.index(real) :], path])
        refuse(f"is {shown(name)}, which makes a cycle: {circle}")
    if not exists:
        files = [file.relative_to(folder) for file in path.parent.glob("*.yaml") if file != chain[-1]]
        others = [file.with_suffix("").as_posix() for file in files]
        refuse(f"is {shown(name)}, which does not exist", did_you_mean(name, others))
    return path


def _checked(tree: Node, issues: list[Issue]) -> Spec:
    """The spec in `tree`. Raises SpecError with `issues` and everything that the model and the rules find."""
    data = to_python(tree)
    wrong = []
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        wrong = findings(error, Spec)
        spec = _sound_part(data, [finding.key for finding in wrong])
    reported = {issue.key for issue in issues}
    wrong += rules.check(spec, {finding.key for finding in wrong} | reported)
    fresh = [finding for finding in wrong if finding.key not in reported]
    issues = issues + [Issue(where(tree, f.key), f.key or "spec", f.message, f.hint) for f in fresh]
    if issues:
        raise SpecError(sorted(issues, key=_file_and_line))
    return spec


def _file_and_line(issue: Issue) -> tuple[str, int]:
    file, _, line = issue.where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (issue.where, 0)


def _sound_part(data: Any, wrong: list[str]) -> Spec:
    """The spec that is left of `data` without the wrong keys."""
    tune = _get(data, "tune")
    keys = [key for key in leaves(schema_of(Spec)) if key != "tune"]
    keys += [f"tune.{key}" for key in tune] if isinstance(tune, dict) else []
    sound = from_python(_STAND_IN, "")
    for key in keys:
        if not overlap(key, wrong) and (value := _get(data, key)) is not _ABSENT:
            sound = merge(sound, _at(key, from_python(value, "")))
    return Spec.model_validate(to_python(sound))


def _names(key: str) -> list[str]:
    """The steps of a dotted key; what follows `tune.` is one step, since it is a dotted key itself."""
    return key.split(".", 1) if key.startswith("tune.") else key.split(".")


def _at(key: str, node: Node) -> Node:
    """A tree that holds `node` at dotted `key`."""
    for name in reversed(_names(key)):
        node = Node({name: node}, node.where)
    return node


def _get(data: Any, key: str) -> Any:
    """The plain value at dotted `key`, or _ABSENT."""
    for name in _names(key):
        if not isinstance(data, dict) or name not in data:
            return _ABSENT
        data = data[name]
    return data


def _name(spec: Spec, before: Any) -> str:
    """The spec's name, with `__key_value` for all in it that differs from the plain values `before`."""
    after = spec.model_dump(exclude_unset=True)
    parts = [spec.name]
    for key, schema in leaves(schema_of(Spec)).items():
        default = to_python(from_python(schema.get("default"), ""))
        old, new = (default if value is _ABSENT else value for value in (_get(before, key), _get(after, key)))
        if old != new and key not in ("name", "tune"):  # tune names values to try: it changes no kernel
            short = key.removeprefix("problem.").removeprefix("schedule.")
            parts.append(_word(f"{short}_{_value_text(new)}"))
    full = "__".join(parts)
    if len(full) <= NAME_LENGTH:
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:8]
    return f"{full[: NAME_LENGTH - 10].rstrip('_')}__{digest}"


def _value_text(value: Any) -> str:
    match value:
        case None:
            return "default"
        case float():
            return repr(value).removesuffix(".0").replace(".", "p").replace("-", "m").replace("+", "")
        case dict():
            return "_".join(f"{key}_{_value_text(child)}" for key, child in value.items())
        case tuple():
            return "_".join("all" if item is None else _value_text(item) for item in value) or "nothing"
    return str(value)


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower())
