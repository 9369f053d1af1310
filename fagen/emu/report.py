"""What the runtime reports → a message that names kernel line, thread and buffer."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fagen.compile.headers import EMULATED, INCLUDE
from fagen.emu.kernel import Kernel
from fagen.emu.library import CReport

WARP = 32
_PC = re.compile(r"<pc:(0x[0-9a-f]+)>")
_PLACE = re.compile(r"/?(.*):(\d+)(?: \(discriminator \d+\))?")


@dataclass(frozen=True)
class Frame:
    """One call that led to a code address, inlined calls included."""

    function: str
    file: str  # "<spec name>/forward.cu" or "fagen/pipe/ring.cuh"
    line: int


def message(kernel: Kernel, report: CReport, seed: int) -> str:
    """The whole message, several lines."""
    text = with_places(kernel, report.text.decode(errors="replace"))
    backtrace = report.backtrace[: report.backtrace_count]
    calls = frames(kernel.library.file, backtrace)
    kind = kernel.library.kind(report.kind).replace("_", " ")
    return "\n".join(
        (
            f"{kernel.source.name}: {kind} in the emulator, seed {seed}",
            *(f"  {line}" for line in text.rstrip().splitlines()),
            *_who(report),
            *_stack(kernel, [frame for pc in backtrace for frame in calls.get(pc, ())]),
        )
    )


def with_places(kernel: Kernel, text: str) -> str:
    """`text` with source lines in place of the code addresses that the runtime writes as <pc:0x...>."""
    calls = frames(kernel.library.file, {int(pc, 16) for pc in _PC.findall(text)})
    return _PC.sub(lambda pc: _place(calls.get(int(pc[1], 16), ()), kernel) or pc[0], text)


def frames(file: str, addresses: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
    """The calls at each address of a shared object, innermost first; empty where addr2line is missing."""
    asked = sorted(addresses)
    tool = shutil.which("addr2line")
    if not asked or tool is None:
        return {}
    command = (tool, "-a", "-i", "-f", "-C", "-e", file, *map(hex, asked))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[int, list[Frame]] = {}
    lines = iter(done.stdout.splitlines())
    current: list[Frame] = []
    for line in lines:
        if line.startswith("0x"):
            current = found.setdefault(int(line, 16), [])
        elif place := _PLACE.fullmatch(next(lines, "")):
            current.append(Frame(line, place[1], int(place[2])))
    return {address: tuple(calls) for address, calls in found.items()}


def _who(report: CReport) -> Iterator[str]:
    if report.has_thread:
        x = report.thread[0]
        yield (
            f"  thread {x} (warp {x // WARP}, lane {x % WARP}) of CTA ({', '.join(map(str, report.block))})"
        )


def _stack(kernel: Kernel, calls: list[Frame]) -> Iterator[str]:
    """Calls of the kernel and of fagen's device headers, each with its source line."""
    for frame in calls:
        if line := _source_line(kernel, frame):
            yield f"  {_short(kernel, frame)}: {line}"


def _place(calls: tuple[Frame, ...], kernel: Kernel) -> str:
    """The kernel's line and, behind it, the header's that the code is in."""
    own = [frame for frame in calls if _source_line(kernel, frame)]
    if not own:
        return ""
    header = own[0]
    line = next((frame for frame in own if frame.file == _file(kernel)), header)
    return _short(kernel, line) + ("" if line is header else f" ({_short(kernel, header)})")


def _file(kernel: Kernel) -> str:
    return f"{kernel.source.name}/{kernel.source.file}"


def _short(kernel: Kernel, frame: Frame) -> str:
    return f"{kernel.source.file if frame.file == _file(kernel) else frame.file}:{frame.line}"


def _source_line(kernel: Kernel, frame: Frame) -> str:
    """Empty for code that is neither the kernel's nor a header's that a GPU runs too."""
    if frame.file == _file(kernel):
        text = kernel.source.text
    elif frame.file.startswith("fagen/") and not frame.file.startswith(EMULATED):
        path = INCLUDE / frame.file
        text = path.read_text() if path.is_file() else ""
    else:
        return ""
    lines = text.splitlines()
    return lines[frame.line - 1].strip() if frame.line <= len(lines) else ""
