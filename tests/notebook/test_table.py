"""Tables in Python: rows by column, instructions behind them, and conditions that are exact."""

from __future__ import annotations

import pytest

from hlo_lens import notebook
from hlo_lens.facts import (
    Column,
    Facts,
    Finding,
    Member,
    PassResult,
    Rule,
    UnknownTableError,
)
from hlo_lens.facts.sqlite import QueryError
from hlo_lens.hlo import parse
from hlo_lens.present.reading import NotReadError
from hlo_lens.program import Program
from tests.facts import toys
from tests.notebook.programs import program

# -- tables and rows ------------------------------------------------------------------------------


def test_a_table_is_a_sequence_of_rows() -> None:
    table = program().table("collectives")
    assert [row.name for row in table] == ["start", "all"]
    assert (len(table), table[-1].name, table[:1][0].name) == (2, "all", "start")
    assert [row.name for row in reversed(table)] == ["all", "start"]


def test_a_table_of_one_stage_has_the_rows_of_that_module() -> None:
    text = "HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"
    both = Program([parse(text), parse(text)], ["before_optimizations", "after_optimizations"])
    assert len(both.table("instructions")) == 2
    assert [row["module"] for row in both.table("instructions", stage="before")] == [0]
    with pytest.raises(ValueError, match="no stage 'linked'; there are: before_optimizations"):
        both.table("instructions", stage="linked")


def test_a_row_is_a_mapping_from_column_to_value() -> None:
    row = program().table("collectives")[0]
    assert (row["kind"], row["executions"], row["is_sync"]) == ("all-reduce", 4, None)
    assert list(row) == list(program().tables["collectives"])
    assert dict(row)["kind"] == row.get("kind") == "all-reduce"
    assert row.get("no_such") is None


def test_a_row_knows_its_instructions() -> None:
    one = program()
    row = one.table("collectives")[0]
    assert row.instr == one.main.computations["body"].instructions["start"]
    assert [(role, instr.name) for role, instr in row.members] == [
        ("start", "start"),
        ("done", "done"),
    ]
    loop = row.ref("loop")
    assert loop is not None
    assert loop.name == "while"
    assert one.table("collectives")[1].ref("loop") is None


def test_a_row_of_a_table_without_instructions_has_none() -> None:
    row = program().table("opcodes")[0]
    assert (row.name, row.instr, row.members) == (None, None, ())


def test_a_column_that_is_not_there_is_told_with_what_may_be_meant() -> None:
    row = program().table("collectives")[0]
    with pytest.raises(KeyError, match=r"no column wire_byte; did you mean wire_bytes"):
        row["wire_byte"]
    with pytest.raises(TypeError, match="column phase holds no instruction"):
        row.ref("phase")


def test_json_is_what_it_says() -> None:
    pair = toys.table("pairs", Column("data", "json", "structural", "data"))
    does = lambda program, facts: PassResult(  # noqa: E731
        {"pairs": [{"module": 0, "data": [[1, "a"], {"b": None}]}, {"module": 0}]}
    )
    table = notebook.table(Facts(toys.program(), [toys.Toy("pairs", (pair,), does)]), "pairs")
    assert [row["data"] for row in table] == [[[1, "a"], {"b": None}], None]
    assert len(table.where(data=[[1, "a"], {"b": None}])) == 1
    assert len(table.where(data='[[1,"a"],{"b":null}]')) == 1
    assert len(table.where(data=None)) == 1
    assert len(table.where(data=[[1, "a"]])) == 0


def test_members_are_those_of_the_row() -> None:
    does = lambda program, facts: PassResult(  # noqa: E731
        {"sums": [{"module": at, "instr": 2, "terms": 2} for at in (0, 1)]},
        members=[Member("sums", 1, "term", 1, 0), Member("sums", 1, "term", 1, 1)],
    )
    facts = Facts(toys.program(toys.TEXT, toys.TEXT), [toys.sums(does=does, requires=())])
    first, second = notebook.table(facts, "sums")
    assert first.members == ()
    assert [(role, instr.name) for role, instr in second.members] == [("term", "a"), ("term", "b")]
    assert {instr.computation.module for _, instr in second.members} == {facts.program.modules[1]}


