"""`fagen.quantize_fp8` against its plain reference, on the GPU and, with a few kernels, in the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import fagen
from fagen.ops import reference_quantize as reference
from fagen.ops.quantize import Quantized

DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"]
ON_GPU = pytest.mark.gpu


@pytest.fixture(autouse=True)
def poison() -> Iterator[None]:
    """New tensors are full of NaN: what a kernel does not write shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def inputs(
    device: str,
    *,
    head_dim: int = 64,
    head_dim_v: int | None = None,
    batch: int = 2,
    seqlen_q: int = 130,
    seqlen_k: int = 77,
    heads_q: int = 4,
    heads_kv: int = 2,
    dtype: torch.dtype = torch.bfloat16,
    layout: str = "bshd",
) -> tuple[Tensor, Tensor, Tensor]:
    """Normal numbers, a thousandth of them ten times as large."""
    generator = torch.Generator(device).manual_seed(0)

    def tensor(length: int, heads: int, dim: int) -> Tensor:
        sizes = (batch, length, heads, dim) if layout == "bshd" else (batch, heads, length, dim)
        x = torch.randn(sizes, generator=generator, device=device)
        far = torch.rand(sizes, generator=generator, device=device) < 1e-3
        return torch.where(far, 10 * x, x).to(dtype)

    dim_v = head_dim_v or head_dim
    return (
        tensor(seqlen_q, heads_q, head_dim),
        tensor(seqlen_k, heads_kv, head_dim),
        tensor(seqlen_k, heads_kv, dim_v),
    )


def ordered(x: Tensor) -> Tensor:
    """8-bit floats as integers: neighbours differ by 1, and 0 from -0 by nothing."""
    bits = x.contiguous().view(torch.uint8).int()
    return torch.where(bits < 128, bits, 128 - bits)


def assert_same(found: Quantized, expected: Quantized, hadamard: bool) -> None:
    """The same bits; of what was transformed, whose sums may be rounded otherwise, nearly all of them."""
    for name, x in expected._asdict().items():
        own = getattr(found, name)
        assert own.shape == x.shape and own.dtype == x.dtype and own.device == x.device, name
        exact = not hadamard or name.startswith("v")
        if name.endswith("descale"):
            torch.testing.assert_close(own, x, rtol=0 if exact else 1e-6, atol=0)
            continue
        assert not own.float().isnan().any(), name
        steps = (ordered(own) - ordered(x)).abs()
        assert steps.max() <= (0 if exact else 1), name
        assert (steps > 0).float().mean() <= 0.01, name


def check(tensors: tuple[Tensor, Tensor, Tensor], **options: Any) -> Quantized:
    found = fagen.quantize_fp8(*tensors, **options)
    dtype = DTYPES[options.pop("dtype", "e4m3")]
    assert_same(found, reference.quantize(*tensors, dtype=dtype, **options), options.get("hadamard", False))
    return found


@pytest.mark.parametrize("scale", ["block", "head", "tensor"])
@pytest.mark.parametrize("device", DEVICES)
def test_scales_per_block_head_and_tensor_of_heads_in_groups(device, scale):
    sizes: dict[str, Any] = {"batch": 3, "seqlen_k": 300}  # more blocks than CTAs, in the emulator
    hadamard = scale == "block" or device == "cuda"
    check(inputs(device, **sizes), scale=scale, hadamard=hadamard)
    check(inputs(device, layout="bhsd", **sizes), scale=scale, layout="bhsd", v_transposed=True)


@pytest.mark.parametrize(
    ("device", "head_dim", "head_dim_v"),
    [("cpu", 96, 64), *(pytest.param("cuda", dim, dim, marks=ON_GPU) for dim in range(32, 257, 32))],
)
def test_every_head_dim(device, head_dim, head_dim_v):
    tensors = inputs(device, head_dim=head_dim, head_dim_v=head_dim_v, batch=1, heads_q=2, heads_kv=1)
    check(tensors, scale="block", hadamard=True)
    if device == "cuda":
        check(tensors, scale="head", hadamard=True, v_transposed=True)
        check(tensors, scale="block", v_transposed=True)
        check(tensors, scale="tensor")


