"""Whatever a file or a mapping holds, `load_spec` gives a checked spec or a SpecError."""

import random
from pathlib import Path

import pytest

from fagen.errors import SpecError
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.spec.rules import check
from fagen.spec.schema import leaves, schema_of

TEXT = """\
name: tiny
family: v2
arch: sm_90a
device: h200
problem:
  dtype: bf16
  head_dim: 64
  mask: causal
schedule:
  tile: {q: 128, kv: 64}
  roles: {math: {warps: 4}}
  softmax: {rescale: {lazy: 8}}
  allow: [spills]
tune:
  tile.q: [64, 128]
"""
SCRAPS = [
    *(
        "no",
        "none",
        "null",
        "~",
        "64",
        "-8",
        "0100",
        "0x40",
        "1:30",
        ".nan",
        "1e3",
        "8.5",
        "''",
        "v3",
        "sm_89",
    ),
    *(
        "{",
        "}",
        "[",
        "]",
        "[]",
        "{}",
        ": ",
        ", ",
        "- ",
        "? ",
        "\n",
        "\n  ",
        "\t",
        "#",
        "|",
        ">",
        "'",
        '"',
        "%",
        "@",
    ),
    *(
        "&a ",
        "*a",
        "!x ",
        "!!int ",
        "<<: *a",
        "---",
        "...",
        "\0",
        "\x1b",
        "é",
        "\ud7ff",
        "extends: .",
        "on: 1",
    ),
]
VALUES = [
    None,
    True,
    False,
    0,
    -8,
    64,
    8.5,
    float("nan"),
    "",
    "none",
    "64",
    (),
    [],
    {},
    [[]],
    {"q": 64},
    {"": 1},
]
SEEDS = range(8)


def loads_or_refuses(source: object, overrides: dict | None = None) -> None:
    try:
        spec = load_spec(source, overrides)  # type: ignore[arg-type]
    except SpecError as error:
        assert error.issues
        assert all(issue.where and issue.key and issue.message for issue in error.issues)
        assert all(line.isprintable() for line in str(error).splitlines())
        assert len(str(error).splitlines()) == len(error.issues)
    else:
        assert check(spec) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_text(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "tiny.yaml"
    for _ in range(60):
        text = TEXT
        for _ in range(rng.randint(1, 4)):
            start = rng.randrange(len(text))
            text = text[:start] + rng.choice(SCRAPS) + text[start + rng.choice((0, 0, 1, 5)) :]
        path.write_text(text, encoding="utf-8", newline="")
        loads_or_refuses(path)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_values_in_any_keys(seed: int) -> None:
    rng = random.Random(seed)
    keys = ["problem", "schedule", "schedule.tile", "tune", "tune.tile.q", "tune.softmax.rescale", "other"]
    keys += leaves(schema_of(Spec))
    base = load_spec(
        {"name": "tiny", "family": "v2", "arch": "sm_80", "problem": {"dtype": "fp16", "head_dim": 8}}
    )
    for _ in range(100):
        loads_or_refuses(base, {key: rng.choice(VALUES) for key in rng.sample(keys, rng.randint(1, 6))})
