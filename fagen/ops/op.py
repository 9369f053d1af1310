"""The callable op of one spec: what users call, and which way each call goes.

An eager call without gradients goes straight to the forward pass: torch's dispatcher is passed by. Traced,
differentiated and wrapped tensors go through `torch.ops.fagen.<name>`, the same kernel behind torch's
dispatcher. CPU tensors take the same ways to the same kernels in the emulator.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from fagen.ops.backward import Backward
from fagen.ops.checks import Device, check_dropout, check_scale, check_tensors
from fagen.ops.descales import Descales, given_descales
from fagen.ops.forward import Forward
from fagen.ops.layout import Packing
from fagen.ops.packing import refuse_packing
from fagen.ops.register import register
from fagen.ops.seed import draw_seed
from fagen.spec.model import Spec

_NOTHING = (None,) * len(Packing._fields)


class AttentionOp:
    """Attention as one spec says: `op(q, k, v)` on CUDA tensors, also as `torch.ops.fagen.<name>`.

    With device "emu", and on a machine without a GPU, on CPU tensors, in the emulator.
    Made by `fagen.load`, which keeps one per spec.
    """

    def __init__(self, spec: Spec, arch: str | None = None, device: Device = None):
        """Plan the passes of `spec` and register it with torch; `arch` pins the op to GPUs of one arch.

        Raises PlanError, and ArgumentError if the name already stands for another spec.
        """
        self.spec = spec
        self.arch = arch  # pinned by the user; None: that of the tensors' device
        self.device: Device = device
        self.name = "__".join(filter(None, (spec.name, arch, device)))
        self.forward = Forward(spec, arch, device)
        self.backward = Backward(spec, arch, device) if "backward" in spec.problem.passes else None
        self._has_dropout = spec.problem.dropout
        self._is_fp8 = spec.problem.is_fp8
        self._is_packed = spec.problem.layout == "thd"
        self._torch_op = register(self.name, spec, self.forward, self.backward, device)

    @overload
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_descale: Tensor | None = None,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
        return_lse: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_descale: Tensor | None = None,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
        return_lse: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        *,
        q_descale: Tensor | None = None,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
        return_lse: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        *,
        q_descale: Tensor | None = None,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
        return_lse: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_k: Tensor | None = None,
        max_seqlen_q: int | None = None,
        max_seqlen_k: int | None = None,
        q_descale: Tensor | None = None,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        *,
        scale: float | None = None,
        dropout_p: float = 0.0,
        return_lse: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """out, or (out, LSE) with `return_lse`, on the current stream of the tensors' device; never waits.

        q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim] and
        v [batch, seqlen_k, heads_kv, head_dim_v] in the spec's layout and dtype, rows 16-byte aligned and
        contiguous, heads_q a multiple of heads_kv. `scale` is 1/sqrt(head_dim) if left out. out is
        contiguous, [batch, seqlen_q, heads_q, head_dim_v] in the same layout; LSE is fp32
        [batch, heads_q, seqlen_q], natural log. A query that sees no key has out 0 and LSE -inf.

        With problem.dropout a share `dropout_p` of the probabilities is dropped, anew at each call by a seed
        from torch's generator of the device, and the others are divided by 1 - dropout_p; LSE is that of all.

        out and LSE are differentiable once in q, k and v, which with them are all that is kept for that, if
        problem.passes has backward. A gradient of out may have any strides.

        Layout thd, which alone takes cu_seqlens and max_seqlen: the sequences lie one behind the other in
        q [tokens_q, heads_q, head_dim] and k, v [tokens_k, heads_kv, ...]; sequence b has rows
        cu_seqlens[b] to cu_seqlens[b + 1], exclusive. cu_seqlens are int32 [sequences + 1], rise from 0 to at
        most the number of tokens and stay on the tensors' device; max_seqlen are ints, at least the longest
        sequences' lengths. Values against this give undefined results; with FAGEN_CHECK_METADATA=1 in the
        environment they are copied to the host and checked, which waits for the GPU. out is
        [tokens_q, heads_q, head_dim_v], LSE [heads_q, tokens_q]; rows after the last sequence are 0 and -inf,
        and 0 in gradients.

        Of an 8-bit dtype q, k and v stand for themselves times q_descale, k_descale and v_descale, fp32 on
        the same device, which such an op must be given and others are refused. problem.fp8.scale says what
        they are: with head [batch, heads_kv] (thd: [sequences, heads_kv]), the query heads of a K/V head
        sharing that of q, or [1] for all; with block [batch, heads_q, ceil(seqlen_q / 128)] of q and
        [batch, heads_kv, ceil(seqlen_k / 128)] of k and v, one for each 128 rows. None may be below 0; NaN
        in one makes what it scales NaN, and FAGEN_CHECK_METADATA=1 has their values checked, too. out has
        problem.out_dtype.
        With problem.v_transposed v is [batch, heads_kv, head_dim_v, seqlen_k] in either layout, its keys
        contiguous, its rows 16-byte aligned and seqlen_k a multiple of 4. There are no gradients.

        Raises ArgumentError before anything runs; PlanError, CompileError or LaunchError at the first call
        on a device, which builds the kernel (see `prepare`). The emulator returns when out is there, and
        raises EmulatorError for whatever is wrong with the kernel. Gradients: see `Backward.__call__`.
        """
        given: tuple[Any, ...] = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
        packing = None
        if self._is_packed:
            packing = Packing(*given)
        elif given != _NOTHING:
            refuse_packing(self.spec.problem, given)
        descales = None
        if self._is_fp8 or not (q_descale is k_descale is v_descale is None):
            descales = given_descales(self.spec.problem, q_descale, k_descale, v_descale)
        is_plain = _is_plain(q, k, v, packing, descales)
        if not is_plain and not torch.compiler.is_compiling():
            # The dispatcher's own complaint would name no key.
            check_tensors(self.spec.problem, q, k, v, packing, self.device, descales)
            scale = check_scale(self.spec.problem, scale)
        seed = None
        if self._has_dropout or dropout_p != 0:
            dropout_p = check_dropout(self.spec.problem, dropout_p)
            seed = draw_seed(q, dropout_p)
        if is_plain:
            out, lse, _ = self.forward(q, k, v, packing, descales, seed, scale, dropout_p, return_lse)
        else:
            dropout = ((), ()) if seed is None else ((seed,), (dropout_p,))
            extra = (*(packing or ()), *(descales or ()), *dropout[0])
            out, lse, *_ = self._torch_op(q, k, v, *extra, scale, *dropout[1])
        return (out, lse) if return_lse else out  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<fagen op {self.name}>"

    def prepare(self, device: int | None = None) -> None:
        """Build and load the kernels before any call, for a CUDA device, the current one if left out.

        An op that runs in the emulator is built for that. Raises PlanError, CompileError, LaunchError.
        """
        if device is None and self.device is None and torch.cuda.is_available():
            device = torch.cuda.current_device()
        for own in (self.forward, self.backward):
            if own is not None:
                own.kernels.on(device)


def _is_plain(q: Tensor, k: Tensor, v: Tensor, packing: Packing | None, descales: Descales | None) -> bool:
    """Whether nothing but the kernel needs to see this call: no tracing, no gradients, no wrapped tensors."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or peek_interpreter_stack() is not None
        or q.__class__ is not Tensor
        or k.__class__ is not Tensor
        or v.__class__ is not Tensor
        or (packing is not None and any(x.__class__ is not Tensor for x in packing.offsets))
        or (descales is not None and any(x.__class__ is not Tensor for x in descales))
        or ((q.requires_grad or k.requires_grad or v.requires_grad) and torch.is_grad_enabled())
        or (descales is not None and any(x.requires_grad for x in descales) and torch.is_grad_enabled())
        or torch._C._len_torch_dispatch_stack()
        or forward_ad._current_level >= 0
    )
