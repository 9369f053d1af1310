"""The spec: what attention is wanted (`problem`) and how one GPU should run it (`schedule`).

`problem` may change results, `schedule` may not. A schedule key left out is chosen by the planner.
Cross-field rules are in `rules.py`; YAML and its line numbers in `read.py`, `extends:` and overrides
in `load.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

NAME_LENGTH = 64
NAME_PATTERN = rf"^[a-z][a-z0-9_]{{0,{NAME_LENGTH - 1}}}$"
NAME_RULE = f"lower-case letters, digits and _, a letter first, at most {NAME_LENGTH} in all"

ArchName = Literal["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"]
DeviceName = Literal["a100", "rtx3090", "rtx4090", "h100", "h200", "b200", "b300", "rtx5090"]

# Queries and keys are counted in 32 bits; the launch takes lengths that a side can be added to.
Side = Annotated[int, Field(ge=0, le=2**30)] | None


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Window(_Model):
    """A sliding window: each query sees the keys from `left` before its place to `right` after it."""

    window: tuple[Side, ...] = Field(
        min_length=2,
        max_length=2,
        description="keys seen before and after a query's place; null: all",
    )


class Fp8(_Model):
    """What 8-bit q, k and v are to be multiplied by to be what they stand for: the op's descales."""

    scale: Literal["head", "block"] = Field(
        default="head",
        description="one descale per head of a sequence, or per block of its rows; the op takes a single "
        "one as well, with head",
    )
    block: Literal[128] = Field(default=128, description="rows of q, k and v that share a block's descale")


class Problem(_Model):
    """What is computed: out = dropout(softmax(cap(scale * q k^T) + mask)) v, per head, and its gradients."""

    dtype: Literal["fp16", "bf16", "e4m3", "e5m2"] = Field(
        description="element type of q, k, v, and of out but where out_dtype says another"
    )
    out_dtype: Literal["fp16", "bf16"] | None = Field(
        default=None, description="element type of out with an 8-bit dtype; bf16 if left out"
    )
    fp8: Fp8 | None = Field(
        default=None, description="how an 8-bit dtype is scaled; {scale: head} if left out"
    )
    v_transposed: bool = Field(
        default=False,
        description="8-bit v is given as batch, heads, head_dim_v, sequence: its keys are contiguous",
    )
    head_dim: int = Field(ge=8, le=256, multiple_of=8, description="columns of q and k")
    head_dim_v: int | None = Field(
        default=None, ge=8, le=256, multiple_of=8, description="columns of v and out; head_dim if left out"
    )
    layout: Literal["bshd", "bhsd", "thd"] = Field(
        default="bshd",
        description="order of the axes: batch, sequence, heads, head_dim; batch, heads, ...; or thd: the "
        "sequences one after the other, with their starts in cu_seqlens",
    )
    mask: Literal["none", "causal"] | Window = Field(
        default="none",
        description="aligned bottom-right: query i stands at key i + S_k - S_q; causal sees up to there",
    )
    softcap: float | None = Field(
        default=None,
        ge=1e-6,  # so that scale / softcap is a normal fp32 number for every scale that calls may have
        le=1_000,
        description="scores are softcap * tanh(score / softcap), before the mask; not capped if left out",
    )
    dropout: bool = Field(
        default=False,
        description="calls take dropout_p: probabilities are dropped after the softmax, kept ones / (1 - p)",
    )
    deterministic: bool = Field(
        default=False, description="gradients have the same bits at every run: dQ is summed in a fixed order"
    )
    passes: tuple[Literal["forward", "backward"], ...] = Field(
        default=("forward", "backward"), min_length=1, description="which passes to build"
    )

    @property
    def dim_v(self) -> int:
        """Columns of v and out."""
        return self.head_dim if self.head_dim_v is None else self.head_dim_v

    @property
    def is_fp8(self) -> bool:
        """Whether q, k and v are of 8 bits, and come with descales."""
        return self.dtype in ("e4m3", "e5m2")

    @property
    def dtype_out(self) -> str:
        """Element type of out."""
        return self.out_dtype or ("bf16" if self.is_fp8 else self.dtype)

    @property
    def scales_blocks(self) -> bool:
        """Whether every block of rows of q, k and v has a descale of its own."""
        return self.is_fp8 and self.fp8 is not None and self.fp8.scale == "block"

    @property
    def window(self) -> tuple[int | None, int | None]:
        """The mask as (left, right): query i sees key j iff -left <= j - (i + S_k - S_q) <= right.

        None is no bound: (None, None) without a mask, (None, 0) for causal.
        """
        match self.mask:
            case "none":
                return (None, None)
            case "causal":
                return (None, 0)
            case Window(window=(left, right)):
                return (left, right)
        raise AssertionError(self.mask)


class Tile(_Model):
    """Rows of Q (Br) and of K, V (Bc) that one CTA works on at a time."""

    q: int | None = Field(default=None, ge=16, le=512, multiple_of=16, description="rows of Q per CTA (Br)")
    kv: int | None = Field(
        default=None, ge=16, le=256, multiple_of=16, description="rows of K and V per step (Bc)"
    )


class Stages(_Model):
    """Tiles held in shared memory at once, so that the next arrive while these are in use."""

    q: int | None = Field(default=None, ge=1, le=2, description="Q tiles; 2: the next one arrives early")
    kv: int | None = Field(default=None, ge=2, le=8, description="K tiles, and V tiles")


# What setmaxnreg takes; a thread uses no more than 255 and the kernel starts with at most 240.
Registers = Annotated[int, Field(ge=24, le=240, multiple_of=8)]


class LoadRole(_Model):
    """The warps that only load (v3: one warpgroup, of which one thread issues TMA)."""

    registers: Registers | None = Field(default=None, description="registers that a thread keeps")


