"""The op's own contenders in a case: as it is, and what it is to be measured against."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fagen.bench.case import Case
from fagen.bench.compare import DETERMINISTIC, OURS, QUANTISING, Call
from fagen.bench.expected import Inputs, in_full
from fagen.bench.sixteen_bits import in_16_bits
from fagen.ops.checks import out_dtype
from fagen.ops.load import load
from fagen.ops.quantize import Scale, quantize_fp8
from fagen.spec.load import load_spec
from fagen.spec.model import Problem, Spec


def own_specs(case: Case) -> dict[str, Spec]:
    """By contender: the op as it is; in mode bwd also with problem.deterministic.

    Of 8 bits also with the time that quantising takes, and in 16 bits, e.g. "fagen bf16".
    """
    problem = case.spec.problem
    found = {OURS: case.spec}
    if case.mode == "bwd" and not problem.deterministic:
        found[DETERMINISTIC] = load_spec(case.spec, {"problem.deterministic": True})
    if problem.is_fp8:
        if problem.layout != "thd":  # quantize_fp8 has no packed sequences
            found[QUANTISING] = case.spec
        found[f"{OURS} {problem.dtype_out}"] = in_16_bits(case.spec, problem.dtype_out)
    return found


def own_attentions(case: Case, inputs: Inputs) -> dict[str, Callable[[], Call]]:
    """What sets each of them up: those of 16 bits on what 8-bit inputs stand for, rounded to 16."""
    problem, specs = case.spec.problem, own_specs(case)
    if not problem.is_fp8:
        return {name: partial(_attention, spec, inputs) for name, spec in specs.items()}
    q, k, v, *packing = in_full(problem, inputs)
    sixteen = (*(x.to(out_dtype(problem)) for x in (q, k, v)), *packing)
    found = {}
    for name, spec in specs.items():
        if name == QUANTISING:
            found[name] = partial(_quantising, spec, sixteen)
        else:
            found[name] = partial(_attention, spec, inputs if spec.problem.is_fp8 else sixteen)
    return found


def fp8_scale(problem: Problem) -> Scale:
    """How 8-bit inputs are quantised: but for blocks with one descale a tensor, which all peers take."""
    return "block" if problem.scales_blocks else "tensor"


def _attention(spec: Spec, inputs: Inputs) -> Call:
    return partial(load(spec), *inputs)


def _quantising(spec: Spec, inputs: Inputs) -> Call:
    problem, attention = spec.problem, load(spec)
    options: dict[str, Any] = {
        "scale": fp8_scale(problem),
        "dtype": problem.dtype,
        "v_transposed": problem.v_transposed,
        "layout": problem.layout,
    }
    return lambda: attention(**quantize_fp8(*inputs, **options)._asdict())
