"""Draws memory.svg from memory.json, which `python -m fagen.bench.memory` writes. Needs matplotlib."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "fagen"
from matplotlib import pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
COLOURS = {"standard": "#6b7280", "v1": "#2563eb", "v2": "#c2410c"}


def draw() -> None:
    """Writes memory.svg beside this file."""
    measured = json.loads((HERE / "memory.json").read_text(encoding="utf-8"))
    figure, axis = plt.subplots(figsize=(7, 4.6))
    for name, points in measured["peak_bytes"].items():
        lengths = [int(n) for n in points]
        label = f"{name}: S^{measured['slope'][name]:.2f}"
        axis.plot(lengths, [size / 2**30 for size in points.values()], "o-", color=COLOURS[name], label=label)
    lengths = sorted({int(n) for points in measured["peak_bytes"].values() for n in points})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(lengths, [f"{n // 1024}k" if n >= 1024 else str(n) for n in lengths])
    axis.set_xlabel("sequence length")
    axis.set_ylabel("GiB beside q, k, v")
    axis.grid(alpha=0.3)
    axis.legend(loc="upper left")
    heads, head_dim = measured["heads"], measured["head_dim"]
    device = measured["machine"]["device"]
    axis.set_title(
        f"Peak memory, forward and backward, {heads} heads of {head_dim}, bf16, {device}", fontsize=10
    )
    figure.tight_layout()
    figure.savefig(HERE / "memory.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw()
