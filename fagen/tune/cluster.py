"""Workers on a Ray cluster: an actor for every GPU, compile tasks on all CPUs, also of nodes without GPU.

Nodes need no common disk: what one compiles goes through Ray's object store into the caches of those that
have GPUs. fagen is installed on every node.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fagen.errors import FagenError, TuneError
from fagen.plan.launch import Shape
from fagen.spec.model import Spec
from fagen.tune.build import keep
from fagen.tune.gpu import LocalGpu
from fagen.tune.job import Batch, Kind, Timing
from fagen.tune.workers import Crew, Work

ray: Any = import_module("ray") if find_spec("ray") else None
PATIENCE = 10.0  # seconds for a connection to a cluster's node, which Ray would wait minutes for


def ray_workers(address: str, work: Work) -> Crew:
    """All CPUs, and the GPUs that are free, of the cluster at `address`, as ray.init takes it: "auto".

    Raises TuneError where Ray is missing, or there is no cluster, or no free GPU in it.
    """
    if ray is None:
        raise TuneError("a cluster needs Ray: pip install 'fagen[ray]'")
    if not ray.is_initialized():
        try:
            _reach(address)
            ray.init(address, log_to_driver=False, logging_level=logging.WARNING)
        except (OSError, RuntimeError, ValueError) as error:
            raise TuneError(f"ray: no cluster at {address!r}: {error}") from error
    gpus = int(ray.available_resources().get("GPU", 0))
    if not gpus:
        raise TuneError(f"ray: the cluster at {address!r} has no free GPU; allowed: at least one")
    actor = ray.remote(num_gpus=1, num_cpus=0)(_GpuOfNode)
    actors = [actor.remote(0, work) for _ in range(gpus)]  # each is shown one GPU, so its index is 0
    task = ray.remote(num_cpus=1, num_returns=2, max_retries=0)(_build)
    cpus = int(ray.cluster_resources()["CPU"])
    return Crew([_RayGpu(actor) for actor in actors], [_RayCompiler(task, actors, work) for _ in range(cpus)])


def _reach(address: str) -> None:
    """Connect to a host and port, if `address` is one. Raises OSError, or ValueError for no such port."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()


class _GpuOfNode(LocalGpu):
    """Runs in the actor."""

    def keep(self, spec: Spec, arch: str, direction: str, program: Any) -> None:
        """Take what another node has compiled into this one's cache."""
        if program is not None:
            keep(spec, arch, direction, program)


def _build(work: Work, spec: Spec, arch: str, direction: str) -> tuple[str, Any]:
    """What is wrong, or "", and what was made."""
    try:
        return "", work.build(spec, arch, direction)
    except FagenError as error:
        return str(error), None


class _RayGpu:
    """See `workers.Gpu`."""

    def __init__(self, actor: Any):
        self._actor = actor

    def kind(self) -> Kind:
        """See `workers.Gpu`."""
        return _get(self._actor.kind.remote())

    def time(self, batch: Batch, seconds: float) -> tuple[Timing, ...]:
        """See `workers.Gpu`."""
        return _get(self._actor.time.remote(batch, seconds))

    def check(self, spec: Spec, shape: Shape, direction: str) -> str:
        """See `workers.Gpu`."""
        return _get(self._actor.check.remote(spec, shape, direction))

    def close(self) -> None:
        """See `workers.Gpu`."""
        ray.kill(self._actor)


class _RayCompiler:
    """See `workers.Compiler`."""

    def __init__(self, task: Any, actors: Sequence[Any], work: Work):
        self._task, self._actors, self._work = task, actors, work
        self._running: Any = None

    def build(self, spec: Spec, arch: str, direction: str) -> str:
        """See `workers.Compiler`."""
        self._running, program = self._task.remote(self._work, spec, arch, direction)
        try:
            problem = ray.get(self._running)
        except ray.exceptions.WorkerCrashedError:
            return "crashed the compiler"
        except ray.exceptions.RayError as error:  # what nobody foresaw
            return f"failed: {str(error).strip().splitlines()[-1]}"
        for actor in self._actors:
            actor.keep.remote(spec, arch, direction, program)
        return problem

    def close(self) -> None:
        """See `workers.Compiler`."""
        if self._running is not None:
            ray.cancel(self._running, force=True)


def _get(reference: Any) -> Any:
    """What an actor returned or raised. Raises TuneError where it is lost."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise TuneError(f"ray: {str(error).splitlines()[0]}") from error
