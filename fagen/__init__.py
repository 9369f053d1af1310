"""fagen: a small compiler of FlashAttention kernels, from a YAML spec to a PyTorch op."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fagen.dispatch.attention import attention as attention
    from fagen.dispatch.attention import explain as explain
    from fagen.ops.load import load as load
    from fagen.ops.quantize import quantize_fp8 as quantize_fp8

__version__ = "0.1.0"
__all__ = ["__version__", "attention", "explain", "load", "quantize_fp8"]

# Planning, emitting and building need no torch, so it is imported only with the first of these.
_WITH_TORCH = {
    "attention": "fagen.dispatch.attention",
    "explain": "fagen.dispatch.attention",
    "load": "fagen.ops.load",
    "quantize_fp8": "fagen.ops.quantize",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WITH_TORCH[name]), name)
    return value
