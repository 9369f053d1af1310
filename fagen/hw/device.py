"""Devices: one row for each product, with where its numbers come from.

Sizes are in bytes, bandwidths per second. A field named in `estimates` has no published value; `source` says
what the estimate rests on.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20
GB = 10**9


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


def default_device(arch: str) -> Device:
    """The device that models use for `arch` (a key of ARCHES) when a spec names none."""
    return next(device for device in DEVICES.values() if device.arch == arch)


def device_of_product(product: str, arch: str) -> Device:
    """The device of a GPU's product name, e.g. "NVIDIA H200"; where no row has it, its arch's default."""
    word = product.lower().replace(" ", "")
    named = (device for device in DEVICES.values() if device.arch == arch and device.name in word)
    return next(named, default_device(arch))
