"""`fagen.attention` on a machine without a GPU: the chosen spec's own kernels, in the emulator."""

from __future__ import annotations

import pytest
import torch

import fagen
from fagen.dispatch.target import target_of
from fagen.ops import reference


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_right_and_said_to_be_emulated() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn((1, 40, heads, 16), generator=generator).bfloat16() for heads in (4, 2, 2))
    explanation = fagen.explain(q, k, v, mask="causal")
    assert explanation.choice.target is target_of(torch.device("cpu"))
    assert "The emulator computes with it" in str(explanation)
    assert explanation.spec is not None and explanation.spec.family == "v2"
    problem = explanation.spec.problem
    out, lse = fagen.attention(q, k, v, mask="causal", return_lse=True)
    exact, exact_lse = reference.attention(problem, q, k, v)
    plain, _ = reference.plain_attention(problem, q, k, v)
    assert (out - exact).abs().max() <= reference.allowed_error(problem, plain, exact)
    torch.testing.assert_close(lse, exact_lse.float(), atol=1e-3, rtol=0)
