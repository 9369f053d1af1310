"""What ptxas says about a kernel: resources read from NVRTC's log, and which of them fail a build."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fagen.emit.source import Source
from fagen.errors import CompileError

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_NOTE = re.compile(r"^ptxas warning\s*:\s*(.*)|^ptxas info\s*:\s*(\(C75\d\d\).*)", re.MULTILINE)
_PERFORMANCE = re.compile(r"\(C75\d\d\)")

# Bytes per thread that ptxas may spill without failing a build. Up to here they are loop invariants, parked
# before the main loop and read back once per tile; accumulators spill by far more.
SMALL_SPILL = 96
FRAME_SLACK = 16  # bytes that a stack frame of spills holds beyond them: alignment


@dataclass(frozen=True)
class Resources:
    """What one kernel takes, per thread or per CTA, including the functions it calls."""

    registers: int  # per thread
    stack_bytes: int  # local memory per thread, spills included
    spill_store_bytes: int
    spill_load_bytes: int
    barriers: int  # named barriers per CTA
    shared_bytes: int  # static, per CTA; the dynamic part is the plan's
    warnings: tuple[str, ...]  # ptxas warnings, and its C75xx notes on lost performance


def parse(log: str, symbols: Sequence[str]) -> dict[str, Resources]:
    """Read the resources of `symbols` from the log of a compile with --ptxas-options=-v.

    Raises CompileError when the log does not speak of these kernels, or of others, too.
    """
    _, *parts = _ENTRY.split(log)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if sorted(sections) != sorted(symbols) or not all(map(_USED.search, sections.values())):
        found = ", ".join(sections) or "none"
        raise CompileError(f"expected {', '.join(symbols)}; NVRTC compiled: {found}")
    notes = [warning or info for warning, info in _NOTE.findall(log)]

    def concerns(note: str, symbol: str) -> bool:
        named = [other for other in symbols if f"'{other}'" in note]
        return not named or symbol in named

    return {
        symbol: _resources(sections[symbol], [note for note in notes if concerns(note, symbol)])
        for symbol in symbols
    }


def _resources(section: str, notes: Sequence[str]) -> Resources:
    """Of the kernel that this part of the log is about; the notes are on it, or on all."""
    used = _USED.search(section)
    assert used
    frames = [tuple(map(int, frame)) for frame in _FRAME.findall(section)]
    barriers, shared = _BARRIERS.search(used[2]), _SHARED.search(used[2])
    return Resources(
        registers=int(used[1]),
        stack_bytes=sum(frame[0] for frame in frames),
        spill_store_bytes=sum(frame[1] for frame in frames),
        spill_load_bytes=sum(frame[2] for frame in frames),
        barriers=int(barriers[1]) if barriers else 0,
        shared_bytes=int(shared[1]) if shared else 0,
        warnings=tuple(dict.fromkeys(notes)),
    )


def check(source: Source, resources: Resources) -> None:
    """Raise CompileError for spills, local memory and C75xx notes that `source.allow` does not name.

    Spills of up to SMALL_SPILL bytes are reported, but pass. Their slots are part of the stack frame, so only
    what the frame holds beyond them is local memory of the kernel's own.
    """
    findings: list[str] = []
    spilled = resources.spill_store_bytes
    spill_frame = spilled + FRAME_SLACK if spilled else 0
    if spilled > SMALL_SPILL and "spills" not in source.allow:
        findings.append(
            f"registers spill ({spilled} bytes stored, {resources.spill_load_bytes} "
            f"loaded, {resources.registers} registers per thread); allow with `schedule.allow: [spills]`"
        )
    if resources.stack_bytes > spill_frame and "stack" not in source.allow:
        findings.append(
            f"{resources.stack_bytes} bytes of local memory per thread, {spilled} of them spills (an array "
            "that is indexed at run time?); allow with `schedule.allow: [stack]`"
        )
    findings += [note for note in resources.warnings if _PERFORMANCE.search(note)]
    if findings:
        raise CompileError(f"{source.symbol} for {source.arch}: " + "; ".join(findings))
