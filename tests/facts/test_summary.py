"""How a table is presented is checked when the table is made."""

from __future__ import annotations

import pytest

from hlo_lens.facts import COMMON, Cell, Column, Lane, Measure, Summary, Table, discover_passes

COLUMNS = (
    *COMMON,
    Column("size", "bytes", "measure", "size"),
    Column("good", "bool", "structural", "whether it is good"),
)


def table(summary: Summary) -> Table:
    return Table("things", "a thing", COLUMNS, summary)


def test_a_cell_names_its_columns() -> None:
    assert Cell("phase").columns == ("phase",)
    assert Cell("{size} of {phase:>8}!").parts == (
        ("", "size", ""),
        (" of ", "phase", ">8"),
        ("!", None, ""),
    )


def test_a_cell_without_a_label_is_headed_by_its_text() -> None:
    assert Cell("loop_depth").heading == "loop depth"
    assert Cell("loop_depth", "depth").heading == "depth"


@pytest.mark.parametrize(
    "summary",
    [
        Summary("things", 0, by=(Cell("phases"),)),
        Summary("things", 0, heads=(Cell("{name} {file}"),)),
        Summary("things", 0, by=(Cell("phase"),), measures=(Measure("size", "once", "sizes"),)),
        Summary("things", 0, by=(Cell("phase"),), skip=(("kind", ("a",)),)),
        Summary("things", 0, by=(Cell("phase"),), only=(("kind", ("a",)),)),
        Summary("things", 0, by=(Cell("phase"),), lane=Lane("compute", (Cell("kind"),))),
    ],
)
def test_a_column_that_is_not_there(summary: Summary) -> None:
    with pytest.raises(ValueError, match="its summary shows no column"):
        table(summary)


@pytest.mark.parametrize("measure", [Measure("", "once", "good"), Measure("", "true", "size")])
def test_a_measure_that_does_not_fit_its_column(measure: Measure) -> None:
    with pytest.raises(ValueError, match="table things: "):
        table(Summary("things", 0, by=(Cell("phase"),), measures=(measure,)))


def test_executions_are_needed_to_weigh_by_them() -> None:
    summary = Summary("t", 0, by=(Cell("a"),), measures=(Measure("runs", "executions"),))
    columns = (*COMMON[:2], Column("a", "int", "identity", "a"))
    with pytest.raises(ValueError, match="no column executions"):
        Table("things", "a thing", columns, summary)


def test_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="heads or groups"):
        Summary("things", 0)
    with pytest.raises(ValueError, match="takes a column"):
        Measure("rows", "rows", "size")
    with pytest.raises(ValueError, match="unknown sum"):
        Measure("size", "average", "size")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kind of work"):
        Lane("compute", ())
    with pytest.raises(ValueError, match="of a step"):
        Lane("compute", (Cell("name"),), total=Measure("size", "once", "size"))


def test_the_built_in_summaries_have_an_order_of_their_own() -> None:
    tables = discover_passes(installed=False).tables
    orders = [one.summary.order for one in tables if one.summary is not None]
    assert len(set(orders)) == len(orders) > 0
