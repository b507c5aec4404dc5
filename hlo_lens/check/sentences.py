"""Expectations and what was found, in words; and SQL conditions taken apart at their ANDs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens.check.model import Expectation
from hlo_lens.facts import Column
from hlo_lens.present.quantities import bytes_text, flops_text, visible

if TYPE_CHECKING:
    from hlo_lens.check.counting import Number

_SQL: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+|\S", re.DOTALL)


def expected_text(expected: Expectation) -> str:
    """What is expected, in the words of the file: `collectives where …: count == 1 per step`; of a
    preset in its own."""
    if expected.said:
        return visible(expected.said)
    where = f" where {visible(' '.join(expected.where.split()))}" if expected.where else ""
    rows = f"{expected.table}{where}"
    if expected.compared is None:
        condition = visible(" ".join(expected.condition.split())) or "at all"
        return f"{rows}: {expected.quantity} {condition}"
    of = f" of {expected.column}" if expected.column else ""
    per = "" if expected.per == "text" else f" per {expected.per}"
    return f"{rows}: {expected.quantity}{of} {expected.compared.text}{per}"


def number_text(column: Column | None, number: Number) -> str:
    """A number with its unit, exact beside the rounded one; bounds where it is not known."""
    low, high = number
    if low == -math.inf:
        return "not known" if high is None else f"at most {_one(column, high)}"
    if high is None:
        return f"at least {_one(column, low)}" if low else "not known"
    if low == high:
        return _one(column, low)
    return f"{_one(column, low)} to {_one(column, high)}"


def _one(column: Column | None, value: float) -> str:
    plain = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
    if column is not None and column.type == "bytes" and value >= 1024:
        return f"{bytes_text(int(value))} ({plain} B)"
    if column is not None and column.type == "flops" and value >= 1000:
        return f"{flops_text(value)} ({plain})"
    return plain


def without_one_part(condition: str) -> Iterator[tuple[str, str]]:
    """(part, the rest) for each part of a condition that AND joins at its top; the rest is "" where
    there is one part."""
    parts = _parts(condition)
    for at, part in enumerate(parts):
        yield part, " AND ".join(f"({one})" for one in [*parts[:at], *parts[at + 1 :]])


def _parts(condition: str) -> list[str]:
    """The operands of the ANDs that stand in no parentheses, and belong to no BETWEEN or CASE."""
    parts, start, depth, between = [], 0, 0, False
    for match in _SQL.finditer(condition):
        word = match[0].upper()
        if word in ("(", "CASE"):
            depth += 1
        elif word in (")", "END"):
            depth -= 1
        elif word == "OR" and not depth:
            return [condition.strip()]
        elif word == "BETWEEN" and not depth:
            between = True
        elif word == "AND" and not depth:
            if between:
                between = False
                continue
            parts.append(condition[start : match.start()].strip())
            start = match.end()
    parts.append(condition[start:].strip())
    return [part for part in parts if part]
