"""Words in SQL conditions that a column never holds: `phase = 'backward'` would hold of no row.

SQL compares anything with anything, so such a condition is answered, always in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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


def mistake_in(condition: str, tables: Sequence[Table]) -> str:
    """What is wrong with the words of a condition, as a sentence; "" where nothing is, or where
    it cannot be told: another reader takes the condition apart than the one that answers it.

    tables: those that the condition reads, that of the expectation first.
    """
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        # In parentheses it is an expression: what begins as a statement does would not be read.
        tree = parse_one(f"(\n{condition}\n)", read="sqlite")
    except (SqlglotError, RecursionError):
        return ""
    return next(_mistakes(tree, tables), "")


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
    for atom in _atoms(tree):
        if why := _never(atom, tables):
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

    equal = (exp.EQ, exp.NEQ, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ)
    order = (exp.GT, exp.GTE, exp.LT, exp.LTE)
    for node in tree.walk():
        if isinstance(node, (*equal, *order)):
            sides = _bare(node.this), _bare(node.expression)
            for one, other in (sides, sides[::-1]):
                yield from _with(one, other, equal=isinstance(node, equal))
        elif isinstance(node, exp.In):
            query = node.args.get("query")
            chosen = query.find(exp.Select) if query is not None else None
            values = chosen.expressions if chosen is not None else node.expressions
            for value in values if chosen is None or chosen.find(exp.From) is None else ():
                yield from _with(_bare(node.this), _bare(value), equal=True)
        elif isinstance(node, exp.Values) and isinstance(node.parent, exp.In):
            for value in node.expressions:
                row = value if len(value.expressions) > 1 else value.expressions[0]
                yield from _with(_bare(node.parent.this), row, equal=True)
        elif isinstance(node, exp.Between):
            for value in (node.args["low"], node.args["high"]):
                yield from _with(_bare(node.this), _bare(value), equal=False)
        elif isinstance(node, exp.Case) and node.this is not None:
            for value in node.args["ifs"]:
                yield from _with(_bare(node.this), _bare(value.this), equal=True)
        elif isinstance(node, (exp.Like, exp.Glob)):
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
    elif isinstance(other, exp.Tuple) and isinstance(side, exp.Tuple):
        for one, value in zip(side.expressions, other.expressions, strict=False):
            yield from _with(_bare(one), _bare(value), equal=equal)


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


def _atoms(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The smallest parts of a condition that are true or false by themselves."""
    from sqlglot import exp

    for truth in _truths(tree):
        if not isinstance(truth, (exp.And, exp.Or, exp.Not, exp.Exists, exp.Case)):
            yield truth


def _never(atom: exp.Expr, tables: Sequence[Table]) -> str:
    """What is wrong with a part that asks of one column with known words, and of nothing else, what
    none of them is, whatever functions it asks by; "" for any other."""
    from sqlglot import exp

    texts = [one.this for one in atom.find_all(exp.Literal) if one.is_string]
    asked = list(atom.find_all(exp.Column))
    if not texts or not asked or atom.find(exp.Select, exp.Subquery) is not None:
        return ""
    columns = [column for one in asked for column in _columns(one, tables)]
    names = {one.name for one in columns}
    words = _words(columns[0], texts) if len(names) == 1 and len(columns) >= len(asked) else ()
    if not words or not all(one.values == columns[0].values for one in columns):
        return ""
    answers = _answers(atom, columns[0].name, words)
    denies = isinstance(atom, (exp.NEQ, exp.NullSafeNEQ)) or bool(atom.args.get("negate"))
    if not answers or (not denies) in answers:
        return ""
    name, of = columns[0].name, "every" if denies else "no"
    near = next(filter(None, (close(one, words) for one in texts)), "")
    listed = f"; it is {', '.join(columns[0].values)}" if columns[0].values else ""
    return f"{atom.sql('sqlite')} holds of {of} {name}{near or listed}"


def _words(column: Column, texts: Sequence[str]) -> Sequence[str]:
    """All words that a column has, () where they are not known; of dtypes each, several, and those
    that a condition names."""
    if not column.dtypes:
        return column.values
    named = [one for one in texts if set(one.split(",")) <= {*DTYPE_BITS}]
    return (*DTYPE_BITS, "tuple", "bf16,f32", "f32,bf16", *named)


def _answers(atom: exp.Expr, name: str, words: Sequence[str]) -> set[bool]:
    """What SQLite says of the part for each word, and for NULL where that is true or false."""
    import sqlite3

    from sqlglot import exp

    bare = atom.transform(lambda one: exp.column(name) if isinstance(one, exp.Column) else one)
    try:
        with sqlite3.connect(":memory:") as asked:
            sql = f'SELECT {bare.sql("sqlite")} FROM (SELECT ? AS "{name}")'
            found = [asked.execute(sql, (word,)).fetchone()[0] for word in (*words, None)]
    except sqlite3.Error:
        return set()
    return {bool(one) for one in found if one is not None}


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
