"""FlashAttention-2, -3 and -4, as their own packages have them; their masks are aligned bottom-right."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import Tensor

from fagen.bench.peers.adapter import Call, refuse_unusual_fp8, swap
from fagen.ops.descales import Descales
from fagen.spec.model import Problem

FA2, FA3, FA4 = "flash_attn.flash_attn_interface", "flash_attn_interface", "flash_attn.cute"


def flash_attention_2(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """FlashAttention-2."""
    return _flash_attention(import_module(FA2).flash_attn_func, -1, problem, q, k, v)


def flash_attention_3(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """FlashAttention-3."""
    return _flash_attention(import_module(FA3).flash_attn_func, -1, problem, q, k, v)


def flash_attention_3_fp8(problem: Problem, q: Tensor, k: Tensor, v: Tensor, *descales: Tensor) -> Call:
    """FlashAttention-3 on 8-bit q, k and v with a descale for each K/V head; it writes bf16."""
    refuse_unusual_fp8(problem)
    batch, _, heads_kv, _ = swap("bshd", problem)(k).shape
    each = (x.expand(batch, heads_kv).contiguous() for x in descales)
    of_heads = dict(zip(Descales._fields, each, strict=True))
    return _flash_attention(import_module(FA3).flash_attn_func, -1, problem, q, k, v, **of_heads)


def flash_attention_4(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """FlashAttention-4."""
    return _flash_attention(import_module(FA4).flash_attn_func, None, problem, q, k, v)


def _flash_attention(
    function: Callable[..., Any],
    unbounded: int | None,
    problem: Problem,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    **options: Any,
) -> Call:
    there = swap("bshd", problem)
    inputs = there(q), there(k), there(v)
    causal = problem.window == (None, 0)
    sides = (None, None) if causal else problem.window
    options["window_size"] = tuple(unbounded if side is None else side for side in sides)
    if problem.softcap is not None:
        options["softcap"] = problem.softcap

    def call() -> Tensor:
        found = function(*inputs, causal=causal, **options)
        return there(found[0] if isinstance(found, tuple) else found)  # some versions add the LSE

    return call
