"""How the op stands against each peer over all cases of a mode, and who could not be timed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from fagen.bench.compare import OURS, Result


@dataclass(frozen=True)
class Summary:
    """How the op stands against one peer in one mode, over the cases in which both were timed."""

    mode: str
    peer: str
    cases: int
    mean: float  # geometric, of the ratios
    worst: float
    worst_case: str

    def __str__(self) -> str:
        return (
            f"{self.mode:7} {self.mean:.3f} x {self.peer} (geometric mean of {self.cases}), "
            f"at worst {self.worst:.3f} x ({self.worst_case})"
        )


def summaries(results: Sequence[Result]) -> list[Summary]:
    """One summary per mode and peer that was timed beside the op."""
    found = []
    for mode in dict.fromkeys(result.case.mode for result in results):
        own = [result for result in results if result.case.mode == mode]
        for peer in contenders(own):
            ratios = [(ratio, str(result.case)) for result in own if (ratio := result.ratio(peer))]
            if ratios and peer != OURS:
                mean = geometric_mean(ratio for ratio, _ in ratios)
                found.append(Summary(mode, peer, len(ratios), mean, *min(ratios)))
    return found


def contenders(results: Iterable[Result]) -> list[str]:
    """The names of all that took part, the op first."""
    return list(dict.fromkeys(name for result in results for name in result.outcomes))


def failures(results: Sequence[Result]) -> list[str]:
    """Who was not timed, why, and where."""
    where: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for name, outcome in result.outcomes.items():
            if outcome.problem:
                where.setdefault((name, outcome.problem), []).append(str(result.case))
    return [
        f"{name} {problem}: {places[0]}" + (f" and {len(places) - 1} more" if places[1:] else "")
        for (name, problem), places in where.items()
    ]
