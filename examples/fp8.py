"""Attention on 8-bit q, k and v: quantise, attend, and see how far that is from 16 bits.

python examples/fp8.py            # on a Hopper GPU; without a GPU a small one in the emulator
python examples/fp8.py --plain    # one descale for each head, no Hadamard transform
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from torch.nn.functional import scaled_dot_product_attention

import fagen

SPEC = Path(__file__).parent.parent / "specs" / "h100_fp8.yaml"


def main(
    plain: Annotated[bool, typer.Option("--plain", help="A descale for each head; no transform.")] = False,
) -> None:
    """Print the error of 8-bit attention on numbers with outliers."""
    device, batch, seqlen, heads = ("cuda", 2, 4096, 16) if torch.cuda.is_available() else ("cpu", 1, 128, 1)
    scale = "head" if plain else "block"
    # Its kernel is generated and compiled at the first call, and kept.
    attention = fagen.load(SPEC, {"problem.fp8.scale": scale})

    torch.manual_seed(0)
    q, k, v = torch.randn(3, batch, seqlen, heads, 128, device=device, dtype=torch.bfloat16)
    q, k = (x + 10 * torch.randn_like(x) * (torch.rand_like(x) < 0.001) for x in (q, k))  # a few are large

    # The transform spreads large elements of q and k over all columns, and leaves q k^T what it is.
    eight = fagen.quantize_fp8(q, k, v, scale=scale, hadamard=not plain)
    out = attention(**eight._asdict())

    full = (x.transpose(1, 2).float() for x in (q, k, v))
    exact = scaled_dot_product_attention(*full, is_causal=True)  # pyright: ignore[reportArgumentType]
    error = (out.float() - exact.transpose(1, 2)).square().mean().sqrt()
    typer.echo(f"{attention.name}: {tuple(out.shape)}, {out.dtype}; RMSE {error:.2e}")


if __name__ == "__main__":
    typer.run(main)
