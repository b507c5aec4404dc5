"""The fast path of the reader: text in the form that XLA's printers emit, one instruction a line.

It refuses (returns None) whatever is not plainly in that form, line for line; the full scanner
then reads the same span. Both give the same rows (tested against each other).
"""

from __future__ import annotations

import re
from array import array
from itertools import accumulate, chain, repeat
from operator import ge

from hlo_lens.hlo.attributes import split_attributes
from hlo_lens.hlo.module import Rows

_PARENTHESES = r"\((?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*\)"
_LINE = re.compile(
    r"^  (ROOT )?%?([A-Za-z_][\w.-]*) = (\([^\n]*?\)|[a-z][^\s()=]*(?:\([^\s]*)?) ([a-z][\w-]*)"
    rf"\(([^()\n]*(?:{_PARENTHESES}[^()\n]*)*)\)((?:,[^\n]*(?:\n(?!  )[^\n]+)*)?)\n",
    re.M | re.A,
)
_PERCENT_NAME = re.compile(r"%([\w.-]+)", re.A)
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.A)
_COMMENT = re.compile(r"/\*.*?\*/")

# Their parentheses hold a value, not operands.
_VALUES = frozenset(("constant", "parameter"))


def read_rows(body: str, offset: int, interned: dict[str, str]) -> Rows | None:
    """The rows of a computation body (the lines between the braces), or None to refuse.

    `offset` is that of the body in its text. `interned` makes equal shapes and opcodes of a
    module one object.
    """
    lines = _LINE.findall(body)
    if not lines:
        return None
    starts = None
    if len(lines) != (written := body.count("\n")):
        # A raw configuration may hold line breaks (Pallas kernels on TPU).
        if len(lines) + sum(line[5].count("\n") for line in lines) != written:
            return None
        starts = [offset + match.start() + 2 for match in _LINE.finditer(body)]
    if not _tails_are_whole(body, lines):
        return None
    roots, names, shapes, opcodes, arguments, tails = zip(*lines, strict=True)
    index = dict(zip(names, range(len(names)), strict=True))
    if len(index) != len(names):
        return None
    resolved = _resolve(body, opcodes, arguments, index)
    if resolved is None or roots.count("ROOT ") > 1:
        return None
    intern = interned.setdefault
    return Rows(
        names=names,
        opcodes=tuple(map(intern, opcodes, opcodes)),
        shapes=tuple(map(intern, shapes, shapes)),
        arguments=arguments,
        tails=tails,
        operands=resolved[0],
        bounds=resolved[1],
        root=roots.index("ROOT ") if "ROOT " in roots else len(names) - 1,
        index=index,
        implied=[],
        starts=starts,
    )


def _tails_are_whole(body: str, lines: list[tuple[str, ...]]) -> bool:
    """Whether every tail is attributes alone: no second instruction, no stray line."""
    if body.count(" = ") == len(lines) == body.count("\n"):
        return True
    for line in lines:
        tail = line[5]
        if " = " in tail or "\n" in tail:
            try:
                split_attributes(tail)
            except ValueError:
                return False
    return True


def _resolve(
    body: str, opcodes: tuple[str, ...], arguments: tuple[str, ...], index: dict[str, int]
) -> tuple[array[int], array[int]] | None:
    """Operands as one flat array with the bounds of each instruction, or None to refuse."""
    if "#" in body and any("#" in argument for argument in arguments):
        return None
    if "%" in body:
        # A constant or parameter has no '%' between its parentheses, so it counts zero.
        names = _PERCENT_NAME.findall("\n".join(arguments))
        counts = [argument.count("%") for argument in arguments]
        if not _all_have_percent(opcodes, arguments, counts):
            return None
    else:
        groups = [
            [] if opcode in _VALUES else _plain_names(argument)
            for opcode, argument in zip(opcodes, arguments, strict=True)
        ]
        if None in groups:
            return None
        names = [name for group in groups for name in group or ()]
        counts = [len(group or ()) for group in groups]
    try:
        flat = array("i", map(index.__getitem__, names))
    except KeyError:
        return None
    # An operand must stand in front of its user; the full scanner says where one does not.
    if any(map(ge, flat, chain.from_iterable(map(repeat, range(len(counts)), counts)))):
        return None
    return flat, array("i", accumulate(counts, initial=0))


def _all_have_percent(
    opcodes: tuple[str, ...], arguments: tuple[str, ...], counts: list[int]
) -> bool:
    """Whether no operand is written without '%' (nested operations, mixed spelling, `null`)."""
    for opcode, argument, count in zip(opcodes, arguments, counts, strict=True):
        if count:
            plain = argument[0] == "%" and argument.count(",") == count - 1
            if plain and "(" not in argument:
                continue
            if not _only_percent_names(argument, count):
                return False
        elif argument and opcode not in _VALUES:
            return False
    return True


def _only_percent_names(argument: str, count: int) -> bool:
    """Whether the argument is `shape %name, shape %name` throughout."""
    parts = _COMMENT.sub("", argument).strip().split("%")
    if len(parts) != count + 1:
        return False
    last = len(parts) - 1
    for position, part in enumerate(parts):
        name = _PLAIN_NAME.match(part) if position else None
        if position and name is None:
            return False
        rest = part[name.end() :] if name else part
        if position == last:
            if rest.strip():
                return False
        elif position:
            if not rest.startswith(","):
                return False
            rest = rest[1:]
        if position != last and not _is_shape_or_nothing(rest.strip()):
            return False
    return True


def _is_shape_or_nothing(text: str) -> bool:
    if not text:
        return True
    # Imported here: most dumps have no operand shapes.
    from hlo_lens.hlo.lexer import skip_shape

    try:
        return skip_shape(text, 0) == len(text)
    except ValueError:
        return False


def _plain_names(argument: str) -> list[str] | None:
    """Names of `a, b, /*index=5*/c`, or None where there is more than names."""
    if not argument:
        return []
    text = _COMMENT.sub("", argument) if "/*" in argument else argument
    names = text.split(", ")
    return names if all(map(_PLAIN_NAME.fullmatch, names)) else None
