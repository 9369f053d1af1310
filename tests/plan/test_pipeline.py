"""Roles and passages: all that a plan has in shared memory is between them, and counts are the headers'."""

import re

import pytest

from fagen.paths import TEMPLATES
from fagen.plan.kernels import main_kernel
from fagen.plan.pipeline import LOAD
from fagen.plan.planner import pipeline

INIT = re.compile(r"mbarrier_init\((\w+)[^,]*, ([\w *]+)\)")


def signals(passages):
    return [signal for passage in passages for signal in (passage.full, passage.empty) if signal]


def test_each_buffer_passes_once_and_each_word_says_something(drawn):
    for plan in drawn:
        passages = pipeline(plan).passages
        assert sorted(name for p in passages for name in p.buffers) == sorted(b.name for b in plan.buffers)
        said = {signal.name for signal in signals(passages)} | {name for p in passages for name in p.beside}
        assert {barrier.name for barrier in plan.barriers} <= said


def test_a_buffer_of_several_stages_has_a_full_barrier_for_each(drawn):
    for plan in drawn:
        stages = {each.name: each.stages for each in (*plan.buffers, *plan.barriers)}
        for passage in pipeline(plan).passages:
            if passage.way == LOAD and passage.full.name in stages:
                assert all(stages[name] <= stages[passage.full.name] for name in passage.buffers)


def test_roles_are_all_warps_and_their_registers_fit(drawn):
    for plan in drawn:
        roles, threads = pipeline(plan).roles, plan.tiling.threads
        assert 32 * sum(role.warps for role in roles) == threads == main_kernel(plan).threads
        held = sum(32 * role.warps * role.registers for role in roles) * plan.tiling.ctas_per_sm
        assert held <= plan.arch.registers_per_sm


def test_tma_brings_whole_stages(drawn):
    for plan in drawn:
        for passage in pipeline(plan).passages:
            for signal in signals([passage]):
                (buffer,) = (b for b in plan.buffers if b.name == passage.buffers[0])
                assert signal.bytes in (0, buffer.bytes // buffer.stages)


# What the headers initialise mbarriers with, by the last part of their names.
HEADERS = {
    ("v1", "backward"): ("arrivals", "split_barrier"),
    ("v2", "forward"): ("ring",),
    ("v2", "backward"): ("arrivals",),
    ("v3", "forward"): ("tma_ring",),
    ("v3", "backward"): ("arrivals",),
}


def test_counts_are_what_the_headers_initialise_mbarriers_with(drawn):
    for plan in drawn:
        tiling = plan.tiling
        known = {
            "kWarps": tiling.warps,
            "kThreads": tiling.threads,
            "kCluster": tiling.cluster,
            "kFillers": 1,
        }
        own = {  # as pipe/stream.cuh has it
            "q": {"kCluster": 1},
            "v": {"kWarps": tiling.transposers or tiling.warps},
            "vt": {"kFillers": tiling.transposers, "kCluster": 1},
        }
        counts = {}
        for header in HEADERS.get((plan.spec.family, plan.direction), ()):
            text = (TEMPLATES / "include/fagen/pipe" / f"{header}.cuh").read_text()
            counts |= dict(INIT.findall(text))
        counts["meeting"] = counts.pop("barrier", None)  # split_barrier.cuh's own
        words = {barrier.name for barrier in plan.barriers}
        for signal in signals(pipeline(plan).passages):
            if signal.name in words:
                ring, _, kind = signal.name.rpartition("_")
                assert signal.arrivals == eval(counts[kind], {}, known | own.get(ring, {}))


@pytest.mark.parametrize("family", ["v1", "v2"])
def test_without_a_load_role_the_warps_that_multiply_load(family, v2_spec):
    from fagen.plan.planner import plans

    for plan in plans(v2_spec().model_copy(update={"family": family})):
        assert pipeline(plan).roles == pipeline(plan).math
