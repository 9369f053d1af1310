"""The emulator finds out every mutant of the shipped kernels, except those known to be harmless."""

from __future__ import annotations

import pytest

from .accepted import ACCEPTED
from .hunt import SEEDS, hunt, population
from .kernels import CASES
from .mutant import Site
from .operators import edits

SHARE = 0.05  # of mutants that may be accepted


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_itself_is_right(name):
    case = CASES[name]
    loaded = case.load(case.source)
    assert [fault for seed in SEEDS if (fault := case.fault(loaded, seed))] == []


@pytest.mark.parametrize("site", population(), ids=str)
def test_mutant(site: Site):
    kill = hunt(site)
    if reason := ACCEPTED.get(str(site)):
        assert kill is None, f"no longer harmless ({reason}), or no longer the same site: {kill}"
    else:
        assert kill is not None, f"{site}: nothing objects in {len(SEEDS)} seeds"


def test_few_are_accepted_and_all_of_them_exist():
    assert set(ACCEPTED) <= set(map(str, population()))
    assert len(ACCEPTED) <= SHARE * len(population())


def mutations(text: str) -> dict[str, str]:
    return {edit.what: text[: edit.start] + edit.by + text[edit.end :] for edit in edits(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  ptx::fence_proxy_async();", {"delete": "  void();"}),
        ("  ptx::wgmma_commit();", {"delete": "  void();"}),
        (
            "  ptx::cp_async_wait<kAhead - 1>();",
            {"delete": "  void();", "one pending more": "  ptx::cp_async_wait<kAhead - 1 + 1>();"},
        ),
        (
            "  while (!ptx::mbarrier_try_wait(at(i), parity));",
            {
                "delete": "  while (!true);",
                "other parity": "  while (!ptx::mbarrier_try_wait(at(i), (parity) ^ 1));",
            },
        ),
        (
            "  ptx::named_barrier_sync(1, kThreads);",
            {
                "delete": "  void();",
                "a warp more": "  ptx::named_barrier_sync(1, (kThreads) + 32);",
                "a warp less": "  ptx::named_barrier_sync(1, (kThreads) - 32);",
                "no waiting": "  ptx::named_barrier_arrive(1, kThreads);",
            },
        ),
        (
            "  ptx::mbarrier_arrive_expect_tx(b, n);",
            {
                "delete": "  void();",
                "twice": "  (ptx::mbarrier_arrive_expect_tx(b, n), ptx::mbarrier_arrive_expect_tx(b, n));",
                "more bytes": "  ptx::mbarrier_arrive_expect_tx(b, (n) + 16);",
                "fewer bytes": "  ptx::mbarrier_arrive_expect_tx(b, (n) - 16);",
            },
        ),
        (
            "  {\n    f(a,\n      b);\n    ready.arrive(a);\n  }\n",
            {
                "delete": "  {\n    f(a,\n      b);\n    void();\n  }\n",
                "twice": "  {\n    f(a,\n      b);\n    (ready.arrive(a), ready.arrive(a));\n  }\n",
                "earlier": "  {\n    ready.arrive(a);\n    f(a,\n      b);\n  }\n",
            },
        ),
        (
            "  {\n    if (any) ready.wait(a);\n    if (b) {\n      use(a);\n    }\n  }\n",
            {
                "delete": "  {\n    if (any) void();\n    if (b) {\n      use(a);\n    }\n  }\n",
                "later": "  {\n    if (b) {\n      use(a);\n    }\n    if (any) ready.wait(a);\n  }\n",
            },
        ),
    ],
)
def test_what_is_made_of_a_call(text, expected):
    assert {what.partition(": ")[2]: changed for what, changed in mutations(text).items()} == expected


@pytest.mark.parametrize(
    "text",
    [
        "  __device__ void wait_empty(Position at) const {\n",
        "  // then ring.wait_full(read);\n",
        "  x = __shfl_xor_sync(kWarp, x, 1);\n",
        "  for (int stage = 0; stage < kStages; ++stage) {\n",
    ],
)
def test_what_is_no_synchronisation_stays(text):
    assert mutations(text) == {}
