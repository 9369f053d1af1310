"""The plan of a pass as a person reads it: one list of sections, as rich tables, as Markdown or as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fagen.plan import io
from fagen.plan.backward_launch import launches
from fagen.plan.family import RESOLVED, Family
from fagen.plan.formulas import FORMULAS, SYMBOLS, Formula, R, f, law, miss
from fagen.plan.ir import Account, Plan
from fagen.plan.kernels import kernels, main_kernel
from fagen.plan.launch import Shape
from fagen.plan.planner import FAMILIES, pipeline
from fagen.plan.predict import predict
from fagen.plan.workspaces import workspaces

DEFAULT_SHAPE = Shape(batch=2, seqlen_q=8192, seqlen_k=8192, heads_q=16, heads_kv=16)

# True of the backwards.
FIXED_ORDER = "always: every gradient is summed in a fixed order, over the tiles of one head"
ATOMIC_ORDER = "dK and dV always; dQ is summed by atomics (problem.deterministic: true fixes the order)"
# True of these forwards by construction: one CTA for each (batch, head, Q block), and no second kernel.
BATCH_INVARIANCE = (
    "always, without a setting: one CTA walks all keys of its queries in a fixed order (no split-KV, no sums "
    "by atomics), so a row's bits do not depend on the batch size, on other sequences or on other heads"
)
RESCALED_TOGETHER = "queries of one sequence that share a warp decide together when to rescale"
PACKED_TOGETHER = f"{RESCALED_TOGETHER}, those of the query heads of one K/V head among them"


class Code(str):
    """Text that Markdown sets in code type: a formula, an identifier."""


@dataclass(frozen=True)
class Section:
    """A table under a title. Cells are raw values: str, Code, int, float, or None for an empty one.

    With `facts` the rows are (name, value) pairs, which are one object in JSON; else each row is an object.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()
    facts: bool = False


def sections(plan: Plan, shape: Shape = DEFAULT_SHAPE) -> list[Section]:
    """Everything there is to say about a plan, in reading order; `shape` for launch, prediction and traffic.

    Raises PlanError if the shape is beyond what the kernel can be launched on.
    """
    return [
        _kernel(plan),
        _schedule(plan),
        *([_roles(plan)] if plan.tiling.load_warps else ()),
        *map(_account, plan.accounts),
        _shared_memory(plan),
        *([_barriers(plan)] if plan.tiling.load_warps else ()),
        _symbols("Symbols of the budgets and engines", _family(plan).symbols),
        _engines(plan),
        _kernels(plan, shape),
        _launch(plan, shape),
        _prediction(plan, shape),
        _traffic(plan, shape),
        _formulas(plan),
        _symbols("Symbols of the traffic formulas", SYMBOLS),
    ]


def to_tables(plan: Plan, shape: Shape = DEFAULT_SHAPE) -> Group:
    """The sections as tables that a rich console prints."""
    return Group(*(part for section in sections(plan, shape) for part in _rich(section)))


def to_markdown(plans: Sequence[Plan]) -> str:
    """The sections of a spec's passes as a Markdown page, for the default shape.

    The same plans always give the same text.
    """
    return "\n".join(
        f"# The {plan.direction} of {plan.spec.name}\n\n" + "\n".join(map(_markdown, sections(plan)))
        for plan in plans
    )


def to_json(plan: Plan, shape: Shape = DEFAULT_SHAPE) -> dict[str, Any]:
    """The sections as JSON-serialisable values, keyed by title in snake case; no number is rounded."""
    return {_key(section.title): _json(section) for section in sections(plan, shape)}


def _family(plan: Plan) -> Family:
    return FAMILIES[plan.spec.family, plan.direction]


def _kernel(plan: Plan) -> Section:
    spec, problem, arch, device = plan.spec, plan.spec.problem, plan.arch, plan.device
    facts = {
        "name": Code(spec.name),
        "family": spec.family,
        "arch": arch.name,
        "device": f"{device.name}: {device.sms} SMs at {device.clock_hz / 1e9:.2f} GHz",
        "pass": plan.direction,
        "dtype": problem.dtype,
        "head_dim": problem.head_dim,
        "head_dim_v": problem.dim_v,
        "layout": problem.layout,
        "mask": _mask(problem.window),
        "softcap": "none" if problem.softcap is None else problem.softcap,
        "dropout": problem.dropout,
        **({"deterministic": problem.deterministic} if plan.direction == "backward" else {}),
        "batch-invariant": _batch_invariance(plan),
    }
    notes = [
        f"{row.name}: estimated, not published: {', '.join(row.estimates)}"
        for row in (arch, device)
        if row.estimates
    ]
    return _facts("Problem", facts, notes)


