"""fagen: a small compiler of FlashAttention kernels, from a YAML spec to a PyTorch op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fagen.ops.load import load as load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    # Planning, emitting and building need no torch, so it is imported only with the first op.
    if name == "load":
        from fagen.ops.load import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
