"""Other libraries' entry points as their documentation has them, computed by the reference."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import fake_cudnn
import torch
from torch import Tensor

from fagen.bench.peers.flash_attention import FA2, FA3, FA4
from fagen.ops import reference
from fagen.ops.descales import Descales
from fagen.ops.reference_quantize import dequantize
from fagen.spec.model import Problem


def problem_of(
    q: Tensor, v: Tensor, layout: str, sides: tuple[int | None, int | None], softcap: float | None
) -> Problem:
    keys = {
        "dtype": "fp16",
        "head_dim": q.shape[-1],
        "head_dim_v": v.shape[-1],
        "layout": layout,
        "mask": "none" if sides == (None, None) else {"window": sides},
        "softcap": softcap or None,
    }
    return Problem.model_validate(keys)


def flash_attention(unbounded: int | None):
    """flash_attn_func of FlashAttention; `unbounded` is what it calls no bound of a window."""

    def flash_attn_func(q, k, v, *, causal=False, window_size=(unbounded, unbounded), softcap=0.0):
        left, right = (None if side == unbounded else side for side in window_size)
        problem = problem_of(q, v, "bshd", (left, 0 if causal else right), softcap)
        return reference.attention(problem, q, k, v)[0].to(q.dtype), None

    return flash_attn_func


def flash_attention_3():
    """The same of FlashAttention-3: also of e4m3 with a descale for each K/V head, out of bf16."""
    attend = flash_attention(-1)

    def flash_attn_func(q, k, v, **options):
        descales = [options.pop(name) for name in Descales._fields if name in options]
        if q.dtype != torch.float8_e4m3fn:
            assert not descales
            return attend(q, k, v, **options)
        assert all(x.dtype == torch.float32 and x.shape == (k.shape[0], k.shape[2]) for x in descales)
        inputs = [dequantize(x, descale, "bshd") for x, descale in zip((q, k, v), descales, strict=True)]
        return attend(*inputs, **options)[0].bfloat16()

    return flash_attn_func


def xformers() -> dict[str, ModuleType]:
    """memory_efficient_attention and its biases."""

    def memory_efficient_attention(q, k, v, attn_bias=None):
        if q.ndim == 5:
            assert k.stride(3) == v.stride(3) == 0, "K and V are expanded along the heads of a group"
            k, v = k[:, :, :, 0], v[:, :, :, 0]
        sides = attn_bias or (None, None)
        problem = problem_of(q, v, "bshd", sides, None)
        flat = q.flatten(2, 3) if q.ndim == 5 else q
        out = reference.attention(problem, flat, k, v)[0].to(q.dtype)
        return out.unflatten(2, q.shape[2:4]) if q.ndim == 5 else out

    ops, biases = ModuleType("xformers.ops"), ModuleType("xformers.ops.fmha.attn_bias")
    vars(ops)["memory_efficient_attention"] = memory_efficient_attention
    vars(biases)["LowerTriangularFromBottomRightMask"] = lambda: (None, 0)
    vars(biases)["LocalAttentionFromBottomRightMask"] = lambda window_left, window_right: (
        window_left,
        window_right,
    )
    return {"xformers": ModuleType("xformers"), ops.__name__: ops, biases.__name__: biases}


class _Wrapper:
    """What FlashInfer's wrappers share."""

    options: dict[str, Any]  # of the plan
    starts_q: Tensor
    starts_k: Tensor

    def __init__(self, workspace: Tensor, kv_layout: str, use_tensor_cores: bool = False):
        assert workspace.dtype == torch.uint8 and not workspace.any() and kv_layout == "NHD"

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, right: int | None) -> Tensor:
        options = self.options
        assert options["q_data_type"] == options["kv_data_type"] == q.dtype
        left = None if options["window_left"] == -1 else options["window_left"]
        problem = problem_of(q, v, "thd", (left, right), options["logits_soft_cap"])
        return reference.attention(problem, q, k, v, self.starts_q, self.starts_k)[0].to(q.dtype)


class Prefill(_Wrapper):
    """BatchPrefillWithRaggedKVCacheWrapper."""

    def plan(
        self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, causal, **options
    ):
        assert qo_indptr.dtype == kv_indptr.dtype == torch.int32
        self.sizes = num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo
        self.starts_q, self.starts_k, self.causal, self.options = qo_indptr, kv_indptr, causal, options

    def run(self, q, k, v):
        assert self.sizes == (q.shape[1], k.shape[1], q.shape[2], v.shape[2])
        return self._attend(q, k, v, 0 if self.causal else None)


class Decode(_Wrapper):
    """BatchDecodeWithPagedKVCacheWrapper."""

    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **options
    ):
        assert (last_page_len == page_size).all() and last_page_len.shape == (len(indptr) - 1,)
        self.sizes = num_qo_heads, num_kv_heads, head_dim, page_size
        self.indices, self.options = indices, options
        self.starts_q = torch.arange(len(indptr), dtype=torch.int32)
        self.starts_k = indptr * page_size

    def run(self, q, paged_kv_cache):
        pages_k, pages_v = paged_kv_cache
        assert self.sizes == (q.shape[1], pages_k.shape[2], q.shape[2], pages_k.shape[1])
        k, v = (pages[self.indices.long()].flatten(0, 1) for pages in (pages_k, pages_v))
        return self._attend(q, k, v, None)


def modules() -> dict[str, ModuleType]:
    """All of them by name, to be put into sys.modules."""
    found: dict[str, ModuleType] = {"flash_attn": ModuleType("flash_attn"), **xformers()}
    for name, function in (
        (FA2, flash_attention(-1)),
        (FA3, flash_attention_3()),
        (FA4, flash_attention(None)),
    ):
        vars(found.setdefault(name, ModuleType(name)))["flash_attn_func"] = function
    found["cudnn"] = fake_cudnn.module()
    flashinfer = found.setdefault("flashinfer", ModuleType("flashinfer"))
    vars(flashinfer)["BatchPrefillWithRaggedKVCacheWrapper"] = Prefill
    vars(flashinfer)["BatchDecodeWithPagedKVCacheWrapper"] = Decode
    for name, module in found.items():
        module.__spec__ = SimpleNamespace(name=name)  # type: ignore[assignment]
    return found
