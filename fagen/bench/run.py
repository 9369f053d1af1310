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
from fagen.bench.check import check
from fagen.bench.clock import ROUNDS, CudaClock
from fagen.bench.compare import OURS, Call, Outcome, Result, compare
from fagen.bench.expected import must_fit, random_inputs, random_like
from fagen.bench.own import fp8_scale, own_attentions, own_specs
from fagen.bench.peers.installed import installed
from fagen.errors import ArgumentError, FagenError
from fagen.ops.load import load
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


def run(case: Case) -> Result:
    """The case's contenders on standard normal inputs, checked, measured and timed.

    Where inputs and reference do not fit into the GPU's memory, the op has that as its problem.
    """
    allocator = CudaAllocator()
    allocator.release()
    problem = case.spec.problem
    try:
        with must_fit(case.shape):
            inputs = random_inputs(problem, case.shape, seed=0, device="cuda", scale=fp8_scale(problem))
            dout = random_like(inputs[0].new_empty((*inputs[0].shape[:-1], problem.dim_v)), seed=1)
            checked = check(case.mode, problem, inputs, dout)
            attentions = own_attentions(case, inputs)
    except ArgumentError as error:
        return Result(case, 0.0, {OURS: Outcome(problem=f"cannot be checked: {error}")})
    qkv, descales = inputs[:3], inputs[-3:] if problem.is_fp8 else ()
    for x in qkv:
        x.requires_grad_(case.mode != "fwd")
    for name, peer in installed(problem).items():
        attentions[name] = partial(peer.adapter, problem, *qkv, *descales)
    contenders = {
        name: partial(_in_mode, case.mode, set_up, qkv, dout) for name, set_up in attentions.items()
    }
    rounds = rounds_within(SECONDS, case.predicted_seconds)
    return compare(case, checked, contenders, CudaClock(), allocator, rounds)


def rounds_within(seconds: float, of_one: float) -> int:
    """How often to time what takes `of_one` seconds: ROUNDS, or fewer that take about `seconds`, but some."""
    return max(FEWEST, min(ROUNDS, int(seconds / of_one))) if of_one else ROUNDS


def _in_mode(mode: str, set_up: Callable[[], Call], inputs: Sequence[Tensor], dout: Tensor) -> Call:
    return passes.in_mode(mode, set_up(), inputs, dout)
