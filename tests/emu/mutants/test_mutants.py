"""The emulator finds out every mutant of the shipped kernels, except those known to be harmless."""

from __future__ import annotations

import pytest

from .accepted import ACCEPTED
from .hunt import SEEDS, hunt, population
from .kernels import CASES
from .mutant import Site, changed, mutants
from .operators import edits

SHARE = 0.05  # of mutants that may be accepted


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_itself_is_right(name):
    """As it is printed, in the library of its mutants."""
    case = CASES[name]
    loaded = case.load(next(mutant.source for _, mutant in mutants(case.source, case.planned.template)))
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
    return {edit.what: changed(text, ((1, change) for change in edit.changes)) for edit in edits(text)}


def either(by: str, code: str) -> str:
    return f"(fagen_mutant == 1 ? void({by}) : void({code}))"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ptx::fence_proxy_async()", {"delete": "void()"}),
        (
            "ptx::cp_async_wait<kAhead - 1>()",
            {"delete": "void()", "one pending more": "ptx::cp_async_wait<kAhead - 1 + 1>()"},
        ),
        (
            "ptx::named_barrier_sync(1, kThreads)",
            {
                "delete": "void()",
                "a warp more": "ptx::named_barrier_sync(1, (kThreads) + 32)",
                "a warp less": "ptx::named_barrier_sync(1, (kThreads) - 32)",
                "no waiting": "ptx::named_barrier_arrive(1, kThreads)",
            },
        ),
        (
            "ptx::mbarrier_arrive_expect_tx(b, n)",
            {
                "delete": "void()",
                "twice": "(ptx::mbarrier_arrive_expect_tx(b, n), ptx::mbarrier_arrive_expect_tx(b, n))",
                "more bytes": "ptx::mbarrier_arrive_expect_tx(b, (n) + 16)",
                "fewer bytes": "ptx::mbarrier_arrive_expect_tx(b, (n) - 16)",
            },
        ),
        ("turns.pass()", {"delete": "void()", "twice": "(turns.pass(), turns.pass())"}),
    ],
)
def test_what_is_made_of_a_call(code, expected):
    made = {what.partition(": ")[2]: text for what, text in mutations(f"  {code};").items()}
    assert made == {what: f"  {either(by, code)};" for what, by in expected.items()}


def test_a_call_that_is_asked_for_something_answers():
    made = mutations("  while (!ptx::mbarrier_try_wait(at(i), parity));")
    assert list(made.values()) == [
        f"  while (!(fagen_mutant == 1 ? ({by}) : (ptx::mbarrier_try_wait(at(i), parity))));"
        for by in ("true", "ptx::mbarrier_try_wait(at(i), (parity) ^ 1)")
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "  {\n    f(a,\n      b);\n    ready.arrive(a);\n  }\n",
            "  {\n@    ready.arrive(a);\n}\n    f(a,\n      b);\n!    ready.arrive(a);\n  }\n",
        ),
        (
            "  {\n    if (any) ready.wait(a);\n    if (b) {\n      use(a);\n    }\n  }\n",
            "  {\n!    if (any) ready.wait(a);\n    if (b) {\n      use(a);\n    }\n"
            "@    if (any) ready.wait(a);\n}\n  }\n",
        ),
        (
            "  {\n    f.wait();\n    mma::pin(s);\n    const int x = y;\n    use(s);\n  }\n",
            "  {\n!    f.wait();\n    mma::pin(s);\n    const int x = y;\n    use(s);\n"
            "@    f.wait();\n}\n  }\n",
        ),
    ],
)
def test_what_moves(text, expected):
    """In `expected` @ is for where the mutant's statement goes, ! for where it is no more."""
    (moved,) = (made for what, made in mutations(text).items() if what.endswith(("earlier", "later")))
    there, gone = "if (fagen_mutant == 1) {\n", "if (!(fagen_mutant == 1))\n"
    assert moved == expected.replace("@", there).replace("!", gone)


def test_changes_may_be_inside_one_another():
    text = "  a.wait(b.init());\n"
    numbered = [(n, change) for n, edit in enumerate(edits(text), 1) for change in edit.changes]
    assert changed(text, numbered) == (
        "  (fagen_mutant == 1 ? void(void()) : void(a.wait((fagen_mutant == 2 ? (true) : (b.init())))));\n"
    )


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
