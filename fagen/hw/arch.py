"""Architectures and devices: one row each, with where its numbers come from.

Sizes are in bytes, rates are per SM and clock, bandwidths per second. A field named in `estimates` has no
published value; `source` says what the estimate rests on.

Common sources: limits per SM, CTA and thread are the CUDA C++ Programming Guide's tables "Technical
Specifications" and "Throughput of Native Arithmetic Instructions" per compute capability; features are the
PTX ISA's "Target ISA Notes".
"""

from __future__ import annotations

from dataclasses import dataclass

from fagen.errors import LaunchError

KIB = 1024
MIB = 1024 * KIB
GB = 10**9


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


@dataclass(frozen=True)
class Device:
    """A product: how many SMs of which arch, at what clock, with what memory."""

    name: str
    arch: str
    sms: int
    clock_hz: float  # boost clock that the published tensor peak is quoted at
    hbm_bytes: int
    hbm_bytes_per_s: float
    l2_bytes: int
    l2_bytes_per_s: float
    source: str
    estimates: tuple[str, ...] = ()


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

# The first device of an arch is its default.
DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device(
            name="a100",
            arch="sm_80",
            sms=108,
            clock_hz=1.41e9,
            hbm_bytes=80 * GB,
            hbm_bytes_per_s=2.039e12,
            l2_bytes=40 * MIB,
            l2_bytes_per_s=7.2e12,
            source="A100 80GB SXM datasheet; L2: whitepaper, 5120 B per clock",
        ),
        Device(
            name="rtx3090",
            arch="sm_86",
            sms=82,
            clock_hz=1.695e9,
            hbm_bytes=24 * GB,
            hbm_bytes_per_s=0.936e12,
            l2_bytes=6 * MIB,
            l2_bytes_per_s=2.5e12,
            source="GA102 whitepaper; L2 bandwidth: order of public microbenchmarks",
            estimates=("l2_bytes_per_s",),
        ),
        Device(
            name="rtx4090",
            arch="sm_89",
            sms=128,
            clock_hz=2.52e9,
            hbm_bytes=24 * GB,
            hbm_bytes_per_s=1.008e12,
            l2_bytes=72 * MIB,
            l2_bytes_per_s=5.0e12,
            source="Ada whitepaper; L2 bandwidth: order of public microbenchmarks",
            estimates=("l2_bytes_per_s",),
        ),
        Device(
            name="h100",
            arch="sm_90a",
            sms=132,
            clock_hz=1.83e9,
            hbm_bytes=80 * GB,
            hbm_bytes_per_s=3.35e12,
            l2_bytes=50 * MIB,
            l2_bytes_per_s=6.8e12,
            source="H100 SXM datasheet (989 TFLOP/s); L2 bandwidth: 28 B per SM and clock, as public "
            "microbenchmarks of the PCIe card see",
            estimates=("l2_bytes_per_s",),
        ),
        Device(
            name="h200",
            arch="sm_90a",
            sms=132,
            clock_hz=1.83e9,
            hbm_bytes=141 * GB,
            hbm_bytes_per_s=4.8e12,
            l2_bytes=50 * MIB,
            l2_bytes_per_s=6.8e12,
            source="H200 SXM datasheet; L2 as h100",
            estimates=("l2_bytes_per_s",),
        ),
        Device(
            name="b200",
            arch="sm_100a",
            sms=148,
            clock_hz=1.86e9,
            hbm_bytes=180 * GB,
            hbm_bytes_per_s=7.7e12,
            l2_bytes=126 * MIB,
            l2_bytes_per_s=10e12,
            source="HGX B200 datasheet (2250 TFLOP/s); L2 size: Blackwell tuning guide, bandwidth a guess",
            estimates=("l2_bytes_per_s",),
        ),
        Device(
            name="b300",
            arch="sm_103a",
            sms=148,
            clock_hz=1.86e9,
            hbm_bytes=270 * GB,
            hbm_bytes_per_s=7.7e12,
            l2_bytes=126 * MIB,
            l2_bytes_per_s=10e12,
            source="HGX B300 datasheet (2250 TFLOP/s); SMs, clock and L2 taken as on b200",
            estimates=("sms", "clock_hz", "l2_bytes", "l2_bytes_per_s"),
        ),
        Device(
            name="rtx5090",
            arch="sm_120a",
            sms=170,
            clock_hz=2.407e9,
            hbm_bytes=32 * GB,
            hbm_bytes_per_s=1.792e12,
            l2_bytes=96 * MIB,
            l2_bytes_per_s=6.0e12,
            source="RTX Blackwell whitepaper; L2 bandwidth: a guess from rtx4090",
            estimates=("l2_bytes_per_s",),
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


def default_device(arch: str) -> Device:
    """The device that models use for `arch` (a key of ARCHES) when a spec names none."""
    return next(device for device in DEVICES.values() if device.arch == arch)
