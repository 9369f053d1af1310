"""The runtime's trace → a Chrome trace that Perfetto and chrome://tracing show: CTAs, warps, kernel lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fagen.emu.kernel import Kernel
from fagen.emu.report import with_places
from fagen.files import write_text


def finish(path: Path, kernel: Kernel) -> None:
    """Put source lines into the trace that the runtime left at `path`, for code addresses; name the tracks.

    Times are turns of the scheduler, shown as microseconds; they say who did what before whom, and nothing
    about how long it takes on a GPU.
    """
    trace = json.loads(with_places(kernel, path.read_text()))
    events: list[dict[str, Any]] = trace["traceEvents"]
    tracks = sorted({(event["pid"], event["tid"]) for event in events})
    names = [_name("process_name", cta, 0, f"CTA {cta}") for cta in sorted({cta for cta, _ in tracks})]
    names += [_name("thread_name", cta, warp, f"warp {warp}") for cta, warp in tracks]
    trace["traceEvents"] = names + sorted(events, key=lambda event: event["ts"])
    write_text(path, json.dumps(trace))


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
