"""One launch in the emulator: the whole grid of a kernel, on plain addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fagen.emu import report, trace
from fagen.emu.kernel import Kernel, Range
from fagen.emu.library import CBuffer, CLaunch, CRange
from fagen.emu.settings import Settings, current
from fagen.errors import EmulatorError


@dataclass(frozen=True)
class Work:
    """What a run took."""

    steps: int  # turns that the schedulers gave to threads
    landings: int  # asynchronous operations that completed


def run(
    kernel: Kernel,
    grid: tuple[int, int, int],
    params: bytes,
    ranges: Sequence[Range],
    cluster: tuple[int, int, int] = (1, 1, 1),
    settings: Settings | None = None,
) -> Work:
    """Run `grid` CTAs to their end; `params` is the kernel's one argument, `settings` are `current()`.

    Raises EmulatorError for whatever the emulator objects to; what the kernel wrote until then stays written.
    Raises OSError where the trace cannot be written.
    """
    source, library = kernel.source, kernel.library
    settings = settings or current()
    if settings.trace:
        settings.trace.write_bytes(b"")  # now, with Python's error, rather than after the run
    c_ranges = (CRange * len(ranges))(*((r.name.encode(), r.address, r.bytes, r.writable) for r in ranges))
    c_buffers = (CBuffer * len(kernel.buffers))(*((b.name.encode(), *b[1:]) for b in kernel.buffers))
    done = library.run(
        CLaunch(
            grid=grid,
            cluster=cluster,
            block=(source.threads, 1, 1),
            smem_bytes=source.smem_bytes,
            params=params,
            params_bytes=len(params),
            ranges=c_ranges,
            range_count=len(ranges),
            buffers=c_buffers,
            buffer_count=len(kernel.buffers),
            seed=settings.seed,
            preemption=settings.preemption,
            step_limit=settings.step_limit,
            os_threads=settings.os_threads,
            trace_path=str(settings.trace).encode() if settings.trace else None,
        )
    )
    if settings.trace and settings.trace.stat().st_size:
        trace.finish(settings.trace, kernel)
    if done.kind:
        raise EmulatorError(report.message(kernel, done, settings.seed))
    return Work(done.steps, done.landings)
