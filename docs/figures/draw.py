"""Draws v3_forward.svg from the first table of docs/performance.md. Needs matplotlib."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "fagen"
from matplotlib import pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
PEERS = ("fagen v3", "cuDNN", "FA3", "FA4")
COLOURS = ("#c2410c", "#6b7280", "#2563eb", "#059669")


def rows() -> list[list[str]]:
    """Cells of the table's rows where every query head has a K/V head of its own."""
    text = (HERE.parent / "performance.md").read_text(encoding="utf-8").split("## v3 forward")[1]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return [
        row
        for row in cells[2:]
        if row[0].isdigit() and len(row) == 10 and row[1].split("/")[0] == row[1].split("/")[1]
    ]


def draw() -> None:
    """Writes v3_forward.svg beside this file."""
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.4), sharex=True)
    table = rows()
    for column, d in enumerate(("64", "128", "256")):
        for line, mask in enumerate(("none", "causal")):
            axis = axes[line][column]
            picked = [row for row in table if row[0] == d and row[2] == mask]
            lengths = [int(row[3]) for row in picked]
            for i, (name, colour) in enumerate(zip(PEERS, COLOURS, strict=True)):
                axis.plot(lengths, [float(row[4 + i]) for row in picked], "o-", color=colour, label=name)
            axis.set_xscale("log", base=2)
            axis.set_xticks(lengths, [f"{n // 1024}k" for n in lengths])
            axis.set_ylim(0, 900)
            axis.grid(alpha=0.3)
            axis.set_title(f"head dim {d}, {'causal' if mask == 'causal' else 'no mask'}")
    for axis in axes[1]:
        axis.set_xlabel("sequence length")
    for axis in axes[:, 0]:
        axis.set_ylabel("TFLOP/s")
    axes[0][0].legend(loc="lower right")
    figure.suptitle("Forward on an H200, bf16, 16k tokens, hidden 2048")
    figure.tight_layout()
    figure.savefig(HERE / "v3_forward.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw()
