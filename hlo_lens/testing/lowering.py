"""`assert_lowering`: what is expected of a program, said in Python and judged as `hlolens check`
does."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, SupportsFloat, SupportsIndex
from weakref import WeakSet

from hlo_lens.testing.asking import Asked
from hlo_lens.testing.failures import (
    UnknownNameError,
    place_of_test,
    quietly,
    stated,
    tell,
    warn,
)

if TYPE_CHECKING:
    from hlo_lens.check.model import Expectation, Verdict
    from hlo_lens.facts import Table
    from hlo_lens.notebook import TableView
    from hlo_lens.program import Program

__tracebackhide__ = True

AnyPath = str | os.PathLike[str]
Find = Callable[[AnyPath], AnyPath]
"""The file that a path means."""

Per = Literal["text", "step", "loop execution"]

Number = SupportsIndex | SupportsFloat | str
"""A number, numpy's too, or a comparison such as "<= 1.1 GiB"."""

_begun: WeakSet[Lowering] = WeakSet()


class RowsOf(Protocol):
    """A table as a method: `.collectives("all-gather", phase="bwd")`."""

    def __call__(self, *kinds: str, stage: str | None = None, **values: object) -> Rows:
        """The rows of these kinds whose columns have these values; see `Rows.where`."""


def assert_lowering(program: object) -> Lowering:
    """Begin to state what `program` was lowered to; what does not hold raises at once.

        assert_lowering(program).collectives("all-gather", phase="bwd").count(0)

    `program` is a Program, a path (a file or a dump folder), HLO text, or what jax has lowered or
    compiled. Every assertion returns what the next one may be said of.

    Raises `TypeError` for anything else, and for an input that cannot be read as `hlo_lens.load`.
    """
    return Lowering(Asked(program_of(program, _as_is).facts), _as_is)


def _as_is(path: AnyPath) -> AnyPath:
    return path


def program_of(given: object, find: Find) -> Program:
    """The Program that somebody means; `find` gives the file of a path. Raises as
    `assert_lowering`."""
    from hlo_lens.hlo import parse
    from hlo_lens.program import Program, load

    if isinstance(given, Program):
        return given
    if isinstance(given, str) and ("\n" in given or given.startswith("HloModule")):
        return quietly(lambda: Program([parse(given)]))
    if isinstance(given, (str, os.PathLike)):
        return quietly(lambda: load(find(given)))
    if hasattr(given, "runtime_executable") or hasattr(given, "compiler_ir"):
        from hlo_lens.from_jax import from_jax

        return from_jax(given)
    raise TypeError(
        f"no program: {given!r:.80}; give a Program, a path, HLO text, or what "
        "jax.jit(f).lower(...) returns, compiled or not"
    )


def forget() -> None:
    """Do not warn that nothing is stated of what was begun: the test was left before its end."""
    for one in list(_begun):
        one._is_stated = True


