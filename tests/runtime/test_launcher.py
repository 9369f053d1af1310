from __future__ import annotations

import struct
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fagen.errors import LaunchError
from fagen.plan.arguments import Arguments, arguments
from fagen.plan.kernels import main_kernel
from fagen.plan.launch import Launch, Shape, launch
from fagen.plan.maps import Strides
from fagen.plan.params import MAP, offsets, struct_bytes
from fagen.plan.planner import plan
from fagen.runtime.launch import Launcher
from fagen.runtime.module import load
from fagen.spec.model import Spec

PROBLEM = {"dtype": "bf16", "head_dim": 64}
TOKENS = 100


def prepared(family: str, layout: str = "bshd", **schedule: Any) -> tuple[Launch, Arguments]:
    """The launch and arguments of a spec on one head of 100 rows."""
    spec = {"name": "t", "family": family, "arch": "sm_90a", "schedule": schedule}
    planned = plan(Spec.model_validate({**spec, "problem": PROBLEM | {"layout": layout}}))
    shape = Shape(1, 100, 100, 1, 1, *((TOKENS, TOKENS) if layout == "thd" else ()))
    made = launch(planned, shape, 0.5)
    strides = {name: Strides(6400, 64, 64) for name in ("q", "k", "v", "out")}
    return made, arguments(main_kernel(planned), shape, made, strides)


def fields(driver, arguments: Arguments, n: int = -1) -> dict[str, Any]:
    """The fields of the argument of the nth launch; of maps the address."""
    codes = {MAP: "Q", "int64_t": "q", "int32_t": "i", "float": "f"}
    at = offsets(arguments.params)
    return {
        p.name: struct.unpack_from(
            "Q" if p.is_pointer else codes[p.ctype], driver.launches[n].argument, at[p.name]
        )[0]
        for p in arguments.params
    }


KINDS = {
    "v2": ("v2", "bshd"),
    "v3": ("v3", "bshd"),
    "v3 packed": ("v3", "thd"),
}


@pytest.fixture(params=KINDS)
def kind(request) -> tuple[Launch, Arguments]:
    return prepared(*KINDS[request.param])


@pytest.fixture
def launcher(driver, artifact, kind):
    driver.stack.append(100)
    driver.argument_bytes = struct_bytes(kind[1].params)
    return Launcher(load(artifact, 128, 4096, 0), *kind)


def addresses(first: int, kind: tuple[Launch, Arguments]) -> list[int]:
    """Of everything that a launcher takes, from `first` on."""
    return [first + 2**20 * i for i in range(len(kind[1].addresses))]


def test_the_driver_sees_grid_stream_and_every_field(driver, launcher, kind):
    made, own = kind
    at = addresses(2**44, kind)
    launcher(77, *at)
    (seen,) = driver.launches
    assert (seen.grid, seen.block, seen.smem_bytes) == ((made.grid, 1, 1), (128, 1, 1), 4096)
    assert (seen.stream, seen.function, seen.cluster) == (77, 2100, None)
    found = fields(driver, own)
    given = dict(zip(own.addresses, at, strict=True))
    maps = {f"{name}_map": given[name] for name in own.maps}
    wanted = own.numbers | given | maps
    assert found == {
        name: pytest.approx(wanted[name]) if name == "scale_log2" else wanted[name] for name in found
    }


def test_each_call_has_its_own_stream_and_addresses(driver, launcher, kind):
    own, calls = kind[1], ((77, 2**44), (0, 2**45), (5, 2**44))
    for stream, first in calls:
        launcher(stream, *addresses(first, kind))
    assert [launch.stream for launch in driver.launches] == [77, 0, 5]
    lse = [fields(driver, own, n)["lse"] for n in range(3)]
    assert lse == [addresses(first, kind)[4] for _, first in calls]
    if own.maps:
        at = [fields(driver, own, n)["k_map"] for n in range(3)]
        assert at[0] == at[2] != at[1]


