"""Judge expectations on a program: what was found, which rows are against it, what nearly was."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from hlo_lens.check.model import Expectation, Offender, Outcome, Verdict
from hlo_lens.check.sentences import expected_text, number_text, without_one_part
from hlo_lens.facts import Column, Facts
from hlo_lens.facts.sqlite import QueryError, check_condition, columns_read, run_query
from hlo_lens.files import InputError
from hlo_lens.present.quantities import count_text, visible
from hlo_lens.present.reading import not_read

FROM_METADATA: Final = frozenset(
    ("phase", "phase_from", "op_name", "full_op_name", "source", "remat_label")
)
"""Columns that only op_names and stack frames fill."""

_MOST_OFFENDERS: Final = 20
_ALL: Final = 2**31 - 1


class Number(NamedTuple):
    """A number by its bounds; high None: no bound is known."""

    low: float
    high: float | None

    def plus(self, other: Number) -> Number:
        known = self.high is not None and other.high is not None
        return Number(self.low + other.low, self.high + other.high if known else None)  # type: ignore[operator]


def judge(facts: Facts, expectations: Iterable[Expectation]) -> list[Verdict]:
    """What came of each expectation on the program of `facts`.

    Raises `InputError` for SQL that cannot be read: that is a mistake of the file, whatever the
    program is.
    """
    return [_judged(facts, one) for one in expectations]


def _judged(facts: Facts, expected: Expectation) -> Verdict:
    program = facts.program
    module = program.main if expected.stage is None else program.stage(expected.stage)
    if module is None:
        stages = ", ".join(program.stages)
        return _not_judged(expected, f"it has no stage {expected.stage}, but {stages}")
    selection = _Selection(facts, expected, program.index(module))
    why = selection.why_not()
    return _not_judged(expected, why) if why else selection.verdict()


def _not_judged(expected: Expectation, why: str) -> Verdict:
    return _verdict_on(expected, "not judged", "", why=why)


def _verdict_on(expected: Expectation, outcome: Outcome, found: str, **more: Any) -> Verdict:
    """A verdict that says of itself what the expectation does."""
    return Verdict(
        expected.id,
        "expectation",
        outcome,
        expected_text(expected),
        found,
        severity=expected.severity,
        because=expected.because,
        place=expected.place,
        **more,
    )


class _Selection:
    """The rows that one expectation is about, in one module."""

    def __init__(self, facts: Facts, expected: Expectation, position: int) -> None:
        self.facts = facts
        self.expected = expected
        self.position = position
        self.module = facts.program.modules[position]
        self.table = facts.table(expected.table)

    # --- what can be judged at all ---

    def why_not(self) -> str:
        """Why the expectation cannot be judged here; "" where it can."""
        if (problem := not_read(self.facts, self.table.name)) is not None:
            return problem
        needed = sorted(column for _, column in self.read if column in FROM_METADATA)
        about = self._module_row()
        if about.get("truncated"):
            return "the text is cut off: what stands behind the cut is not known"
        if about.get("has_metadata") == 0 and needed:
            return f"the text has no op_name and no source, which {', '.join(needed)} needs"
        unknown = self._ids("where", null=True)
        if unknown:
            return (
                f"of {count_text(len(unknown))} rows it is not known whether they are meant: "
                f"{visible(self.expected.where)} is NULL"
            )
        return ""

    def _module_row(self) -> Mapping[str, object]:
        rows = self.facts.records_by_module("modules").get(self.position, [{}])
        return rows[0]

    @cached_property
    def read(self) -> frozenset[tuple[str, str]]:
        """(table, column) of what the conditions read."""
        parts = [part for part in (self.expected.where, self.expected.condition) if part]
        found: frozenset[tuple[str, str]] = frozenset()
        try:
            check_condition((self.facts,), self.table.name, *parts)
            for part in parts:
                sql = f'SELECT id FROM "{self.table.name}" WHERE (\n{part}\n)'
                found |= columns_read((self.facts,), sql)
        except QueryError as problem:
            raise self._mistake(problem) from None
        return found

    # --- rows ---

    def _ids(self, which: str, *, null: bool = False) -> list[int]:
        """The rows for which `where` holds, or of which it is not known."""
        condition = self.expected.where
        if not condition:
            return [] if null else list(self.records)
        test = f"(\n{condition}\n) IS NULL" if null else f"(\n{condition}\n)"
        return self._query(test)

    def _query(self, test: str) -> list[int]:
        sql = (
            f'SELECT id FROM "{self.table.name}" WHERE module = {self.position} AND ({test})'
            " ORDER BY id"
        )
        try:
            rows = run_query((self.facts,), sql, limit_rows=_ALL).rows
        except QueryError as problem:
            raise self._mistake(problem) from None
        return [row[0] for row in rows if isinstance(row[0], int)]

    def _mistake(self, problem: QueryError) -> InputError:
        return InputError(self.expected.place or self.expected.id, str(problem))

    @cached_property
    def records(self) -> dict[int, dict[str, object]]:
        """The rows of the table in this module, by id."""
        found = self.facts.records_by_module(self.table.name).get(self.position, [])
        return {id: row for row in found if isinstance(id := row["id"], int)}

    @cached_property
    def selected(self) -> list[int]:
        return self._ids("where")

    # --- verdicts ---

    def verdict(self) -> Verdict:
        """The verdict on what is selected; an empty selection passes only where that is meant."""
        expected = self.expected
        if not self.selected and not expected.allow_empty and not self._empty_is_meant():
            return self._verdict("failed", "no row is selected", ())
        if expected.quantity in ("every", "any", "none"):
            return self._by_condition()
        return self._by_number()

    def _empty_is_meant(self) -> bool:
        """`none` without a condition, and a count, say themselves how many rows there may be."""
        expected = self.expected
        return (expected.quantity == "none" and not expected.condition) or (
            expected.quantity == "count" and expected.per != "loop execution"
        )

    def _by_condition(self) -> Verdict:
        expected = self.expected
        if not expected.condition:
            is_any = expected.quantity == "any"
            return self._verdict(
                "passed" if bool(self.selected) == is_any else "failed",
                f"{count_text(len(self.selected))} rows",
                () if is_any else self.selected,
            )
        chosen = set(self.selected)
        holds = [id for id in self._query(f"(\n{expected.condition}\n)") if id in chosen]
        unknown = [id for id in self._query(f"(\n{expected.condition}\n) IS NULL") if id in chosen]
        against = {
            "every": [id for id in self.selected if id not in {*holds, *unknown}],
            "none": holds,
            "any": [] if holds else [id for id in self.selected if id not in set(unknown)],
        }[expected.quantity]
        found = f"{count_text(len(holds))} of {count_text(len(chosen))} rows fulfil it"
        decided = expected.quantity == "any" and bool(holds)
        failed = bool(against) if expected.quantity != "any" else not holds and not unknown
        if failed:
            return self._verdict("failed", found, against or self.selected)
        if unknown and not decided:
            why = f"of {count_text(len(unknown))} rows it is not known (NULL)"
            return self._verdict("not judged", found, unknown, why=why)
        return self._verdict("passed", found, ())

    def _by_number(self) -> Verdict:
        expected = self.expected
        compared = expected.compared
        assert compared is not None
        numbers = list(self._numbers())
        found = "; ".join(f"{number_text(self.column, n)}{where}" for n, where, _ in numbers)
        against = [ids for n, _, ids in numbers if compared.holds_between(*n) is False]
        open_ones = [ids for n, _, ids in numbers if compared.holds_between(*n) is None]
        if against:
            return self._verdict("failed", found, against[0])
        if open_ones:
            why = "it is not known how often they run, or what they measure (NULL)"
            return self._verdict("not judged", found, open_ones[0], why=why)
        return self._verdict("passed", found or "nothing", ())

    @property
    def column(self) -> Column | None:
        name = self.expected.column
        return None if name is None else self.table.column(name)

    def _numbers(self) -> Iterator[tuple[Number, str, list[int]]]:
        """The number, or that of each loop, with the loop in words and the rows it is of."""
        if self.expected.per != "loop execution":
            yield self._number(self.selected), "", self.selected
            return
        by_loop: dict[object, list[int]] = {}
        for id in self.selected:
            by_loop.setdefault(self.records[id].get("loop"), []).append(id)
        for loop, ids in by_loop.items():
            if isinstance(loop, int):
                name = visible(self.module.instruction(loop).name)
                yield self._number(ids), f" in each iteration of {name}", ids
            else:
                yield Number(0, None), f" of {count_text(len(ids))} rows in no loop", ids

    def _number(self, ids: Sequence[int]) -> Number:
        quantity = self.expected.quantity
        values = [self._value(id) for id in ids]
        if quantity in ("max", "min"):
            choose = max if quantity == "max" else min
            lows = [value.low for value in values] or [0]
            highs = [value.high for value in values if value.high is not None] or [0]
            known = all(value.high is not None for value in values)
            return Number(choose(lows), choose(highs) if known else None)
        total = Number(0, 0)
        for id, value in zip(ids, values, strict=True):
            runs = self._runs(id)
            known = value.high is not None and runs.high is not None
            product = value.high * runs.high if known else None  # type: ignore[operator]
            total = total.plus(Number(value.low * runs.low, product))
        return total

    def _value(self, id: int) -> Number:
        """What a row counts: 1, or the value of the column."""
        name = self.expected.column
        if name is None:
            return Number(1, 1)
        value = self.records[id][name]
        if isinstance(value, (int, float)):
            return Number(value, value)
        return Number(0, None)

    def _runs(self, id: int) -> Number:
        """How often a row counts, by `per`."""
        row = self.records[id]
        if self.expected.per == "text":
            return Number(1, 1)
        low, high = row.get("executions_min"), row.get("executions_max")
        least = float(low) if isinstance(low, int) else 0.0
        most = float(high) if isinstance(high, int) else None
        if self.expected.per == "step":
            return Number(least, most)
        return self._runs_an_iteration(row, least, most)

    def _runs_an_iteration(
        self, row: Mapping[str, object], least: float, most: float | None
    ) -> Number:
        """How often it runs each time the body of its loop does."""
        loop, instr = row.get("loop"), row.get("instr")
        if not isinstance(loop, int) or not isinstance(instr, int):
            return Number(0, None)
        analysis = self.facts.program.analysis(self.module)
        body = next((one.body for one in analysis.loops if one.instr.id == loop), None)
        if body is None:
            return Number(0, None)
        if self.module.instruction(instr).computation is body:
            return Number(1, 1)
        runs = analysis.executions(body).exact
        if runs and least == most:
            return Number(least / runs, least / runs)
        return Number(0, None)

    # --- words ---

    def _verdict(
        self, outcome: Outcome, found: str, against: Sequence[int], *, why: str = ""
    ) -> Verdict:
        failed = outcome != "passed"
        return _verdict_on(
            self.expected,
            outcome,
            found,
            why=why,
            offenders=tuple(map(self._offender, against[:_MOST_OFFENDERS])),
            against=len(against),
            nearest=self._nearest() if failed and not self.selected else "",
            command=self._command() if failed else "",
        )

    def _offender(self, id: int) -> Offender:
        row = self.records[id]
        name, source, line = (row.get(key) for key in ("name", "source", "text_line"))
        read = {column for table, column in self.read if table == self.table.name}
        names = [name for name in self.table.names if name in read - {"id", "module"}]
        if self.expected.column is not None:
            names.append(self.expected.column)
        cells = [f"{one} = {_shown(row[one])}" for one in dict.fromkeys(names)]
        return Offender(
            id,
            name if isinstance(name, str) else None,
            source if isinstance(source, str) else None,
            line if isinstance(line, int) else None,
            ", ".join(cells),
        )

    def _nearest(self) -> str:
        """What would be selected without one part of `where`: the fewest rows, but some."""
        best: tuple[int, str] | None = None
        for part, rest in without_one_part(self.expected.where):
            count = len(self._query(f"(\n{rest}\n)")) if rest else len(self.records)
            if count and (best is None or count < best[0]):
                best = count, part
        if best is None:
            return "" if self.records else f"the table {self.table.name} has no rows here"
        return f"without {visible(best[1])}: {count_text(best[0])} rows"

    def _command(self) -> str:
        shown = [
            name
            for name in ("name", "phase", self.expected.column, "executions", "source")
            if name in self.table.names
        ]
        where = f" AND ({' '.join(self.expected.where.split())})" if self.expected.where else ""
        sql = f"SELECT {', '.join(map(str, shown or ['*']))} FROM {self.table.name}"
        sql += f" WHERE module = {self.position}{where}"
        file = self.module.filename or "FILE"
        return f"hlolens query {shlex.quote(file)} {shlex.quote(sql)}"


def _shown(value: object) -> str:
    return "NULL" if value is None else visible(str(value))