@pytest.mark.parametrize("dtype_in", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
@ON_GPU
def test_every_dtype(dtype, dtype_in):
    tensors = inputs("cuda", dtype=dtype_in, batch=1)
    check(tensors, scale="block", dtype=dtype, v_transposed=True)
    check(tensors, scale="block", dtype=dtype, hadamard=True)


@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", "e5m2"), *(pytest.param("cuda", dtype, marks=ON_GPU) for dtype in DTYPES)]
)
def test_all_fp16_numbers_round_as_torch_rounds_them(device, dtype):
    bits = torch.arange(2**15, dtype=torch.int16, device=device)
    numbers = bits[bits < 0x7C00].view(torch.float16)[: 64 * 480].view(1, 480, 1, 64)  # ascending
    signed = torch.where(torch.arange(64, device=device) % 3 == 0, -numbers, numbers)
    check((signed, numbers, numbers.flip(3)), scale="block", dtype=dtype)


@pytest.mark.parametrize(
    ("device", "seqlen_q", "seqlen_k"),
    [
        ("cpu", 1, 1),
        ("cpu", 128, 129),
        *(
            pytest.param("cuda", *both, marks=ON_GPU)
            for both in ((1, 1), (128, 129), (127, 16), (1000, 4097))
        ),
    ],
)
@pytest.mark.parametrize("v_transposed", [False, True])
def test_lengths_that_are_no_multiples_of_a_block(device, seqlen_q, seqlen_k, v_transposed):
    tensors = inputs(device, seqlen_q=seqlen_q, seqlen_k=seqlen_k, batch=1)
    for scale in ("block", "head"):
        check(tensors, scale=scale, v_transposed=v_transposed)


@pytest.mark.parametrize("device", DEVICES)
def test_a_transposed_v_has_zeros_up_to_the_next_multiple_of_16_keys(device):
    tensors = inputs(device, seqlen_k=21)
    for scale in ("block", "head"):
        whole = torch.ops.fagen._quantize_fp8(*tensors, scale, False, "e4m3", True, "bshd")[2]
        assert whole.shape == (2, 2, 64, 32) and (whole[..., 21:].float() == 0).all()
        v = fagen.quantize_fp8(*tensors, scale=scale, v_transposed=True).v
        assert v.shape == (2, 2, 64, 21) and v.stride() == whole.stride()


@pytest.mark.parametrize("device", DEVICES)
def test_strides_of_q_k_and_v_in_one_tensor(device):
    for layout in ("bshd", "bhsd"):
        sizes = (2, 150, 6, 192) if layout == "bshd" else (2, 6, 150, 192)
        packed = torch.randn(sizes, device=device).to(torch.bfloat16)
        q, k, v = packed.split(64, 3)
        check((q, k, v), scale="block", layout=layout, hadamard=True)
        check((q[:, ::2], k[:, ::2], v[:, ::2]), scale="head", layout=layout, v_transposed=True)


@pytest.mark.parametrize("device", DEVICES)
def test_zeros_have_a_scale_that_is_neither_0_nor_infinite(device):
    q, k, v = inputs(device)
    q[:, :128], k[:], v[:, :, 1] = 0, 0, 0
    for scale in ("block", "head", "tensor"):
        found = check((q, k, v), scale=scale, hadamard=scale == "block")
        for x in found[3:]:
            assert (x > 0).all() and x.isfinite().all() and x.reciprocal().isfinite().all()
        assert (found.k.float() == 0).all()


@pytest.mark.parametrize("device", DEVICES)
def test_nan_stays_nan_and_spoils_nothing_else(device):
    q, k, v = inputs(device)
    expected = fagen.quantize_fp8(q, k, v, scale="block")
    q[0, 3, 1, 5] = torch.nan
    found = fagen.quantize_fp8(q, k, v, scale="block")
    other = torch.ones_like(q, dtype=torch.bool)
    other[0, 3, 1, 5] = False
    assert found.q[0, 3, 1, 5].isnan()
    assert torch.equal(found.q.view(torch.uint8)[other], expected.q.view(torch.uint8)[other])


