"""The fast path of the reader: text in the form that XLA's printers emit, one instruction a line.

A chunk of whole computations is taken apart by one regular expression. Whatever is not plainly in
printed form, line for line, is refused, and the full scanner reads that computation instead. Both
give the same rows (tested against each other).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, count, repeat
from operator import and_, contains, eq, gt, itemgetter, ne, sub

from hlo_lens.hlo.errors import HloParseError
from hlo_lens.hlo.lexer import skip_shape, skip_space
from hlo_lens.hlo.rows import Rows
from hlo_lens.hlo.scanner import Scanner

CHUNK = 1 << 20
"""Characters a chunk holds at least, so that what is made in passing stays small."""

_NAME = r"%?([A-Za-z_][\w.-]*+)"
_PARENTHESES = r"\((?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*\)"
_ROW = re.compile(
    # An instruction. A raw configuration may hold line breaks (Pallas kernels on TPU), and then
    # a line may begin with '}' but goes on behind it.
    rf"^(?:  (ROOT )?{_NAME} = (\((?:[^\n)]*\))+?|[a-z]\w*+\[\S*+) ([a-z][\w-]*)"
    rf"\(([^()\n]*+(?:{_PARENTHESES}[^()\n]*+)*+)\)"
    r"(,[^\n]*+(?:\n(?!  |\}[ \n]|\}, e)[^\n]++)*+|)"
    # The first and the last line of a computation.
    rf"|(ENTRY )?{_NAME} (?:(?=[^\n]* \{{$)\([^\n]*\) -> [^\n]* )?(\{{)"
    r'|\}(?:, execution_thread="([^"\\\n]*)")?(?: // [^\n]*)?)(\n+|\Z)',
    re.M | re.A,
)
_STRIDE = _ROW.groups + 1
_PERCENT_NAME = re.compile(r"%([\w.-]+)", re.A)
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.A)
_COMMENT = re.compile(r"/\*.*?\*/")

# What a second instruction behind the attributes of a first one looks like.
_SECOND = re.compile(r"[\s}]%?[\w.-]+ = (?:\(|[a-z][\w-]*[\[(])", re.A)

# Behind one of these a value or an attribute is still to come.
_OPEN_ENDS = frozenset(",={([ \t\r")

# Their parentheses hold a value, not operands.
_VALUES = frozenset(("constant", "parameter"))


@dataclass(slots=True)
class Chunk:
    """Columns of consecutive computations, the lines that open and close them included."""

    names: list[str]
    shapes: list[str]
    opcodes: list[str]
    arguments: list[str]
    tails: list[str]
    operands: tuple[int, ...]
    bounds: list[int]
    roots: list[int]
    spans: list[tuple[int, int]]
    headers: list[tuple[str, bool, str | None]]
    ends: list[str]
    text: str
    start: int
    end: int
    _lines: Sequence[int] | None = None

    @property
    def lines(self) -> Sequence[int]:
        """The 1-based line of every row, counted when first asked for."""
        if self._lines is None:
            heights = list(map(len, self.ends))
            if sum(heights) != self.text.count("\n", self.start, self.end):
                for row, tail in enumerate(self.tails):
                    if tail and "\n" in tail:
                        heights[row] += tail.count("\n")
            first = self.text.count("\n", 0, self.start) + 1
            self._lines = array("i", accumulate(heights, initial=first))
        return self._lines

    def cut(self, start: int) -> Rows:
        """The columns of the computation whose first row is `start`, by themselves."""
        number = bisect_left(self.spans, (start, start))
        stop = self.spans[number][1]
        return Rows(
            names=self.names[start:stop],
            opcodes=self.opcodes[start:stop],
            shapes=self.shapes[start:stop],
            arguments=self.arguments[start:stop],
            tails=self.tails[start:stop],
            operands=self.operands,
            bounds=self.bounds[start : stop + 1],
            root=self.roots[number] - start,
            implied=[],
            lines=self.lines[start:stop],
        )


def read_chunk(text: str, start: int, end: int, interned: dict[str, str]) -> Chunk | None:
    """The computations of `text[start:end]`, or None to refuse.

    `interned` makes equal shapes and opcodes of a module one object.
    """
    # One flat list, no object a match: between matches lies what the pattern did not take.
    parts = _ROW.split(text[start:end])
    if len(parts) == 1 or any(parts[::_STRIDE]):
        return None
    roots, names, shapes, opcodes, arguments, tails, entries, titles, opens, threads, ends = (
        parts[group::_STRIDE] for group in range(1, _STRIDE)
    )
    del parts
    opened = list(compress(range(len(names)), opens))
    closed = [*(i - 1 for i in opened[1:]), len(names) - 1]
    marked = list(compress(range(len(names)), roots))
    if not _are_computations(names, opens, opened, closed, marked):
        return None
    spans = [(i + 1, j) for i, j in zip(opened, closed, strict=True)]
    if not _tails_are_whole(text, start, end, tails, closed):
        return None
    for i in chain(opened, closed):
        arguments[i] = ""
    resolved = _resolve(names, opcodes, arguments, spans)
    if resolved is None:
        return None
    intern = interned.setdefault
    return Chunk(
        names=names,
        shapes=list(map(intern, shapes, shapes)),
        opcodes=list(map(intern, opcodes, opcodes)),
        arguments=arguments,
        tails=tails,
        operands=resolved[0],
        bounds=resolved[1],
        roots=marked,
        spans=spans,
        headers=[
            (titles[i], entries[i] is not None, threads[j])
            for i, j in zip(opened, closed, strict=True)
        ],
        ends=ends,
        text=text,
        start=start,
        end=end,
    )


def _are_computations(
    names: Sequence[str | None], opens: Sequence[str | None], opened: list[int],
    closed: list[int], marked: list[int],
) -> bool:
    """Whether the rows are computations end to end, each with instructions and one ROOT."""
    if opened[:1] != [0] or len(opened) != len(marked):
        return False
    return names.count(None) == 2 * len(opened) and all(
        start < root < stop and names[stop] is None and opens[stop] is None
        for start, root, stop in zip(opened, marked, closed, strict=True)
    )


def _tails_are_whole(
    text: str, start: int, end: int, tails: Sequence[str], closed: Sequence[int]
) -> bool:
    """Whether every tail is attributes alone: no second instruction, no cut value, no string,
    brace or comment that goes on behind it (and hides what looks like instructions)."""
    if _has_open_comment(text, start, end):
        return False
    written = list(filter(None, tails))
    quotes = map(str.count, written, repeat('"'))
    if not all(map(_is_whole, compress(written, map(and_, quotes, repeat(1))))):
        return False
    # A printed brace closes at the end of its line: looking at the others alone costs little. So
    # does an inline computation, whose end may look like that of the one around it.
    last = list(map(itemgetter(-1), written))
    loose = list(compress(written, map(ne, last, repeat("}"))))
    loose += filter(None, (tails[end_of - 1] for end_of in closed))
    uneven = map(ne, map(str.count, loose, repeat("{")), map(str.count, loose, repeat("}")))
    if not all(map(_is_whole, compress(loose, uneven))):
        return False
    if not _OPEN_ENDS.isdisjoint(last) and not all(
        _is_whole(tail) for tail in loose if tail[-1] in _OPEN_ENDS
    ):
        return False
    alone = len(closed) == 1 or end == len(text)
    if alone and text.count("{", start, end) != text.count("}", start, end):
        return False
    if not any(map(contains, written, repeat(" = "))):
        return True
    return all(
        _is_whole(tail)
        for tail in written
        if " = " in tail and _SECOND.search(tail) is not None
    )


def _has_open_comment(text: str, start: int, end: int) -> bool:
    """Whether a comment goes on behind its line."""
    opening = text.find("/*", start, end)
    while opening >= 0:
        closing = text.find("*/", opening + 2, end)
        if closing < 0 or text.find("\n", opening, closing) >= 0:
            return True
        opening = text.find("/*", closing + 2, end)
    return False


def _is_whole(tail: str) -> bool:
    """Whether the full scanner takes `tail` for attributes to its end."""
    try:
        _, inline, end = Scanner(tail, {}).attributes(0)
    except HloParseError:
        return False
    return not inline and skip_space(tail, end) == len(tail)


def _resolve(
    names: Sequence[str], opcodes: Sequence[str], arguments: Sequence[str],
    spans: Sequence[tuple[int, int]],
) -> tuple[tuple[int, ...], list[int]] | None:
    """Operands relative to their computation, flat, with the bounds of each row; None to refuse."""
    joined = "\n".join(arguments)
    if "#" in joined:
        return None
    if "%" in joined:
        # A constant or parameter has no '%' between its parentheses, so it counts zero.
        operands = _PERCENT_NAME.findall(joined)
        counts = list(map(str.count, arguments, repeat("%")))
        if len(operands) != sum(counts):
            return None
        if not _plainly_percent(opcodes, arguments, joined, counts) and not _all_have_percent(
            opcodes, arguments, counts
        ):
            return None
    else:
        plain = _plain_operands(opcodes, arguments)
        if plain is None:
            return None
        operands, counts = plain
    bounds = list(accumulate(counts, initial=0))
    flat = _positions(names, operands, bounds, spans)
    if flat is None:
        return None
    # An operand must stand in front of its user: the operands of its own row are all before it.
    behind = bounds[1:]
    if any(map(gt, map(behind.__getitem__, flat), count())):
        return None
    # And in the same computation.
    bases = chain.from_iterable(repeat(a, bounds[b] - bounds[a]) for a, b in spans)
    relative = tuple(map(sub, flat, bases))
    return (relative, bounds) if not relative or min(relative) >= 0 else None


def _positions(
    names: Sequence[str], operands: list[str], bounds: Sequence[int],
    spans: Sequence[tuple[int, int]],
) -> list[int] | None:
    """Position in the chunk of each operand; None where a name is unknown or there twice."""
    index = dict(zip(names, range(len(names)), strict=True))
    try:
        if len(index) == len(names) - 2 * len(spans) + 1:  # the other lines have no name
            return [*map(index.__getitem__, operands)]
        found: list[int] = []
        for start, stop in spans:
            index = dict(zip(names[start:stop], range(start, stop), strict=True))
            if len(index) != stop - start:
                return None
            found += map(index.__getitem__, operands[bounds[start] : bounds[stop]])
    except KeyError:
        return None
    return found


def _plainly_percent(
    opcodes: Sequence[str], arguments: Sequence[str], joined: str, counts: Sequence[int]
) -> bool:
    """Whether all operands are `%name, %name`: told by counting, right for what printers emit."""
    constants = "\n".join(compress(arguments, map(eq, opcodes, repeat("constant"))))
    values = opcodes.count("constant") + opcodes.count("parameter")
    filled = len(counts) - counts.count(0)
    return (
        filled + values == len(arguments) - arguments.count("")
        and joined.count("%") == joined.count(",") - constants.count(",") + filled
        and joined.count("\n%") + joined.startswith("%") == filled
        and joined.count(" ") - joined.count(", ") == constants.count(" ") - constants.count(", ")
        and joined.count("(") == constants.count("(")
    )


def _all_have_percent(
    opcodes: Sequence[str], arguments: Sequence[str], counts: Sequence[int]
) -> bool:
    """Whether no operand is written without '%' (nested operations, mixed spelling, `null`)."""
    for opcode, argument, marks in zip(opcodes, arguments, counts, strict=True):
        plain = not argument or opcode in _VALUES or marks
        if not plain or (marks and not _only_percent_names(argument, marks)):
            return False
    return True


def _only_percent_names(argument: str, count: int) -> bool:
    """Whether the argument is `shape %name, shape %name` throughout."""
    first, *parts = _COMMENT.sub("", argument).split("%")
    if len(parts) != count or not _is_shape_or_nothing(first):
        return False
    for part in parts[:-1]:
        name = _PLAIN_NAME.match(part)
        if name is None or not part.startswith(",", name.end()):
            return False
        if not _is_shape_or_nothing(part[name.end() + 1 :]):
            return False
    return _PLAIN_NAME.fullmatch(parts[-1].rstrip()) is not None


def _is_shape_or_nothing(text: str) -> bool:
    text = text.strip()
    try:
        return not text or skip_shape(text, 0) == len(text)
    except ValueError:
        return False


def _plain_operands(
    opcodes: Sequence[str], arguments: Sequence[str]
) -> tuple[list[str], list[int]] | None:
    """Names and their numbers where none has a '%'; None where there is more than names."""
    operands: list[str] = []
    counts: list[int] = []
    for opcode, argument in zip(opcodes, arguments, strict=True):
        names: list[str] = []
        if argument and opcode not in _VALUES:
            names = (_COMMENT.sub("", argument) if "/*" in argument else argument).split(", ")
            if not all(map(_PLAIN_NAME.fullmatch, names)):
                return None
        operands += names
        counts.append(len(names))
    return operands, counts
