"""What a notebook shows: small, whole HTML in which every name of a file stays text."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from hlo_lens.facts import Facts, PassResult
from hlo_lens.facts.sqlite import QueryResult
from hlo_lens.hlo import Module, parse
from hlo_lens.notebook import Tables, findings, table
from hlo_lens.program import Program
from tests.facts import toys
from tests.notebook.programs import FILE_SHOWN, SHOWN, TARGET, program

TAGS = {"div", "span", "strong", "code", "br", "table", "thead", "tbody", "tr", "th", "td"}


def tree(shown: object) -> ElementTree.Element:
    """The HTML of an object, read as XML: what is not well-formed raises."""
    return ElementTree.fromstring(html(shown))


def html(shown: object) -> str:
    made = shown._repr_html_()  # type: ignore[attr-defined]
    assert isinstance(made, str)
    return made


def text(shown: object) -> str:
    return "".join(tree(shown).itertext())


def rows(shown: object) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in tree(shown).iter("tr")]


def instruction(one: Program, name: str) -> object:
    return one.table("instructions").where(name=name)[0].instr


SHOWN_OBJECTS: dict[str, Callable[[Program], object]] = {
    "program": lambda one: one,
    "module": lambda one: one.main,
    "instruction": lambda one: instruction(one, "start"),
    "custom call": lambda one: instruction(one, "cc"),
    "constant": lambda one: instruction(one, "n"),
    "tables": lambda one: one.tables,
    "columns": lambda one: one.tables["collectives"],
    "table": lambda one: one.table("collectives"),
    "table without rows": lambda one: one.table("moe"),
    "chosen rows": lambda one: one.table("custom_calls").where(f"target = '{TARGET}'"),
    "long table": lambda one: one.table("instructions"),
    "row": lambda one: one.table("custom_calls")[0],
    "findings": lambda one: one.findings,
    "query": lambda one: one.query("SELECT op_name, '</td>' AS \"</th>\" FROM instructions"),
}  # fmt: skip


# -- safe and small -------------------------------------------------------------------------------


@pytest.mark.parametrize("what", SHOWN_OBJECTS)
def test_it_is_whole_html_of_harmless_elements(what: str) -> None:
    root = tree(SHOWN_OBJECTS[what](program()))
    assert {element.tag for element in root.iter()} <= TAGS
    for element in root.iter():
        assert element.attrib.keys() <= {"style", "scope", "colspan", "class"}
        if element is not root:
            assert "class" not in element.attrib


@pytest.mark.parametrize("what", SHOWN_OBJECTS)
def test_it_takes_the_colours_of_the_theme(what: str) -> None:
    styles = " ".join(one.get("style", "") for one in tree(SHOWN_OBJECTS[what](program())).iter())
    named = re.findall(r"(?:^|[;\s])((?:background|color)[^;]*)", styles)
    assert set(named) <= {"background:none", "color:inherit"}
    assert "url(" not in styles


@pytest.mark.parametrize("what", SHOWN_OBJECTS)
def test_it_is_small_and_one_thing(what: str) -> None:
    shown = SHOWN_OBJECTS[what](program())
    assert len(html(shown)) < 40_000
    assert "\n" not in html(shown)
    assert "\n" not in repr(shown)


@pytest.mark.parametrize("what", SHOWN_OBJECTS)
def test_dollars_are_no_formula(what: str) -> None:
    assert tree(SHOWN_OBJECTS[what](program())).get("class") == "tex2jax_ignore mathjax_ignore"


def test_hostile_names_stay_text() -> None:
    one = program()
    assert FILE_SHOWN in text(one)
    assert FILE_SHOWN in text(one.main)
    assert ["op_name", SHOWN] in rows(instruction(one, "start"))
    assert TARGET in text(one)
    assert TARGET in text(one.table("custom_calls"))
    assert TARGET in text(one.table("custom_calls")[0])
    assert f"custom_call_target='{TARGET}'" not in text(one)  # it is a value, not a piece of code
    assert [SHOWN, "</td>"] in rows(one.query(
        "SELECT op_name, '</td>' AS \"</th>\" FROM instructions WHERE name = 'start'"
    ))  # fmt: skip


# -- what is said ---------------------------------------------------------------------------------


def test_a_program_shows_the_groups_of_its_tables() -> None:
    one = program()
    said = rows(one)
    assert ["while ×4 · inferred", "1", "1", "36 B", "0 B", ""] in said
    assert any(row[0].startswith("collectives 2 what one device sends") for row in said)
    assert any(row[0] == "while ×4 · other · all-reduce · start-done · f32" for row in said)
    assert "after_optimizations" in text(one)
    assert "program.table('loops')" in text(one)


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    one = program().table("collectives")
    first = next(row for row in tree(one).iter("tr") if row[0].tag == "td")
    heads = list(next(tree(one).iter("tr")))
    side = {
        "".join(head.itertext()): (head.get("style", "")[:16], cell.get("style", "")[:16])
        for head, cell in zip(heads, first, strict=True)
    }
    assert side["wire_bytes"] == ("text-align:right",) * 2
    assert side["name"] == ("text-align:left;",) * 2


def test_many_groups_are_cut_and_how_many_is_said() -> None:
    adds = "\n".join(
        f'  c{at} = f32[{at + 1}]{{0}} custom-call(), custom_call_target="t{at}"'
        for at in range(60)
    )
    one = Program([parse(f"HloModule many, is_scheduled=true\nENTRY main {{\n{adds}\n}}\n")])
    groups = [row for row in rows(one) if "unknown" in row[0] and "t" in row[0]]
    assert 10 <= len(groups) <= 25
    assert f"… {60 - len(groups)} more" in text(one)
    assert f"Left out: {60 - len(groups)} more groups" in text(one)


def test_a_long_table_is_cut_and_what_is_left_out_is_said() -> None:
    table = program().table("instructions")
    assert len(rows(table)) == 1 + 20
    assert f"Left out: {len(table) - 20} rows, " in text(table)
    assert ".to_pandas() has all" in text(table)


def test_the_columns_that_were_asked_for_are_shown() -> None:
    table = program().table("collectives")
    assert "channel_id" not in rows(table)[0]
    asked = table.where("channel_id > 1", regather_of=None)
    assert {"channel_id", "regather_of"} <= set(rows(asked)[0])
    assert text(asked).startswith("collectives 1 of 2 rows where channel_id > 1 and regather_of")


def test_a_row_shows_what_is_known_and_its_members() -> None:
    said = rows(program().table("collectives")[0])
    assert ["executions", "4"] in said
    assert ["loop", "while ×4"] in said
    assert ["done (member)", "%done"] in said
    assert not [row for row in said if row[1] == "–"]


def test_an_instruction_shows_its_neighbours() -> None:
    said = rows(instruction(program(), "start"))
    assert ["operands", "%x"] in said
    assert ["users", "%done"] in said
    assert ["replica_groups", "{{0,1}}"] in said


def test_a_module_shows_its_entry() -> None:
    one = program().main
    assert "scheduled · 4 computations · 23 instructions" in text(one)
    assert ["result", "f32[8]"] in rows(one)


def test_a_query_shows_its_first_rows() -> None:
    many = QueryResult(("n", "x"), [(at, None) for at in range(30)], complete=False)
    assert rows(many)[:2] == [["n", "x"], ["0", "–"]]
    assert len(rows(many)) == 21
    assert "30 rows; the query gave more than its limit; 10 left out" in text(many)


def test_every_table_is_named_with_what_a_row_is() -> None:
    tables = Tables(Facts(toys.program(), [toys.ops()]))
    assert ["ops", "one of the ops", "6"] in rows(tables)


# -- what is broken -------------------------------------------------------------------------------


def fails(program: Program, facts: Facts) -> PassResult:
    raise ZeroDivisionError("<b>by nought</b>")


def test_a_broken_pass_is_a_finding() -> None:
    facts = Facts(toys.program(), [toys.ops(does=fails, rules=())])
    facts.run_all()
    assert "pass ops: ZeroDivisionError: <b>by nought</b>" in text(findings(facts))


def test_a_text_that_stops_in_the_middle_says_so() -> None:
    cut = Program([parse("HloModule cut\nENTRY main {\n  a = f32[2]{0} parameter(0)\n  b = f32[2")])
    assert "truncated" in text(cut.main)
    assert text(cut)


def test_what_cannot_be_shown_says_why_and_raises_nothing() -> None:
    empty = Module("", "empty", {}, "")
    assert text(empty).startswith("Module cannot be shown: IndexError: ")


def test_a_table_is_shown_where_another_pass_is_broken() -> None:
    facts = Facts(toys.program(), [toys.ops(), toys.sums(does=fails)])
    assert rows(table(facts, "ops"))[0][:2] == ["opcode", "is_root"]
