"""Which variants of a space are worth timing: those that the cost model predicts to be the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fagen.plan.efficiency import Efficiencies
from fagen.plan.launch import Shape
from fagen.tune.forecast import MANY, Forecast, forecasts
from fagen.tune.space import Space, Variant

LEAST = 5  # variants that are timed of any space
SHARE = 0.2  # of the variants that are feasible


@dataclass(frozen=True)
class Entrant:
    """A variant, and what the cost model says about it."""

    variant: Variant
    predicted: float  # seconds


@dataclass(frozen=True)
class Ranking:
    """The variants of a space that can run on a shape, the fastest by prediction first."""

    entrants: tuple[Entrant, ...]
    refused: tuple[tuple[str, str], ...]  # the choice in words, why it cannot run or be planned


def rankings(
    asked: Sequence[tuple[Space, Shape]],
    efficiencies: Efficiencies,
    step: Callable[[int], object] = lambda count: None,
    many: int = MANY,
) -> list[Ranking]:
    """A ranking of each space on its shape; see `forecasts` for the rest."""
    differing = [
        [variant for variant in among.variants if not _is_repeated(variant, shape)] for among, shape in asked
    ]
    plans = [
        ([variant.plan for variant in variants], shape)
        for variants, (_, shape) in zip(differing, asked, strict=True)
    ]
    return [
        _ranking(among, variants, found)
        for (among, _), variants, found in zip(
            asked, differing, forecasts(plans, efficiencies, step, many), strict=True
        )
    ]


def _is_repeated(variant: Variant, shape: Shape) -> bool:
    """Whether a choice makes no other kernel on this shape: one query head is no group to be packed."""
    return bool(variant.choice.get("pack_gqa")) and shape.heads_q == shape.heads_kv


def _ranking(among: Space, variants: Sequence[Variant], found: Sequence[Forecast]) -> Ranking:
    pairs = list(zip(variants, found, strict=True))
    entrants = [Entrant(variant, seconds) for variant, seconds in pairs if not isinstance(seconds, str)]
    refused = [(f"{variant.base}, {variant}", why) for variant, why in pairs if isinstance(why, str)]
    entrants.sort(key=lambda entrant: entrant.predicted)  # stable: as they stand first among equals
    return Ranking(tuple(entrants), (*among.refused, *refused))


def in_order_of_trial(ranked: Sequence[Entrant]) -> tuple[Entrant, ...]:
    """Specs as they stand first, as they are what there is to beat; then the best predicted."""
    return tuple(sorted(ranked, key=lambda entrant: not entrant.variant.as_it_stands))


def to_be_timed(feasible: int, exhaustive: bool = False) -> int:
    """How many of that many variants are timed."""
    return feasible if exhaustive else min(feasible, max(LEAST, int(SHARE * feasible)))
