"""Judge expectations on a program: what was found, which rows are against it, what nearly was.

SQL knows three truths, and so does a verdict: what is NULL is not judged, unless the rest decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

from hlo_lens.check.counting import Counted, Number, added, counted, rows_text
from hlo_lens.check.model import Expectation, Outcome, Quantity, Verdict
from hlo_lens.check.selection import Selection
from hlo_lens.check.sentences import expected_text, number_text
from hlo_lens.check.telling import against, command_of, nearest_of, offender_of, told_of
from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import Database, QueryError
from hlo_lens.files import InputError
from hlo_lens.present.cells import Cells
from hlo_lens.present.quantities import count_text, visible

_MOST_OFFENDERS: Final = 20


def judge(
    facts: Facts,
    expectations: Iterable[Expectation],
    *,
    mistake: Callable[[InputError], None] | None = None,
    asked: Database | None = None,
) -> list[Verdict]:
    """What came of each expectation on the program of `facts`; `asked` is a database of these alone
    that somebody keeps.

    SQL that cannot be read is a mistake of the file, whatever the program is: it goes to `mistake`,
    and the others are judged; without that, it is raised.
    """
    found: list[Verdict] = []
    with Database((facts,)) if asked is None else nullcontext(asked) as database:
        for one in expectations:
            try:
                found.append(_judged(facts, one, database))
            except InputError as problem:
                if mistake is None:
                    raise
                mistake(problem)
    return found


def _judged(facts: Facts, expected: Expectation, asked: Database) -> Verdict:
    program = facts.program
    module = program.main if expected.stage is None else program.stage(expected.stage)
    if module is None:
        stages = ", ".join(program.stages)
        return _verdict(expected, "not judged", why=f"no stage {expected.stage}; it has {stages}")
    selection = Selection(facts, expected, program.index(module), asked)
    if why := selection.why_not():
        return _verdict(expected, "not judged", why=why)
    try:
        return _of_selection(selection)
    except QueryError as problem:  # takes too long, or is no number: of this program, not the file
        return _verdict(expected, "not judged", why=str(problem))


def _of_selection(selection: Selection) -> Verdict:
    expected = selection.expected
    if not selection.meant and not _empty_is_meant(expected):
        if selection.perhaps:
            return _of_rows(selection, "not judged", "", selection.perhaps)
        outcome: Outcome = "passed" if expected.allow_empty else "failed"
        return _of_rows(selection, outcome, "no row is selected", ())
    if expected.compared is not None:
        return _by_number(selection)
    return _by_condition(selection) if expected.condition else _by_being_there(selection)


def _empty_is_meant(expected: Expectation) -> bool:
    """`none` without a condition, and a count, say themselves how many rows there may be."""
    return expected.quantity == "count" or (expected.quantity == "none" and not expected.condition)


def _by_being_there(selection: Selection) -> Verdict:
    """`any = true` and `none = true`."""
    found = rows_text(len(selection.meant))
    if selection.meant:
        outcome: Outcome = "passed" if selection.expected.quantity == "any" else "failed"
        return _of_rows(selection, outcome, found, selection.meant)
    return _of_rows(
        selection, "not judged" if selection.perhaps else "passed", found, selection.perhaps
    )


def _by_condition(selection: Selection) -> Verdict:
    """`every`, `any` and `none` of a condition."""
    quantity, truths = selection.expected.quantity, selection.truths
    holds = [id for id in selection.meant if truths[id].holds]
    fails = [id for id in selection.meant if truths[id].holds is False]
    # What decides by one row, and the rows of which it is not known whether they are one.
    deciding, decided = {"every": (fails, False), "none": (holds, True), "any": (holds, True)}[
        quantity
    ]
    unsure = [
        id
        for id, truth in truths.items()
        if None in truth and truth.meant is not False and truth.holds is not (not decided)
    ]
    found = _found(quantity, len(fails if quantity == "every" else holds), len(selection.meant))
    if quantity == "any":
        outcome: Outcome = "passed" if holds else "not judged" if unsure else "failed"
        return _of_rows(selection, outcome, found, unsure or fails)
    if deciding:
        return _of_rows(selection, "failed", found, deciding)
    return _of_rows(selection, "not judged" if unsure else "passed", found, unsure)


def _found(quantity: Quantity, count: int, all: int) -> str:
    """`1 of 3 rows breaks it`, or of `any` `2 of 3 rows fulfil it`."""
    number = count_text(count) if count else "none"
    verb = "fulfil" if quantity == "any" else "break"
    return f"{number} of {rows_text(all)} {verb}{'s' if count <= 1 else ''} it"


def _by_number(selection: Selection) -> Verdict:
    """`count`, `sum`, `max` and `min`."""
    compared = selection.expected.compared
    assert compared is not None
    column = selection.expected.column
    shown = None if column is None else selection.table.column(column)
    numbers, left_out = counted(selection)
    if not numbers:
        if selection.expected.quantity != "count":
            empty: Outcome = "passed" if selection.expected.allow_empty else "failed"
            found = f"of {rows_text(len(selection.meant))} none is in a loop"
            return _of_rows(selection, empty, found, selection.meant)
        numbers = [Counted(Number(0, 0), selection.meant)]
    told = [f"{number_text(shown, one.number)}{one.where}" for one in numbers]
    found = "; ".join(filter(None, (*told, left_out)))
    truths = [compared.holds_between(*one.number) for one in numbers]
    fails = [truth is False and one.certain for truth, one in zip(truths, numbers, strict=True)]
    outcome: Outcome = "failed" if any(fails) else "passed" if all(truths) else "not judged"
    if outcome == "passed":
        return replace(_of_rows(selection, outcome, found, ()), remark=left_out)
    first = fails.index(True) if any(fails) else [bool(one) for one in truths].index(False)
    rows = _largest_first(selection, numbers[first].rows)
    if selection.expected.quantity in ("max", "min"):
        rows = [id for id in rows if compared.holds_between(*added(selection, id)) is not True]
    return _of_rows(selection, outcome, found, rows)


def _largest_first(selection: Selection, rows: Sequence[int]) -> Sequence[int]:
    """By what they add to the number; those of which that is not known first."""
    if selection.expected.column is None:
        return rows
    sign = 1 if selection.expected.quantity == "min" else -1

    def order(id: int) -> float:
        low, high = added(selection, id)
        return float("-inf") if high is None else sign * (low + high)

    return sorted(rows, key=order)


# --- verdicts ---------------------------------------------------------------------------------


def _of_rows(selection: Selection, outcome: Outcome, found: str, rows: Sequence[int]) -> Verdict:
    """A verdict with the rows that are against it, and what helps to see why."""
    expected = selection.expected
    if outcome == "passed":
        return _verdict(expected, outcome, found)
    cells, columns = Cells(selection.facts.program), told_of(selection)
    nearest, shown = "", against(expected, outcome)
    if not selection.meant:
        nearest, shown = nearest_of(selection)
    return _verdict(
        expected,
        outcome,
        found,
        why=_why_unsure(selection) if outcome == "not judged" else "",
        offenders=tuple(
            offender_of(selection, cells, columns, id) for id in rows[:_MOST_OFFENDERS]
        ),
        against=len(rows),
        nearest=nearest,
        command=command_of(selection, columns, shown),
        module=selection.position,
    )


def _why_unsure(selection: Selection) -> str:
    expected = selection.expected
    if selection.perhaps:
        where = visible(" ".join(expected.where.split()))
        return (
            f"of {rows_text(len(selection.perhaps))} it is not known whether they are meant: the"
            f" condition is NULL; write ({where}) IS TRUE to leave them out"
        )
    if expected.condition:
        unknown = sum(selection.truths[id].holds is None for id in selection.meant)
        return f"of {rows_text(unknown)} it is not known: the condition is NULL"
    if expected.per == "text":
        values = [selection.records[id][expected.column or ""] for id in selection.meant]
        some = f"{count_text(values.count(None))} of {rows_text(len(values))}"
        return f"{expected.column} of {some} is not known (NULL)"
    return "it is not known how often they run, or what they measure (NULL)"


def _verdict(expected: Expectation, outcome: Outcome, found: str = "", **more: Any) -> Verdict:
    return Verdict(
        expected.id,
        "expectation",
        outcome,
        expected_text(expected),
        found,
        severity=expected.severity,
        because=expected.because,
        place=expected.place,
        table=expected.table,
        **more,
    )
