from __future__ import annotations

import sys
from importlib import metadata

import pytest
import torch
from fake_peers import modules

from fagen.bench.expected import expected, expected_gradients, largest_difference, random_inputs, random_like
from fagen.bench.peers import flex_attention
from fagen.bench.peers import standard as standard_peer
from fagen.bench.peers.installed import PEERS, installed, versions
from fagen.plan.launch import Shape
from fagen.spec.model import Problem, Window

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

OF_TORCH = ["torch flash", "torch cuDNN", "FlexAttention", "standard"]
LIBRARIES = ["FA2", "FA3", "FA4", "xFormers", "FlashInfer"]
OF_8_BITS = ["cuDNN FP8", "FA3 FP8"]
ON_A_CPU = ["torch flash", "FlexAttention", "standard", *LIBRARIES]
BOTTOM_RIGHT = ["FlexAttention", "standard", *LIBRARIES]  # masks where S_q != S_k

SQUARE, WIDE, TALL = Shape(2, 48, 48, 4, 4), Shape(2, 17, 48, 4, 2), Shape(2, 48, 17, 4, 1)
DECODE = Shape(3, 1, 32, 8, 2)
EIGHT = Problem(dtype="e4m3", head_dim=64, passes=("forward",))


@pytest.fixture(autouse=True)
def _without_a_gpu(monkeypatch, libraries):
    """Libraries as their documentation has them, FlexAttention as it is written, memory without end."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(standard_peer, "free_bytes", lambda device: 10**12)


def problem(mask: str | Window = "none", layout: str = "bshd", **keys) -> Problem:
    return Problem.model_validate({"dtype": "fp16", "head_dim": 64, "mask": mask, "layout": layout, **keys})


def run(name: str, of: Problem, shape: Shape, device: str = "cpu") -> tuple[float, float]:
    """The error of a peer's out, and the largest that is right."""
    inputs = random_inputs(of, shape, seed=0, device=device)
    exact = expected(of, inputs)
    out = PEERS[name].adapter(of, *inputs)()
    assert out.shape == exact.out.shape and out.device == exact.out.device
    return largest_difference(out, exact.out), exact.allowed


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("name", ON_A_CPU)
def test_peers_are_right(name, mask, layout):
    error, allowed = run(name, problem(mask, layout), SQUARE)
    assert error <= allowed


@pytest.mark.parametrize("shape", [WIDE, TALL], ids=["more keys", "more queries"])
@pytest.mark.parametrize("name", ON_A_CPU)
def test_peers_are_right_on_grouped_heads_and_other_lengths(name, shape):
    error, allowed = run(name, problem(), shape)
    assert error <= allowed


@pytest.mark.parametrize("name", BOTTOM_RIGHT)
def test_causal_masks_are_aligned_bottom_right(name):
    error, allowed = run(name, problem("causal"), WIDE)
    assert error <= allowed


@pytest.mark.parametrize("name", ["torch flash", "torch cuDNN"])
def test_who_aligns_causal_masks_top_left_says_so(name):
    with pytest.raises(RuntimeError, match="aligned top-left"):
        run(name, problem("causal"), WIDE)


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("name", ON_A_CPU)
def test_one_query_sees_all_keys(name, mask):
    error, allowed = run(name, problem(mask), DECODE)
    assert error <= allowed


@pytest.mark.parametrize("window", [(7, 0), (7, None), (None, 3), (4, 3)])
@pytest.mark.parametrize("shape", [SQUARE, WIDE], ids=["square", "more keys"])
@pytest.mark.parametrize("name", ["FlexAttention", "FA2", "FA3", "FA4", "xFormers", "FlashInfer"])
def test_windows_are_right_or_refused(name, shape, window):
    of = problem(Window(window=window))
    if name == "FlashInfer" and window[1]:
        with pytest.raises(RuntimeError, match="no window to the right"):
            run(name, of, shape)
    else:
        error, allowed = run(name, of, shape)
        assert error <= allowed


@pytest.mark.parametrize("name", ["torch flash", "torch cuDNN", "standard"])
def test_who_has_no_sliding_window_says_so(name):
    with pytest.raises(RuntimeError, match="no sliding window"):
        run(name, problem(Window(window=(5, 0))), SQUARE)


@pytest.mark.parametrize("name", ["FlexAttention", "FA2", "FA3", "FA4", "FlashInfer"])
def test_soft_caps_are_right(name):
    error, allowed = run(name, problem("causal", softcap=2.0), WIDE)
    assert error <= allowed


@pytest.mark.parametrize("name", ["torch flash", "torch cuDNN", "xFormers", "standard"])
def test_who_has_no_softcap_says_so(name):
    with pytest.raises(RuntimeError, match="no softcap"):
        run(name, problem(softcap=2.0), SQUARE)


