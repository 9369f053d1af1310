"""The peers that a spec's op is compared with: those whose library is there, and of which version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec

import torch

from fagen.bench.peers import (
    cudnn_frontend,
    flash_attention,
    flashinfer,
    flex_attention,
    torch_sdpa,
    xformers,
)
from fagen.bench.peers.adapter import Adapter
from fagen.bench.peers.standard import standard
from fagen.spec.model import Problem

NO_VERSION = "0.0.0"  # what flash_attn.cute says of itself where it looks for another package than its own


@dataclass(frozen=True)
class Peer:
    """Another implementation of attention."""

    adapter: Adapter
    module: str  # that must be there
    version: Callable[[], str]
    is_fp8: bool = False  # whether it is for problems of 8 bits, or for those of 16


def _torch() -> str:
    return f"torch {torch.__version__}"


def _cudnn() -> str:
    return f"cuDNN {torch.backends.cudnn.version()}"


def _package(module: str) -> Callable[[], str]:
    """Of whatever was installed to have that module."""

    def version() -> str:
        own = getattr(import_module(module), "__version__", None)
        own = None if own == NO_VERSION else own
        names = _distributions().get(module.split(".")[0], [])
        return (
            own or ", ".join(f"{name} {metadata.version(name)}" for name in dict.fromkeys(names)) or "unknown"
        )

    return version


@cache
def _distributions() -> Mapping[str, list[str]]:
    """What was installed, by its top modules."""
    return metadata.packages_distributions()


def _library(adapter: Adapter, module: str, is_fp8: bool = False) -> Peer:
    return Peer(adapter, module, _package(module), is_fp8)


PEERS = {
    "torch flash": Peer(torch_sdpa.torch_flash, "torch", _torch),
    "torch cuDNN": Peer(torch_sdpa.torch_cudnn, "torch", _cudnn),
    "FlexAttention": Peer(flex_attention.flex, "torch", _torch),
    "FA2": _library(flash_attention.flash_attention_2, flash_attention.FA2),
    "FA3": _library(flash_attention.flash_attention_3, flash_attention.FA3),
    "FA4": _library(flash_attention.flash_attention_4, flash_attention.FA4),
    "xFormers": _library(xformers.memory_efficient, xformers.XFORMERS),
    "FlashInfer": _library(flashinfer.batch, flashinfer.FLASHINFER),
    "standard": Peer(standard, "torch", _torch),
    "cuDNN FP8": Peer(cudnn_frontend.fp8, cudnn_frontend.CUDNN, cudnn_frontend.version, is_fp8=True),
    "FA3 FP8": _library(flash_attention.flash_attention_3_fp8, flash_attention.FA3, is_fp8=True),
}


def installed(problem: Problem) -> dict[str, Peer]:
    """Those of PEERS that are for such a problem and whose library is there."""
    return {name: peer for name, peer in _there().items() if peer.is_fp8 == problem.is_fp8}


def versions() -> dict[str, str]:
    """Of each whose library is there; what keeps one from being imported, in its place."""
    found = {}
    for name, peer in _there().items():
        try:
            found[name] = peer.version()
        except Exception as failure:  # a library that does not match this torch fails in its own ways
            found[name] = f"cannot be imported: {failure}".splitlines()[0]
    return found


def _there() -> dict[str, Peer]:
    return {name: peer for name, peer in PEERS.items() if _is_there(peer.module)}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except Exception:  # of the package that it is in, which may fail in any way
        return False
