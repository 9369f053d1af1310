from __future__ import annotations

import pytest
import torch

from fagen.bench.rows import in_rows
from fagen.ops.reference import visible
from fagen.spec.model import Problem, Window

MASKS = [
    "none",
    "causal",
    Window(window=(3, 0)),
    Window(window=(2, 3)),
    Window(window=(None, 2)),
    Window(window=(4, None)),
]


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(7, 7), (5, 11), (11, 5)])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_rows_together_see_what_all_see(mask, seqlen_q, seqlen_k, rows):
    problem = Problem(dtype="bf16", head_dim=8, mask=mask)
    q, k = torch.zeros(1, seqlen_q, 4, 8), torch.zeros(1, seqlen_k, 2, 8)
    found = torch.zeros(seqlen_q, seqlen_k, dtype=torch.bool)
    parts = list(in_rows(problem, q, k, 2 * seqlen_k * rows))
    for part in parts:
        keys = part.keys.stop - part.keys.start
        queries = part.queries.stop - part.queries.start
        found[part.queries, part.keys] = visible(part.problem, queries, keys)
        assert queries <= rows
    assert torch.equal(found, visible(problem, seqlen_q, seqlen_k))
    assert len(parts) == -(-seqlen_q // rows)


def test_a_causal_mask_leaves_out_keys():
    problem = Problem(dtype="bf16", head_dim=8, mask="causal")
    q = k = torch.zeros(1, 8, 1, 8)
    assert [part.keys.stop for part in in_rows(problem, q, k, 16)] == [2, 4, 6, 8]
