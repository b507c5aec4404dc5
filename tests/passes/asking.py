"""SQL over HLO texts and files, with every installed pass: how the tests of passes ask."""

from __future__ import annotations

from pathlib import Path

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load


def ask(text: str, sql: str, *, stage: str | None = None) -> list[tuple[object, ...]]:
    """The rows of `sql` over the tables of one module."""
    program = Program([parse(text)], None if stage is None else [stage])
    return run_query([Facts(program)], sql).rows


def ask_file(path: Path, sql: str) -> list[tuple[object, ...]]:
    """The rows of `sql` over the tables of a file."""
    return run_query([Facts(load(path))], sql).rows


def findings(text: str, table: str) -> list[tuple[str, str]]:
    """(rule, message) of what the pass that owns `table` has to say."""
    facts = Facts(Program([parse(text)]))
    facts.rows(table)
    return [(finding.rule, finding.message) for finding in facts.findings]
