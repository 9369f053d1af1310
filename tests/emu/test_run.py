"""One launch: what reaches the kernel, and what its errors say."""

from __future__ import annotations

import ctypes
import json
import struct
from itertools import pairwise

import pytest
from stubbed import source

from fagen.emu import kernel, settings
from fagen.emu.kernel import Kernel, Range, SharedBuffer, shared_buffers
from fagen.emu.run import run
from fagen.errors import EmulatorError
from fagen.paths import SPECS
from fagen.plan.kernels import main_kernel
from fagen.plan.planner import plan
from fagen.spec.load import load_spec

BUFFERS = (SharedBuffer("q", 0, 512), SharedBuffer("k", 512, 512))


@pytest.fixture
def tiny(stub, tmp_path, monkeypatch):
    """Loads a kernel of the stand-in runtime."""
    monkeypatch.setenv("FAGEN_CACHE_DIR", str(tmp_path / "cache"))

    def load(body: str, name: str = "tiny") -> Kernel:
        return kernel.load(source(body, name=name), BUFFERS)

    return load


def launch(kernel: Kernel, out, **options):
    params = struct.pack("@Pi", ctypes.addressof(out), len(out))
    ranges = [Range("out", ctypes.addressof(out), ctypes.sizeof(out), writable=True)]
    return run(kernel, (3, 1, 1), params, ranges, **options)


def test_parameters_and_launch_reach_the_kernel(tiny):
    body = """
    p.out[0] = launch.grid[0], p.out[1] = launch.block[0], p.out[2] = launch.smem_bytes;
    p.out[3] = launch.ranges[0].address == (uint64_t)p.out && launch.ranges[0].bytes == 4 * p.n;
    p.out[4] = launch.ranges[0].writable && !strcmp(launch.ranges[0].name, "out");
    p.out[5] = launch.buffer_count == 2 && launch.buffers[1].offset == 512;
    p.out[6] = launch.cluster[0] == 2 && launch.os_threads >= 1 && launch.step_limit > 0;
    """
    out = (ctypes.c_float * 7)()
    launch(tiny(body, "launched"), out, cluster=(2, 1, 1))
    assert list(out) == [3, 64, 1024, 1, 1, 1, 1]


def test_the_seed_is_the_settings_or_the_environments(tiny, monkeypatch):
    loaded, out = tiny("p.out[0] = launch.seed;", "seeded"), (ctypes.c_float * 1)()

    def seed() -> float:
        launch(loaded, out)
        return out[0]

    monkeypatch.delenv(settings.ENV, raising=False)
    assert seed() == 0
    monkeypatch.setenv(settings.ENV, "5")
    assert seed() == 5
    with settings.override(seed=7):
        assert seed() == 7
        with settings.override(preemption=0.5):
            assert seed() == 7
    assert seed() == 5


@pytest.mark.parametrize("seed", ["-1", "x", "", str(2**64)])
def test_a_seed_that_is_none_is_named(monkeypatch, seed):
    monkeypatch.setenv(settings.ENV, seed)
    with pytest.raises(EmulatorError, match=rf"FAGEN_EMU_SEED: is `{seed}`; allowed: whole numbers"):
        settings.current()


def test_an_error_names_line_and_thread(tiny):
    body = """
    report.kind = 1, report.has_thread = 1, report.block[0] = 2, report.thread[0] = 37;
    strcpy(report.text, "too far\\nby 16 bytes");
    report.backtrace_count = 1, report.backtrace[0] = offset_of_caller();
    """
    with pytest.raises(EmulatorError) as error:
        launch(tiny(body, "refused"), (ctypes.c_float * 1)(), settings=settings.Settings(seed=9))
    assert str(error.value).splitlines() == [
        "refused: out of bounds in the emulator, seed 9",
        "  too far",
        "  by 16 bytes",
        "  thread 37 (warp 1, lane 5) of CTA (2, 0, 0)",
        "  kernel.cu:6: report.backtrace_count = 1, report.backtrace[0] = offset_of_caller();",
    ]


def test_addresses_in_the_text_become_lines(tiny):
    body = 'report.kind = 1, snprintf(report.text, 99, "after <pc:0x%lx>", offset_of_caller());'
    with pytest.raises(EmulatorError, match=r"after kernel\.cu:3$"):
        launch(tiny(body, "worded"), (ctypes.c_float * 1)())


def test_buffers_of_a_plan_are_named_by_stage():
    kernel = main_kernel(plan(load_spec(SPECS / "h200_fa2.yaml")))  # three stages
    named = {buffer.name: buffer for buffer in shared_buffers(kernel)}
    assert list(named) == [
        "q", "k[0]", "k[1]", "k[2]", "v[0]", "v[1]", "v[2]",
        "full[0]", "full[1]", "full[2]", "empty[0]", "empty[1]", "empty[2]",
    ]  # fmt: skip
    last = named["empty[2]"]
    assert last.offset + last.bytes == kernel.smem_bytes
    ordered = list(named.values())
    assert all(a.offset + a.bytes == b.offset for a, b in pairwise(ordered))


def test_buffers_of_a_plan_with_three_rings():
    spec = {
        "name": "t",
        "family": "v3",
        "arch": "sm_90a",
        "problem": {"dtype": "bf16", "head_dim": 64},
        "schedule": {"tile": {"q": 128, "kv": 64}, "stages": {"q": 1, "kv": 2}},
    }
    kernel = main_kernel(plan(load_spec(spec)))
    named = {buffer.name: buffer for buffer in shared_buffers(kernel)}
    assert [name for name in named if "_" in name] == [
        "q_full[0]", "q_empty[0]", "k_full[0]", "k_full[1]", "k_empty[0]", "k_empty[1]",
        "v_full[0]", "v_full[1]", "v_empty[0]", "v_empty[1]",
    ]  # fmt: skip
    assert {"q", "k[0]", "k[1]", "v[0]", "v[1]", "o"} <= set(named)
    assert named["q_full[0]"].offset == kernel.barriers_offset
    assert named["v_empty[1]"].offset == kernel.barriers_offset + 9 * 8


def test_a_trace_has_lines_and_names_of_tracks(tiny, tmp_path):
    body = r"""
    FILE* file = fopen(launch.trace_path, "w");
    fputs("{\"traceEvents\": ", file);
    for (int ts = 9; ts > 0; ts -= 5)
      fprintf(file, "%s{\"name\":\"mma\", \"ph\": \"X\", \"pid\": 1, \"tid\": 2, \"ts\": %d, \"dur\": 1, "
              "\"args\": {\"pc\": \"<pc:0x%lx>\"}}", ts > 4 ? "[" : ",", ts, offset_of_caller());
    fputs("]}", file), fclose(file);
    """
    path = tmp_path / "trace.json"
    launch(tiny(body, "traced"), (ctypes.c_float * 1)(), settings=settings.Settings(trace=path))
    names, spans = [], []
    for event in json.loads(path.read_text())["traceEvents"]:
        (names if event["ph"] == "M" else spans).append(event)
    assert [(event["name"], event["args"]["name"]) for event in names] == [
        ("process_name", "CTA 1"),
        ("thread_name", "warp 2"),
    ]
    assert [event["ts"] for event in spans] == [4, 9]
    assert {event["args"]["pc"] for event in spans} == {"kernel.cu:7"}


def test_a_trace_that_cannot_be_written_is_named(tiny, tmp_path):
    path = tmp_path / "none" / "trace.json"
    with pytest.raises(OSError, match=str(path)):
        launch(tiny("", "untraced"), (ctypes.c_float * 1)(), settings=settings.Settings(trace=path))