def test_nothing_can_be_changed() -> None:
    table = program().table("collectives")
    with pytest.raises(AttributeError):
        table.conditions = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        table[0]["phase"] = "fwd"  # type: ignore[index]


# -- what is computed -----------------------------------------------------------------------------


def test_tables_are_computed_once_a_program() -> None:
    one = program()
    assert one.facts is one.facts
    assert one.facts.rows("loops") is one.facts.rows("loops")


def test_looking_at_the_tables_there_are_computes_none() -> None:
    first, second = toys.ops(), toys.sums()
    facts = Facts(toys.program(), [first, second])
    tables = notebook.Tables(facts)
    assert list(tables) == ["findings", "members", "ops", "sums"]
    assert tables["sums"]["terms"].doc == "number of terms"
    assert "no_such" not in tables
    assert tables._repr_html_()
    assert first.runs == second.runs == []


def test_a_table_runs_its_pass_and_showing_it_no_other() -> None:
    first, second = toys.ops(), toys.sums()
    table = notebook.table(Facts(toys.program(), [first, second]), "ops")
    assert table._repr_html_()
    assert table[0]._repr_html_()
    assert (first.runs, second.runs) == (["ops"], [])


def test_an_unknown_table_is_told_with_what_may_be_meant() -> None:
    with pytest.raises(UnknownTableError, match="did you mean collectives"):
        program().table("colectives")


def test_a_table_whose_pass_failed_is_not_read_as_an_empty_one() -> None:
    def fails(program: Program, facts: Facts) -> PassResult:
        raise ZeroDivisionError("by nought")

    facts = Facts(toys.program(), [toys.ops(does=fails), toys.sums()])
    with pytest.raises(NotReadError, match="pass ops: ZeroDivisionError: by nought"):
        notebook.table(facts, "ops")
    with pytest.raises(NotReadError, match="requires table ops, and pass ops failed"):
        notebook.table(facts, "sums")


def test_members_and_findings_are_tables_too() -> None:
    one = program()
    roles = {row["role"] for row in one.table("members").where(table="collectives")}
    assert roles >= {"start", "done"}
    assert one.table("findings").name == "findings"


def test_findings_stand_by_weight() -> None:
    rules = tuple(Rule(f"{level}-rule", level, "it", "why") for level in ("note", "error"))

    def does(program: Program, facts: Facts) -> PassResult:
        return PassResult(
            {},
            findings=[
                Finding("note-rule", "note", "a note", 0, 1),
                Finding("error-rule", "error", "an error", 0, 2),
            ],
        )

    found = notebook.findings(Facts(toys.program(), [toys.ops(does=does, rules=rules)]))
    assert [(row["level"], row["message"], row.name) for row in found] == [
        ("error", "an error", "c"),
        ("note", "a note", "b"),
    ]
    assert [row.name for row in found.where("level = 'note'")] == ["b"]
    assert [row.name for row in found.where(level="error")] == ["c"]


def test_a_program_answers_queries() -> None:
    result = program().query("SELECT name FROM collectives ORDER BY name")
    assert result.rows == [("all",), ("start",)]
    assert repr(result) == "<QueryResult 2 rows of name>"


# -- where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "values", "names"),
    [
        (None, {"kind": "all-reduce"}, ["start"]),
        (None, {"kind": ["all-reduce", "all-gather"]}, ["start", "all"]),
        (None, {"kind": {"send"}}, []),
        (None, {"kind": []}, []),
        (None, {"loop_depth": 1, "kind": "all-reduce"}, ["start"]),
        (None, {"loop_depth": range(1, 3)}, ["start"]),
        (None, {"loop": None}, ["all"]),
        (None, {"group_size": 2.0}, ["start", "all"]),
        ("executions > 1", {}, ["start"]),
        ("executions > 1 -- in a loop", {}, ["start"]),
        ("executions > 1", {"kind": "all-gather"}, []),
        ("kind = 'all-gather' OR executions = 4", {}, ["start", "all"]),
        ("loop IN (SELECT instr FROM loops)", {}, ["start"]),
        ("id IN (SELECT row FROM members WHERE \"table\" = 'collectives' AND role = 'done')", {},
         ["start"]),
    ],
)  # fmt: skip
def test_where(condition: str | None, values: dict[str, object], names: list[str]) -> None:
    table = program().table("collectives").where(condition, **values)
    assert [row.name for row in table] == names