class Lowering:
    """A program of which something is stated.

    A table is chosen by `table`, or by its name: `.matmuls(...)` is `.table("matmuls").where(...)`.

    A statement that does not hold raises `LoweringError`, an AssertionError; one that could not be
    judged `NotJudgedError`; one that names what does not exist `ExpectationError`, a ValueError.
    """

    def __init__(self, asked: Asked, find: Find) -> None:
        self._asked = asked
        self._facts = asked.facts
        self._find = find
        self._is_stated = False
        _begun.add(self)

    def table(self, name: str, *, stage: str | None = None) -> Rows:
        """All rows of a table, of the module that runs or of another `stage`."""
        self._is_stated = True
        found = stated(lambda: self._facts.table(name))
        return Rows(self._asked, self._find, found, (), stage)

    def __getattr__(self, name: str) -> RowsOf:
        """The table of that name, as a method."""
        if name.startswith("_"):
            raise AttributeError(name)
        self._is_stated = True
        known = [one.name for one in self._facts.tables]
        if name not in known:
            raise UnknownNameError(place_of_test(), _no_such(name, known))

        def rows(*kinds: str, stage: str | None = None, **values: object) -> Rows:
            return self.table(name, stage=stage)._of(kinds, values)

        return rows

    def expect(self, file: AnyPath) -> Self:
        """The expectations of a TOML file; one of severity "warning" warns only."""
        from hlo_lens.check.reading import read_file

        self._is_stated = True
        path = os.fspath(self._find(file))
        self._tell(lambda: self._judge(read_file(path, self._facts.registry)))
        return self

    def preset(self, name: str, **values: object) -> Self:
        """An expectation that hlolens brings; `values` are its parameters, and what it is to say
        otherwise: `because`, `where`, …"""
        return self._judged({"preset": name, **values})

    def unchanged_from(self, good: object, *, allow: Iterable[str] = ()) -> Self:
        """Nothing differs from `good`, a program as `assert_lowering` takes it, but for what
        `allow` names: "TABLE", or "TABLE:COLUMN,…"."""
        from hlo_lens.check.baseline import allowed_change, unchanged

        self._is_stated = True
        facts = self._facts
        if isinstance(allow, str):
            allow = (allow,)
        before = program_of(good, self._find).facts
        meant = stated(lambda: [allowed_change(one, facts.registry) for one in allow])
        self._tell(lambda: unchanged(before, facts, meant))
        return self

    def filecheck(self, file: AnyPath) -> Self:
        """The CHECK lines of a file hold of the text in canonical form."""
        from hlo_lens.check.filechecking import file_checked

        self._is_stated = True
        path = self._find(file)
        self._tell(lambda: [file_checked(self._facts, os.fspath(path))])
        return self

    def _judged(self, given: dict[str, Any]) -> Self:
        """State one expectation, in the words of the file format."""
        from hlo_lens.check.reading import expectation

        self._is_stated = True
        line = place_of_test()
        said = {key: _in_words_of_the_format(value) for key, value in given.items()}
        self._tell(
            lambda: self._judge([expectation(said, lambda _: line, self._facts.registry)]),
            have_names="id" in given or "preset" in given,
        )
        return self

    def _judge(self, expectations: Sequence[Expectation]) -> list[Verdict]:
        from hlo_lens.check.judging import judge

        with self._asked.database() as database:
            return judge(self._facts, expectations, asked=database)

    def _tell(self, verdicts: Callable[[], Iterable[Verdict]], *, have_names: bool = True) -> None:
        tell(self._facts, stated(lambda: list(verdicts())), have_names=have_names)

    def __deepcopy__(self, _: object) -> Self:
        return self  # nothing in it changes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._facts.program!r}>"

    def __del__(self) -> None:
        # Like a coroutine that nobody awaited: a test which looks as if it asserted something.
        if not self.__dict__.get("_is_stated", True):
            warn(f"nothing is stated of {self!r}; end with .count(0) or the like")