def test_the_lse_may_be_absent(driver, launcher, kind):
    given = dict(zip(kind[1].addresses, addresses(2**44, kind), strict=True)) | {"lse": 0}
    launcher(0, *given.values())
    assert fields(driver, kind[1])["lse"] == 0


def test_a_call_asks_the_driver_for_a_launch_and_to_move_the_maps_of_tensors_that_moved(
    driver, launcher, kind
):
    maps = len(kind[1].maps)
    assert driver.calls["cuTensorMapEncodeTiled"] <= maps, "once per map, when prepared"
    driver.calls.clear()
    at = addresses(2**44, kind)
    launcher(77, *at)
    moved = {"cuTensorMapReplaceAddress": maps} if maps else {}
    assert driver.calls == {"cuCtxGetCurrent": 1, "cuLaunchKernelEx": 1} | moved
    driver.calls.clear()
    launcher(77, *at)
    assert driver.calls == {"cuCtxGetCurrent": 1, "cuLaunchKernelEx": 1}
    launcher(77, *at[:3], at[3] + 2**30, *at[4:])
    assert driver.calls["cuTensorMapReplaceAddress"] == (1 if maps else 0)


def test_a_map_that_the_driver_does_not_move_is_an_error(driver, artifact):
    kind = prepared("v3")
    launcher = Launcher(load(artifact, 128, 4096, 0), *kind)
    driver.fail["cuTensorMapReplaceAddress"] = "CUDA_ERROR_INVALID_VALUE"
    with pytest.raises(LaunchError, match="moving a tensor map: CUDA_ERROR_INVALID_VALUE"):
        launcher(0, *addresses(2**44, kind))
    assert not driver.launches


def test_clusters_are_an_attribute_of_the_launch(driver, artifact):
    kind = prepared("v3", cluster=2)
    Launcher(load(artifact, 128, 4096, 0), *kind)(0, *addresses(2**44, kind))
    assert driver.launches[0].cluster == (2, 1, 1)
    assert driver.launches[0].grid[0] % 2 == 0


def test_a_call_goes_to_the_kernels_device_and_leaves_the_current_one(driver, artifact, kind):
    launcher = Launcher(load(artifact, 128, 4096, 1), *kind)
    driver.stack.append(100)
    at = addresses(2**44, kind)
    launcher(0, *at)
    assert driver.launches[0].context == 101
    assert driver.stack == [0, 100]

    # A thread that has not used CUDA yet has no current context.
    thread = threading.Thread(target=launcher, args=(0, *at))
    thread.start()
    thread.join()
    assert [launch.context for launch in driver.launches] == [101, 101]


def test_threads_that_share_a_launcher_do_not_mix_their_arguments(driver, launcher, kind):
    def call(n: int) -> None:
        for _ in range(8):
            launcher(n, *addresses(n * 2**44, kind))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(1, 9)))
    names = [p.name for p in kind[1].params if p.is_pointer or p.ctype == MAP]
    found = [fields(driver, kind[1], n) for n in range(64)]
    seen = Counter(
        (launch.stream, *(round(own[name] / 2**44) for name in names))
        for launch, own in zip(driver.launches, found, strict=True)
    )
    assert seen == {(n,) * (1 + len(names)): 8 for n in range(1, 9)}


def test_a_refused_launch_names_kernel_geometry_and_error(driver, launcher, kind):
    driver.fail["cuLaunchKernelEx"] = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    at = addresses(2**44, kind)
    with pytest.raises(LaunchError) as raised:
        launcher(77, *at)
    message = str(raised.value)
    grid = f"grid of {kind[0].grid}"
    for part in ("tiny_fwd", "device 0", grid, "128 threads", "4096 bytes", "LAUNCH_OUT_OF_RESOURCES"):
        assert part in message
    driver.fail.clear()
    launcher(77, *at)
