"""How tables, rows, findings and answers of queries show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from hlo_lens.facts import COMMON, FINDINGS, Table
from hlo_lens.notebook import html
from hlo_lens.notebook.html import MOST_ROWS, never_raising
from hlo_lens.notebook.shown_hlo import names_text
from hlo_lens.present.cells import Cells
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import UNKNOWN, count_text

if TYPE_CHECKING:
    from hlo_lens.facts.sqlite import QueryResult
    from hlo_lens.hlo import Instruction
    from hlo_lens.notebook.table import TableRow, TableView, Values
    from hlo_lens.program import Program

_NUMBERS = frozenset(("int", "float", "bytes", "flops"))
_HEADED = frozenset(("module", "id", "name"))  # of a row, said in its first line
_MOST_COLUMNS = 9
_LONGEST_MESSAGE = 500  # characters


@never_raising
def table_html(view: TableView, rows: Sequence[Values], program: Program) -> str:
    """The first rows, of the columns a reader looks for first. Runs no pass."""
    schema = view.schema
    shown = rows[:MOST_ROWS]
    if schema == FINDINGS:
        return _findings_html(view, program)
    names = _columns_shown(schema, shown, view.asked)
    head = f"{html.strong(html.text(view.name))} {html.dim(html.text(view.summary, 300))}"
    left = []
    if len(rows) > len(shown):
        left.append(f"{count_text(len(rows) - len(shown))} rows")
    if rows:
        left.append(f"{len(schema.columns) - len(names)} columns")
    see = (
        f"Left out: {', '.join(left)}. {html.code('.to_pandas()')} has all;"
        f" {html.code('.columns')} says what they mean"
    )
    return html.outer(
        head,
        html.dim(html.text(f"a row is {schema.row}", 300)),
        _table(schema, names, shown, program) if rows else "",
        html.dim(see) if rows else "",
    )


def _findings_html(view: TableView, program: Program) -> str:
    left = len(view) - MOST_ROWS
    see = f"Left out: {count_text(left)} findings; {html.code('.to_pandas()')} has all"
    return html.outer(
        f"{html.strong('findings')} {html.dim(html.text(view.summary, 300))}",
        findings_table(view[:MOST_ROWS], program),
        html.dim(see) if left > 0 else "",
    )


def _table(schema: Table, names: Sequence[str], rows: Sequence[Values], program: Program) -> str:
    cells = Cells(program)
    columns = [schema.column(name) for name in names]
    module = schema.position("module")
    places = [schema.position(name) for name in names]
    return html.grid(
        [Column(column.name, right=column.type in _NUMBERS) for column in columns],
        (
            [
                cells.text(column, row[at], row[module])
                for column, at in zip(columns, places, strict=True)
            ]
            for row in rows
        ),
    )


def _columns_shown(schema: Table, rows: Sequence[Values], asked: Sequence[str]) -> list[str]:
    """The columns that say something of these rows, those first that a reader looks for."""
    names = [
        name
        for name in _by_weight(schema, asked)
        if name in asked or any(row[schema.position(name)] is not None for row in rows)
    ]
    return names[: max(_MOST_COLUMNS, len(asked) + 1)]


def _by_weight(schema: Table, asked: Iterable[str]) -> list[str]:
    """The columns: the name, what was asked for, what the summary shows, the table's own, those
    that tables share. Last what is long (JSON, lists of ids) or only a number of a row."""
    summary = schema.summary
    wanted = ["name", *asked]
    if summary is not None:
        cells = [*summary.heads, *summary.by]
        wanted += [name for cell in cells for name in cell.columns]
        wanted += [one.column for one in summary.measures if one.column is not None]
        wanted += ["executions", "source"]
    short = [one for one in schema.columns if one.type not in ("json", "refs", "ref")]
    own = [one.name for one in short if one not in COMMON and one.name not in ("module", "id")]
    wanted += [*own, "phase", "executions", "source"]
    wanted += [one.name for one in short if one.name not in ("module", "id")]
    return [name for name in dict.fromkeys((*wanted, *schema.names)) if name in schema.names]


@never_raising
def row_html(row: TableRow, values: Values, program: Program) -> str:
    """The columns that are known, and the instructions that make up the row."""
    schema = row.schema
    named = zip(schema.names, values, strict=True)
    known = {name: value for name, value in named if value is not None}
    shown = [name for name in _by_weight(schema, ()) if name in known and name not in _HEADED]
    shown = shown[:MOST_ROWS]
    cells = Cells(program)
    lines = [
        (name, html.text(cells.text(schema.column(name), known[name], known.get("module"))))
        for name in shown
    ]
    roles: dict[str, list[Instruction]] = {}
    for role, instruction in row.members:
        roles.setdefault(role, []).append(instruction)
    lines += [(f"{role} (member)", names_text(of)) for role, of in islice(roles.items(), MOST_ROWS)]
    left = len(known.keys() - _HEADED) - len(shown)
    see = (
        f"Left out: {left} columns and those not known. "
        if left
        else "Left out: what is not known. "
    )
    about = f"row {row['id']} of {schema.name}: {schema.row}"
    return html.outer(
        html.head(row.name or schema.name, None, (about,)),
        html.pairs(lines),
        html.dim(f"{see}{html.code('dict(row)')} has all"),
    )


def tables_html(tables: Sequence[Table]) -> str:
    """Every table's name and what a row is."""
    columns = (Column("table"), Column("a row is"), Column("columns", right=True))
    lines = [(one.name, one.row, str(len(one.columns))) for one in tables]
    see = (
        f"{html.code('program.table(NAME)')} computes one;"
        f" {html.code('program.tables[NAME]')} says what its columns mean"
    )
    return html.outer(html.grid(columns, lines, most=300), html.dim(see))


