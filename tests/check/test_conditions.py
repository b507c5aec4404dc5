"""Conditions of a person: words that are listed elsewhere, and what the parser of SQL says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hlo_lens.check.conditions import columns_read_by
from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import Database, QueryError
from hlo_lens.hlo import parse
from hlo_lens.program import Program

_TEXT = "HloModule m\n\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}\n"


def _read(table: str, condition: str) -> frozenset[tuple[str, str]]:
    facts = Facts(Program([parse(_TEXT)]))
    with Database([facts]) as asked:
        return columns_read_by(condition, table, facts, asked)


@pytest.mark.parametrize(
    ("table", "condition", "says"),
    [
        ("kernels", "family = 'cuDNN'", "family never is 'cuDNN'; did you mean 'cudnn'?"),
        ("custom_calls", "family <> 'CUDNN'", "did you mean 'cudnn'?"),
        ("kernels", "upper(family) = 'cudnn'", "holds of no family; did you mean 'cudnn'?"),
        ("findings", "rule = 'attention-fell-bak'", "did you mean 'attention-fell-back'?"),
        ("findings", "rule LIKE 'atention%'", "rule LIKE 'atention%' holds of no rule"),
        (
            "kernels",
            "EXISTS (SELECT 1 FROM findings WHERE rule = 'attention-fell-bak') AND id >= 0",
            "rule never is",
        ),
    ],
)
def test_words_that_are_listed_elsewhere_are_known(table: str, condition: str, says: str) -> None:
    with pytest.raises(QueryError) as problem:
        _read(table, condition)
    assert says in str(problem.value)


@pytest.mark.parametrize(
    ("table", "condition", "column"),
    [
        ("kernels", "family IN ('cudnn', 'unknown')", "family"),
        ("custom_calls", "family LIKE 'cu%'", "family"),
        ("kernels", "kernel = 'cuDNN'", "kernel"),
        ("findings", "rule IN ('attention-fell-back', 'pass-failed')", "rule"),
        ("findings", "message LIKE '%attention-fell-bak%'", "message"),
    ],
)
def test_words_that_are_there_or_not_listed_are_fine(
    table: str, condition: str, column: str
) -> None:
    assert (table, column) in _read(table, condition)


def test_the_parser_of_sql_says_nothing_to_the_user() -> None:
    # In a process of its own: pytest takes what is logged here.
    script = """
import logging
from hlo_lens.check.literals import mistake_in
from hlo_lens.facts import discover_passes
table = discover_passes().table("collectives")
print(mistake_in("replace(phase, 'x', '') = 'bwd' AND dtype = 'float32'", [table]))
logging.getLogger("sqlglot").warning("of the parser")
logging.getLogger("another").warning("of another")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.startswith("dtype never is 'float32'")
    assert done.stderr == "of another\n"
