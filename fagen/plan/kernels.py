"""The kernels that a plan launches, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from fagen.hw.dtypes import DTYPES
from fagen.plan import params, v1_params, v2_backward_params, v3_params
from fagen.plan.ir import Barrier, Buffer, Plan
from fagen.plan.params import Param

PREPARE_THREADS = 128  # of the kernel before v2's backward, which only reads and writes


@dataclass(frozen=True)
class KernelPlan:
    """One kernel of a plan: what is printed, compiled and launched as a whole."""

    plan: Plan
    name: str  # "forward", unique within the spec
    symbol: str  # the kernel's extern "C" name
    template: str  # under templates/
    threads: int  # per CTA
    params: tuple[Param, ...]
    buffers: tuple[Buffer, ...] = ()
    barriers: tuple[Barrier, ...] = ()

    @property
    def barriers_offset(self) -> int:
        """Where the mbarriers start in shared memory: after the tiles."""
        return max((buffer.offset + buffer.bytes for buffer in self.buffers), default=0)

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory per CTA: the tiles and the barriers."""
        return self.barriers_offset + 8 * sum(barrier.stages for barrier in self.barriers)


def kernels(plan: Plan) -> tuple[KernelPlan, ...]:
    """The kernels of a plan, in the order of their launches."""
    if plan.direction == "forward":
        return (_forward(plan),)
    return (_v1_backward(plan),) if plan.spec.family == "v1" else _v2_backward(plan)


def main_kernel(plan: Plan) -> KernelPlan:
    """The kernel of a plan that multiplies: that of its tiling, buffers, barriers and accounts."""
    return next(kernel for kernel in kernels(plan) if kernel.name == plan.direction)


_FORWARD_PARAMS = {"v1": v1_params.forward, "v2": params.forward, "v3": v3_params.forward}


def _forward(plan: Plan) -> KernelPlan:
    return KernelPlan(
        plan=plan,
        name="forward",
        symbol=f"fagen_{plan.spec.name}_fwd",
        template=f"{plan.spec.family}/forward.cu.j2",
        threads=plan.tiling.threads,
        params=_FORWARD_PARAMS[plan.spec.family](plan),
        buffers=plan.buffers,
        barriers=plan.barriers,
    )


def _v1_backward(plan: Plan) -> KernelPlan:
    return KernelPlan(
        plan=plan,
        name="backward",
        symbol=f"fagen_{plan.spec.name}_bwd",
        template="v1/backward.cu.j2",
        threads=plan.tiling.threads,
        params=v1_params.backward(plan),
        buffers=plan.buffers,
        barriers=plan.barriers,
    )


def _v2_backward(plan: Plan) -> tuple[KernelPlan, ...]:
    """Also v3's."""
    symbol, tiling = f"fagen_{plan.spec.name}_bwd", plan.tiling
    dq_bytes = tiling.q * plan.dim * DTYPES[plan.spec.problem.dtype].bytes
    return (
        KernelPlan(
            plan=plan,
            name="backward_prepare",
            symbol=f"{symbol}_prepare",
            template="v2/backward_prepare.cu.j2",
            threads=PREPARE_THREADS,
            params=v2_backward_params.prepare(plan),
        ),
        KernelPlan(
            plan=plan,
            name="backward",
            symbol=symbol,
            template="v2/backward.cu.j2",
            threads=tiling.threads,
            params=v2_backward_params.main(plan),
            buffers=plan.buffers,
            barriers=plan.barriers,
        ),
        KernelPlan(
            plan=plan,
            name="backward_convert",
            symbol=f"{symbol}_convert",
            template="v2/backward_convert.cu.j2",
            threads=tiling.threads,  # whose fragments the sums are
            params=v2_backward_params.convert(plan),
            buffers=(Buffer("dq", 0, tiling.q, plan.dim, 1, dq_bytes),),
        ),
    )
