"""The rules about 8-bit q, k and v: what goes with them, and what goes with nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fagen.spec.findings import Finding
from fagen.spec.model import Spec

HEAD_DIMS = (64, 128, 256)  # whole panels of 8-bit columns
KEYS_PER_PRODUCT = 32  # of an 8-bit wgmma


def _only_with_8_bits(spec: Spec) -> Iterator[Finding]:
    problem = spec.problem
    if problem.is_fp8:
        return
    for key, is_given, allowed in (
        ("problem.out_dtype", problem.out_dtype is not None, "leaving it out (out is as q, k and v)"),
        ("problem.fp8", problem.fp8 is not None, "leaving it out"),
        ("problem.v_transposed", problem.v_transposed, "false"),
        (
            "schedule.accumulate.promote_every",
            spec.schedule.accumulate.promote_every is not None,
            "leaving it out (sums are in fp32)",
        ),
    ):
        if is_given:
            yield Finding(key, f"is given with problem.dtype: {problem.dtype}; allowed: {allowed}")


def _has_no_backward(spec: Spec) -> Iterator[Finding]:
    if spec.problem.is_fp8 and "backward" in spec.problem.passes:
        message = f"has backward with problem.dtype: {spec.problem.dtype}; allowed: [forward]"
        yield Finding("problem.passes", message)


def _head_dims(spec: Spec) -> Iterator[Finding]:
    problem = spec.problem
    if not problem.is_fp8:
        return
    for key, columns in (("head_dim", problem.head_dim), ("head_dim_v", problem.head_dim_v)):
        if columns is not None and columns not in HEAD_DIMS:
            allowed = ", ".join(map(str, HEAD_DIMS))
            message = f"is {columns} with problem.dtype: {problem.dtype}; allowed: {allowed}"
            yield Finding(f"problem.{key}", message)


def _blocks_of_rows(spec: Spec) -> Iterator[Finding]:
    problem, schedule = spec.problem, spec.schedule
    if not problem.scales_blocks:
        return
    assert problem.fp8 is not None
    if problem.layout == "thd":
        yield Finding("problem.fp8.scale", "is block with problem.layout: thd; allowed: head")
    if schedule.pack_gqa:
        yield Finding("schedule.pack_gqa", "is true with problem.fp8.scale: block; allowed: false")
    block, keys = problem.fp8.block, schedule.tile.kv
    if keys and block % keys:
        message = f"is {keys} with problem.fp8.scale: block; allowed: divisors of a block's {block} rows"
        yield Finding("schedule.tile.kv", message)


def _transposed_v(spec: Spec) -> Iterator[Finding]:
    if spec.problem.v_transposed and spec.problem.layout == "thd":
        yield Finding("problem.v_transposed", "is true with problem.layout: thd; allowed: false")


def _keys_of_a_product(spec: Spec) -> Iterator[Finding]:
    keys, promoted = spec.schedule.tile.kv, spec.schedule.accumulate.promote_every
    if not spec.problem.is_fp8:
        return
    if keys and keys % KEYS_PER_PRODUCT:
        allowed = f"multiples of {KEYS_PER_PRODUCT}"
        message = f"is {keys} with problem.dtype: {spec.problem.dtype}; allowed: {allowed}"
        yield Finding("schedule.tile.kv", message)
    elif keys and promoted and promoted % keys:
        message = f"is {promoted}; allowed with schedule.tile.kv: {keys}: multiples of {keys}"
        yield Finding("schedule.accumulate.promote_every", message)


# Each with the keys that it reads, see rules.py.
FP8_RULES: tuple[tuple[tuple[str, ...], Callable[[Spec], Iterator[Finding]]], ...] = (
    (
        (
            "problem.dtype",
            "problem.out_dtype",
            "problem.fp8",
            "problem.v_transposed",
            "schedule.accumulate.promote_every",
        ),
        _only_with_8_bits,
    ),
    (("problem.dtype", "problem.passes"), _has_no_backward),
    (("problem.dtype", "problem.head_dim", "problem.head_dim_v"), _head_dims),
    (
        ("problem.dtype", "problem.fp8", "problem.layout", "schedule.pack_gqa", "schedule.tile.kv"),
        _blocks_of_rows,
    ),
    (("problem.v_transposed", "problem.layout"), _transposed_v),
    (("problem.dtype", "schedule.tile.kv", "schedule.accumulate.promote_every"), _keys_of_a_product),
)
