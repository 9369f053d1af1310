"""The spec: what attention is wanted (`problem`) and how one GPU should run it (`schedule`).

`problem` may change results, `schedule` may not. A schedule key left out is chosen by the planner.
Cross-field rules are in `rules.py`; YAML and its line numbers in `read.py`, `extends:` and overrides
in `load.py`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

NAME_LENGTH = 64
NAME_PATTERN = rf"^[a-z][a-z0-9_]{{0,{NAME_LENGTH - 1}}}$"
NAME_RULE = f"lower-case letters, digits and _, a letter first, at most {NAME_LENGTH} in all"

ArchName = Literal["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"]
DeviceName = Literal["a100", "rtx3090", "rtx4090", "h100", "h200", "b200", "b300", "rtx5090"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Problem(_Model):
    """What is computed: out = softmax(scale * q k^T + mask) v, per head."""

    dtype: Literal["fp16", "bf16"] = Field(description="element type of q, k, v and out")
    head_dim: int = Field(ge=8, le=256, multiple_of=8, description="columns of q and k")
    head_dim_v: int | None = Field(
        default=None, ge=8, le=256, multiple_of=8, description="columns of v and out; head_dim if left out"
    )
    layout: Literal["bshd", "bhsd"] = Field(
        default="bshd", description="order of the axes: batch, sequence, heads, head_dim or batch, heads, ..."
    )
    mask: Literal["none", "causal"] = Field(
        default="none", description="causal is aligned bottom-right: query i sees key j <= i + S_k - S_q"
    )
    passes: tuple[Literal["forward"], ...] = Field(
        default=("forward",), min_length=1, description="which passes to build"
    )

    @property
    def dim_v(self) -> int:
        """Columns of v and out."""
        return self.head_dim if self.head_dim_v is None else self.head_dim_v


class Tile(_Model):
    """Rows of Q (Br) and of K, V (Bc) that one CTA works on at a time."""

    q: int | None = Field(default=None, ge=16, le=512, multiple_of=16, description="rows of Q per CTA (Br)")
    kv: int | None = Field(
        default=None, ge=16, le=256, multiple_of=16, description="rows of K and V per step (Bc)"
    )


class Stages(_Model):
    """Depth of the ring that K and V arrive in."""

    kv: int | None = Field(default=None, ge=2, le=8, description="K/V tiles held in shared memory at once")


class Role(_Model):
    """A group of warps with one job."""

    warps: int | None = Field(default=None, ge=1, le=16, description="warps in this role")


class Roles(_Model):
    """Warp roles; v2 has one: every warp loads, multiplies and takes its rows' softmax."""

    math: Role = Role()


class Lazy(_Model):
    """Rescale O only when a row's maximum has grown by more than `lazy` (in powers of two)."""

    # P reaches 2^lazy: 2^16 would be infinite in fp16.
    lazy: float = Field(ge=0, le=15, description="largest growth of the row maximum, in log2, left unapplied")


class Softmax(_Model):
    """How the online softmax keeps its running maximum."""

    rescale: Literal["always"] | Lazy | None = Field(
        default=None, description="when O is rescaled to a new row maximum"
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
    scheduler: Literal["in_order", "longest_first"] | None = Field(
        default=None, description="order of query blocks in the grid"
    )
    allow: tuple[Literal["spills", "stack"], ...] = Field(
        default=(), description="resource findings that do not fail the build"
    )


class Spec(_Model):
    """One kernel: a name, a family, a target, a problem and a schedule."""

    name: str = Field(
        pattern=NAME_PATTERN,
        description="name of spec, directory, kernel symbol and op",
        json_schema_extra={"patternErrorMessage": NAME_RULE},
    )
    family: Literal["v2"] = Field(description="generation of the algorithm")
    arch: ArchName = Field(description="compile target")
    device: DeviceName | None = Field(
        default=None, description="device the models use; the arch's first one if left out"
    )
    problem: Problem
    schedule: Schedule = Schedule()
    tune: dict[str, tuple[Any, ...]] = Field(
        default_factory=dict, description="values to try per schedule key, e.g. `tile.q: [64, 128]`"
    )
