"""Architectures: one row each, with where its numbers come from.

Sizes are in bytes, rates are per SM and clock. A field named in `estimates` has no published value; `source`
says what the estimate rests on.

Common sources: limits per SM, CTA and thread are the CUDA C++ Programming Guide's tables "Technical
Specifications" and "Throughput of Native Arithmetic Instructions" per compute capability; features are the
PTX ISA's "Target ISA Notes".
"""

from __future__ import annotations

from dataclasses import dataclass

from fagen.errors import LaunchError

KIB = 1024


@dataclass(frozen=True)
class Arch:
    """What one SM of a compile target has, and how fast each of its engines is."""

    name: str  # compile target, "sm_80"
    capability: tuple[int, int]
    families: tuple[str, ...]  # kernel generations whose instructions it has
    features: frozenset[str]  # instruction groups beyond plain CUDA
    smem_per_sm: int
    smem_per_cta: int  # largest dynamic shared memory of one CTA (opt-in)
    max_threads_per_sm: int
    max_ctas_per_sm: int
    mma_flops: int  # dense fp16/bf16 FLOP through mma.sync, fp32 accumulate
    tensor_flops: int  # the same through the arch's own tensor instruction (wgmma, tcgen05)
    mufu_per_clk: int  # ex2.approx
    fma_per_clk: int  # fp32 lanes
    source: str
    estimates: tuple[str, ...] = ()
    smem_reserved_per_cta: int = 1 * KIB  # taken by the driver
    smem_bytes_per_clk: int = 128
    tmem_bytes: int = 0  # tensor memory per SM
    registers_per_sm: int = 64 * KIB  # 32-bit
    max_registers_per_thread: int = 255
    max_threads_per_cta: int = 1024

    @property
    def max_warps_per_sm(self) -> int:
        """Resident warps of one SM."""
        return self.max_threads_per_sm // 32


_AMPERE = frozenset({"cp_async", "ldmatrix", "mma_sync"})
_ADA = _AMPERE | {"mma_sync_fp8"}
_HOPPER = _ADA | {"stmatrix", "mbarrier_tx", "tma", "cluster", "setmaxnreg"}

ARCHES: dict[str, Arch] = {
    arch.name: arch
    for arch in (
        Arch(
            name="sm_80",
            capability=(8, 0),
            families=("v1", "v2"),
            features=_AMPERE,
            smem_per_sm=164 * KIB,
            smem_per_cta=163 * KIB,
            max_threads_per_sm=2048,
            max_ctas_per_sm=32,
            mma_flops=2048,
            tensor_flops=2048,
            mufu_per_clk=16,
            fma_per_clk=64,
            source="A100 whitepaper: 1024 FP16 FMA per clock and SM",
        ),
        Arch(
            name="sm_86",
            capability=(8, 6),
            families=("v1", "v2"),
            features=_AMPERE,
            smem_per_sm=100 * KIB,
            smem_per_cta=99 * KIB,
            max_threads_per_sm=1536,
            max_ctas_per_sm=16,
            mma_flops=512,
            tensor_flops=512,
            mufu_per_clk=16,
            fma_per_clk=128,
            source="GA102 whitepaper: GeForce runs fp32 accumulation at half of the fp16 rate of 1024; "
            "professional GA102 cards do not halve it",
        ),
        Arch(
            name="sm_89",
            capability=(8, 9),
            families=("v1", "v2"),
            features=_ADA,
            smem_per_sm=100 * KIB,
            smem_per_cta=99 * KIB,
            max_threads_per_sm=1536,
            max_ctas_per_sm=24,
            mma_flops=512,
            tensor_flops=512,
            mufu_per_clk=16,
            fma_per_clk=128,
            source="Ada whitepaper: RTX 4090 165.2 TFLOP/s with fp32 accumulation, half of the fp16 rate; "
            "professional Ada cards do not halve it",
        ),
        Arch(
            name="sm_90a",
            capability=(9, 0),
            families=("v1", "v2", "v3"),
            features=_HOPPER | {"wgmma"},
            smem_per_sm=228 * KIB,
            smem_per_cta=227 * KIB,
            max_threads_per_sm=2048,
            max_ctas_per_sm=32,
            mma_flops=2440,
            tensor_flops=4096,
            mufu_per_clk=16,
            fma_per_clk=128,
            source="H100 whitepaper: 4096 through wgmma; mma.sync measured on an H200: 637 TFLOP/s "
            "at 1.98 GHz",
        ),
        Arch(
            name="sm_100a",
            capability=(10, 0),
            families=("v1", "v2", "v4"),
            features=_HOPPER | {"tcgen05", "cluster_launch_control", "fma_f32x2"},
            smem_per_sm=228 * KIB,
            smem_per_cta=227 * KIB,
            max_threads_per_sm=2048,
            max_ctas_per_sm=32,
            mma_flops=2440,
            tensor_flops=8192,
            mufu_per_clk=16,
            fma_per_clk=128,
            tmem_bytes=256 * KIB,
            source="FlashAttention-4 (arXiv 2603.05451): 8192 FLOP, 16 ex2, 128 B; mma.sync as on sm_90a",
            estimates=("mma_flops",),
        ),
        Arch(
            name="sm_103a",
            capability=(10, 3),
            families=("v1", "v2", "v4"),
            features=_HOPPER | {"tcgen05", "tcgen05_ld_red", "cluster_launch_control", "fma_f32x2"},
            smem_per_sm=228 * KIB,
            smem_per_cta=227 * KIB,
            max_threads_per_sm=2048,
            max_ctas_per_sm=32,
            mma_flops=2440,
            tensor_flops=8192,
            mufu_per_clk=32,
            fma_per_clk=128,
            tmem_bytes=256 * KIB,
            source="NVIDIA on Blackwell Ultra: ex2 twice as fast as on sm_100a; the rest taken as on sm_100a",
            estimates=("mma_flops", "smem_bytes_per_clk"),
        ),
        Arch(
            name="sm_120a",
            capability=(12, 0),
            families=("v1", "v2"),
            features=_HOPPER | {"fma_f32x2"},
            smem_per_sm=100 * KIB,
            smem_per_cta=99 * KIB,
            max_threads_per_sm=1536,
            max_ctas_per_sm=24,
            mma_flops=512,
            tensor_flops=512,
            mufu_per_clk=16,
            fma_per_clk=128,
            source="RTX Blackwell whitepaper: RTX 5090 209.5 TFLOP/s with fp32 accumulation, half of the "
            "fp16 rate; professional cards do not halve it",
        ),
    )
}


def arch_of_capability(capability: tuple[int, int]) -> Arch:
    """The compile target for a device of this compute capability, e.g. (9, 0) -> sm_90a.

    Raises LaunchError for a capability that fagen has no row for.
    """
    for arch in ARCHES.values():
        if arch.capability == capability:
            return arch
    known = ", ".join(f"{major}.{minor}" for major, minor in (a.capability for a in ARCHES.values()))
    major, minor = capability
    raise LaunchError(f"compute capability is {major}.{minor}; allowed: {known}")
