"""The machine that a measurement was made on."""

from __future__ import annotations

import platform
from datetime import UTC, datetime

import torch

from fagen import __version__
from fagen.bench.smi import smi
from fagen.compile.nvrtc import nvrtc_version
from fagen.errors import LaunchError
from fagen.hw.arch import arch_of_capability


def arch_of_device(device: int) -> str:
    """Arch of CUDA device `device`. Raises LaunchError where there is none, or fagen does not know it."""
    count = torch.cuda.device_count()
    if count == 0:
        why = "is a build without CUDA" if torch.version.cuda is None else "finds none"
        raise LaunchError(
            f"running a kernel needs an NVIDIA GPU, and PyTorch {torch.__version__} {why}; `fagen doctor` "
            "says what is missing; `fagen plan`, `fagen build` and `fagen run --device emu` work without one"
        )
    if not 0 <= device < count:
        raise LaunchError(f"device: is {device}; allowed: 0 to {count - 1}")
    return arch_of_capability(torch.cuda.get_device_capability(device)).name


def machine() -> dict[str, str]:
    """Time, versions, name and clocks of the current GPU, as they are now; without what cannot be asked."""
    versions = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "fagen": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda or "none",
        "nvrtc": "{}.{}".format(*nvrtc_version()),
    }
    if not torch.cuda.is_available():
        return versions
    gpu = torch.cuda.get_device_properties()
    return {"device": gpu.name, **versions, **smi(f"GPU-{gpu.uuid}")}
