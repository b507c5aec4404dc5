"""The computations and call_sites tables."""

from __future__ import annotations

from tests.analysis.loop_texts import loop_text
from tests.analysis.test_calls import EVERY_KIND
from tests.analysis.test_multiplicity import BRANCHES, SHARED
from tests.mutate import check_table
from tests.passes.asking import ask


def test_computations() -> None:
    assert ask(
        SHARED,
        "select name, kind, callers, instructions, loop_depth, executions, trips_kind, text_line"
        " from computations order by id",
    ) == [
        ("silu", "call", 3, 2, None, 7, "inferred", 2),
        ("twice", "call", 1, 3, 1, 3, "inferred", 3),
        ("body", "body", 1, 7, 1, 3, "inferred", 8),
        ("cond", "condition", 1, 4, 1, 4, "inferred", 17),
        ("main", "entry", 0, 6, 0, 1, None, 23),
    ]


def test_loop_and_root_refer_to_instructions() -> None:
    assert ask(
        SHARED,
        "select c.name, l.name, r.name from computations c left join instructions l on l.id=c.loop"
        " join instructions r on r.id=c.root order by c.id",
    ) == [
        ("silu", None, "n"),
        ("twice", "w", "c"),
        ("body", "w", "r"),
        ("cond", "w", "go"),
        ("main", None, "g"),
    ]


def test_kinds_of_computations() -> None:
    found = dict(ask(EVERY_KIND, "select name, kind from computations"))
    assert found["add"] == "apply"
    assert found["yes"] == "branch"
    assert found["wrapped"] == "async"
    lone = EVERY_KIND.replace("calls=fused", "calls=called")
    found = dict(ask(lone, "select name, kind from computations"))
    assert (found["fused"], found["called"]) == ("none", "several")


def test_call_sites() -> None:
    assert ask(
        SHARED,
        "select s.name, s.caller, s.callee, c.name, s.kind, s.multiplicity, s.executions"
        " from call_sites s join computations c on c.id = s.callee_id order by s.id",
    ) == [
        ("b", "twice", "silu", "silu", "call", 1, 3),
        ("c", "twice", "silu", "silu", "call", 1, 3),
        ("y", "body", "twice", "twice", "call", 1, 3),
        ("s", "main", "silu", "silu", "call", 1, 1),
        ("w", "main", "cond", "cond", "condition", 4, 1),
        ("w", "main", "body", "body", "body", 3, 1),
    ]


def test_multiplicities_that_are_bounds() -> None:
    what = "select kind, multiplicity, multiplicity_min, multiplicity_max from call_sites"
    assert ask(BRANCHES, f"{what} where kind = 'branch'") == [("branch", None, 0, 1)] * 2
    assert ask(loop_text(init="copy(b)"), f"{what} order by kind") == [
        ("body", None, 0, None),
        ("condition", None, 1, None),
    ]
    assert ask(EVERY_KIND, f"{what} where kind = 'apply' limit 1") == [("apply", None, None, None)]


def test_the_tables_under_rewrites() -> None:
    # `x#1` is no instruction, a get-tuple-element is one.
    check_table(SHARED, "computations", skip=("elements-by-mark", "elements-by-instruction"))
    check_table(SHARED, "call_sites")
    # Another spelling of async makes a computation of what sugar implies, or the other way round.
    check_table(EVERY_KIND, "call_sites", skip=("respell-async",))
