from __future__ import annotations

import subprocess

import pytest

from fagen.bench import smi


def answers(text: str):
    return lambda *_, **__: subprocess.CompletedProcess((), 0, stdout=text)


@pytest.fixture
def read(monkeypatch):
    """What is read of an `nvidia-smi` that prints this; None: there is none."""

    def of(text: str | None) -> dict[str, str]:
        monkeypatch.setattr(smi.shutil, "which", lambda _: None if text is None else "nvidia-smi")
        monkeypatch.setattr(smi.subprocess, "run", answers(text or ""))
        return smi.smi("GPU-1")

    return of


def test_clocks_are_read_where_nvidia_smi_is(read):
    assert read("580.65, 1980 MHz, 1980 MHz, 3201 MHz, 700.00 W\n") == {
        "driver": "580.65",
        "sm_clock": "1980 MHz",
        "sm_clock_max": "1980 MHz",
        "memory_clock": "3201 MHz",
        "power_limit": "700.00 W",
    }


@pytest.mark.parametrize("text", [None, "No devices were found\n", ""])
def test_clocks_are_left_out_where_it_is_not(read, text):
    assert read(text) == {}
