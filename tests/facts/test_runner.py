"""The runner: tables when asked, with what they require; broken passes become findings."""

from __future__ import annotations

import pytest

from hlo_lens.facts import (
    Facts,
    Finding,
    Member,
    PassResult,
    Rule,
    UnknownTableError,
    register,
)
from tests.facts.toys import Toy, ops, program, sums, table

BROAD = Rule("too-broad", "warning", "A sum is too broad.", "Why that matters.")


def messages(facts: Facts) -> list[tuple[str, str]]:
    return [(finding.rule, finding.message) for finding in facts.findings]


# -- tables when asked ----------------------------------------------------------------------------


def test_nothing_runs_before_a_table_is_asked_for() -> None:
    one, other = ops(), sums()
    facts = Facts(program(), [one, other])
    assert [known.name for known in facts.tables] == ["findings", "members", "ops", "sums"]
    assert one.runs == other.runs == []


def test_a_table_is_computed_once_with_what_it_requires() -> None:
    one, other = ops(), sums()
    facts = Facts(program(), [other, one])
    assert facts.rows("sums") == [(0, 0, 2, 2)]
    assert facts.records("sums") == [{"id": 0, "module": 0, "instr": 2, "terms": 2}]
    assert (one.runs, other.runs) == (["ops"], ["sums"])


def test_a_table_that_requires_nothing_runs_nothing_else() -> None:
    other = sums()
    facts = Facts(program(), [ops(), other])
    assert [row[3:] for row in facts.rows("ops")] == [
        ("parameter", (), False),
        ("multiply", (0, 0), False),
        ("add", (0, 1), True),
    ]
    assert other.runs == []


def test_a_pass_owns_several_tables_and_may_leave_one_empty() -> None:
    facts = Facts(program(), [ops(tables=(*ops().tables, table("others")))])
    assert facts.rows("others") == []
    assert len(facts.rows("ops")) == 3
    assert facts.findings == ()


def test_an_unknown_table_gets_a_suggestion() -> None:
    facts = Facts(program(), [ops(), sums()])
    with pytest.raises(UnknownTableError, match="no table sum; did you mean sums"):
        facts.rows("sum")
    with pytest.raises(UnknownTableError, match="there are findings, members, ops, sums"):
        facts.rows("zzz")


# -- members and findings are tables ------------------------------------------------------------


def with_members(program, facts) -> PassResult:
    return PassResult(
        {"sums": [{"module": 0, "instr": 2}]},
        members=[Member("sums", 0, "term", 0, 0), Member("sums", 0, "term", 0, 1)],
        findings=[Finding("too-broad", "warning", "two terms", 0, 2, (("sums", 0),), "use one")],
    )


def test_members_of_a_table_and_of_all() -> None:
    other = ops()
    facts = Facts(program(), [other, sums(does=with_members, requires=(), rules=(BROAD,))])
    assert [(one.role, one.instr) for one in facts.members("sums")] == [("term", 0), ("term", 1)]
    assert other.runs == []
    assert facts.rows("members") == [
        (0, 0, "sums", 0, "term", 0),
        (1, 0, "sums", 0, "term", 1),
    ]
    assert other.runs == ["ops"]


def test_findings_are_those_of_passes_run_so_far_and_the_table_holds_all() -> None:
    facts = Facts(program(), [sums(does=with_members, requires=(), rules=(BROAD,))])
    assert facts.findings == ()
    [row] = facts.records("findings")
    assert facts.findings == (
        Finding("too-broad", "warning", "two terms", 0, 2, (("sums", 0),), "use one"),
    )
    expected = {"rule": "too-broad", "level": "warning", "message": "two terms", "help": "use one"}
    assert expected.items() <= row.items()
    assert (row["module"], row["instr"], row["name"]) == (0, 2, "c")
    assert row["evidence"] == '[["sums",0]]'


def test_facts_say_what_they_are_of_in_a_line() -> None:
    facts = Facts(program(), [ops()])
    facts.rows("ops")
    assert repr(facts) == f"<Facts of {program().name!r}: {len(facts.tables)} tables, 1 computed>"


def test_a_finding_said_twice_counts_once() -> None:
    twice = [Finding("too-broad", "note", "x", 0), Finding("too-broad", "note", "x", 0)]
    facts = Facts(
        program(), [ops(does=lambda p, f: PassResult({}, findings=twice), rules=(BROAD,))]
    )
    facts.run_all()
    assert messages(facts) == [("too-broad", "x")]


# -- broken passes ------------------------------------------------------------------------------


def test_a_crash_is_a_finding_and_other_tables_are_there() -> None:
    def crash(program, facts):
        raise RuntimeError("it\nbroke")

    facts = Facts(program(), [ops(), Toy("bad", (table("bads"),), crash)])
    assert facts.rows("bads") == []
    assert len(facts.rows("ops")) == 3
    assert messages(facts) == [("pass-failed", "pass bad: RuntimeError: it broke")]


