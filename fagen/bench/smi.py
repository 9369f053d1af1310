"""What nvidia-smi tells about a GPU. No torch."""

from __future__ import annotations

import shutil
import subprocess

# Fields of `nvidia-smi --query-gpu`, by the name that a report gives them.
SMI_FIELDS = {
    "driver": "driver_version",
    "sm_clock": "clocks.sm",
    "sm_clock_max": "clocks.max.sm",
    "memory_clock": "clocks.mem",
    "power_limit": "power.limit",
}


def smi(uuid: str) -> dict[str, str]:
    """Driver and clocks of the GPU with that UUID, by the names of SMI_FIELDS; empty where nobody tells."""
    if not shutil.which("nvidia-smi"):
        return {}
    query = f"--query-gpu={','.join(SMI_FIELDS.values())}"
    command = ["nvidia-smi", f"--id={uuid}", query, "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    values = [value.strip() for value in done.stdout.split(",")]
    return dict(zip(SMI_FIELDS, values, strict=True)) if len(values) == len(SMI_FIELDS) else {}
