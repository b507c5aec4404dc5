"""The schema refuses what no consumer could read."""

from __future__ import annotations

import pytest

from hlo_lens.facts import COMMON, FINDINGS, MEMBERS, Column, Finding, Rule, Table


def test_common_columns_are_the_ones_every_consumer_knows() -> None:
    assert [column.name for column in COMMON] == [
        *("id", "module", "instr", "name", "phase", "phase_from", "loop", "loop_name"),
        *("loop_depth", "executions", "executions_min", "executions_max", "trips_kind"),
        *("source", "text_line"),
    ]


def test_a_column_is_found_by_name() -> None:
    assert MEMBERS.column("role").role == "identity"
    assert MEMBERS.names[MEMBERS.position("row")] == "row"
    with pytest.raises(KeyError, match="members has no column rôle"):
        MEMBERS.column("rôle")


def test_every_column_says_what_it_means() -> None:
    assert all(column.doc for table in (MEMBERS, FINDINGS) for column in table.columns)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "number", "measure", ""), "unknown type 'number'"),
        (("x", "int", "value", ""), "unknown role 'value'"),
        (("x y", "int", "measure", ""), "not a lower-case identifier"),
        (("X", "int", "measure", ""), "not a lower-case identifier"),
        (("x", "enum", "structural", ""), "an enum lists its values"),
        (("x", "int", "structural", "", None, ("a",)), "an enum lists its values"),
    ],
)
def test_a_column_that_makes_no_sense(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Column(*arguments)


def test_a_table_has_a_key_and_names_a_column_once() -> None:
    id_, module = MEMBERS.column("id"), MEMBERS.column("module")
    with pytest.raises(ValueError, match="column module is missing"):
        Table("t", "a t", (id_,))
    with pytest.raises(ValueError, match="named twice: id"):
        Table("t", "a t", (id_, module, id_))


def test_levels_and_rule_ids() -> None:
    with pytest.raises(ValueError, match="unknown level 'fatal'"):
        Finding("some-rule", "fatal", "x")
    with pytest.raises(ValueError, match="lower-case words joined by hyphens"):
        Rule("Some_rule", "note", "x", "x")
