"""cuDNN's attention of 8 bits, through its own frontend: PyTorch has no way to it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from fagen.bench.peers.adapter import (
    Call,
    is_causal_from_the_top_left,
    refuse_softcap,
    refuse_unusual_fp8,
    swap,
)
from fagen.spec.model import Problem

CUDNN = "cudnn"
SCALAR = {"dim": [1, 1, 1, 1], "stride": [1, 1, 1, 1]}


def version() -> str:
    """Of cuDNN and of the frontend."""
    cudnn = import_module(CUDNN)
    return f"cuDNN {cudnn.backend_version()}, frontend {cudnn.__version__}"


def fp8(problem: Problem, q: Tensor, k: Tensor, v: Tensor, *descales: Tensor) -> Call:
    """cuDNN on e4m3 q, k and v with one descale each; on Hopper out is of e4m3, too, here with scale 1."""
    there = swap("bhsd", problem)
    refuse_softcap(problem)
    refuse_unusual_fp8(problem)
    causal = is_causal_from_the_top_left(problem, q, k)
    if any(x.numel() != 1 for x in descales):
        raise RuntimeError("takes one descale for each tensor")
    cudnn = import_module(CUDNN)
    e4m3, fp32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
    handle = cudnn.create_handle()
    graph = cudnn.pygraph(
        io_data_type=e4m3, intermediate_data_type=fp32, compute_data_type=fp32, handle=handle
    )
    out = torch.empty((*q.shape[:-1], problem.dim_v), dtype=torch.uint8, device=q.device)
    one = torch.ones(1, device=q.device)  # the scale of P, its inverse, and the scale of out
    memory: dict[Any, Tensor] = {}  # by graph tensor

    def tensor(x: Tensor) -> Any:
        """A graph tensor of 8 bits in that memory."""
        made = graph.tensor(dim=list(x.shape), stride=list(x.stride()), data_type=e4m3)
        memory[made] = x.view(torch.uint8)
        return made

    def scalar(x: Tensor) -> Any:
        made = graph.tensor(**SCALAR, data_type=fp32)
        memory[made] = x.view(1, 1, 1, 1)
        return made

    of_out, _, *largest = graph.sdpa_fp8(
        **{name: tensor(there(x)) for name, x in zip("qkv", (q, k, v), strict=True)},
        **{f"descale_{name}": scalar(x) for name, x in zip("qkv", descales, strict=True)},
        **{name: scalar(one) for name in ("descale_s", "scale_s", "scale_o")},
        is_inference=True,
        attn_scale=problem.head_dim**-0.5,
        use_causal_mask=causal,
    )
    of_out.set_output(True).set_dim(list(there(out).shape)).set_stride(list(there(out).stride()))
    memory[of_out] = there(out)
    for amax in largest:  # of P and of out, which it wants to write
        amax.set_output(True).set_dim(SCALAR["dim"]).set_stride(SCALAR["stride"]).set_data_type(fp32)
        memory[amax] = torch.zeros(1, 1, 1, 1, device=q.device)
    graph.build([cudnn.heur_mode.A])
    workspace = torch.empty(graph.get_workspace_size() + 1, dtype=torch.uint8, device=q.device)

    def call() -> Tensor:
        graph.execute(memory, workspace, handle=handle)
        return out.view(torch.float8_e4m3fn)

    return call
