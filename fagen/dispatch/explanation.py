"""`fagen.explain`: which spec a call gets, why, and why it gets none of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fagen.dispatch.candidates import Candidate
from fagen.dispatch.choose import Choice
from fagen.plan.launch import Shape
from fagen.spec.model import Problem, Spec


@dataclass(frozen=True)
class Explanation:
    """A choice, to be printed or looked into."""

    choice: Choice
    shape: Shape  # of the call

    @property
    def spec(self) -> Spec | None:
        """The spec that was chosen; None: no candidate is eligible."""
        return self.choice.chosen.spec if self.choice.chosen else None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        choice, request = self.choice, self.choice.request
        yield f"fagen.attention on {choice.target}"
        yield f"  problem  {problem_text(request.problem)}; {' and '.join(request.passes)}"
        yield f"  shape    {_sizes(self.shape)}"
        yield f"  chosen   {choice.chosen.name if choice.chosen else 'none'}: {choice.why}"
        if choice.target.index is None:
            yield "           The emulator computes with it; times are of the GPU that it stands in for."
        yield f"  times    predicted for shapes near {_sizes(choice.bucket)}"
        yield ""
        yield from table(choice)


def table(choice: Choice) -> Iterator[str]:
    """A line for each candidate: the one that was chosen, those that are eligible, the others."""
    width = max(len(one.name) for one in choice.candidates)
    for one in sorted(choice.candidates, key=lambda one: (one is not choice.chosen, one.refusal != "")):
        yield f"  {one.name:<{width}}  {one.source:<7}  {_time(one):>12}  {_verdict(one, choice)}"


def _time(one: Candidate) -> str:
    return "" if one.refusal else f"{one.seconds * 1e6:,.1f} us"


def _verdict(one: Candidate, choice: Choice) -> str:
    if one is choice.chosen:
        return "chosen"
    if one.refusal:
        return f"not eligible: {one.refusal.splitlines()[0]}"
    return "eligible, not picked"


def problem_text(problem: Problem) -> str:
    """A problem in a line."""
    dims = f"head_dim {problem.head_dim}"
    dims += "" if problem.dim_v == problem.head_dim else f", head_dim_v {problem.dim_v}"
    mask = problem.mask if isinstance(problem.mask, str) else f"window {problem.window}"
    more = [
        *([] if problem.softcap is None else [f"softcap {problem.softcap:g}"]),
        *(["dropout"] if problem.dropout else []),
        *(["deterministic"] if problem.deterministic else []),
    ]
    return ", ".join([problem.dtype, dims, problem.layout, f"mask {mask}", *more])


def _sizes(shape: Shape) -> str:
    packed = "" if shape.tokens_q is None else f", in {shape.tokens_q} and {shape.tokens_k} tokens"
    return f"B,Sq,Sk,Hq,Hkv = {shape}{packed}"