class Rows(Lowering):
    """The rows of a table for which some conditions hold, of which something is stated.

    `per` says what a row counts: once ("text"), as often as it runs in a step ("step"), or in one
    iteration of its loop, each loop for itself ("loop execution"). `because` says why one expects
    it, to who reads the failure; `show` are the columns that are told there of a row. Where no row
    is selected, a statement about rows fails, unless `allow_empty`. SQL is SQLite's, on the columns
    that `hlolens schema` lists.
    """

    def __init__(
        self,
        asked: Asked,
        find: Find,
        table: Table,
        conditions: Sequence[str],
        stage: str | None,
    ) -> None:
        super().__init__(asked, find)
        self._table = table
        self._conditions = tuple(conditions)
        self._stage = stage

    def where(self, condition: str | None = None, /, **values: object) -> Rows:
        """Those of the rows for which an SQL condition holds and whose columns have the values.

            .where("wire_bytes > 1e6", phase="bwd", logical_kind=["all-gather", "all-reduce"])

        A list is any of its values, None is NULL: not known.
        """
        from hlo_lens.testing.conditions import conditions

        self._is_stated = True
        more = [] if condition is None else [condition]
        if condition is not None:
            with self._asked.database() as database:
                stated(lambda: database.check_condition(self._table.name, condition))
        more += stated(lambda: conditions(self._table, values))
        return self._with(more)

    def _of(self, kinds: tuple[str, ...], values: dict[str, object]) -> Rows:
        from hlo_lens.testing.conditions import conditions
        from hlo_lens.testing.conditions import kinds as of_kinds

        self._is_stated = True
        more = stated(lambda: [*of_kinds(self._table, kinds), *conditions(self._table, values)])
        return self._with(more)

    def _with(self, conditions: Sequence[str]) -> Rows:
        joined = (*self._conditions, *conditions)
        return Rows(self._asked, self._find, self._table, joined, self._stage)

    def count(
        self,
        number: SupportsIndex | str,
        *,
        per: Per = "text",
        because: str = "",
        id: str = "",
        show: Sequence[str] = (),
    ) -> Self:
        """There are so many rows: 4, "<= 4"."""
        return self._state(count=number, per=per, because=because, id=id, show=show)

    def every(
        self,
        condition: str,
        *,
        because: str = "",
        id: str = "",
        show: Sequence[str] = (),
        allow_empty: bool = False,
    ) -> Self:
        """Every row fulfils an SQL condition."""
        said = {"every": condition, "allow_empty": allow_empty}
        return self._state(**said, because=because, id=id, show=show)

    def none(
        self,
        condition: str | None = None,
        *,
        because: str = "",
        id: str = "",
        show: Sequence[str] = (),
        allow_empty: bool = False,
    ) -> Self:
        """No row fulfils an SQL condition; without one, there is no row."""
        said = {"none": True if condition is None else condition, "allow_empty": allow_empty}
        return self._state(**said, because=because, id=id, show=show)

    def any(
        self,
        condition: str | None = None,
        *,
        because: str = "",
        id: str = "",
        show: Sequence[str] = (),
    ) -> Self:
        """Some row fulfils an SQL condition; without one, there is a row."""
        said = True if condition is None else condition
        return self._state(any=said, because=because, id=id, show=show)

    def sum(
        self,
        column: str,
        is_: Number,
        *,
        per: Per = "text",
        because: str = "",
        id: str = "",
        show: Sequence[str] = (),
        allow_empty: bool = False,
    ) -> Self:
        """The sum of a column is as compared: "<= 1.1 GiB"."""
        said = {"sum": column, "is": is_, "allow_empty": allow_empty}
        return self._state(**said, per=per, because=because, id=id, show=show)

    def max(
        self,
        column: str,
        is_: Number,
        *,
        because: str = "",
        id: str = "",
        show: Sequence[str] = (),
        allow_empty: bool = False,
    ) -> Self:
        """The largest value of a column is as compared."""
        said = {"max": column, "is": is_, "allow_empty": allow_empty}
        return self._state(**said, because=because, id=id, show=show)

    def min(
        self,
        column: str,
        is_: Number,
        *,
        because: str = "",
        id: str = "",
        show: Sequence[str] = (),
        allow_empty: bool = False,
    ) -> Self:
        """The smallest value of a column is as compared."""
        said = {"min": column, "is": is_, "allow_empty": allow_empty}
        return self._state(**said, because=because, id=id, show=show)

    def rows(self) -> TableView:
        """The rows themselves, for assertions of one's own: `[row["source"] for row in …]`.

        Raises `NotJudgedError` where it is not known which they are.
        """
        self._state(count=">= 0")  # there is such a stage, and the table can be read
        program = self._facts.program
        module = program.main if self._stage is None else program.stage(self._stage)
        assert module is not None
        condition = self._where()
        view = program.table(self._table.name).where(module=program.index(module))
        view = view.where(condition) if condition else view
        self._state(count=len(view))  # not judged where the condition is NULL of some
        return view

    def _state(self, **given: Any) -> Self:
        given |= {"table": self._table.name, "where": self._where(), "stage": self._stage}
        if isinstance(given.get("show"), str):
            given["show"] = (given["show"],)
        return self._judged({key: one for key, one in given.items() if _is_said(one)})

    def _where(self) -> str:
        if len(self._conditions) < 2:
            return "".join(self._conditions)
        return " AND ".join(map(_within, self._conditions))


def _within(condition: str) -> str:
    """A condition as one operand of AND; on lines of its own where a comment may end it."""
    if "--" in condition or "/*" in condition:
        return f"(\n{condition}\n)"
    return f"({condition})" if re.search(r"\bOR\b", condition, re.IGNORECASE) else condition


def _is_said(value: object) -> bool:
    """Whether it is not left to the defaults of the file format."""
    return value is not None and not (isinstance(value, (str, tuple)) and not value)


def _in_words_of_the_format(value: object) -> object:
    """A number of any kind, numpy's too, as Python's own; several columns as a list."""
    if isinstance(value, (str, bool)):
        return value
    if isinstance(value, tuple):
        return list(value)
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return float(value) if isinstance(value, Real) else value


def _no_such(name: str, tables: Sequence[str]) -> str:
    import difflib

    methods = [one for one in dir(Rows) if not one.startswith("_")]
    if name in methods:
        return f"{name} is said of rows; choose a table first: .collectives().{name}(...)"
    close = difflib.get_close_matches(name, [*methods, *tables], n=2)
    hint = f"did you mean {' or '.join(close)}?" if close else f"tables are {', '.join(tables)}"
    return f"no table and no assertion {name}; {hint}"
