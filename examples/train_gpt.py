"""Train a small GPT on characters of this repository's own documentation, with attention from a fagen op.

python examples/train_gpt.py                       # v2 on the GPU; without one a tiny run in the emulator
python examples/train_gpt.py --attention fagen-v3  # v3's forward and v2's backward, on Hopper
python examples/train_gpt.py --compare             # the same run with PyTorch's attention: how far they part
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import fagen

ROOT = Path(__file__).parent.parent
HEAD_DIM = 64

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v [batch, sequence, heads, HEAD_DIM] to out


class Attention(StrEnum):
    """Who computes attention."""

    V2 = "fagen-v2"
    V3 = "fagen-v3"
    SDPA = "sdpa"


class Device(StrEnum):
    """Where the model is trained; only attention runs in the emulator, the rest on the CPU."""

    CUDA = "cuda"
    EMULATOR = "emu"

    @property
    def torch(self) -> str:
        """The device of the tensors."""
        return "cuda" if self is Device.CUDA else "cpu"


@dataclass(frozen=True)
class Config:
    """Sizes of a model and of its training."""

    layers: int
    heads: int
    context: int
    batch: int
    steps: int
    window: int  # steps whose mean loss is one point of a curve
    schedule: dict[str, object]  # of the fagen op

    @property
    def width(self) -> int:
        """Columns of the residual stream."""
        return self.heads * HEAD_DIM


CONFIGS = {
    Device.CUDA: Config(layers=6, heads=6, context=512, batch=32, steps=400, window=20, schedule={}),
    # One small tile of each kernel: the emulator runs every thread of the GPU.
    Device.EMULATOR: Config(
        layers=1,
        heads=1,
        context=24,
        batch=1,
        steps=3,
        window=1,
        schedule={"tile": {"q": 64, "kv": 32}, "backward": {"tile": {"q": 32, "kv": 32}}},
    ),
}
LEARNING_RATE = 1e-3


def attention(kind: Attention, device: Device, config: Config) -> Attend:
    """Causal attention in bf16 by `kind`. Raises PlanError where its kernels do not fit the device."""
    if kind is Attention.SDPA:

        def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

        return sdpa
    family = kind.removeprefix("fagen-")
    spec = {
        "name": f"gpt_{family}",
        "family": family,
        "arch": "sm_90a" if kind is Attention.V3 else "sm_80",  # v2 is planned anew for the GPU that it meets
        "problem": {"dtype": "bf16", "head_dim": HEAD_DIM, "mask": "causal"},
        "schedule": config.schedule if kind is Attention.V2 else {},
    }
    return fagen.load(spec, device="emu" if device is Device.EMULATOR else None)


class Block(nn.Module):
    """Attention and two linear layers, each added to what it reads."""

    def __init__(self, config: Config, attend: Attend):
        super().__init__()
        width = config.width
        self.attend, self.heads = attend, config.heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, width] to the same."""
        qkv = self.qkv(self.norm_attention(x)).unflatten(-1, (3, self.heads, HEAD_DIM))
        x = x + self.out(self.attend(*qkv.unbind(2)).flatten(2))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    """Predicts the next of `vocabulary` characters."""

    def __init__(self, config: Config, vocabulary: int, attend: Attend):
        super().__init__()
        self.characters = nn.Embedding(vocabulary, config.width)
        self.places = nn.Embedding(config.context, config.width)
        self.blocks = nn.Sequential(*(Block(config, attend) for _ in range(config.layers)))
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, vocabulary)

    def forward(self, text: Tensor) -> Tensor:
        """Characters [batch, sequence] to scores [batch, sequence, vocabulary]."""
        places = torch.arange(text.shape[1], device=text.device)
        return self.head(self.norm(self.blocks(self.characters(text) + self.places(places))))


def corpus() -> Tensor:
    """The README and docs/*.md, one behind the other, as indices of their characters."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    index = {character: i for i, character in enumerate(sorted(set(text)))}
    return torch.tensor([index[character] for character in text])


def train(kind: Attention, device: Device, config: Config, seed: int = 0) -> list[float]:
    """Loss of every step. All runs start from the same model; `seed` is that of the order of the data."""
    text = corpus().to(device.torch)
    torch.manual_seed(0)
    vocabulary = int(text.max()) + 1
    model = GPT(config, vocabulary, attention(kind, device, config)).to(device.torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    order = torch.Generator().manual_seed(seed)
    window = torch.arange(config.context + 1, device=device.torch)
    losses = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(kind, total=config.steps)
        for _ in range(config.steps):
            starts = torch.randint(len(text) - config.context, (config.batch, 1), generator=order)
            batch = text[starts.to(device.torch) + window]
            with torch.autocast(device.torch, torch.bfloat16):
                scores = model(batch[:, :-1])
            loss = functional.cross_entropy(scores.float().flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            progress.update(task, advance=1, description=f"{kind}, seed {seed}: loss {losses[-1]:.3f}")
    return losses


def curve(losses: Sequence[float], config: Config) -> list[float]:
    """Means of `config.window` steps each."""
    return torch.tensor(losses).unflatten(0, (-1, config.window)).mean(1).tolist()


def gap(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest distance of two curves."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def show(curves: dict[str, list[float]], config: Config) -> Table:
    """Curves side by side."""
    table = Table("step", title="loss", box=None)
    for name in curves:
        table.add_column(name, justify="right")
    for i, losses in enumerate(zip(*curves.values(), strict=True)):
        table.add_row(str((i + 1) * config.window), *(f"{loss:.4f}" for loss in losses))
    return table


def main(
    kind: Annotated[Attention, typer.Option("--attention", help="Who computes attention.")] = Attention.V2,
    device: Annotated[
        Device | None, typer.Option(help="cuda, or emu: a tiny model, attention in the emulator.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Train with sdpa, too, and measure the gap and the noise.")
    ] = False,
) -> None:
    """Train, and print the loss."""
    device = device or (Device.CUDA if torch.cuda.is_available() else Device.EMULATOR)
    config = CONFIGS[device]
    console = Console()
    curves = {str(kind): curve(train(kind, device, config), config)}
    if not compare:
        console.print(show(curves, config))
        return
    for seed in (0, 1):
        curves[f"sdpa, seed {seed}"] = curve(train(Attention.SDPA, device, config, seed), config)
    console.print(show(curves, config))
    ours, same, other = curves.values()
    apart, noise = gap(ours, same), gap(same, other)
    console.print(f"largest gap between {kind} and sdpa: {apart:.4f}")
    console.print(f"between two orders of the data with sdpa: {noise:.4f}")
    if apart > noise:
        sys.exit("error: the losses part by more than noise")


if __name__ == "__main__":
    typer.run(main)
