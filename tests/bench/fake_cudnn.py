"""cuDNN's Python frontend as far as sdpa_fp8 goes, as its documentation has it, computed by the reference."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from fagen.ops import reference
from fagen.spec.model import Problem

E4M3, FLOAT = "FP8_E4M3", "FLOAT"


class GraphTensor:
    """A tensor that a graph knows: no memory."""

    def __init__(self, dim=None, stride=None, data_type=E4M3):
        self.dim, self.stride, self.data_type, self.is_output = dim, stride, data_type, False

    def set_output(self, is_output):
        self.is_output = is_output
        return self

    def set_dim(self, dim):
        self.dim = dim
        return self

    def set_stride(self, stride):
        self.stride = stride
        return self

    def set_data_type(self, data_type):
        self.data_type = data_type
        return self

    def memory(self, given: dict[Any, Tensor]) -> Tensor:
        """What a call gave for it: as it was described, 8 bits as bytes."""
        found = given[self]
        assert [*found.shape] == self.dim and [*found.stride()] == self.stride
        assert found.dtype == (torch.uint8 if self.data_type == E4M3 else torch.float32)
        return found if self.data_type == FLOAT or self.is_output else found.view(torch.float8_e4m3fn).float()


class Graph:
    """pygraph."""

    def __init__(self, io_data_type, intermediate_data_type, compute_data_type, handle):
        assert (io_data_type, intermediate_data_type, compute_data_type) == (E4M3, FLOAT, FLOAT)
        self.handle, self.is_built = handle, False

    def tensor(self, dim, stride, data_type):
        return GraphTensor(dim, stride, data_type)

    def sdpa_fp8(self, **options):
        self.options = options
        self.outputs = GraphTensor(), GraphTensor(), GraphTensor()
        out, *largest = self.outputs
        return out, None, *largest

    def build(self, heuristics):
        assert heuristics == ["A"] and all(x.is_output for x in self.outputs)
        self.is_built = True

    def get_workspace_size(self):
        return 8

    def execute(self, memory, workspace, handle):
        assert self.is_built and handle == self.handle and workspace.numel() >= 8
        options = dict(self.options)
        assert options.pop("is_inference")
        causal, scale = options.pop("use_causal_mask"), options.pop("attn_scale")
        given = {name: x.memory(memory) for name, x in options.items()}
        assert {given.pop(name).item() for name in ("descale_s", "scale_s", "scale_o")} == {1.0}
        q, k, v = (given.pop(name) * given.pop(f"descale_{name}") for name in "qkv")
        assert not given, "nothing else is set"
        assert scale == q.shape[-1] ** -0.5
        assert not causal or q.shape[2] == k.shape[2], "a causal mask is aligned top-left"
        mask = "causal" if causal else "none"
        problem = Problem(
            dtype="fp16", head_dim=q.shape[-1], head_dim_v=v.shape[-1], layout="bhsd", mask=mask
        )
        out, *largest = (x.memory(memory) for x in self.outputs)
        out.copy_(reference.attention(problem, q, k, v)[0].to(torch.float8_e4m3fn).view(torch.uint8))
        for amax in largest:
            amax.fill_(1.0)


def module() -> ModuleType:
    """The package."""
    found = ModuleType("cudnn")
    vars(found).update(
        __version__="1.32.0",
        backend_version=lambda: 92100,
        create_handle=lambda: 7,
        pygraph=Graph,
        data_type=SimpleNamespace(FP8_E4M3=E4M3, FLOAT=FLOAT),
        heur_mode=SimpleNamespace(A="A"),
    )
    return found
