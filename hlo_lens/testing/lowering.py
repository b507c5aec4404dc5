"""`assert_lowering`: what is expected of a program, said in Python and judged as `hlolens check`
does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self
from weakref import WeakSet

from hlo_lens.testing.failures import place_of_test, quietly, stated, tell, warn

if TYPE_CHECKING:
    from hlo_lens.check.model import Verdict
    from hlo_lens.facts import Facts, Table
    from hlo_lens.notebook import TableView
    from hlo_lens.program import Program

__tracebackhide__ = True

AnyPath = str | os.PathLike[str]
Find = Callable[[AnyPath], AnyPath]
"""The file that a path means."""

Per = Literal["text", "step", "loop execution"]

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
    return Lowering(program_of(program, _as_is).facts, _as_is)


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

    def __init__(self, facts: Facts, find: Find) -> None:
        self._facts = facts
        self._find = find
        self._is_stated = False
        _begun.add(self)

    def table(self, name: str, *, stage: str | None = None) -> Rows:
        """All rows of a table, of the module that runs or of another `stage`."""
        self._is_stated = True
        found = stated(lambda: self._facts.table(name))
        return Rows(self._facts, self._find, found, (), stage)

    def __getattr__(self, name: str) -> RowsOf:
        """The table of that name, as a method."""
        if name.startswith("_"):
            raise AttributeError(name)
        self._is_stated = True
        known = [one.name for one in self._facts.tables]
        if name not in known:
            raise AttributeError(_no_such(name, known))

        def rows(*kinds: str, stage: str | None = None, **values: object) -> Rows:
            return self.table(name, stage=stage)._of(kinds, values)

        return rows

    def expect(self, file: AnyPath) -> Self:
        """The expectations of a TOML file; one of severity "warning" warns only."""
        from hlo_lens.check.judging import judge
        from hlo_lens.check.reading import read_file

        self._is_stated = True
        facts = self._facts
        path = self._find(file)
        self._tell(lambda: judge(facts, read_file(os.fspath(path), facts.registry)))
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
        from hlo_lens.check.judging import judge
        from hlo_lens.check.reading import expectation

        self._is_stated = True
        facts = self._facts
        line = place_of_test()
        self._tell(lambda: judge(facts, [expectation(given, lambda _: line, facts.registry)]))
        return self

    def _tell(self, verdicts: Callable[[], Iterable[Verdict]]) -> None:
        tell(self._facts, stated(lambda: list(verdicts())))

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
    it, to who reads the failure. Where no row is selected, a statement about rows fails, unless
    `allow_empty`. SQL is SQLite's, on the columns that `hlolens schema` lists.
    """

    def __init__(
        self,
        facts: Facts,
        find: Find,
        table: Table,
        conditions: Sequence[str],
        stage: str | None,
    ) -> None:
        super().__init__(facts, find)
        self._table = table
        self._conditions = tuple(conditions)
        self._stage = stage

    def where(self, condition: str | None = None, /, **values: object) -> Rows:
        """Those of the rows for which an SQL condition holds and whose columns have the values.

            .where("wire_bytes > 1e6", phase="bwd", logical_kind=["all-gather", "all-reduce"])

        A list is any of its values, None is NULL: not known.
        """
        from hlo_lens.facts.sqlite import check_condition
        from hlo_lens.testing.conditions import conditions

        self._is_stated = True
        more = [] if condition is None else [condition]
        stated(lambda: check_condition((self._facts,), self._table.name, *more))
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
        return Rows(self._facts, self._find, self._table, joined, self._stage)

    def count(
        self, number: int | str, *, per: Per = "text", because: str = "", id: str = ""
    ) -> Self:
        """There are so many rows: 4, "<= 4"."""
        return self._state(count=number, per=per, because=because, id=id)

    def every(
        self, condition: str, *, because: str = "", id: str = "", allow_empty: bool = False
    ) -> Self:
        """Every row fulfils an SQL condition."""
        return self._state(every=condition, because=because, id=id, allow_empty=allow_empty)

    def none(
        self,
        condition: str | None = None,
        *,
        because: str = "",
        id: str = "",
        allow_empty: bool = False,
    ) -> Self:
        """No row fulfils an SQL condition; without one, there is no row."""
        said = True if condition is None else condition
        return self._state(none=said, because=because, id=id, allow_empty=allow_empty)

    def any(self, condition: str | None = None, *, because: str = "", id: str = "") -> Self:
        """Some row fulfils an SQL condition; without one, there is a row."""
        said = True if condition is None else condition
        return self._state(any=said, because=because, id=id)

    def sum(
        self,
        column: str,
        is_: float | str,
        *,
        per: Per = "text",
        because: str = "",
        id: str = "",
        allow_empty: bool = False,
    ) -> Self:
        """The sum of a column is as compared: "<= 1.1 GiB"."""
        return self._number("sum", column, is_, per, because, id, allow_empty)

    def max(
        self,
        column: str,
        is_: float | str,
        *,
        because: str = "",
        id: str = "",
        allow_empty: bool = False,
    ) -> Self:
        """The largest value of a column is as compared."""
        return self._number("max", column, is_, "text", because, id, allow_empty)

    def min(
        self,
        column: str,
        is_: float | str,
        *,
        because: str = "",
        id: str = "",
        allow_empty: bool = False,
    ) -> Self:
        """The smallest value of a column is as compared."""
        return self._number("min", column, is_, "text", because, id, allow_empty)

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

    def _number(
        self,
        quantity: str,
        column: str,
        is_: float | str,
        per: Per,
        because: str,
        id: str,
        allow_empty: bool,
    ) -> Self:
        said = {quantity: column, "is": is_}
        return self._state(**said, per=per, because=because, id=id, allow_empty=allow_empty)

    def _state(self, **given: Any) -> Self:
        given |= {"table": self._table.name, "where": self._where(), "stage": self._stage}
        # What is not said is left to the defaults of the file format.
        unsaid = ("", None)
        return self._judged({key: one for key, one in given.items() if one not in unsaid})

    def _where(self) -> str:
        if len(self._conditions) < 2:
            return "".join(self._conditions)
        return " AND ".join(map(_within, self._conditions))


def _within(condition: str) -> str:
    """A condition as one operand of AND; on lines of its own where a comment may end it."""
    if "--" in condition or "/*" in condition:
        return f"(\n{condition}\n)"
    return f"({condition})" if re.search(r"\bOR\b", condition, re.IGNORECASE) else condition


def _no_such(name: str, tables: Sequence[str]) -> str:
    import difflib

    methods = [one for one in dir(Rows) if not one.startswith("_")]
    if name in methods:
        return f"{name} is said of rows; choose a table first: .collectives().{name}(...)"
    close = difflib.get_close_matches(name, [*methods, *tables], n=2)
    hint = f"did you mean {' or '.join(close)}?" if close else f"tables are {', '.join(tables)}"
    return f"no table and no assertion {name}; {hint}"
