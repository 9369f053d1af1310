"""Arguments and options that several commands share, and how their text is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from fagen.plan.launch import INT32_MAX, Shape
from fagen.spec.load import parse_overrides

GENERATED = Path("generated")


def overrides(settings: list[str] | None) -> dict[str, Any]:
    """Spec overrides from `--set key=value` texts. Raises SpecError."""
    return parse_overrides(settings or ())


def parse_shape(text: str | Shape) -> Shape:
    """`B,Sq,Sk,Hq,Hkv` as a Shape; typer also passes a default, which is one already.

    Raises `typer.BadParameter` for anything but five whole numbers, of which Hq is a multiple of Hkv.
    """
    numbers = [part.strip() for part in str(text).split(",")]
    if len(numbers) != 5 or not all(number.isdecimal() for number in numbers):
        raise typer.BadParameter(f"{text}: want five whole numbers B,Sq,Sk,Hq,Hkv, e.g. 2,8192,8192,16,16")
    shape = Shape(*map(int, numbers))
    if max(shape.batch, shape.seqlen_q, shape.seqlen_k, shape.heads_q) > INT32_MAX:
        raise typer.BadParameter(f"{text}: want numbers up to {INT32_MAX}")
    if min(shape.batch, shape.heads_q, shape.heads_kv) < 1:
        raise typer.BadParameter(f"{text}: B, Hq and Hkv must be at least 1")
    if shape.heads_q % shape.heads_kv:
        raise typer.BadParameter(
            f"{text}: Hq is {shape.heads_q}; allowed: multiples of Hkv = {shape.heads_kv}"
        )
    return shape


def parse_run_shape(text: str | Shape) -> Shape:
    """The same of a shape whose results are compared with others: of no queries or no keys there are none."""
    shape = parse_shape(text)
    if min(shape.seqlen_q, shape.seqlen_k) < 1:
        raise typer.BadParameter(f"{text}: Sq and Sk must be at least 1, or there is nothing to compare")
    return shape


def in_a_directory(path: Path | None) -> Path | None:
    """Raises `typer.BadParameter` before the work whose results could not be written to `path`."""
    if path is None:
        return None
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{path}: there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{path}: may not be written; allowed: a file that may")
    return path


SpecArgument = Annotated[Path, typer.Argument(help="Spec file (YAML).", show_default=False)]
SpecsArgument = Annotated[list[Path], typer.Argument(help="Spec files (YAML).", show_default=False)]
ArchOption = Annotated[
    str | None, typer.Option(help="Target instead of the spec's `arch`, e.g. sm_90a.", show_default=False)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a spec key, e.g. `problem.head_dim=64`; repeatable."
    ),
]
_SHAPE: dict[str, Any] = {
    "metavar": "B,Sq,Sk,Hq,Hkv",
    "help": "Batch, queries, keys, query heads, key/value heads.",
}
ShapeOption = Annotated[Shape, typer.Option(parser=parse_shape, **_SHAPE)]
RunShapeOption = Annotated[Shape | None, typer.Option(parser=parse_run_shape, **_SHAPE)]
MOST_SEED = 2**32 - 1  # what every generator of random numbers takes
OutOption = Annotated[Path, typer.Option(help="Directory that generated files go to.")]
