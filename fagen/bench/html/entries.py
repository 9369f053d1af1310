"""The cases of a bench's JSON document, as pictures and tables want them: nothing measured or decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OURS = "fagen"
MODES = {"fwd": "forward", "bwd": "backward", "fwd+bwd": "forward and backward"}


@dataclass(frozen=True)
class Contender:
    """What one implementation did in one case; None where it was not measured."""

    name: str
    microseconds: float | None  # median, on the device
    quartiles: tuple[float, ...]  # microseconds; empty where not timed
    tflops: float | None
    error: float | None
    peak_bytes: int | None
    problem: str  # why it was not timed


@dataclass(frozen=True, eq=False)
class Entry:
    """One case: a pass of a spec on a shape, and everyone who ran it."""

    number: int  # from 1
    spec: str
    mode: str
    shape_name: str
    problem: Mapping[str, Any]
    shape: Mapping[str, int]
    flops: float
    hbm_bytes: float
    predicted_us: float | None
    bound: str
    tensor_tflops: float
    hbm_bytes_per_s: float
    allowed_error: float | None
    contenders: Mapping[str, Contender]

    @property
    def ours(self) -> Contender | None:
        """What fagen did; None where it is not among the contenders."""
        return self.contenders.get(OURS)

    @property
    def head_dim(self) -> str:
        """`128`, or `192/128` where V's differs."""
        d, dv = self.problem.get("head_dim", "?"), self.problem.get("head_dim_v")
        return str(d) if dv in (None, d) else f"{d}/{dv}"

    @property
    def mask(self) -> str:
        """`no mask`, `causal mask`, `window 4095, 0`."""
        mask = self.problem.get("mask", "none")
        if not isinstance(mask, Mapping):
            return "no mask" if mask == "none" else f"{mask} mask"
        return ", ".join(f"{kind} {', '.join(map(str, sides))}" for kind, sides in mask.items())

    @property
    def kind(self) -> tuple[str, str, str, str]:
        """What is the same in all cases of a panel: mode, head size, mask, and everything else in words."""
        other = [self.spec, str(self.problem.get("dtype", ""))]
        other += [f"{key} {value}" for key, value in self.problem.items() if key == "softcap" and value]
        other += [key for key in ("dropout", "deterministic") if self.problem.get(key)]
        other += [str(value) for key, value in self.problem.items() if key == "layout" and value != "bshd"]
        return self.mode, self.head_dim, self.mask, ", ".join(filter(None, other))

    @property
    def is_paper(self) -> bool:
        """Whether the shape is one of the papers': its name says head size, mask and length."""
        d, length = self.problem.get("head_dim"), self.shape["seqlen_q"]
        return self.shape_name.startswith(f"d{d}_") and self.shape_name.endswith(f"_{length}")

    @property
    def sizes(self) -> str:
        """`B 2, S 8192, H 32/8`; two lengths where queries and keys differ, two counts of heads likewise."""
        lengths = _pair(self.shape["seqlen_q"], self.shape["seqlen_k"])
        return (
            f"B {self.shape['batch']}, S {lengths}, H {_pair(self.shape['heads_q'], self.shape['heads_kv'])}"
        )

    def __str__(self) -> str:
        return f"{self.spec}, {self.shape_name}, {self.mode}"

    def tflops(self, name: str) -> float:
        """TFLOP/s of contender `name`; 0 where it was not timed."""
        found = self.contenders.get(name)
        return (found and found.tflops) or 0.0

    def ratio(self, peer: str) -> float | None:
        """How many times as fast as `peer` fagen is; None where one of them was not timed."""
        other = self.contenders.get(peer)
        if not (self.ours and other and self.ours.microseconds and other.microseconds):
            return None
        return other.microseconds / self.ours.microseconds

    def words(self, name: str) -> str:
        """What contender `name` did, in a line."""
        found = self.contenders[name]
        if not found.tflops or not found.microseconds:
            return f"{name}, {self.shape_name}: {found.problem or 'not timed'}"
        return f"{name}, {self.shape_name}: {decimal(found.tflops)} TFLOP/s, {decimal(found.microseconds)} us"


def entries(document: Mapping[str, Any]) -> list[Entry]:
    """The cases of a document, in its order."""
    return [_entry(number, case) for number, case in enumerate(document.get("cases") or (), 1)]


def names(cases: Iterable[Entry]) -> list[str]:
    """All contenders, fagen first, then as they appear."""
    found = dict.fromkeys(name for case in cases for name in case.contenders)
    return sorted(found, key=lambda name: name != OURS)


def by_kind(cases: Iterable[Entry]) -> dict[tuple[str, str, str, str], list[Entry]]:
    """Cases that share a panel or a table, modes and head sizes in order."""
    found: dict[tuple[str, str, str, str], list[Entry]] = {}
    for case in sorted(cases, key=_order):
        found.setdefault(case.kind, []).append(case)
    return found


def labels(cases: Sequence[Entry]) -> dict[Entry, str]:
    """The shape's name of each case; with the spec's where another spec has the same shape."""
    specs: dict[str, set[str]] = {}
    for case in cases:
        specs.setdefault(case.shape_name, set()).add(case.spec)
    return {
        case: case.shape_name if len(specs[case.shape_name]) == 1 else f"{case.shape_name}, {case.spec}"
        for case in cases
    }


def bounds(cases: Iterable[Entry]) -> list[str]:
    """What bounds the cases, as they appear."""
    return list(dict.fromkeys(case.bound for case in cases))


def fastest(cases: Iterable[Entry]) -> float:
    """The most TFLOP/s of anyone; 0 where nothing was timed."""
    return max((case.tflops(name) for case in cases for name in case.contenders), default=0.0)


def decimal(value: float) -> str:
    """`1,234.5`; two digits of what is less than 1."""
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def caption(mode: str, d: str, mask: str = "") -> str:
    """`Forward, head dim 128, causal mask`."""
    return ", ".join(filter(None, (MODES[mode].capitalize(), f"head dim {d}", mask)))


def _order(case: Entry) -> tuple[Any, ...]:
    mode, _, mask, rest = case.kind
    d = case.problem.get("head_dim", 0)
    return list(MODES).index(mode), d, mask != "no mask", mask, rest, case.shape["seqlen_q"], case.number


def _entry(number: int, case: Mapping[str, Any]) -> Entry:
    return Entry(
        number=number,
        spec=case["spec"],
        mode=case["mode"],
        shape_name=case["shape_name"],
        problem=case["problem"],
        shape=case["shape"],
        flops=case["flops"],
        hbm_bytes=case["hbm_bytes"],
        predicted_us=case["predicted_us"],
        bound=case["bound"],
        tensor_tflops=case["ceilings"]["tensor_tflops"],
        hbm_bytes_per_s=case["ceilings"]["hbm_bytes_per_s"],
        allowed_error=case["allowed_error"],
        contenders={name: _contender(name, found) for name, found in case["contenders"].items()},
    )


def _contender(name: str, found: Mapping[str, Any]) -> Contender:
    return Contender(
        name=name,
        microseconds=found["median_us"],
        quartiles=tuple(found["quartiles_us"] or ()),
        tflops=found["tflops"],
        error=found["error"],
        peak_bytes=found["peak_bytes"],
        problem=found["problem"],
    )


def _pair(one: int, other: int) -> str:
    return str(one) if one == other else f"{one}/{other}"