def columns_html(schema: Table) -> str:
    """Every column of a table, with what it means."""
    from hlo_lens.facts.schema import meaning

    columns = (Column("column"), Column("type"), Column("unit"), Column("meaning"))
    lines = [(one.name, one.type, one.unit or "", meaning(one)) for one in schema.columns]
    head = f"{html.strong(html.text(schema.name))} {html.text(f'a row is {schema.row}', 300)}"
    return html.outer(head, html.grid(columns, lines, most=600))


@never_raising
def query_html(result: QueryResult) -> str:
    """The first rows of a query's answer."""
    shown = result.rows[:MOST_ROWS]
    columns = [
        Column(name, right={type(row[at]) for row in result.rows} - {type(None)} <= {int, float})
        for at, name in enumerate(result.columns)
    ]
    left = len(result.rows) - len(shown)
    many = f"{count_text(len(result.rows))} row{'s' * (len(result.rows) != 1)}"
    cut = "" if result.complete else "; the query gave more than its limit"
    see = f"; {count_text(left)} left out, {html.code('.to_pandas()')} has all" if left else ""
    return html.outer(
        html.grid(columns, ([_query_text(value) for value in row] for row in shown)),
        html.dim(many + cut + see),
    )


def _query_text(value: object) -> str:
    if value is None:
        return UNKNOWN
    return value.hex() if isinstance(value, bytes) else str(value)


def findings_table(rows: Iterable[TableRow], program: Program) -> str:
    """Findings in full, a line of a table each: weight, what there is to say, where, what to do."""
    body = []
    for row in rows:
        said = f"{html.code(str(row['rule']))} {html.text(str(row['message']), _LONGEST_MESSAGE)}"
        below = [" · ".join(_place(row, program))]
        below += [f"help: {row['help']}"] if row["help"] else []
        said += "".join(f"<br/>{html.dim(html.text(text, 500))}" for text in below if text)
        level = html.strong(html.text(str(row["level"])))
        body.append(html.row((html.cell(level, head="row"), html.cell(said))))
    return html.table(f"<tbody>{''.join(body)}</tbody>") if body else html.dim("no findings")


def _place(row: TableRow, program: Program) -> Iterator[str]:
    """Where a finding is, as far as that is known; the stage where there are several."""
    module, line = row["module"], row["text_line"]
    if isinstance(module, int) and len(program.modules) > 1:
        yield program.stages[module]
    yield from (str(row[name]) for name in ("name", "source") if row[name] is not None)
    if line is not None:
        yield f"line {line} of the text"
