from __future__ import annotations

from fagen.spec.problem import problem_issues
from fagen.spec.tree import Node, from_python


def test_keys_may_be_left_out():
    assert problem_issues(from_python({"mask": "causal"}, "a.yaml:3"), "mine") == []


def test_what_is_wrong_has_its_own_line_and_what_is_allowed():
    keys = Node({"head_dim": Node(63, "a.yaml:4"), "mask": Node("causl", "a.yaml:5")}, "a.yaml:3")
    head_dim, mask = problem_issues(keys, "mine")
    assert str(head_dim) == "a.yaml:4: mine.head_dim: is 63; allowed: multiples of 8 from 8 to 256"
    assert str(mask).startswith("a.yaml:5: mine.mask: is `causl`;") and mask.hint == "did you mean `causal`?"