def test_conditions_add_up_and_slices_are_kept() -> None:
    table = program().table("instructions")
    adds = table.where(opcode="add")
    assert {row.name for row in adds} == {"j", "add"}
    assert [row.name for row in adds.where("computation = 'sum'")] == ["add"]
    assert [row.name for row in adds[:1].where(opcode="add")] == ["j"]
    assert len(table.where(opcode="add")) == 2


def test_a_bool_is_true_false_or_not_known() -> None:
    table = notebook.table(Facts(toys.program(), [toys.ops()]), "ops")
    assert [row["opcode"] for row in table.where(is_root=True)] == ["add"]
    assert len(table.where(is_root=False)) == 2
    assert len(table.where(is_root=None)) == 0


def test_a_tuple_of_ids_is_one_value() -> None:
    table = notebook.table(Facts(toys.program(), [toys.ops()]), "ops")
    assert [row["opcode"] for row in table.where(operands=(0, 1))] == ["add"]
    assert [row["opcode"] for row in table.where(operands=[0, 0])] == ["multiply"]
    assert len(table.where(operands={(0, 1), (0, 0)})) == 2


@pytest.mark.parametrize(
    ("condition", "values", "message"),
    [
        (None, {"wire_byte": 1}, r"no column wire_byte; did you mean wire_bytes"),
        (None, {"zzz": 1}, r"no column zzz; it has id, module, instr, "),
        (None, {"phase": "bw"}, r"never is 'bw'; did you mean bwd\?; it is fwd, bwd, remat, other"),
        (None, {"phase": ["fwd", "backward"]}, r"never is 'backward'"),
        (None, {"wire_bytes": "1e6"}, r"wire_bytes holds numbers of bytes; '1e6' is none"),
        (None, {"overlapped": "yes"}, r"overlapped holds True and False; 'yes' is none"),
        (None, {"overlapped": 2}, r"overlapped holds True and False; 2 is none"),
        ("wire_byte > 1", {}, r"no column wire_byte, did you mean wire_bytes\?"),
        ('"wire_byte" > 1', {}, r'no column "wire_byte", did you mean wire_bytes\?; a text stands'),
        ("\"opcode\" = 'opcode'", {}, r'no column "opcode"'),  # of another table
        ("1 -- the step's\n AND \"phse\" = 'phse'", {}, r'no column "phse"'),
        ("0) OR (1 = 1", {}, r"a condition is one expression; a \) in it ends it too early"),
        ("1\n) UNION SELECT 0, 0 FROM modules WHERE (1", {}, r"a \) in it ends it too early"),
        ('phase = "bwd"', {}, r"single quotes in SQL, as in phase = 'bwd'"),
        ("", {}, r"it is empty: a condition is one expression"),
        ("1; DROP TABLE loops", {}, r"a ; in it ends it too early"),
        ("count(*) > 1", {}, r"misuse of aggregate"),
        ("loop IN (SELECT instr FROM loop)", {}, r"no table loop, did you mean loops\?"),
    ],
)
def test_where_refuses_what_means_nothing(
    condition: str | None, values: dict[str, object], message: str
) -> None:
    table = program().table("collectives")
    with pytest.raises(QueryError, match=message):
        table.where(condition, **values)


# -- on one line ----------------------------------------------------------------------------------


def test_what_is_printed_is_one_line() -> None:
    table = program().table("collectives")
    assert repr(table) == "<Table collectives: 2 rows>"
    assert repr(table[:1]) == "<Table collectives: 1 of 2 rows>"
    assert repr(table.where("executions > 1\n", kind="all-reduce")) == (
        "<Table collectives: 1 of 2 rows where executions > 1\\n and kind='all-reduce'>"
    )
    assert repr(table[0]) == "<Row 0 of collectives: start>"
    assert repr(program().tables["members"]).startswith("<6 columns of members: id, module, ")
    tables = notebook.Tables(Facts(toys.program(), [toys.ops()]))
    assert repr(tables) == "<3 tables: findings, members, ops>"