class MathRole(_Model):
    """The warps that multiply and take their rows' softmax; in v1 and v2 they load as well."""

    warps: int | None = Field(default=None, ge=1, le=16, description="warps in this role")
    registers: Registers | None = Field(default=None, description="registers that a thread may take")
    pingpong: bool | None = Field(
        default=None, description="warpgroups multiply in turns: one's softmax runs under another's products"
    )
    overlap: bool | None = Field(
        default=None,
        description="a warpgroup's softmax runs under its own products: the next S is begun first",
    )


class Roles(_Model):
    """Warp roles: v1 and v2 have math warps only, v3 a load warpgroup and 1 to 3 math warpgroups."""

    load: LoadRole = LoadRole()
    math: MathRole = MathRole()


class Lazy(_Model):
    """Rescale O only when a row's maximum has grown by more than `lazy` (in powers of two)."""

    # P reaches 2^lazy: 2^16 would be infinite in fp16.
    lazy: float = Field(ge=0, le=15, description="largest growth of the row maximum, in log2, left unapplied")


class Growth(_Model):
    """Look for row maxima in a work item's first tile and in masked tiles only.

    Elsewhere P is taken with the maximum as it is, until a lane's part of a tile's row sum would exceed
    2^growth: the maximum then moves, and P is scaled down.
    """

    growth: float = Field(ge=0, le=60, description="log2 of a tile's row sum up to which the maximum stays")


class Polynomial(_Model):
    """Take a share of the exponentials by a polynomial on the FMA units."""

    polynomial: float = Field(gt=0, le=1, description="share of the exponentials taken off the exp2 unit")


class Softmax(_Model):
    """How the online softmax takes exponentials and keeps its running maximum."""

    exp2: Literal["hardware"] | Polynomial | None = Field(
        default=None, description="where 2^x is computed: all by the exp2 unit, or a share by a polynomial"
    )
    rescale: Literal["always"] | Lazy | Growth | None = Field(
        default=None,
        description="when P and O move to a new row maximum: at every tile; once it has grown by more than a "
        "factor; or once a row sum has, with no maximum looked for until then (v3)",
    )


class Accumulate(_Model):
    """How O is summed with 8-bit operands, whose products Hopper adds up with about 14 bits."""

    promote_every: int | None = Field(
        default=None,
        ge=32,
        le=65536,
        multiple_of=32,
        description="keys after which O's accumulator is added to sums in fp32; never if left out",
    )


class BackwardStages(_Model):
    """Tiles of the backward held in shared memory at once."""

    q: int | None = Field(default=None, ge=1, le=2, description="Q tiles, and dO tiles")
    ds: int | None = Field(default=None, ge=1, le=2, description="P tiles, and dS tiles")


class BackwardWarps(_Model):
    """How the backward's warps split its products: q x kv of them in all."""

    q: int | None = Field(
        default=None, ge=1, le=16, description="warps along the rows of Q, of S and dP; columns of dK, dV"
    )
    kv: int | None = Field(default=None, ge=1, le=16, description="warps along the rows of K, V, dK and dV")
    dq: int | None = Field(
        default=None, ge=1, le=16, description="warps along the rows of dQ; the others split its columns"
    )


class Backward(_Model):
    """How the backward runs: v2's kernel, which v3 has as well."""

    tile: Tile = Tile()
    stages: BackwardStages = BackwardStages()
    warps: BackwardWarps = BackwardWarps()
    ctas_per_sm: int | None = Field(
        default=None, ge=1, le=8, description="CTAs meant to share an SM; caps registers"
    )
    scheduler: Literal["in_order", "longest_first"] | None = Field(
        default=None, description="order of K/V blocks in the grid"
    )


class Schedule(_Model):
    """How one GPU runs the problem. Never changes results beyond rounding; keys left out are planned."""

    tile: Tile = Tile()
    stages: Stages = Stages()
    roles: Roles = Roles()
    q_operand: Literal["shared", "registers"] | None = Field(
        default=None,
        description="where Q waits between uses: re-read from shared memory, or held in registers",
    )
    ctas_per_sm: int | None = Field(
        default=None, ge=1, le=8, description="CTAs meant to share an SM; caps registers"
    )
    softmax: Softmax = Softmax()
    accumulate: Accumulate = Accumulate()
    scheduler: Literal["in_order", "longest_first", "persistent", "persistent_lpt"] | None = Field(
        default=None,
        description="order of query blocks in the grid; persistent: as many CTAs as SMs, to which the blocks "
        "are handed out in rounds beforehand; persistent_lpt: longest first, handed out as CTAs become free",
    )
    cluster: int | None = Field(
        default=None, ge=1, le=2, description="CTAs that load each K and V tile together, by multicast"
    )
    pack_gqa: bool | None = Field(
        default=None, description="the query heads of one K/V head share the rows of a Q tile"
    )
    backward: Backward = Backward()
    allow: tuple[Literal["spills", "stack"], ...] = Field(
        default=(), description="resource findings that do not fail the build"
    )


class Spec(_Model):
    """One op: a name, a family of kernels, a target, a problem and a schedule."""

    name: str = Field(
        pattern=NAME_PATTERN,
        description="name of spec, directory, kernel symbols and op",
        json_schema_extra={"patternErrorMessage": NAME_RULE},
    )
    family: Literal["v1", "v2", "v3"] = Field(description="generation of the algorithm")
    arch: ArchName = Field(description="compile target")
    device: DeviceName | None = Field(
        default=None, description="device the models use; the arch's first one if left out"
    )
    problem: Problem
    schedule: Schedule = Schedule()
    tune: dict[str, tuple[Any, ...]] = Field(
        default_factory=dict, description="values to try per schedule key, e.g. `tile.q: [64, 128]`"
    )
