"""Words in SQL conditions that a column never holds: `phase = 'backward'` would hold of no row.

SQL compares anything with anything, so such a condition is answered, always in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hlo_lens.check.comparing import comparison
from hlo_lens.check.sentences import without_one_part
from hlo_lens.facts import Column, Table
from hlo_lens.hlo.shape import DTYPE_BITS
from hlo_lens.present.chosen import close

_TOKEN: Final = re.compile(
    r"""(?P<blank> \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<text> '(?:[^']|'')*' )
    | (?P<name> (?:[A-Za-z_]\w*|"[^"]*"|`[^`]*`|\[[^\]]*\])
                (?:\s*\.\s*(?:[A-Za-z_]\w*|"[^"]*"|`[^`]*`|\[[^\]]*\]))? )
    | (?P<sign> [<>=!]+ )
    | (?P<other> . )""",
    re.DOTALL | re.VERBOSE,
)
_NUMBERS: Final = frozenset(("int", "float", "bytes", "flops", "bool", "ref"))
_TEXTS: Final = frozenset(("text", "enum", "json", "refs"))
_EQUAL: Final = frozenset(("=", "==", "!=", "<>", "IS", "IS NOT", "IN", "NOT IN"))


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.upper()


class _Compared(NamedTuple):
    """A column, by its table or "" and its name, and a text that it is compared with."""

    table: str
    column: str
    sign: str
    text: str


def mistake_in(condition: str, tables: Sequence[Table]) -> str:
    """What a condition compares a column with that it never holds, as a sentence; "" for nothing.

    tables: those that the condition reads, that of the expectation first.
    """
    for part, _ in without_one_part(condition):
        if word := _bare_text(part, tables):
            return f"{word} is a text, and no text is true: compare it, as in {word} = '…'"
    for compared in _comparisons(condition):
        columns = list(_columns(compared, tables))
        problems = [_problem(column, compared) for column in columns]
        if problems and all(problems):
            return problems[0]
    return ""


def _bare_text(part: str, tables: Sequence[Table]) -> str:
    """A column of text that stands where a condition does, perhaps behind NOT; "" for none."""
    word = re.sub(r"^(?:\s|\(|\bNOT\b)+", "", part, flags=re.IGNORECASE).rstrip(" )\n\t")
    name = _plain(word)
    if word and tables and name in tables[0].names:
        column = tables[0].column(name)
        return name if column.type in _TEXTS else ""
    return ""


def _columns(compared: _Compared, tables: Sequence[Table]) -> Iterator[Column]:
    named = [table for table in tables if table.name == compared.table]
    for table in named or tables:
        if compared.column in table.names:
            yield table.column(compared.column)


def _problem(column: Column, compared: _Compared) -> str:
    text = compared.text
    if column.type in _NUMBERS:
        return "" if _is_number(text) else _no_number(column, text)
    if compared.sign not in _EQUAL:
        return ""
    if column.type == "enum" and text not in column.values:
        return f"{column.name} never is {text!r}{_hint(text, column.values)}"
    if column.dtypes and not set(text.split(",")) <= {*DTYPE_BITS, "tuple"}:
        return f"{column.name} never is {text!r}: no dtype of HLO{close(text, tuple(DTYPE_BITS))}"
    return ""


def _hint(text: str, known: Sequence[str]) -> str:
    return close(text, known) or f"; it is {', '.join(known)}"


def _is_number(text: str) -> bool:
    """Whether SQLite takes the text for a number where it is compared with one."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _no_number(column: Column, text: str) -> str:
    if column.type == "bool":
        return f"{column.name} is no text: write {column.name}, or NOT {column.name}"
    try:
        value = comparison(text, column).value
    except ValueError:
        return f"{column.name} is a number, which {text!r} is not"
    return f"{column.name} is compared with the text {text!r}; in SQL write the number: {value}"


def _comparisons(condition: str) -> Iterator[_Compared]:
    """Each column that is compared with a text, in the simple forms that people write."""
    tokens = [
        _Token(str(match.lastgroup), match[0])
        for match in _TOKEN.finditer(condition)
        if match.lastgroup != "blank"
    ]
    for at, token in enumerate(tokens):
        if token.kind != "name":
            continue
        sign, behind = _sign(tokens, at + 1)
        for text in _texts(tokens, behind) if sign else ():
            yield _Compared(*_parts(token.text), sign, text)
        if at > 1 and tokens[at - 1].kind == "sign" and tokens[at - 2].kind == "text":
            yield _Compared(*_parts(token.text), tokens[at - 1].text, _text_of(tokens[at - 2].text))


def _sign(tokens: Sequence[_Token], at: int) -> tuple[str, int]:
    """How what stands before `at` is compared, "" for not; and where the other side begins."""
    words = [token.word for token in tokens[at : at + 2]]
    for length in (2, 1):
        sign = " ".join(words[:length])
        if len(words) >= length and (
            sign in ("IS NOT", "NOT IN", "IS", "IN") or (length == 1 and tokens[at].kind == "sign")
        ):
            return sign, at + length
    return "", at


def _texts(tokens: Sequence[_Token], at: int) -> Iterator[str]:
    """The text there, or those of a list in parentheses."""
    if at < len(tokens) and tokens[at].text == "(":
        at += 1
        while at + 1 < len(tokens) and tokens[at + 1].text == ",":
            if tokens[at].kind == "text":
                yield _text_of(tokens[at].text)
            at += 2
    joined = at + 1 < len(tokens) and tokens[at + 1].text == "|"  # 'b' || 'wd'
    if at < len(tokens) and tokens[at].kind == "text" and not joined:
        yield _text_of(tokens[at].text)


def _text_of(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


def _parts(name: str) -> tuple[str, str]:
    table, _, column = name.rpartition(".")
    return _plain(table), _plain(column)


def _plain(name: str) -> str:
    return name.strip().strip('"`[]').lower()
