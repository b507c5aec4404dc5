"""The schema described: every table and column, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hlo_lens.facts.columns import COMMON, ROLE_DOCS, TYPE_DOCS, Column, Table


def as_data(tables: Iterable[Table], version: int) -> dict[str, object]:
    """The schema as JSON holds it: `schema_version` and `tables`, each with its `columns`."""
    return {
        "schema_version": version,
        "tables": [
            {
                "name": table.name,
                "row": table.row,
                "needs_op_names": table.needs_op_names,
                "needs_configs": table.needs_configs,
                "columns": [_column_data(column) for column in table.columns],
            }
            for table in tables
        ],
    }


def as_markdown(tables: Sequence[Table], version: int) -> str:
    """The schema as a page: what types and roles mean, the common columns once, every table."""
    parts = [
        f"# Tables\n\nSchema version {version}. `hlolens schema` prints this page;"
        ' `hlolens query FILE… "SQL"` asks the tables.\n',
        'A row\'s key is `(module, id)`. NULL is "not known", never 0.\n',
        _markdown_words("Type", TYPE_DOCS.items()),
        _markdown_words("Role", ROLE_DOCS.items()),
    ]
    if any(has_common(table) for table in tables):
        parts.append(f"## Common columns\n\n{_markdown_columns(COMMON)}")
    parts.extend(_markdown_table(table) for table in tables)
    return "\n".join(parts)


def has_common(table: Table) -> bool:
    """Whether a table has all the common columns, some perhaps with a meaning of its own."""
    return {column.name for column in COMMON} <= set(table.names)


def own_columns(table: Table) -> tuple[Column, ...]:
    """What a table adds to the common columns or says otherwise; all where it lacks any."""
    if not has_common(table):
        return table.columns
    return tuple(column for column in table.columns if column not in COMMON)


def meaning(column: Column) -> str:
    """A column's doc, with the words of an enum, and what of a text it needs."""
    words = f" ({', '.join(column.values)})" if column.values else ""
    names = "; needs op_names" if column.needs_op_names else ""
    configs = "; needs backend_config" if column.needs_configs else ""
    return f"{column.doc}{words}{names}{configs}"


def _column_data(column: Column) -> dict[str, object]:
    data: dict[str, object] = {
        "name": column.name,
        "type": column.type,
        "role": column.role,
        "unit": column.unit,
        "doc": column.doc,
    }
    if column.values:
        data["values"] = list(column.values)
    needs = {"needs_op_names": column.needs_op_names, "needs_configs": column.needs_configs}
    return data | {key: True for key, value in needs.items() if value}


def _markdown_table(table: Table) -> str:
    also = " Also the common columns." if has_common(table) else ""
    if table.needs_op_names:
        also += " Without op_names it may lack rows."
    if table.needs_configs:
        also += " Without backend_config it may lack rows."
    columns = own_columns(table)
    return f"## {table.name}\n\nA row is {table.row}.{also}\n" + (
        f"\n{_markdown_columns(columns)}" if columns else ""
    )


def _markdown_columns(columns: Iterable[Column]) -> str:
    lines = ["| column | type | role | unit | meaning |", "|---|---|---|---|---|"]
    lines += [
        f"| `{column.name}` | {column.type} | {column.role} | {column.unit or ''} |"
        f" {_markdown_text(meaning(column))} |"
        for column in columns
    ]
    return "\n".join(lines) + "\n"


def _markdown_words(title: str, words: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {title.lower()} | meaning |", "|---|---|"]
    lines += [f"| {word} | {_markdown_text(doc)} |" for word, doc in words]
    return "\n".join(lines) + "\n"


def _markdown_text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
