"""Grouped heads: dK and dV are sums over the query heads of a group."""

from __future__ import annotations

import pytest
import torch
from gpu_cases import Cases

MIB = 2**20


@pytest.mark.emulated("v1", "v2", heads_q=[6, 5], seqlen_q=[130])
@pytest.mark.parametrize(("heads_q", "heads_kv"), [(6, 2), (14, 2), (5, 1), (40, 8), (21, 7), (12, 3)])
@pytest.mark.parametrize("seqlen_q", [130, 1])
def test_grouped_heads(cases: Cases, seqlen_q: int, heads_q: int, heads_kv: int) -> None:
    op = cases.op(head_dim=64, mask="causal")
    batch, seqlen_q, seqlen_k = (1, 40, 70) if cases.small else (2, seqlen_q, 130)
    cases.assert_gradients(op, *cases.inputs(op, batch, seqlen_q, seqlen_k, heads_q, heads_kv))


@pytest.mark.alone
def test_keys_are_not_expanded_to_all_query_heads(cases: Cases) -> None:
    op = cases.op()
    inputs = cases.inputs(op, 8, 256, 12288, 16, 2)
    leaves = tuple(x.requires_grad_() for x in inputs)
    out = op(*leaves)
    dout = torch.ones_like(out)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.autograd.grad(out, leaves, dout)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before <= 400 * MIB