def _mask(window: tuple[int | None, int | None]) -> str:
    place = "i + S_k - S_q"
    match window:
        case (None, None):
            return "none: every query sees every key"
        case (None, 0):
            return f"causal: bottom-right, query i sees key j <= {place}"
    left, right = window
    first = "" if left is None else f"{place} - {left} <= "
    last = "" if right is None else f" <= {place} + {right}"
    return f"window: bottom-right, query i sees key {first}j{last}"


def _batch_invariance(plan: Plan) -> str:
    tiling = plan.tiling
    if plan.direction == "backward":
        return FIXED_ORDER if plan.spec.problem.deterministic or plan.spec.family == "v1" else ATOMIC_ORDER
    if tiling.rescales:
        return BATCH_INVARIANCE
    return f"{BATCH_INVARIANCE}; {PACKED_TOGETHER if tiling.pack_gqa else RESCALED_TOGETHER}"


def _schedule(plan: Plan) -> Section:
    rows = (
        (Code(key), RESOLVED[key](plan.tiling), "planner" if key in plan.planned else "spec")
        for key in _family(plan).keys
    )
    return Section("Schedule", ("key", "value", "chosen by"), tuple(rows))


def _roles(plan: Plan) -> Section:
    rows = tuple((role.name, role.warps, role.registers, role.does) for role in pipeline(plan).roles)
    return Section("Roles", ("role", "warps", "registers of a thread", "does"), rows)


def _account(account: Account) -> Section:
    rows = [(term.name, Code(term.formula), term.value) for term in account.terms]
    rows += [("used", None, account.used), ("allowed", None, account.allowed)]
    return Section(f"Budget: {account.resource}", ("term", "formula", account.unit), tuple(rows))


def _shared_memory(plan: Plan) -> Section:
    rows = ((Code(b.name), b.offset, b.stages, b.rows, b.cols, b.bytes) for b in plan.buffers)
    return Section(
        "Shared memory map",
        ("buffer", "offset", "stages", "rows", "columns", "bytes"),
        tuple(rows),
        (f"columns are padded to {_family(plan).padding}; {_way_out(plan)}",),
    )


def _way_out(plan: Plan) -> str:
    match plan.spec.family, plan.direction:
        case "v1", "forward":
            return "O leaves through a buffer of its own, at every step"
        case "v1", _:
            return "dQ leaves through a buffer of its own, at every step"
        case _, "backward":
            return "dK and dV leave through the buffers of K and V"
        case "v2", _:
            return "O leaves through the buffer of Q"
    return f"O leaves {'through a buffer of its own' if plan.tiling.own_o else 'straight from registers'}"


def _barriers(plan: Plan) -> Section:
    rows, offset = [], main_kernel(plan).barriers_offset
    for barrier in plan.barriers:
        rows.append((Code(barrier.name), offset, barrier.stages, barrier.meaning))
        offset += 8 * barrier.stages
    return Section("Barriers", ("mbarrier", "offset", "stages", "says"), tuple(rows))


def _engines(plan: Plan) -> Section:
    engines = plan.engines
    rows = (
        (load.engine, load.cycles, f"{load.cycles / engines.bound.cycles:.0%}", Code(load.work))
        for load in engines.loads
    )
    return Section(
        "Engines",
        ("engine", "cycles", "of the bound", "work"),
        tuple(rows),
        (
            "cycles that one SM needs for one Br x Bc tile",
            f"bound: {engines.bound.engine}; predicted for a full device: {engines.tflops:.0f} TFLOP/s",
        ),
    )


def _kernels(plan: Plan, shape: Shape) -> Section:
    rows = (
        (kernel.name, Code(kernel.symbol), launched.grid, kernel.threads, kernel.smem_bytes)
        for kernel, launched in zip(kernels(plan), launches(plan, shape, scale=1.0), strict=True)
    )
    return Section(
        "Kernels",
        ("kernel", "symbol", "grid", "threads per CTA", "dynamic shared memory, bytes"),
        tuple(rows),
        (f"in the order of their launches; grids for B,Sq,Sk,Hq,Hkv = {shape}",),
    )


def _launch(plan: Plan, shape: Shape) -> Section:
    launched = io.main_launch(plan, shape)
    facts = {
        "B,Sq,Sk,Hq,Hkv": str(shape),
        "CTAs at a time": plan.device.sms * plan.tiling.ctas_per_sm,
        "heads side by side": launched.scalars.heads_abreast,
    }
    if launched.cluster > 1:
        facts["CTAs of a cluster"] = launched.cluster
    taken = {param.name for kernel in kernels(plan) for param in kernel.params}
    sizes = workspaces(plan, shape)
    facts |= {f"workspace {name}, bytes": size for name, size in sizes.items() if name in taken}
    return _facts("Launch", facts)


