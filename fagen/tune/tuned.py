"""Winners as spec files: whole specs, with a comment that says what they beat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fagen.bench.shapes import NamedShape
from fagen.spec.load import load_spec
from fagen.spec.model import NAME_LENGTH, Spec
from fagen.tune.atomic import write_atomically
from fagen.tune.entry import Where, digest
from fagen.tune.outcome import Outcome
from fagen.tune.space import words

SCHEMA = "fagen.schema.json"
WIDTH = 110
INFIX = "_tuned_"  # between the name of a spec and that of a shape


def tuned_name(origin: str, shape: str) -> str:
    """Name of what `origin` becomes for a named shape, as specs are named; that of no other shape."""
    name = re.sub(r"[^a-z0-9_]+", "_", f"{origin}{INFIX}{shape}".lower())
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 9].rstrip('_')}_{digest(name, 8)}"


def tuned_for(name: str, shapes: Iterable[NamedShape]) -> NamedShape | None:
    """Of `shapes`, the one that a spec of that name was tuned for: `tuned_name` backwards."""
    origin = name.partition(INFIX)[0]
    return next((named for named in shapes if tuned_name(origin, named.name) == name), None)


def write_spec(folder: Path, spec: Spec, name: str, outcomes: Sequence[Outcome], where: Where) -> Path:
    """Write FOLDER/NAME.yaml: `spec` under that name, and what its passes came to. Raises OSError."""
    path = folder / f"{name}.yaml"
    write_atomically(path, _schema_line(folder) + _text(spec, name, outcomes, where))
    return path


def _schema_line(folder: Path) -> str:
    """Points editors at the schema, where specs of the folder above have it."""
    is_there = (folder.parent / SCHEMA).is_file()
    return f"# yaml-language-server: $schema=../{SCHEMA}\n#\n" if is_there else ""


def _text(spec: Spec, name: str, outcomes: Sequence[Outcome], where: Where) -> str:
    data = _plain(spec.model_dump(mode="json", exclude_unset=True)) | {"name": name}
    data.pop("tune", None)
    dumped = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=WIDTH)
    load_spec(yaml.safe_load(dumped))  # or it is of no use
    question, winners = outcomes[0].question, [one.winner for one in outcomes if one.winner]
    comments = [
        f"Made by `fagen tune` for {question.name}: B,Sq,Sk,Hq,Hkv = {question.shape}.",
        *(_said(outcome) for outcome in outcomes),
        f"On {where.gpu}, driver {where.driver}, NVRTC {where.nvrtc}, {winners[-1].measured}.",
    ]
    return "".join(f"# {line}\n" for line in comments) + dumped


def _said(outcome: Outcome) -> str:
    winner = outcome.winner
    assert winner is not None
    speed = f"{winner.seconds * 1e6:,.1f} us, {outcome.tflops:,.1f} TFLOP/s"
    said = f"{outcome.direction}: {words(winner.variant.choice)}: {speed}"
    if not winner.variant.as_it_stands:
        said += f", {winner.gain:.3f} times as fast as {winner.beat} as it stands"
    return f"{said}; {outcome.timed} of {outcome.feasible} variants timed."


def _plain(value: Any) -> Any:
    """Less what is left out, which null says as well; the sides of a window stay."""
    if isinstance(value, Mapping):
        kept = {key: _plain(child) for key, child in value.items()}
        return {key: child for key, child in kept.items() if child is not None and child != {}}
    return value
