"""What is NULL may be anything: a verdict says passed or failed only where all of that would."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_lens.check.judging import judge
from hlo_lens.check.model import SIGNS, Expectation
from hlo_lens.check.reading import HERE, expectation
from hlo_lens.facts import Column, Facts, PassResult
from tests.facts.toys import Toy, program, table

Row = Mapping[str, Any]

THINGS = table(
    "things",
    Column("kind", "int", "identity", "which kind"),
    Column("good", "int", "structural", "whether it is good"),
    Column("size", "int", "measure", "how large"),
    Column("executions", "int", "measure", "times it runs"),
    Column("executions_min", "int", "measure", "least times"),
    Column("executions_max", "int", "measure", "most times"),
)
ANY_SIZE = (0, 1, 2, 5, 10**6)

bit = st.sampled_from([0, 1, 1, None])
row = st.fixed_dictionaries(
    {
        "kind": bit,
        "good": bit,
        "size": st.sampled_from([0, 1, 3, None]),
        "runs": st.sampled_from([(1, 1), (2, 2), (0, 1), (0, 0), (0, None)]),
    }
)
compared = st.builds(
    "{} {}".format, st.sampled_from(sorted(SIGNS)), st.sampled_from([0, 1, 2, 3, 6])
)
quantity = st.one_of(
    st.fixed_dictionaries({"count": compared, "per": st.sampled_from(["text", "step"])}),
    st.fixed_dictionaries(
        {"sum": st.just("size"), "is": compared, "per": st.sampled_from(["text", "step"])}
    ),
    *(st.fixed_dictionaries({one: st.just("size"), "is": compared}) for one in ("max", "min")),
    *(st.fixed_dictionaries({one: st.just("good = 1")}) for one in ("every", "none", "any")),
    *(st.fixed_dictionaries({one: st.just(True)}) for one in ("none", "any")),
)
extra = st.fixed_dictionaries(
    {}, optional={"where": st.just("kind = 1"), "allow_empty": st.just(True)}
)


def facts_of(rows: Sequence[Row]) -> Facts:
    records = [
        {
            "module": 0,
            "instr": 0,
            **{name: one[name] for name in ("kind", "good", "size")},
            "executions": one["runs"][0] if len({*one["runs"]}) == 1 else None,
            "executions_min": one["runs"][0],
            "executions_max": one["runs"][1],
        }
        for one in rows
    ]
    toy = Toy("things", (THINGS,), lambda *_: PassResult({"things": records}))
    return Facts(program(), [toy])


def known(one: Row) -> Iterator[Row]:
    """The row with each of the values that what is NULL of it may have."""
    low, high = one["runs"]
    for kind, good, size, runs in itertools.product(
        [one["kind"]] if one["kind"] is not None else [0, 1],
        [one["good"]] if one["good"] is not None else [0, 1],
        [one["size"]] if one["size"] is not None else ANY_SIZE,
        range(low, high + 1) if high is not None else ANY_SIZE,
    ):
        yield {"kind": kind, "good": good, "size": size, "runs": runs}


def holds(expected: Expectation, rows: Sequence[Row]) -> bool:
    """Of rows of which all is known, by what the documentation says."""
    meant = [one for one in rows if not expected.where or one["kind"] == 1]
    quantity = expected.quantity
    says_how_many = quantity == "count" or (quantity == "none" and not expected.condition)
    if not meant and not says_how_many:
        return expected.allow_empty
    if expected.compared is None:
        good = [one["good"] == 1 or not expected.condition for one in meant]
        return {"every": all(good), "any": any(good), "none": not any(good)}[quantity]
    sizes = [one["size"] if expected.column else 1 for one in meant]
    if quantity in ("max", "min"):
        return expected.compared.holds(max(sizes) if quantity == "max" else min(sizes))
    runs = [one["runs"] if expected.per == "step" else 1 for one in meant]
    return expected.compared.holds(sum(a * b for a, b in zip(sizes, runs, strict=True)))


@settings(max_examples=150, deadline=None)
@given(st.lists(row, max_size=2), quantity, extra)
def test_a_verdict_holds_whatever_is_behind_null(
    rows: list[Row], said: dict[str, Any], more: dict[str, Any]
) -> None:
    facts = facts_of(rows)
    expected = expectation({"table": "things", **said, **more}, HERE, facts.registry)
    (verdict,) = judge(facts, [expected])
    truths = {holds(expected, each) for each in itertools.product(*map(known, rows))}
    if verdict.outcome != "not judged":
        assert truths == {verdict.outcome == "passed"}
    if not any(None in (one["kind"], one["good"], one["size"], *one["runs"]) for one in rows):
        certain = all(one["runs"][0] == one["runs"][1] for one in rows)
        assert verdict.outcome != "not judged" or not certain
