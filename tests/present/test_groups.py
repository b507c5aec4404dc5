"""Rows in groups, and the numbers of a group."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hlo_lens.facts import COMMON, Cell, Column, Measure, Summary, Table
from hlo_lens.hlo import parse
from hlo_lens.present.cells import Cells
from hlo_lens.present.groups import grouped, measured, wanted, without_value
from hlo_lens.program import Program

TABLE = Table(
    "things",
    "a thing",
    (
        *COMMON,
        Column("kind", "enum", "identity", "kind", values=("big", "small")),
        Column("size", "bytes", "measure", "size"),
        Column("size_max", "bytes", "measure", "bound of size"),
        Column("good", "bool", "structural", "whether it is good"),
    ),
)

# Two loops of 4 in one of 8: while.a holds while.b and while.c.
HLO = """\
HloModule loops

inner_cond (p: (s32[])) -> pred[] {
  p = (s32[]) parameter(0)
  ROOT t = pred[] constant(false)
}
inner_body (p.1: (s32[])) -> (s32[]) {
  ROOT p.1 = (s32[]) parameter(0)
}
inner_cond.2 (p.2: (s32[])) -> pred[] {
  p.2 = (s32[]) parameter(0)
  ROOT t.2 = pred[] constant(false)
}
inner_body.2 (p.3: (s32[])) -> (s32[]) {
  ROOT p.3 = (s32[]) parameter(0)
}
cond (p.4: (s32[])) -> pred[] {
  p.4 = (s32[]) parameter(0)
  ROOT t.4 = pred[] constant(false)
}
body (p.5: (s32[])) -> (s32[]) {
  p.5 = (s32[]) parameter(0)
  while.b = (s32[]) while(p.5), condition=inner_cond, body=inner_body, backend_config={"known_trip_count":{"n":"4"}}
  ROOT while.c = (s32[]) while(while.b), condition=inner_cond.2, body=inner_body.2, backend_config={"known_trip_count":{"n":"4"}}
}
ENTRY main {
  x = (s32[]) parameter(0)
  ROOT while.a = (s32[]) while(x), condition=cond, body=body, backend_config={"known_trip_count":{"n":"8"}}
}
"""  # noqa: E501


@pytest.fixture
def cells() -> Cells:
    return Cells(Program([parse(HLO)]))


def instr(cells: Cells, name: str) -> int:
    module = cells.program.modules[0]
    return next(
        c.instructions[name].id for c in module.computations if c.instructions.get(name) is not None
    )


def rows(*given: dict[str, object]) -> list[tuple[object, ...]]:
    base = {"module": 0, "executions": 1, "executions_min": 1, "executions_max": 1}
    base["loop_depth"] = 0
    return [tuple(map((base | row).get, TABLE.names)) for row in given]


def ask(
    cells: Cells, by: Iterable[str], measures: Iterable[Measure], given: list[tuple[object, ...]]
) -> list[tuple[str, ...]]:
    summary = Summary("things", 0, by=tuple(map(Cell, by)), measures=tuple(measures))
    return [(*group.keys, *group.measures) for group in grouped(cells, TABLE, summary, given)]


COUNT = Measure("count", "rows")


def test_rows_that_agree_are_one_group_in_the_order_of_the_words(cells: Cells) -> None:
    given = rows({"kind": "small"}, {"kind": None}, {"kind": "big"}, {"kind": "small"})
    assert ask(cells, ["kind"], [COUNT], given) == [("big", "1"), ("small", "2"), ("–", "1")]


def test_a_loop_is_named_with_its_trip_count_and_those_around_it(cells: Cells) -> None:
    given = rows(
        {"loop": None},
        {"loop": instr(cells, "while.b"), "loop_depth": 2},
        {"loop": instr(cells, "while.a"), "loop_depth": 1},
        {"loop": None, "loop_depth": None},
    )
    assert ask(cells, ["loop"], [COUNT], given) == [
        ("while.a ×8", "1"),
        ("while.a ×8 › while.b ×4", "1"),
        ("no loop", "1"),
        ("–", "1"),
    ]


def test_loops_inside_one_loop_that_run_equally_often_are_one_group(cells: Cells) -> None:
    given = rows({"loop": instr(cells, "while.b")}, {"loop": instr(cells, "while.c")})
    assert ask(cells, ["loop"], [COUNT], given) == [("while.a ×8 › 2 loops ×4", "2")]


ONCE, STEP = Measure("once", "once", "size"), Measure("step", "per_step", "size")
RUNS = Measure("runs", "executions")


def numbers(cells: Cells, *given: dict[str, object]) -> tuple[str, ...]:
    most = Measure("most", "per_step", "size", "size_max")
    summary = Summary("things", 0, by=(Cell("kind"),), measures=(RUNS, ONCE, STEP, most))
    return measured(TABLE, summary, rows(*given))


def test_a_step_weighs_by_executions(cells: Cells) -> None:
    four = {"executions": 4, "executions_min": 4, "executions_max": 4, "size": 100}
    assert numbers(cells, four, {"size": 10}) == ("5", "110 B", "410 B", "410 B")


def test_a_sum_over_an_unknown_loop_is_a_bound(cells: Cells) -> None:
    unknown = {
        "executions": None, "executions_min": 0, "executions_max": None, "size": 8,
        "trips_kind": "unknown",
    }  # fmt: skip
    assert numbers(cells, unknown, {"size": 10}) == (
        "≥ 1 (unknown trip count)",
        "18 B",
        "≥ 10 B",
        "≥ 10 B",
    )


def test_a_sum_under_a_branch_is_a_bound(cells: Cells) -> None:
    branch = {"executions": None, "executions_min": 0, "executions_max": 8, "size": 8}
    assert numbers(cells, branch) == ("≤ 8", "8 B", "≤ 64 B", "≤ 64 B")


def test_rows_without_a_value_or_a_bound_are_told() -> None:
    never = {"executions": 0, "executions_min": 0, "executions_max": 0}
    given = rows({"size": 1}, {"size": None, "size_max": 3}, {"size": None}, never)
    measures = (Measure("step", "per_step", "size", "size_max"),)
    summary = Summary("things", 0, by=(Cell("kind"),), measures=measures)
    assert list(without_value(TABLE, summary, given)) == [("size", [given[2]])]
    assert list(without_value(TABLE, summary, given[:2])) == []


def test_a_value_that_is_not_known_is_never_zero(cells: Cells) -> None:
    assert numbers(cells, {"size": None}) == ("1", "–", "–", "–")
    assert numbers(cells, {"size": None}, {"size": 5}) == ("2", "≥ 5 B", "≥ 5 B", "≥ 5 B")


def test_a_value_with_an_upper_bound_gives_a_bound(cells: Cells) -> None:
    assert numbers(cells, {"size": None, "size_max": 64}, {"size": 8})[3] == "8 B – 72 B"


def test_executions_of_which_nothing_is_known(cells: Cells) -> None:
    nothing = {"executions": None, "executions_min": None, "executions_max": None, "size": 8}
    assert numbers(cells, nothing) == ("–", "8 B", "–", "–")


def test_each_is_a_value_or_a_range(cells: Cells) -> None:
    each = [Measure("size", "each", "size")]
    assert ask(cells, ["kind"], each, rows({"size": 8}, {"size": 8})) == [("–", "8 B")]
    assert ask(cells, ["kind"], each, rows({"size": 8}, {"size": 2048})) == [("–", "8 B – 2.0 KiB")]


def test_of_how_many_it_is_true_where_it_is_known(cells: Cells) -> None:
    good = [Measure("good", "true", "good")]
    given = rows({"good": True}, {"good": False}, {"good": None})
    assert ask(cells, ["kind"], good, given) == [("–", "1/2")]
    assert ask(cells, ["kind"], good, rows({"good": None})) == [("–", "–")]


def test_rows_that_are_skipped() -> None:
    given = rows(
        {"kind": "big", "size": 1}, {"kind": "small", "size": 2}, {"kind": None, "size": 3}
    )
    kept = wanted(TABLE, given, [("kind", ("big",))])
    assert [row[TABLE.position("size")] for row in kept] == [2, 3]
    kept = wanted(TABLE, given, [("kind", ("big",))], [("kind", (None, "big"))])
    assert [row[TABLE.position("size")] for row in kept] == [3]


@pytest.mark.parametrize(
    ("cell", "row", "text"),
    [
        (Cell("kind"), {"kind": "big"}, "big"),
        (Cell("kind", names=(("big", "huge"),)), {"kind": "big"}, "huge"),
        (Cell("kind", names=(("big", "huge"),)), {"kind": "small"}, "small"),
        (Cell("kind"), {}, None),
        (Cell("{size} in {kind}"), {"size": 1536, "kind": "big"}, "1.5 KiB in big"),
        (Cell("{size} in {kind}"), {"size": 1536}, "1.5 KiB in –"),
        (Cell("{size} in {kind}"), {}, None),
        (Cell("{size:,}"), {"size": 1536}, "1,536"),
        (Cell("good"), {"good": False}, "no"),
        (Cell("good", words=("fine", "")), {"good": True}, "fine"),
        (Cell("good", words=("fine", "")), {"good": False}, ""),
        (Cell("name"), {"name": "a\x1b"}, "a\\x1b"),
        (Cell("b{size:d}", blank=(1,)), {"size": 2}, "b2"),
        (Cell("b{size:d}", blank=(1,)), {"size": 1}, None),
        (Cell("{size}→{size_max}", merged=True), {"size": 1, "size_max": 2}, "1 B→2 B"),
        (Cell("{size}→{size_max}", merged=True), {"size": 2, "size_max": 2}, "2 B"),
    ],
)
def test_a_cell_reads_by_the_type_of_its_columns(
    cells: Cells, cell: Cell, row: dict[str, object], text: str | None
) -> None:
    assert cells.reader(TABLE, cell)(rows(row)[0]) == text
