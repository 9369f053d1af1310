"""The shared memory of one CTA, to scale: every buffer, the words of its barriers, and what is left of it."""

from __future__ import annotations

from dataclasses import dataclass

from fagen.plan.budget import SMEM_CTA
from fagen.plan.ir import Plan
from fagen.plan.kernels import main_kernel
from fagen.plan.svg import BARRIERS, SMALL, WIDTH, amount, drawing, hue_of, line, lines_of, rect, text

TOP, HEIGHT = 26, 440  # of the bar, px
LEFT, BAR = 96, 150
LABEL, STEP = 290, 38  # where labels begin; from one to the next
WORDS, CELL, ROW = 650, 15, 23  # the table of barrier words


@dataclass(frozen=True)
class _Span:
    """Bytes [start, end) and what is said of them."""

    start: int
    end: int
    name: str
    detail: str
    hue: str  # "": free
    stages: int = 1


def render(plan: Plan) -> str:
    """The kernel that multiplies; offsets are in dynamic shared memory."""
    spans = _spans(plan)
    limit = _limit(plan)
    parts = [
        text(LEFT, TOP - 10, f"one CTA of {plan.tiling.ctas_per_sm} on an SM", "quiet"),
        *(part for span in spans for part in _span(span, limit)),
        *_labels(spans, limit),
        *(_words(plan) if plan.barriers else ()),
    ]
    return drawing(f"Shared memory of {plan.spec.name}, {plan.direction}", TOP + HEIGHT + STEP, parts)


def _limit(plan: Plan) -> int:
    return next(account.allowed for account in plan.accounts if account.resource == SMEM_CTA)


def _spans(plan: Plan) -> list[_Span]:
    spans = []
    for b in plan.buffers:
        element = b.bytes // (b.stages * b.rows * b.cols)
        tile = f"{b.rows} x {b.cols}, {element} bytes each"
        detail = f"{b.stages} stages of {tile}" if b.stages > 1 else f"1 tile of {tile}"
        spans.append(_Span(b.offset, b.offset + b.bytes, b.name, detail, hue_of(b.name), b.stages))
    kernel = main_kernel(plan)
    if plan.barriers:
        words = sum(barrier.stages for barrier in plan.barriers)
        detail = f"{words} words of 8 bytes"
        spans.append(_Span(kernel.barriers_offset, kernel.smem_bytes, "barriers", detail, BARRIERS))
    limit = _limit(plan)
    if limit > kernel.smem_bytes:
        share = (limit - kernel.smem_bytes) / limit
        spans.append(
            _Span(kernel.smem_bytes, limit, "free", f"{share:.1%} of what {plan.arch.name} allows a CTA", "")
        )
    return spans


def _y(size: float, limit: int) -> float:
    return TOP + HEIGHT * size / limit


def _span(span: _Span, limit: int) -> list[str]:
    top, bottom = _y(span.start, limit), _y(span.end, limit)
    says = f"{span.name}: {span.detail}; {amount(span.end - span.start)}"
    if not span.hue:
        return [rect(LEFT, top, BAR, bottom - top, "free", tip=says)]
    parts = [rect(LEFT, top, BAR, bottom - top, "buffer", span.hue, says)]
    for stage in range(1, span.stages):
        y = top + (bottom - top) * stage / span.stages
        parts.append(line(((LEFT, y), (LEFT + BAR, y)), "cell"))
    return parts


def _labels(spans: list[_Span], limit: int) -> list[str]:
    """Two lines for each span, as near to it as those above leave room for, and offsets where they do."""
    ends = [span.end for span in spans]
    room = [TOP + HEIGHT - STEP * (len(spans) - 1 - i) for i in range(len(spans))]  # to fit the last
    parts, y, said = [], 0.0, -STEP
    for span, least in zip(spans, room, strict=True):
        middle = _y((span.start + span.end) / 2, limit)
        y = max(TOP, y, min(middle - 8, least))
        parts += [
            line(((LEFT + BAR, middle), (LABEL - 8, y + 8)), "arrow"),
            text(LABEL, y + 12, span.name, "strong"),
            text(LABEL + 76, y + 12, amount(span.end - span.start)),
            text(LABEL + 76, y + 28, span.detail, "quiet"),
        ]
        y += STEP
    for offset in sorted({0, *ends}, reverse=True):
        at = _y(offset, limit)
        if said < 0 or said - at >= 15:
            parts.append(text(LEFT - 10, at + 4, f"{offset:,}", "quiet", "end"))
            said = at
    return parts


def _words(plan: Plan) -> list[str]:
    """The words of the barriers, one cell each, in their order, and what they say."""
    parts = [text(WORDS, TOP + 12, "barriers: a word of 8 bytes for each stage", "strong")]
    says, y = WORDS + 74 + (CELL + 3) * max(b.stages for b in plan.barriers), TOP + 36
    for barrier in plan.barriers:
        meaning = lines_of(barrier.meaning, WIDTH - says, SMALL)
        parts.append(text(WORDS, y, barrier.name))
        for stage in range(barrier.stages):
            tip = f"{barrier.name}, stage {stage}"
            parts.append(rect(WORDS + 64 + (CELL + 3) * stage, y - 12, CELL, CELL, "word", BARRIERS, tip))
        parts += [text(says, y + 16 * i, words, "quiet") for i, words in enumerate(meaning)]
        y += ROW + 16 * (len(meaning) - 1)
    return parts