@pytest.mark.parametrize("name", ["FlexAttention", "standard", *LIBRARIES])
def test_values_may_have_columns_of_their_own(name):
    error, allowed = run(name, problem("causal", head_dim=32, head_dim_v=16), SQUARE)
    assert error <= allowed


@pytest.mark.parametrize("name", PEERS)
def test_packed_sequences_are_refused(name):
    of = EIGHT if PEERS[name].is_fp8 else problem()
    of = of.model_copy(update={"layout": "thd"})
    inputs = random_inputs(of, Shape(1, 16, 16, 1, 1), seed=0, device="cpu")
    with pytest.raises(RuntimeError, match="packed sequences"):
        PEERS[name].adapter(of, *inputs[:3], *(inputs[-3:] if of.is_fp8 else ()))


def test_flashinfer_has_no_backward():
    inputs = random_inputs(problem(), SQUARE, seed=0, device="cpu")
    with pytest.raises(RuntimeError, match="no backward"):
        PEERS["FlashInfer"].adapter(problem(), *(x.requires_grad_() for x in inputs))


@pytest.mark.parametrize(("backward", "matrices"), [(False, 2), (True, 4)])
def test_standard_attention_is_skipped_where_its_scores_do_not_fit(monkeypatch, backward, matrices):
    inputs = random_inputs(problem(), Shape(1, 20, 30, 1, 1), seed=0, device="cpu")
    for x in inputs:
        x.requires_grad_(backward)
    wanted = matrices * 2 * 20 * 30
    monkeypatch.setattr(standard_peer, "free_bytes", lambda device: wanted)
    PEERS["standard"].adapter(problem(), *inputs)()
    monkeypatch.setattr(standard_peer, "free_bytes", lambda device: wanted - 1)
    with pytest.raises(RuntimeError, match=r"S x S does not fit: .* GB wanted, .* GB free"):
        PEERS["standard"].adapter(problem(), *inputs)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("name", ["torch flash", "standard"])
def test_gradients_are_those_of_the_inputs(name, layout):
    of = problem("causal", layout)
    inputs = random_inputs(of, Shape(1, 32, 32, 4, 2), seed=0, device="cpu")
    dout = random_like(inputs[0], seed=1)
    wanted = expected_gradients(of, inputs, dout)
    for x in inputs:
        x.requires_grad_()
    call = PEERS[name].adapter(of, *inputs)
    for _ in range(2):  # what the adapter has arranged is there for every call
        assert wanted.has(torch.autograd.grad(call(), inputs, dout))


@pytest.mark.parametrize(
    ("shape", "short"),
    [(DECODE, True), (Shape(1, 32, 64, 8, 2), True), (Shape(1, 33, 64, 8, 2), False), (SQUARE, True)],
    ids=str,
)
def test_flexattentions_kernel_for_short_queries_has_a_groups_queries_in_one_block(monkeypatch, shape, short):
    """Torch 2.11 and newer have no kernel where they are more than that."""
    given = {}
    attend = flex_attention.flex_attention

    def watched(*inputs, **options):
        given.update(options)
        return attend(*inputs, **options)

    monkeypatch.setattr(flex_attention, "flex_attention", watched)
    error, allowed = run("FlexAttention", problem("causal"), shape)
    assert error <= allowed
    assert (given["kernel_options"] is None) == short
    assert given["block_mask"] is None or given["block_mask"].BLOCK_SIZE[0] == 128


def test_torch_cudnn_says_so_where_it_cannot_run():
    with pytest.raises(RuntimeError):
        run("torch cuDNN", problem(), SQUARE)


def test_only_what_is_installed_is_offered(monkeypatch):
    assert list(installed(problem())) == [*OF_TORCH[:3], *LIBRARIES, "standard"]
    assert list(installed(EIGHT)) == OF_8_BITS
    assert list(versions()) == list(PEERS)
    for name in modules():
        monkeypatch.setitem(sys.modules, name, None)
    assert list(installed(problem())) == OF_TORCH
    assert not installed(EIGHT)
    assert list(versions()) == OF_TORCH
    assert torch.__version__ in versions()["torch flash"]


def test_cudnns_version_is_its_own_and_its_frontends():
    assert versions()["cuDNN FP8"] == "cuDNN 92100, frontend 1.32.0"


def test_a_version_is_the_librarys_own(monkeypatch):
    monkeypatch.setattr(sys.modules["flash_attn_interface"], "__version__", "3.1", raising=False)
    found = versions()
    assert found["FA3"] == "3.1"
    assert found["FA4"] == "unknown"


def test_a_version_that_is_none_is_that_of_what_was_installed(monkeypatch):
    monkeypatch.setattr(sys.modules["flash_attn.cute"], "__version__", "0.0.0", raising=False)
    monkeypatch.setattr(
        "fagen.bench.peers.installed._distributions", lambda: {"flash_attn": ["torch", "torch"]}
    )
    assert versions()["FA4"] == f"torch {metadata.version('torch')}"
