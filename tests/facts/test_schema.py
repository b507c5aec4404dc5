"""The schema as a document: what it says of a table, and that the committed page is up to date."""

from __future__ import annotations

from pathlib import Path

from hlo_lens.facts import COMMON, SCHEMA_VERSION, Column, Table, discover_passes
from hlo_lens.facts.schema import as_data, as_markdown, own_columns

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schema.md"
KINDS = Table(
    "kinds",
    "a kind of thing",
    (
        *COMMON,
        Column("kind", "enum", "identity", "which | kind", values=("a", "b")),
        Column("size", "int", "measure", "how large", unit="elements"),
    ),
)


def test_the_committed_page_is_what_the_passes_say() -> None:
    """`hlolens schema --format markdown -o docs/schema.md` makes it anew."""
    tables = discover_passes(installed=False).tables
    assert PAGE.read_text(encoding="utf-8") == as_markdown(tables, SCHEMA_VERSION)


def test_every_built_in_pass_loads_and_every_table_is_described() -> None:
    registry = discover_passes(installed=False)
    assert registry.findings == ()
    for table in registry.tables:
        assert table.row[0].islower()
        assert all(column.doc for column in table.columns)


def test_common_columns_are_described_once() -> None:
    assert [column.name for column in own_columns(KINDS)] == ["kind", "size"]
    page = as_markdown([KINDS, KINDS], SCHEMA_VERSION)
    assert page.count("innermost source frame") == 1


def test_a_common_column_with_a_meaning_of_its_own_is_described_where_it_has_it() -> None:
    special = Column("source", "text", "volatile", "where the thing is written")
    columns = tuple(special if one.name == "source" else one for one in KINDS.columns)
    table = Table("specials", "a special thing", columns)
    assert [column.name for column in own_columns(table)] == ["source", "kind", "size"]


def test_a_table_in_markdown() -> None:
    page = as_markdown([KINDS], SCHEMA_VERSION)
    assert page.endswith(
        "## kinds\n\nA row is a kind of thing. Also the common columns.\n\n"
        "| column | type | role | unit | meaning |\n|---|---|---|---|---|\n"
        "| `kind` | enum | identity |  | which \\| kind (a, b) |\n"
        "| `size` | int | measure | elements | how large |\n"
    )


def test_a_table_as_data() -> None:
    data = as_data([KINDS], SCHEMA_VERSION)
    assert data["schema_version"] == SCHEMA_VERSION
    [table] = data["tables"]
    assert (table["name"], table["row"]) == ("kinds", "a kind of thing")
    assert table["columns"][-2] == {
        "name": "kind",
        "type": "enum",
        "role": "identity",
        "unit": None,
        "doc": "which | kind",
        "values": ["a", "b"],
    }
