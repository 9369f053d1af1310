from __future__ import annotations

from fagen.bench.compare import DETERMINISTIC, OURS, QUANTISING, is_ours
from fagen.bench.own import own_specs


def test_only_a_backward_alone_is_also_timed_in_a_fixed_order(paper_cases):
    todo = paper_cases("h200_fa2.yaml", (2048,), ("fwd", "bwd", "fwd+bwd"))[:3]
    assert [list(own_specs(case)) for case in todo] == [[OURS], [OURS, DETERMINISTIC], [OURS]]
    assert own_specs(todo[1])[DETERMINISTIC].problem.deterministic
    (always, *_) = paper_cases("h200_fa2.yaml", (2048,), ("bwd",), deterministic=True)
    assert list(own_specs(always)) == [OURS]


def test_8_bits_are_also_timed_with_quantising_and_in_16_bits(paper_cases):
    (case, *_) = paper_cases("h200_fp8.yaml", (2048,), ("fwd",), out_dtype="fp16")
    specs = own_specs(case)
    assert list(specs) == [OURS, QUANTISING, "fagen fp16"] and all(map(is_ours, specs))
    assert specs[QUANTISING] == specs[OURS] == case.spec
    problem = specs["fagen fp16"].problem
    assert (problem.dtype, problem.mask) == ("fp16", case.spec.problem.mask)
    assert len({spec.name for spec in specs.values()}) == 2, "one name for each kernel"


def test_packed_sequences_of_8_bits_are_not_quantised(paper_cases):
    (case, *_) = paper_cases("h200_fp8.yaml", (2048,), ("fwd",), layout="thd")
    assert list(own_specs(case)) == [OURS, "fagen bf16"]
