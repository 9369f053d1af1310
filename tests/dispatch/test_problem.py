"""What is read off tensors and arguments, and what is refused before anything else happens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fagen.dispatch.problem import UNPACKED, Request, request_of
from fagen.dispatch.target import target_of
from fagen.errors import ArgumentError
from fagen.hw.device import DEVICES, device_of_product
from fagen.plan.launch import Shape


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def tensor(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.zeros(sizes, dtype=dtype)


def request(q: Any, k: Any, v: Any, *packing: Any, **options: Any) -> Request:
    own: dict[str, Any] = {
        "mask": "none",
        "softcap": None,
        "dropout": False,
        "layout": None,
        "deterministic": False,
        "trains": False,
        **options,
    }
    return request_of(q, k, v, packing or UNPACKED, *own.values())


def test_sizes_of_each_layout() -> None:
    bshd = request(tensor(2, 30, 8, 64), tensor(2, 50, 4, 64), tensor(2, 50, 4, 32))
    assert bshd.shape == Shape(2, 30, 50, 8, 4)
    assert (bshd.problem.head_dim, bshd.problem.head_dim_v, bshd.problem.layout) == (64, 32, "bshd")
    bhsd = request(tensor(2, 8, 30, 64), tensor(2, 4, 50, 64), tensor(2, 4, 50, 64), layout="bhsd")
    assert bhsd.shape == bshd.shape and bhsd.problem.head_dim_v is None
    offsets = torch.tensor([0, 10, 30], dtype=torch.int32)
    thd = request(*(tensor(30, 8, 64) for _ in "qkv"), offsets, offsets, 20, 20)
    assert thd.shape == Shape(2, 20, 20, 8, 8, 30, 30) and thd.problem.layout == "thd"


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        ("causal", "causal"),
        ((None, 0), "causal"),
        ((None, None), "none"),
        ((8, 0), {"window": (8, 0)}),
    ],
)
def test_masks(mask: Any, found: Any) -> None:
    assert request(*(tensor(1, 8, 2, 64) for _ in "qkv"), mask=mask).problem.model_dump()["mask"] == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": "Causal"}, r"^mask: is 'Causal'; allowed: \"none\", \"causal\", or a window, a pair"),
        ({"mask": [8, 0]}, r"^mask: is \[8, 0\]; allowed"),
        ({"mask": (-1, 0)}, r"^mask.window\[0\]: is -1; allowed: whole numbers from 0"),
        ({"softcap": 0.0}, r"^softcap: is 0.0; allowed: numbers from 1e-06 to 1000"),
        ({"softcap": torch.tensor(5.0)}, r"^softcap: is a Tensor; allowed: a positive float, or None"),
        ({"deterministic": "yes"}, r"^deterministic: is `yes`; allowed: true, false"),
        ({"deterministic": []}, r"^deterministic: is a list; allowed: True, False, or None"),
        ({"layout": ["bshd"]}, r"^layout: is a list; allowed: bshd, bhsd, thd, or None"),
        ({"layout": "sbhd"}, r"^layout: is `sbhd`; allowed: bshd, bhsd, thd"),
        ({"layout": "thd"}, r"^q: has shape \(1, 8, 2, 64\); allowed: 3 dimensions"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        request(*(tensor(1, 8, 2, 64) for _ in "qkv"), **options)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (([1.0], tensor(1), tensor(1)), r"^q: is a list; allowed: a torch.Tensor"),
        (
            (tensor(1, 8, 2, 64, dtype=torch.float32),) * 3,
            r"^dtype: q is torch.float32; allowed: torch.float16",
        ),
        ((tensor(1, 8, 2, 60),) * 3, r"^head_dim: is 60; allowed: multiples of 8 from 8 to 256"),
        ((tensor(),) * 3, r"^head_dim: is 0"),
        ((tensor(1, 8, 2, 64), tensor(1, 8, 2, 64), tensor(1, 9, 2, 64)), r"^v: sequence is 9; allowed: 8"),
        ((*(tensor(1, 8, 2, 64),) * 3, None, None, 8, 8), r"^max_seqlen_q: is given, but"),
    ],
)
def test_a_wrong_input_is_named(inputs: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        request(*inputs)


def test_cpu_tensors_beside_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ArgumentError, match=r"^q: is on cpu; allowed: CUDA devices"):
        request(*(tensor(1, 8, 2, 64) for _ in "qkv"))


@pytest.mark.parametrize(
    ("product", "arch", "name"),
    [
        ("NVIDIA H200", "sm_90a", "h200"),
        ("NVIDIA H100 80GB HBM3", "sm_90a", "h100"),
        ("NVIDIA GeForce RTX 4090", "sm_89", "rtx4090"),
        ("NVIDIA L40S", "sm_89", "rtx4090"),  # its arch's
    ],
)
def test_the_device_of_a_product(product: str, arch: str, name: str) -> None:
    assert device_of_product(product, arch) is DEVICES[name]


def test_the_cpu_is_the_emulator() -> None:
    target = target_of(torch.device("cpu"))
    assert target.index is None and str(target) == "the emulator (sm_80, modelled as a100)"