def _prediction(plan: Plan, shape: Shape) -> Section:
    predicted = predict(plan, shape)
    facts = {
        "FLOP": predicted.flops,
        "time, us": predicted.seconds * 1e6,
        "TFLOP/s": predicted.tflops,
        "bound": predicted.bound,
    }
    notes = ("a model's prediction, not a measurement; visible pairs only",)
    return _facts("Prediction", facts, notes)


def _traffic(plan: Plan, shape: Shape) -> Section:
    at = io.setting(plan, shape)
    hbm = plan.device.hbm_bytes_per_s
    speeds = {"paper": hbm, "HBM": hbm, "L2": plan.device.l2_bytes_per_s}
    rows = []
    for one in _formulas_of(plan):
        moved, values = io.evaluate(one, at), io.values(one, at)
        shares = (float(values[symbol]) if one.bytes.has(symbol) else None for symbol in (f, R, miss))
        time = moved / speeds[one.level] * 1e6
        rows.append((one.algorithm, one.level, moved, time, *shares, _theta(law(one))))
    return Section(
        "Traffic",
        ("algorithm", "level", "bytes", "us at peak", "f", "R", "miss", "growth of one head"),
        tuple(rows),
        (
            f"for B,Sq,Sk,Hq,Hkv = {shape}; f, R and miss: see the symbols below",
            "HBM: bytes over the memory bus, after L2; paper: without a cache, as in the papers; L2: bytes "
            "that the SMs ask of L2",
            "the tile is this kernel's; on paper v1 has the blocks of its paper in this chip's shared memory",
        ),
    )


def _formulas(plan: Plan) -> Section:
    rows = (
        (one.algorithm, one.level, part.name, Code(part.bytes))
        for one in _formulas_of(plan)
        for part in one.parts
    )
    return Section("Traffic formulas", ("algorithm", "level", "part", "bytes"), tuple(rows))


def _formulas_of(plan: Plan) -> list[Formula]:
    """Of the kernels' algorithm; to compare, standard attention, and v1 on paper."""
    shown = ("standard", io.algorithm(plan))
    return [
        one
        for one in FORMULAS
        if one.direction == plan.direction and (one.algorithm in shown or one.level == "paper")
    ]


def _symbols(title: str, meanings: dict[sp.Symbol, str]) -> Section:
    return Section(
        title, ("symbol", "meaning"), tuple((Code(symbol), meaning) for symbol, meaning in meanings.items())
    )


def _facts(title: str, facts: dict[str, Any], notes: Iterable[str] = ()) -> Section:
    return Section(title, ("fact", "value"), tuple(facts.items()), tuple(notes), facts=True)


def _theta(growth: sp.Expr) -> str:
    return f"Θ({growth})".replace("**2", "²").replace("*", " ")


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def cell_text(value: Any) -> str:
    """A cell of a section as a person reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value < 1000:
        return f"{value:.4g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def is_numeric(section: Section, column: int) -> bool:
    """Whether a column has nothing but numbers."""
    cells = [row[column] for row in section.rows]
    return not section.facts and all(isinstance(cell, int | float | None) for cell in cells)


def _json(section: Section) -> Any:
    if section.facts:
        return {_key(name): value for name, value in section.rows}
    keys = [_key(column) for column in section.columns]
    return [dict(zip(keys, row, strict=True)) for row in section.rows]


def _markdown(section: Section) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def cell(value: Any) -> str:
        text = cell_text(value).replace("|", "\\|")
        return f"`{text}`" if isinstance(value, Code) else text

    rules = ["---:" if is_numeric(section, i) else "---" for i in range(len(section.columns))]
    table = [line(section.columns), line(rules), *(line(map(cell, row)) for row in section.rows)]
    notes = [f"\n{note[0].upper()}{note[1:]}." for note in section.notes]
    return "\n".join([f"## {section.title}\n", *table, *notes]) + "\n"


def _rich(section: Section) -> list[Table | Text]:
    table = Table(title=section.title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.show_header = not section.facts
    for i, column in enumerate(section.columns):
        table.add_column(column, justify="right" if is_numeric(section, i) else "left", overflow="fold")
    for row in section.rows:
        table.add_row(*(Text(cell_text(value)) for value in row))
    return [table, *(Text(f"  {note}", style="dim") for note in section.notes), Text()]
