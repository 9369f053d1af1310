from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from fagen.errors import LaunchError
from fagen.plan.params import FORWARD, POINTERS
from fagen.runtime.launch import Launcher
from fagen.runtime.module import load

# Distinct values; the last field is a float.
SCALARS = (2**40, *range(1, len(FORWARD) - POINTERS - 1), 0.5)


@pytest.fixture
def launcher(driver, artifact):
    driver.stack.append(100)
    return Launcher(load(artifact, 128, 4096, 0), 70_000, SCALARS)


def test_the_driver_sees_the_grid_the_stream_and_every_parameter(driver, launcher):
    launcher(77, 2**48, 2, 3, 4, 0)
    (launch,) = driver.launches
    assert (launch.grid, launch.block, launch.smem_bytes) == ((70_000, 1, 1), (128, 1, 1), 4096)
    assert (launch.stream, launch.function) == (77, 2100)
    assert launch.params == (2**48, 2, 3, 4, 0, *SCALARS)


def test_each_call_has_its_own_stream_and_pointers(driver, launcher):
    launcher(77, 1, 2, 3, 4, 5)
    launcher(0, 6, 7, 8, 9, 0)
    assert [(launch.stream, launch.params[:POINTERS]) for launch in driver.launches] == [
        (77, (1, 2, 3, 4, 5)),
        (0, (6, 7, 8, 9, 0)),
    ]


def test_a_call_asks_the_driver_for_a_launch_and_nothing_else(driver, launcher):
    driver.calls.clear()
    launcher(77, 1, 2, 3, 4, 5)
    assert driver.calls == {"cuCtxGetCurrent": 1, "cuLaunchKernelEx": 1}


def test_a_call_goes_to_the_kernels_device_and_leaves_the_current_one(driver, artifact):
    launcher = Launcher(load(artifact, 128, 4096, 1), 1, SCALARS)
    driver.stack.append(100)
    launcher(0, 1, 2, 3, 4, 5)
    assert driver.launches[0].context == 101
    assert driver.stack == [0, 100]

    # A thread that has not used CUDA yet has no current context.
    thread = threading.Thread(target=launcher, args=(0, 1, 2, 3, 4, 5))
    thread.start()
    thread.join()
    assert [launch.context for launch in driver.launches] == [101, 101]


def test_threads_that_share_a_launcher_do_not_mix_their_arguments(driver, launcher):
    def call(n: int) -> None:
        for _ in range(8):
            launcher(n, n, n, n, n, n)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(1, 9)))
    seen = Counter((launch.stream, *launch.params[:POINTERS]) for launch in driver.launches)
    assert seen == {(n,) * 6: 8 for n in range(1, 9)}


def test_a_refused_launch_names_kernel_geometry_and_error(driver, launcher):
    driver.fail["cuLaunchKernelEx"] = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    with pytest.raises(LaunchError) as raised:
        launcher(77, 1, 2, 3, 4, 5)
    message = str(raised.value)
    for part in ("tiny_fwd", "device 0", "70000", "128 threads", "4096 bytes", "LAUNCH_OUT_OF_RESOURCES"):
        assert part in message
    driver.fail.clear()
    launcher(77, 1, 2, 3, 4, 5)