@pytest.mark.parametrize("device", DEVICES)
def test_empty_tensors(device):
    q, k, v = inputs(device)
    found = fagen.quantize_fp8(q[:, :0], k, v, scale="block")
    assert found.q.shape == (2, 0, 4, 64) and found.q_descale.shape == (2, 4, 0)
    found = fagen.quantize_fp8(q, k[:, :0], v[:, :0], v_transposed=True)
    assert found.v.shape == (2, 2, 64, 0) and found.v_descale.isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_op_of_an_fp8_spec_takes_it(device):
    q, k, v = inputs(device, batch=1, seqlen_q=40, seqlen_k=60, heads_q=2, heads_kv=1)
    spec = {
        "name": "fp8_of_quantized",
        "family": "v3",
        "arch": "sm_90a",
        "problem": {"dtype": "e4m3", "head_dim": 64, "passes": ["forward"], "fp8": {"scale": "block"}},
        "schedule": {"tile": {"q": 64, "kv": 64}},
    }
    found = fagen.quantize_fp8(q, k, v, scale="block", hadamard=True)
    out = fagen.load(spec, device="emu" if device == "cpu" else None)(**found._asdict())
    q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)
    error = (out.float() - expected).square().mean().sqrt()
    assert error <= 0.08 * expected.square().mean().sqrt()


@pytest.mark.parametrize("device", DEVICES)
def test_torch_compile_keeps_it_in_one_graph(device):
    torch.use_deterministic_algorithms(False)  # of the compiler's own kernels
    tensors = inputs(device, batch=1)

    def quantized(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return tuple(fagen.quantize_fp8(2 * q, k, v, scale="block", v_transposed=True))

    found = Quantized(*torch.compile(quantized, fullgraph=True, backend="aot_eager")(*tensors))
    expected = Quantized(*quantized(*tensors))
    assert [x.stride() for x in found] == [x.stride() for x in expected]
    assert_same(found, expected, hadamard=False)
    torch.library.opcheck(
        torch.ops.fagen._quantize_fp8.default, (*tensors, "block", False, "e4m3", True, "bshd")
    )


@ON_GPU
def test_a_graph_replays_it_on_what_the_tensors_hold_then():
    tensors = inputs("cuda", seqlen_q=1000, seqlen_k=500)
    options: tuple[dict[str, Any], ...] = (
        {"scale": "block", "hadamard": True},
        {"scale": "head", "v_transposed": True},
        {"scale": "tensor"},
    )
    for own in options:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream):  # builds the kernels, too
            found = fagen.quantize_fp8(*tensors, **own)
        for factor in (1.0, 0.25):
            for x in tensors:
                x.mul_(factor)
            graph.replay()
            torch.cuda.synchronize()
            assert_same(found, reference.quantize(*tensors, **own), own.get("hadamard", False))


@ON_GPU
def test_runs_on_the_current_stream():
    tensors, stream = inputs("cuda"), torch.cuda.Stream()
    fagen.quantize_fp8(*tensors)
    doubled = [2 * x for x in tensors]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        for x, value in zip(tensors, doubled, strict=True):
            x.copy_(value)
        found = fagen.quantize_fp8(*tensors)
    stream.synchronize()
    assert_same(found, reference.quantize(*tensors), hadamard=False)


@ON_GPU
def test_large_tensors():
    """More than 2^31 elements, and more blocks than CTAs."""
    q = torch.randn(1, 66000, 260, 128, dtype=torch.bfloat16, device="cuda")
    k = v = q[:, :256, :1]
    found = fagen.quantize_fp8(q, k, v, scale="block")
    last = q[:, -(66000 % 128) :, -1:]
    assert_same(
        Quantized(found.q[:, -(66000 % 128) :, -1:], *found[1:3], found.q_descale[:, -1:, -1:], *found[4:]),
        reference.quantize(last, k, v, "block"),
        hadamard=False,
    )
