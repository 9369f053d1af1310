"""A case on the current GPU: the op, and all peers that are installed, on the same random inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from torch import Tensor

from fagen.bench import passes
from fagen.bench.allocated import CudaAllocator
from fagen.bench.case import Case
from fagen.bench.check import Check, check
from fagen.bench.clock import ROUNDS, CudaClock
from fagen.bench.compare import DETERMINISTIC, OURS, Call, Outcome, Result, compare
from fagen.bench.expected import Inputs, must_fit, random_inputs, random_like
from fagen.bench.peers.installed import installed
from fagen.errors import ArgumentError, FagenError
from fagen.ops.load import load
from fagen.spec.load import load_spec
from fagen.spec.model import Spec

SECONDS = 1.0  # that a contender's rounds should take
FEWEST = 5  # rounds


def build(todo: Iterable[Case]) -> None:
    """Build the cases' kernels for the current GPU, several at a time, which they wait for otherwise.

    What cannot be built is left to `run`, which says why.
    """
    specs = {spec.name: spec for case in todo for spec in own_specs(case).values()}

    def one(spec: Spec) -> None:
        with suppress(FagenError):
            load(spec).prepare()

    with ThreadPoolExecutor() as pool:
        pool.map(one, specs.values())


def own_specs(case: Case) -> dict[str, Spec]:
    """The op's contenders: as it is, and in mode bwd with problem.deterministic."""
    if case.mode != "bwd" or case.spec.problem.deterministic:
        return {OURS: case.spec}
    return {OURS: case.spec, DETERMINISTIC: load_spec(case.spec, {"problem.deterministic": True})}


def run(case: Case) -> Result:
    """The case's contenders on standard normal inputs, checked, measured and timed.

    Where inputs and reference do not fit into the GPU's memory, the op has that as its problem.
    """
    allocator = CudaAllocator()
    allocator.release()
    try:
        inputs, dout, checked = _checked_inputs(case)
    except ArgumentError as error:
        return Result(case, 0.0, {OURS: Outcome(problem=f"cannot be checked: {error}")})
    problem, qkv = case.spec.problem, inputs[:3]
    for x in qkv:
        x.requires_grad_(case.mode != "fwd")
    attentions: dict[str, Callable[[], Call]] = {
        name: partial(_ours, spec, inputs) for name, spec in own_specs(case).items()
    }
    attentions |= {name: partial(peer.adapter, problem, *qkv) for name, peer in installed().items()}
    contenders = {
        name: partial(_in_mode, case.mode, set_up, qkv, dout) for name, set_up in attentions.items()
    }
    rounds = rounds_within(SECONDS, case.predicted_seconds)
    return compare(case, checked, contenders, CudaClock(), allocator, rounds)


def _checked_inputs(case: Case) -> tuple[Inputs, Tensor, Check]:
    problem = case.spec.problem
    with must_fit(case.shape):
        inputs = random_inputs(problem, case.shape, seed=0, device="cuda")
        dout = random_like(inputs[0].new_empty((*inputs[0].shape[:-1], problem.dim_v)), seed=1)
        return inputs, dout, check(case.mode, problem, inputs, dout)


def rounds_within(seconds: float, of_one: float) -> int:
    """How often to time what takes `of_one` seconds: ROUNDS, or fewer that take about `seconds`, but some."""
    return max(FEWEST, min(ROUNDS, int(seconds / of_one))) if of_one else ROUNDS


def _in_mode(mode: str, set_up: Callable[[], Call], inputs: Sequence[Tensor], dout: Tensor) -> Call:
    return passes.in_mode(mode, set_up(), inputs, dout)


def _ours(spec: Spec, inputs: Inputs) -> Call:
    return partial(load(spec), *inputs)
