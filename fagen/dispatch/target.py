"""What a call's kernels run on: a GPU of this machine, or the emulator in its place."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from fagen.hw.arch import arch_of_capability
from fagen.hw.device import DEVICES, Device, device_of_product

EMULATED = DEVICES["a100"]  # what the emulator stands in for: any of its family's kernels run there


@dataclass(frozen=True)
class Target:
    """A GPU as the models see it."""

    device: Device
    index: int | None  # of the CUDA device; None: the emulator
    product: str  # "NVIDIA H200"

    @property
    def arch(self) -> str:
        """Its arch, "sm_90a"."""
        return self.device.arch

    def __str__(self) -> str:
        return f"{self.product} ({self.arch}, modelled as {self.device.name})"


@functools.cache
def target_of(device: torch.device) -> Target:
    """The target of tensors on `device`: the CPU's is the emulator. Raises LaunchError for an unknown GPU."""
    if device.type == "cpu":
        return Target(EMULATED, None, "the emulator")
    product = torch.cuda.get_device_name(device)
    arch = arch_of_capability(torch.cuda.get_device_capability(device))
    return Target(device_of_product(product, arch.name), device.index, product)