def test_a_pass_that_exits_does_not_end_the_tool() -> None:
    def leave(program, facts):
        raise SystemExit(3)

    facts = Facts(program(), [Toy("bad", (table("bads"),), leave)])
    assert facts.rows("bads") == []
    assert messages(facts) == [("pass-failed", "pass bad: SystemExit: 3")]


def test_rows_that_crash_while_they_are_made() -> None:
    def half(program, facts):
        return PassResult({"bads": ({"module": 1 // number} for number in (1, 0))})

    facts = Facts(program(), [Toy("bad", (table("bads"),), half)])
    assert facts.rows("bads") == []
    assert "ZeroDivisionError" in messages(facts)[0][1]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"bads": []}, "run gave a dict, not a PassResult"),
        (PassResult({"ops": []}), "it gives rows of ops, which it does not own"),
        (PassResult({"bads": [{"module": 4}]}), "there is no module 4"),
        (PassResult({}, members=[Member("ops", 0, "x", 0, 0)]), "a table it does not own"),
        (PassResult({}, members=[Member("bads", 0, "x", 0, 0)]), "is part of no row"),
        (
            PassResult({"bads": [{"module": 0}]}, members=[Member("bads", 0, "x", 0, 9)]),
            "module 0 has no instruction 9",
        ),
        (PassResult({}, findings=[Finding("unheard", "note", "x")]), "which no pass declares"),
        (PassResult({}, findings=[Finding("too-broad", "note", "x", 3)]), "there is no module 3"),
    ],
)
def test_a_result_that_does_not_fit(result: object, message: str) -> None:
    bad = Toy("bad", (table("bads"),), lambda program, facts: result, rules=(BROAD,))
    facts = Facts(program(), [ops(), bad])
    assert facts.rows("bads") == []
    [(rule, text)] = messages(facts)
    assert rule == "pass-failed"
    assert text.startswith("pass bad: ")
    assert message in text


def test_what_requires_a_failed_pass_does_not_run_and_says_so() -> None:
    other = sums()
    facts = Facts(program(), [ops(does=lambda program, facts: 1 / 0), other])
    assert facts.rows("sums") == []
    assert other.runs == []
    assert messages(facts) == [
        ("pass-failed", "pass ops: ZeroDivisionError: division by zero"),
        ("pass-failed", "pass sums: it requires table ops, and pass ops failed"),
    ]


def test_a_required_table_that_nobody_fills() -> None:
    facts = Facts(program(), [sums()])
    assert facts.rows("sums") == []
    assert messages(facts) == [
        ("pass-failed", "pass sums: it requires table ops, which no pass fills")
    ]


def test_passes_that_require_each_other() -> None:
    third = Toy("third", (table("thirds"),), lambda program, facts: 1, requires=("sums",))
    facts = Facts(program(), [ops(requires=("sums",)), sums(), third])
    assert facts.rows("thirds") == []
    assert messages(facts) == [
        ("pass-failed", "pass sums: it requires itself: sums → ops → sums"),
        ("pass-failed", "pass ops: it requires itself: sums → ops → sums"),
        ("pass-failed", "pass third: it requires table sums, and pass sums failed"),
    ]


def test_reading_a_table_without_requiring_it() -> None:
    facts = Facts(program(), [ops(), sums(requires=())])
    assert facts.rows("sums") == []
    assert "reads table ops but does not require it" in messages(facts)[0][1]


def test_a_pass_cannot_ask_for_what_every_pass_fills() -> None:
    facts = Facts(program(), [ops(does=lambda program, facts: facts.members())])
    assert facts.rows("ops") == []
    assert "reads table members but does not require it" in messages(facts)[0][1]


# -- passes put together --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (Toy("later", ops().tables, list), "pass later is left out: pass ops owns ops"),
        (ops(tables=()), "pass ops is left out: another pass has that name"),
        (Toy("later", (table("members"),), list), "table members is filled by the runner"),
        (Toy("later", ("t",), list), "'t' is no Table"),
        (
            Toy("later", (), list, rules=(Rule("too-broad", "note", "other", "other"),)),
            "rule too-broad is already defined otherwise",
        ),
        (object, "is no pass: it lacks name, tables, requires, rules, run"),
    ],
)
def test_a_pass_that_cannot_join(later: object, message: str) -> None:
    registry = register([ops(rules=(BROAD,)), later])
    assert [one.name for one in registry.passes] == ["ops"]
    [finding] = registry.findings
    assert finding.rule == "plugin-broken"
    assert message in finding.message


def test_two_passes_may_report_one_rule() -> None:
    registry = register([ops(rules=(BROAD,)), sums(rules=(BROAD,))])
    assert registry.findings == ()
    assert sorted(registry.rules) == ["pass-failed", "plugin-broken", "too-broad"]


def test_a_broken_plugin_is_a_finding_of_every_program() -> None:
    facts = Facts(program(), [ops(), None])
    assert [finding.rule for finding in facts.findings] == ["plugin-broken"]
    assert len(facts.rows("ops")) == 3
