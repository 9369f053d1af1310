"""Mutants that survive, each with the reason why it is harmless; all others must be found out, these not."""

from __future__ import annotations

ACCEPTED = {  # by str(Site)
    "fagen/epilogue/store_rows.cuh: `__syncwarp();`: __syncwarp: delete": (
        "It keeps a lane's O from overwriting rows of Q that other lanes of its warp still read. In v2 the "
        "warp has met since its last read of Q, in ring.arrive_empty. Kernels without that ring need it."
    ),
}
