from __future__ import annotations

import json
import math

import pytest

from fagen.bench.case import Refusal
from fagen.bench.compare import OURS, Outcome, Result
from fagen.bench.document import FORMAT, check_in_common, identity, read, to_json
from fagen.errors import ArgumentError


def test_json_holds_every_case_with_median_and_spread(todo):
    times = tuple(i * 1e-6 for i in (1, 2, 3, 4, 5, 6, 7))
    outcomes = {OURS: Outcome(0.001, times, 512), "flash": Outcome(math.nan, problem="wrong")}
    refused = [Refusal("h200_fa2", "bwd", "wide", "does not fit")]
    found = to_json([Result(todo[2], 0.002, outcomes)], refused, {"device": "a GPU"}, {"flash": "2.0"})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["machine"], found["peers"]) == ({"device": "a GPU"}, {"flash": "2.0"})
    assert found["refused"][0]["reason"] == "does not fit"
    (case,) = found["cases"]
    assert (case["spec"], case["mode"], case["shape_name"]) == ("h200_fa2", "fwd", "d128_causal_1024")
    assert case["shape"] == {"batch": 16, "seqlen_q": 1024, "seqlen_k": 1024, "heads_q": 16, "heads_kv": 16}
    assert case["problem"]["mask"] == "causal"
    assert case["flops"] == 4 * 16 * 16 * (1024 * 1025 // 2) * 128
    assert case["ceilings"]["tensor_tflops"] == pytest.approx(989, rel=0.01)
    assert case["contenders"]["flash"] == {
        "median_us": None,
        "quartiles_us": None,
        "tflops": None,
        "error": None,
        "peak_bytes": None,
        "problem": "wrong",
    }
    ours = case["contenders"][OURS]
    assert (ours["median_us"], ours["quartiles_us"], ours["peak_bytes"]) == (4.0, [2.0, 4.0, 6.0], 512)
    assert ours["tflops"] == pytest.approx(case["flops"] / 4e-6 / 1e12)


def test_the_sample_has_the_keys_of_a_document(todo, timed, sample):
    found = to_json(
        [timed(todo[0], 1e-3, flash=2e-3)], [Refusal("a", "fwd", "b", "c")], {"device": ""}, {"flash": ""}
    )
    assert sample.keys() == found.keys() and sample["format"] == FORMAT
    assert "made up" in sample["machine"]["device"]
    for key in ("cases", "refused", "summary"):
        assert all(one.keys() == found[key][0].keys() for one in sample[key]), key
    for case in sample["cases"]:
        assert case["ceilings"].keys() == found["cases"][0]["ceilings"].keys()
        for contender in case["contenders"].values():
            assert contender.keys() == found["cases"][0]["contenders"][OURS].keys()


def test_what_was_written_is_read(tmp_path, sample):
    file = tmp_path / "old.json"
    file.write_text(json.dumps(sample))
    assert read(file) == sample


@pytest.mark.parametrize(
    "text",
    ["", "[1]", '{"cases": []}', '{"format": "fagen bench 0"}', "\xff", "[" * 100_000],
    ids=lambda text: repr(text[:12]),
)
def test_anything_else_is_refused(tmp_path, text):
    file = tmp_path / "old.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ArgumentError, match=r"old\.json: .*; allowed: .*fagen bench"):
        read(file)
    with pytest.raises(ArgumentError, match="cannot be read"):
        read(tmp_path / "none.json")


DAMAGE = {
    "no cases": lambda found: found.pop("cases"),
    "no list of cases": lambda found: found.update(cases={"a": 1}),
    "no case": lambda found: found["cases"].append(3),
    "no machine": lambda found: found.pop("machine"),
    "no problem": lambda found: found["cases"][3].pop("problem"),
    "no shape": lambda found: found["cases"][3].update(shape=None),
    "no contenders": lambda found: found["cases"][3].pop("contenders"),
    "no median": lambda found: found["cases"][3]["contenders"]["fagen"].pop("median_us"),
    "no time at all": lambda found: found["cases"][3]["contenders"]["fagen"].update(median_us=0.0),
    "no quartiles": lambda found: found["cases"][3]["contenders"]["fagen"].update(quartiles_us=None),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_was_damaged_is_refused(tmp_path, sample, damage):
    DAMAGE[damage](sample)
    file = tmp_path / "old.json"
    file.write_text(json.dumps(sample))
    with pytest.raises(
        ArgumentError, match=r"old\.json: is damaged: (cases|machine).*: .*; allowed: .*fagen bench"
    ):
        read(file)


def test_a_problem_without_a_key_that_came_later_is_the_same_work(todo, timed):
    (case,) = to_json([timed(todo[0], 1.0)], [], {}, {})["cases"]
    for key in ("softcap", "dropout", "deterministic"):
        older = {name: value for name, value in case["problem"].items() if name != key}
        assert identity(case) == identity(case | {"problem": older})


def test_cases_are_the_same_work_whatever_they_are_called(todo, timed):
    (case,) = to_json([timed(todo[0], 1.0)], [], {}, {})["cases"]
    assert identity(case) == identity(case | {"shape_name": "mine", "flops": 0})
    assert identity(case) != identity(case | {"mode": "bwd"})
    assert identity(case) != identity(case | {"shape": case["shape"] | {"batch": 3}})
    assert identity(case) != identity(case | {"problem": case["problem"] | {"head_dim": 64}})


def test_a_file_with_no_case_in_common_is_refused_before_any_work(todo, timed, paper_cases):
    old = to_json([timed(todo[0], 1.0)], [], {}, {})
    check_in_common(old, todo)
    with pytest.raises(ArgumentError, match=r"allowed: .* h200_fa2 fwd$"):
        check_in_common(old, paper_cases("h200_fa2.yaml", (1024,), ("bwd",)))
