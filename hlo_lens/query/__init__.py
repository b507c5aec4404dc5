"""SQL over the tables of one or more programs, and its answer as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import (
    DEFAULT_ROWS,
    DEFAULT_SECONDS,
    QueryError,
    QueryResult,
    run_query,
)
from hlo_lens.query.render import as_csv, as_json, as_table, print_table

if TYPE_CHECKING:
    from hlo_lens.program import Program

__all__ = [
    "QueryError",
    "QueryResult",
    "as_csv",
    "as_json",
    "as_table",
    "print_table",
    "query",
]


def query(
    programs: Sequence[Program],
    sql: str,
    *,
    limit_seconds: float = DEFAULT_SECONDS,
    limit_rows: int = DEFAULT_ROWS,
) -> QueryResult:
    """Answer one SELECT over the tables of `programs`, with every installed pass.

    `module` counts on through the programs: those of the second follow those of the first. Only
    the tables the query touches are computed. Raises `QueryError` where the query cannot be
    answered.
    """
    facts = [Facts(program) for program in programs]
    return run_query(facts, sql, limit_seconds=limit_seconds, limit_rows=limit_rows)
