"""Work for the tuner's processes that needs no GPU: a variant does what its name says."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

from fagen.compile.artifact import Program
from fagen.errors import CompileError
from fagen.paths import SPECS
from fagen.plan.launch import Shape
from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.tune.job import Batch, Kind, Timing
from fagen.tune.process import Fault, at
from fagen.tune.store import Where
from fagen.tune.workers import Work

BASE = load_spec(SPECS / "h200_fa2.yaml")
SHAPE = Shape(1, 128, 128, 1, 1)
KIND = Kind("sm_90a", Where("a GPU", "580", "13.0", "0"))
PROGRAM = Program(
    name="", symbol="", key="", log="", seconds=0.0, cached=True, path=None, arch="sm_90a", nvrtc=(13, 0),
    cubin=b"", resources={},
)  # fmt: skip
ANOTHER = replace(KIND.where, gpu="another GPU")

_index: int | None = None


def spec(name: str) -> Spec:
    return load_spec(BASE, {"name": name})


def batch(*names: str) -> Batch:
    return Batch(tuple(map(spec, names)), SHAPE, "forward", rounds=3)


def start(index: int) -> None:
    global _index
    _index = index


def no_start(index: int) -> None:
    raise Fault("finds no driver")


def slow_start(index: int) -> None:
    time.sleep(2.0)
    start(index)


def kind(index: int) -> Kind:
    return KIND


def kind_by_index(index: int) -> Kind:
    """GPU 2 is another one."""
    return KIND._replace(where=ANOTHER) if index == 2 else KIND


def find(spec: Spec, arch: str, direction: str) -> None: ...


def find_all(spec: Spec, arch: str, direction: str) -> Program:
    """What is refused is so whether it is found or built."""
    if spec.name == "refused":
        raise CompileError("spills 8 bytes")
    return PROGRAM


def find_fails(spec: Spec, arch: str, direction: str) -> None:
    raise KeyError("what nobody foresaw")


def build(spec: Spec, arch: str, direction: str) -> None:
    _do(spec.name)


def time_batch(batch: Batch) -> tuple[Timing, ...]:
    """The seconds of each variant are its number in this batch."""
    for i, spec in enumerate(batch.specs):
        at(i)
        _do(spec.name)
    return tuple(Timing((float(i),) * batch.rounds) for i in range(len(batch.specs)))


def time_where(batch: Batch) -> tuple[Timing, ...]:
    """The seconds are the index of the GPU, which takes a while."""
    assert _index is not None
    time.sleep(0.3)
    return tuple(Timing((float(_index),)) for _ in batch.specs)


def check(spec: Spec, shape: Shape, direction: str) -> str:
    _do(spec.name)
    return "out: error 1" if spec.name == "wrong" else ""


def check_slowly(spec: Spec, shape: Shape, direction: str) -> str:
    """Which GPU did it; takes longer for "slow"."""
    time.sleep(1.0 if spec.name == "slow" else 0.1)
    return f"GPU {_index}"


def _do(name: str) -> None:
    match name.split("_")[0]:
        case "exits":
            os._exit(3)
        case "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hangs":
            time.sleep(1000)
        case "loses":
            raise Fault("CUDA error: an illegal memory access was encountered")
        case "raises":
            raise KeyError("what nobody foresaw")
        case "refused":
            raise CompileError("spills 8 bytes")


WORK = Work(start, kind, find, build, time_batch, check)


def live(seconds: float) -> str:
    """Takes that long, and shows it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        at(7)
        time.sleep(0.05)
    return "done"


def start_3() -> None:
    start(3)


def index() -> int | None:
    return _index
