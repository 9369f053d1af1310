from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fagen.bench.machine import machine
from fagen.errors import LaunchError
from fagen.tune.where import generator_hash, this_machine


def test_the_generator_is_another_one_after_any_edit_of_a_template(tmp_path: Path) -> None:
    seen = []
    for number, (name, text) in enumerate((("a.cuh", "x"), ("a.cuh", "y"), ("b.cuh", "x"), ("b/a.cuh", "x"))):
        path = tmp_path / str(number) / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        seen.append(generator_hash(tmp_path / str(number)))
    assert len(set(seen)) == 4
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "a.cuh").write_text("x")
    assert generator_hash(tmp_path / "4") == seen[0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_nothing_to_measure_on() -> None:
    with pytest.raises(LaunchError, match="using CUDA device 0: "):
        this_machine()


@pytest.mark.gpu
def test_it_is_the_machine_that_torch_knows() -> None:
    here, where = machine(), this_machine()
    assert (where.gpu, where.driver) == (here["device"], here["driver"])
