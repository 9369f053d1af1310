"""The arch table: consistent, sourced, and true to the published peaks."""

from dataclasses import fields
from typing import get_args

import pytest

from fagen.errors import LaunchError
from fagen.hw.arch import ARCHES, Arch, arch_of_capability
from fagen.hw.device import DEVICES, Device, default_device
from fagen.spec.model import ArchName, DeviceName


def test_rows_are_the_names_a_spec_may_use():
    assert set(ARCHES) == set(get_args(ArchName))
    assert set(DEVICES) == set(get_args(DeviceName))


@pytest.mark.parametrize("row", [*ARCHES.values(), *DEVICES.values()], ids=lambda row: row.name)
def test_every_row_has_a_source_and_marks_estimates_by_field(row: Arch | Device):
    assert row.source
    assert set(row.estimates) <= {field.name for field in fields(row)}


@pytest.mark.parametrize("arch", ARCHES.values(), ids=lambda arch: arch.name)
def test_one_cta_may_take_an_sm_but_for_the_drivers_share(arch: Arch):
    assert arch.smem_per_cta + arch.smem_reserved_per_cta == arch.smem_per_sm
    assert arch_of_capability(arch.capability) is arch
    assert default_device(arch.name).arch == arch.name


def test_unknown_capability_is_refused_with_the_known_ones():
    with pytest.raises(LaunchError, match=r"7\.5; allowed: 8\.0, 8\.6"):
        arch_of_capability((7, 5))


@pytest.mark.parametrize(
    ("device", "published_tflops"),
    [("a100", 312), ("rtx3090", 71), ("rtx4090", 165.2), ("h100", 989.4), ("b200", 2250), ("rtx5090", 209.5)],
)
def test_rate_times_sms_times_clock_is_the_published_dense_peak(device: str, published_tflops: float):
    row = DEVICES[device]
    peak = ARCHES[row.arch].tensor_flops * row.sms * row.clock_hz / 1e12
    assert peak == pytest.approx(published_tflops, rel=0.01)


def test_only_hopper_and_datacenter_blackwell_have_another_tensor_instruction():
    faster = {name for name, arch in ARCHES.items() if arch.tensor_flops > arch.mma_flops}
    assert faster == {name for name, arch in ARCHES.items() if arch.features & {"wgmma", "tcgen05"}}
    assert {name for name, arch in ARCHES.items() if arch.tmem_bytes} == {"sm_100a", "sm_103a"}
