"""A spec of 8 bits in 16: what its kernels are to be measured against."""

from __future__ import annotations

from fagen.spec.load import load_spec
from fagen.spec.model import Spec
from fagen.spec.shipped import shipped_specs

ONLY_FP8 = {"dtype", "out_dtype", "fp8", "v_transposed"}  # keys of a problem


def in_16_bits(spec: Spec, dtype: str) -> Spec:
    """The same attention of q, k and v of `dtype`, fp16 or bf16.

    The schedule is that of the first shipped spec for such heads, dtype, family and device; where there is
    none, the planner's.
    """
    kept = spec.problem.model_dump(exclude=ONLY_FP8)
    wanted = _kind(spec, dtype)
    alike = next((one for one in shipped_specs() if _kind(one, one.problem.dtype) == wanted), None)
    return load_spec(
        {
            "name": f"{spec.name[:50]}_{dtype}",
            **spec.model_dump(include={"family", "arch", "device"}),
            "problem": {**kept, "dtype": dtype},
            "schedule": alike.schedule.model_dump(exclude_unset=True) if alike else {},
        }
    )


def _kind(spec: Spec, dtype: str) -> tuple[object, ...]:
    return spec.family, spec.arch, spec.device, spec.problem.head_dim, spec.problem.dim_v, dtype
