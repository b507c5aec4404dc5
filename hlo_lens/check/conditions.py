"""SQL conditions that a person wrote, before anything is asked by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo_lens.check.literals import mistake_in
from hlo_lens.facts import FINDINGS, Column, Facts, Table
from hlo_lens.facts.sqlite import Database, QueryError


def columns_read_by(
    condition: str, table: str, facts: Facts, asked: Database
) -> frozenset[tuple[str, str]]:
    """(table, column) of what a condition on the rows of `table` reads.

    Raises `QueryError` with a sentence for one that is none by itself, that reads no column, or
    that compares a column with what it never holds. Computes nothing.
    """
    asked.check_condition(table, condition)
    read = asked.columns_read(f'SELECT 1 FROM "{table}" WHERE (\n{condition}\n)')
    if not any(column for _, column in read):
        raise QueryError("it reads no column: it holds of every row or of none")
    names = dict.fromkeys((table, *(name for name, _ in read)))
    if mistake := mistake_in(condition, [_with_words(facts.table(name), facts) for name in names]):
        raise QueryError(mistake)
    return read


def _with_words(table: Table, facts: Facts) -> Table:
    """The table with all words of the columns for which they are listed elsewhere."""

    def told(column: Column) -> Column:
        words = _listed(table.name, column.name, facts)
        return replace(column, type="enum", values=tuple(words)) if words else column

    return replace(table, columns=tuple(map(told, table.columns)))


def _listed(table: str, column: str, facts: Facts) -> Sequence[str]:
    if (table, column) == (FINDINGS.name, "rule"):
        return tuple(facts.registry.rules)
    if column == "family" and table in ("kernels", "custom_calls"):
        from hlo_lens_passes.kernels import families

        return families()
    return ()


def in_parentheses(condition: str) -> str:
    """As a part of another condition: a comment at its end ends with its line."""
    return f"({condition}\n)" if "--" in condition else f"({condition})"
