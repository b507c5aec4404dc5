"""Expectations about a program and what came of them, as data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Quantity = Literal["count", "every", "none", "any", "sum", "max", "min"]
Per = Literal["text", "step", "loop execution"]
Severity = Literal["error", "warning"]
Outcome = Literal["passed", "failed", "not judged"]
Kind = Literal["expectation", "baseline", "filecheck"]
Sign = Literal["==", "!=", "<=", ">=", "<", ">"]

QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
PERS: tuple[Per, ...] = get_args(Per)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
SIGNS: Mapping[Sign, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a number is to be: `<= 1.1 GiB`. `text` is as written, `value` in the column's unit."""

    sign: Sign
    value: float
    text: str

    def holds(self, number: float) -> bool:
        return SIGNS[self.sign](number, self.value)

    def holds_between(self, low: float, high: float | None) -> bool | None:
        """Whether it holds of every number from `low` to `high` (None: no bound); None where it
        holds of some of them only."""
        if high is not None and low == high:
            return self.holds(low)
        top = float("inf") if high is None else high
        if self.sign in ("<", "<=", ">", ">="):
            ends = {self.holds(low), self.holds(top)}
            return ends.pop() if len(ends) == 1 else None
        inside = low <= self.value <= top
        return None if inside else self.sign == "!="


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected of the rows of `table` for which the SQL condition `where` holds.

    quantity: `count` of the rows; `every` row, `any` row or `none` fulfils `condition` ("" with
    `none`: there is no such row); `sum`, `max`, `min` of `column`. compared: what the number is to
    be. per: each row counted once (`text`), as often as it runs in one step (`step`), or in one
    execution of the body of the loop it stands in, each loop for itself (`loop execution`).
    allow_empty: an empty selection is fine. stage: of the module; None is the one that runs.
    show: the columns that are told of a row; () for those that the conditions read. place,
    where_place, condition_place: file and line where it, `where` and the condition are written.
    said, if_empty: all this, and what it means that no row is meant, in words, where a preset has
    them.
    """

    id: str
    table: str
    quantity: Quantity
    where: str = ""
    condition: str = ""
    column: str | None = None
    compared: Comparison | None = None
    per: Per = "text"
    because: str = ""
    severity: Severity = "error"
    stage: str | None = None
    allow_empty: bool = False
    show: tuple[str, ...] = ()
    place: str = ""
    where_place: str = ""
    condition_place: str = ""
    said: str = ""
    if_empty: str = ""


@dataclass(frozen=True, slots=True)
class Offender:
    """A row that is against an expectation. `text`: its cells, for people."""

    id: int
    name: str | None
    source: str | None
    text_line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one thing that is expected of a program.

    kind: an expectation, no change against a baseline, or a FileCheck file. expected, found: as
    sentences. why: why it is not judged. because: why one expects it. place: file and line where
    that is written. remark: what is to be known of one that has passed. offenders: the first of the
    rows that are against it, `against` in all.
    nearest: what nearly was the case, "" where nothing helps. command: what shows more. module: the
    position of the one that the rows are of; None: the one that runs. table: that it is about, ""
    for none; stage: of the baseline, where that is not the one that runs.
    """

    id: str
    kind: Kind
    outcome: Outcome
    expected: str
    found: str
    severity: Severity = "error"
    why: str = ""
    remark: str = ""
    because: str = ""
    place: str = ""
    offenders: tuple[Offender, ...] = ()
    against: int = 0
    nearest: str = ""
    command: str = ""
    module: int | None = None
    table: str = ""
    stage: str = ""
