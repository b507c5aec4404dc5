"""Words in SQL conditions that a column never holds: `phase = 'backward'` would hold of no row.

SQL compares anything with anything, so such a condition is answered, always in the same way.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lens.check.comparing import comparison
from hlo_lens.facts import Column, Table
from hlo_lens.hlo.shape import DTYPE_BITS
from hlo_lens.present.chosen import close

if TYPE_CHECKING:
    from sqlglot import exp

_NUMBERS: Final = frozenset(("int", "float", "bytes", "flops", "bool", "ref"))
_TEXTS: Final = frozenset(("text", "enum", "json", "refs"))
# What SQLite takes for a number where a text is compared with one; Python's float takes more.
_NUMBER: Final = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?\s*", re.ASCII | re.I)
# Without a handler of its own, what a library warns of is written on stderr.
_SILENT: Final = logging.NullHandler()


def mistake_in(condition: str, tables: Sequence[Table]) -> str:
    """What is wrong with the words of a condition, as a sentence; "" where nothing is, or where
    it cannot be told: another reader takes the condition apart than the one that answers it.

    tables: those that the condition reads, that of the expectation first.
    """
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    logging.getLogger("sqlglot").addHandler(_SILENT)
    try:
        # In parentheses it is an expression: what begins as a statement does would not be read.
        tree = parse_one(f"(\n{condition}\n)", read="sqlite")
        return next(_mistakes(tree, tables), "")
    except (SqlglotError, RecursionError):
        return ""


def _mistakes(tree: exp.Expr, tables: Sequence[Table]) -> Iterator[str]:
    for truth in _truths(tree):
        if why := _no_truth(truth, tables):
            yield why
    for compared in _comparisons(tree):
        if compared.literal.is_string and _is_reckoned(compared.side, tables):
            yield f"a number is compared with the text {compared.literal.this!r}"
        columns = list(_columns(compared.side, tables))
        problems = [_problem(column, compared) for column in columns]
        if problems and all(problems):
            yield problems[0]
    for asked in _asked(tree):
        if why := _never(asked, tables):
            yield why


# --- what stands where a condition does ---------------------------------------------------------


def _truths(tree: exp.Expr) -> Iterator[exp.Expr]:
    """What is taken for true or false: all of it, and what AND, OR, NOT and WHERE take."""
    from sqlglot import exp

    yield _bare(tree)
    for node in tree.find_all(exp.And, exp.Or, exp.Not, exp.Where):
        yield _bare(node.this)
        if isinstance(node, exp.Binary):
            yield _bare(node.expression)


def _no_truth(node: exp.Expr, tables: Sequence[Table]) -> str:
    from sqlglot import exp

    if isinstance(node, exp.Literal):
        return f"{node.sql()} stands where a condition does: it is the same for every row"
    if isinstance(node, exp.Column):
        columns = list(_columns(node, tables))
        if columns and all(column.type in _TEXTS for column in columns):
            name = columns[0].name
            return f"{name} is a text, and no text is true: compare it, as in {name} = '…'"
    return ""


# --- what is compared ---------------------------------------------------------------------------


class _Compared(NamedTuple):
    """One side of a comparison, and the literal on the other. equal: whether it is asked whether
    they are equal, and not which is larger. pattern: of LIKE, which does not tell cases apart."""

    side: exp.Expr
    literal: exp.Literal
    equal: bool
    pattern: bool = False


def _comparisons(tree: exp.Expr) -> Iterator[_Compared]:
    from sqlglot import exp

    for node in tree.walk():
        for one, other in _pairs(node):
            yield from _with(one, other, equal=True)
            if isinstance(node, exp.Binary):
                yield from _with(other, one, equal=True)
        if isinstance(node, (exp.GT, exp.GTE, exp.LT, exp.LTE)):
            for one, other in zip(_row(node.this), _row(node.expression), strict=False):
                yield from _with(one, other, equal=False)
                yield from _with(other, one, equal=False)
        elif isinstance(node, exp.Between):
            for value in (node.args["low"], node.args["high"]):
                yield from _with(_bare(node.this), _bare(value), equal=False)
        elif isinstance(node, (exp.Like, exp.Glob)) and not isinstance(node.parent, exp.Escape):
            pattern = _bare(node.expression)
            wild = "%_" if isinstance(node, exp.Like) else "*?["
            if isinstance(pattern, exp.Literal) and not set(wild) & set(pattern.this):
                like = isinstance(node, exp.Like)
                yield from _with(_bare(node.this), pattern, equal=True, pattern=like)


def _with(
    side: exp.Expr, other: exp.Expr, *, equal: bool, pattern: bool = False
) -> Iterator[_Compared]:
    from sqlglot import exp

    if isinstance(other, exp.Literal):
        yield _Compared(side, other, equal, pattern)


def _pairs(node: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """What a node asks whether it is equal: each value of IN and CASE, and rows value by value."""
    from sqlglot import exp

    rows: list[tuple[exp.Expr, exp.Expr]] = []
    if isinstance(node, (exp.EQ, exp.NEQ, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)):
        rows = [(node.this, node.expression)]
    elif isinstance(node, exp.In):
        rows = [(node.this, value) for value in _choices(node)]
    elif isinstance(node, exp.Case) and node.this is not None:
        rows = [(node.this, one.this) for one in node.args["ifs"]]
    for one, other in rows:
        ones, others = _row(one), _row(other)
        if len(ones) == len(others):
            yield from zip(ones, others, strict=True)


def _choices(node: exp.In) -> Iterator[exp.Expr]:
    """The values, or rows of them, that IN lists; none where they are of a table."""
    from sqlglot import exp

    query = node.args.get("query")
    if query is not None and query.find(exp.From, exp.With) is None:
        yield from query.find_all(exp.Select)
    for listed in (*node.expressions, *([query] if query is not None else [])):
        if isinstance(listed := _bare(listed), exp.Values):
            yield from listed.expressions
        elif listed is not query and not isinstance(listed, exp.Query):
            yield listed


def _row(node: exp.Expr) -> list[exp.Expr]:
    from sqlglot import exp

    node = _bare(node)
    if isinstance(node, (exp.Tuple, exp.Select)):
        return [_bare(one) for one in node.expressions]
    return [node]


def _is_reckoned(side: exp.Expr, tables: Sequence[Table]) -> bool:
    """Whether a side is reckoned of numbers: SQLite takes no text for one beside that."""
    from sqlglot import exp

    reckoned = (exp.Abs, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
    return isinstance(side, reckoned) and any(
        column.type in _NUMBERS
        for node in side.find_all(exp.Column)
        for column in _columns(node, tables)
    )


def _bare(node: exp.Expr) -> exp.Expr:
    return node.unnest()


def _columns(side: exp.Expr, tables: Sequence[Table]) -> Iterator[Column]:
    """The columns that a side may be; none where it is something else, or of a table that the
    condition makes itself."""
    from sqlglot import exp

    if not isinstance(side, exp.Column):
        return
    name, of = side.name.lower(), side.table.lower()
    known = {table.name: table for table in tables}
    select = side.find_ancestor(exp.Select)
    while select is not None:
        found: list[Column] = []
        for source in select.find_all(exp.From, exp.Join):
            table = source.this
            if of and table.alias_or_name.lower() != of:
                continue
            if not isinstance(table, exp.Table) or table.name.lower() not in known:
                return  # nobody knows what is in it
            if name in (its := known[table.name.lower()]).names:
                found.append(its.column(name))
        if found or of in {one.alias_or_name.lower() for one in select.find_all(exp.Table)}:
            yield from found
            return
        select = select.find_ancestor(exp.Select)
    if of in ("", tables[0].name) and name in tables[0].names:
        yield tables[0].column(name)


# --- what is asked of the words of one column ---------------------------------------------------


class _Asked(NamedTuple):
    """A smallest part of a condition that is true or false by itself: a node, or two sides and how
    they are compared."""

    sides: tuple[exp.Expr, ...]
    how: type[exp.Binary] | None = None

    def alone(self) -> exp.Expr:
        """The part for itself, outside of the condition."""
        from sqlglot import exp

        sides = [one.copy() for one in self.sides]
        if self.how is None:
            return sides[0]
        one, other = (exp.paren(side) if isinstance(side, exp.Binary) else side for side in sides)
        return self.how(this=one, expression=other)


def _asked(tree: exp.Expr) -> Iterator[_Asked]:
    from sqlglot import exp

    joined = (exp.And, exp.Or, exp.Not, exp.Case, exp.Exists, exp.In)
    truths = list(_truths(tree))
    for node in tree.walk():
        if isinstance(node, (exp.In, exp.Case)):
            yield from (_Asked(pair, exp.EQ) for pair in _pairs(node))
        elif isinstance(node, exp.Binary) and len(pairs := list(_pairs(node))) > 1:
            yield from (_Asked(pair, type(node)) for pair in pairs)
        elif isinstance(node, (exp.Predicate, exp.Escape)):
            if not isinstance(node, exp.Exists) and not isinstance(node.parent, exp.Escape):
                yield _Asked((node,))
        elif isinstance(node, exp.If) and not (
            isinstance(node.parent, exp.Case) and node.parent.this is not None
        ):
            truths.append(_bare(node.this))
    yield from (_Asked((one,)) for one in truths if not isinstance(one, joined))


def _never(asked: _Asked, tables: Sequence[Table]) -> str:
    """What is wrong with a part that asks of one column with known words, and of nothing else, what
    none of them is, whatever functions it asks by; "" for any other."""
    from sqlglot import exp

    texts = [
        one.this for side in asked.sides for one in side.find_all(exp.Literal) if one.is_string
    ]
    named = [one for side in asked.sides for one in side.find_all(exp.Column)]
    found = [list(_columns(one, tables)) for one in named]
    if not texts or not found or not all(found) or any(map(_of_several_rows, asked.sides)):
        return ""
    if len({one.table.lower() for one in named}) > 1:
        return ""  # of two rows, which may have different words
    columns = {column for some in found for column in some}
    words = _words(columns, texts)
    if not words:
        return ""
    part, name = asked.alone(), next(iter(columns)).name
    bare = part.this if isinstance(part, exp.Escape) else part
    denies = isinstance(bare, (exp.NEQ, exp.NullSafeNEQ)) or bool(bare.args.get("negate"))
    if _may_be(part, name, words, wanted=not denies):
        return ""
    values = next(iter(columns)).values
    near = next(filter(None, (close(one, values or tuple(DTYPE_BITS)) for one in texts)), "")
    listed = f"; it is {', '.join(values)}" if values else ""
    of = "every" if denies else "no"
    return f"{part.sql('sqlite')} holds of {of} {name}{near or listed}"


def _of_several_rows(side: exp.Expr) -> bool:
    """Whether more than the one row is looked at: in a table, or by what sums up rows. MAX and MIN
    of several values are of one row."""
    from sqlglot import exp

    return side.find(exp.From, exp.With, exp.Window) is not None or any(
        not (isinstance(one, (exp.Max, exp.Min)) and one.expressions)
        for one in side.find_all(exp.AggFunc)
    )


def _words(columns: Collection[Column], texts: Sequence[str]) -> Sequence[str]:
    """All words that the columns have, () where they are not known or are not the same."""
    first = next(iter(columns))
    if any((one.name, one.values) != (first.name, first.values) for one in columns):
        return ()
    if not first.dtypes:
        return first.values
    if any("," in text for text in texts):
        return ()  # lists of dtypes may be of any length
    known = ("tuple", *DTYPE_BITS)
    named = [one for text in texts for one in re.findall(r"\w+", text) if one in known]
    several = [",".join(one) for one in product(known, known)]
    return (*known, *several, *(f"{one},{one},{one}" for one in known), ",".join(named))


def _may_be(part: exp.Expr, name: str, words: Sequence[str], *, wanted: bool) -> bool:
    """Whether SQLite says what is wanted of the part for a word or for NULL; True, too, where it
    cannot be asked."""
    import sqlite3

    from sqlglot import exp
    from sqlglot.errors import ErrorLevel

    column = exp.column(name, quoted=True)
    bare = part.transform(lambda one: column.copy() if isinstance(one, exp.Column) else one)
    said = bare.sql("sqlite", unsupported_level=ErrorLevel.RAISE)
    try:
        with closing(sqlite3.connect(":memory:")) as asked:
            sql = f'SELECT ({said}) IS {wanted} FROM (SELECT ? AS "{name}")'
            return any(asked.execute(sql, (one,)).fetchone()[0] for one in (*words, None))
    except sqlite3.Error:
        return True


# --- what is wrong with it ----------------------------------------------------------------------


def _problem(column: Column, compared: _Compared) -> str:
    text = str(compared.literal.this)
    if not compared.literal.is_string:
        return _of_a_number(column, text, compared.equal)
    if column.type in _NUMBERS:
        return "" if _NUMBER.fullmatch(text) else _no_number(column, text)
    if not compared.equal:
        return ""
    if column.type == "enum":
        words = [text.lower()] if compared.pattern else [text]
        if not set(words) & set(column.values):
            return f"{column.name} never is {text!r}{_hint(text, column.values)}"
    if column.dtypes and not set(text.split(",")) <= {*DTYPE_BITS, "tuple"}:
        return f"{column.name} never is {text!r}: no dtype of HLO{close(text, tuple(DTYPE_BITS))}"
    return ""


def _hint(text: str, known: Sequence[str]) -> str:
    return close(text, known) or f"; it is {', '.join(known)}"


def _of_a_number(column: Column, number: str, equal: bool) -> str:
    if column.type == "enum" or column.dtypes:
        return f"{column.name} is a text, which no number is"
    if column.type == "bool" and equal and number not in ("0", "1"):
        return f"{column.name} is 0 or 1, never {number}"
    return ""


def _no_number(column: Column, text: str) -> str:
    if column.type == "bool":
        return f"{column.name} is no text: write {column.name}, or NOT {column.name}"
    try:
        value = comparison(text, column).value
    except ValueError:
        return f"{column.name} is a number, which {text!r} is not"
    return f"{column.name} is compared with the text {text!r}; in SQL write the number: {value}"
