"""Where a command runs a spec that is not told where."""

from __future__ import annotations

import typer

from fagen.hw.arch import arch_of_capability
from fagen.spec.model import Spec


def usual_device(spec: Spec, otherwise: str) -> str:
    """CUDA device 0, as "0", if there is one that runs the spec's family, else `otherwise`; imports torch.

    Raises LaunchError for a GPU that fagen does not know.
    """
    import torch

    if not torch.cuda.is_available():
        return otherwise
    arch = arch_of_capability(torch.cuda.get_device_capability(0))
    if spec.family in arch.families:
        return "0"
    message = f"CUDA device 0 is {arch.name}, which does not run family {spec.family}: --device {otherwise}"
    typer.echo(message, err=True)
    return otherwise
