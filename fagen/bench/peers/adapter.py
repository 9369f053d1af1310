"""What an adapter of another implementation of attention is, and what several of them need.

An adapter is handed a problem and its q, k and v, of 8 bits also their descales, arranges them as its library
wants them, and returns a call that gives out in the problem's layout, which autograd can differentiate. It,
or the first call, raises ImportError where the library is missing, and RuntimeError or whatever the library
raises where it cannot run the case. What a library would compute otherwise than the problem says is refused
in words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fagen.spec.model import Problem

Call = Callable[[], Any]
Adapter = Callable[..., Call]  # of a problem, q, k, v, and where they have 8 bits three descales


def swap(layout: str, problem: Problem) -> Callable[[Tensor], Tensor]:
    """From the problem's layout to this one, and back; a view, the same memory that the op reads."""
    if problem.layout == "thd":
        raise RuntimeError("is not compared on packed sequences")
    return (lambda x: x) if problem.layout == layout else (lambda x: x.transpose(1, 2))


def lengths(problem: Problem, q: Tensor, k: Tensor) -> tuple[int, int]:
    """seqlen_q and seqlen_k of tensors in the problem's layout."""
    row = 1 if problem.layout == "bshd" else 2
    return q.shape[row], k.shape[row]


def window(problem: Problem, seqlen_q: int) -> tuple[int | None, int | None]:
    """The problem's window; a single query, which stands at the last key, has none to its right to hide."""
    left, right = problem.window
    return (left, None) if seqlen_q == 1 else (left, right)


def is_causal_from_the_top_left(problem: Problem, q: Tensor, k: Tensor) -> bool:
    """Whether the mask is causal, of a library that aligns it top-left and has no other.

    Raises RuntimeError where the problem's mask is another one.
    """
    seqlen_q, seqlen_k = lengths(problem, q, k)
    sides = window(problem, seqlen_q)
    if sides not in ((None, None), (None, 0)):
        raise RuntimeError("has no sliding window")
    is_causal = sides == (None, 0)
    if is_causal and seqlen_q != seqlen_k:
        raise RuntimeError("its causal mask is aligned top-left, not bottom-right")
    return is_causal


def refuse_unusual_fp8(problem: Problem) -> None:
    """Raises RuntimeError but for e4m3, rows of v, and descales of more than a block."""
    if problem.dtype != "e4m3":
        raise RuntimeError(f"is not compared on {problem.dtype}")
    if problem.scales_blocks:
        raise RuntimeError("has no descales of blocks")
    if problem.v_transposed:
        raise RuntimeError("does not take v transposed")


def refuse_softcap(problem: Problem) -> None:
    """Raises RuntimeError where the problem caps its scores."""
    if problem.softcap is not None:
        raise RuntimeError("has no softcap")
