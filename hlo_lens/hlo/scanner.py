"""The full scanner: any HLO text of 2018 to today, instruction by instruction.

It takes what `xla/hlo/parser/hlo_parser.cc` takes and also what old or other printers write.
Values stay raw text; only their extent is found.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import accumulate, chain

from hlo_lens.hlo.attributes import strip_comments
from hlo_lens.hlo.errors import HloParseError
from hlo_lens.hlo.lexer import (
    IDENTIFIER,
    NAME,
    SPACE,
    match_bracket,
    skip_shape,
    skip_space,
    skip_value,
)
from hlo_lens.hlo.opcodes import CALLING_ATTRIBUTES
from hlo_lens.hlo.rows import Implied, Repair, Rows

_MAX_DEPTH = 64
"""Nesting of inline computations and anonymous operands; printers nest one or two deep."""

_KEY = re.compile(r"[A-Za-z_][\w.-]*(?==)", re.A)
_TUPLE_INDEX = re.compile(r"#(\d{1,18})", re.A)
_FRAME_TABLE = re.compile(r"(?:FileNames|FunctionNames|FileLocations|StackFrames)\b")
_FRAME_ENTRY = re.compile(rf"\d+{SPACE.pattern}(?:\"(?:[^\"\\]|\\.)*\"|\{{[^{{}}]*\}})", re.S)
_HALF_A_WORD = re.compile(r"(?:[%\w.-]+|[{(\[#=]|/(?:\*.*)?|//.*)\Z", re.A | re.S)
_CALLING = frozenset(CALLING_ATTRIBUTES)


@dataclass(slots=True)
class ScannedComputation:
    """A computation as scanned, before the module numbers it."""

    name: str
    rows: Rows
    is_entry: bool
    execution_thread: str | None
    line: int


@dataclass(slots=True)
class _Builder:
    """Columns of the computation being scanned."""

    names: list[str] = field(default_factory=list)
    opcodes: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)
    operands: list[tuple[int, ...]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    implied: list[Implied] = field(default_factory=list)
    implied_at: dict[tuple[int, int], int] = field(default_factory=dict)
    inline: dict[int, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    suffixes: dict[str, int] = field(default_factory=dict)
    root: int | None = None

    def unique(self, name: str) -> str:
        """`name`, or `name.1`, … where it is taken."""
        return _unique(name, self.index, self.suffixes)

    def rows(self, line_at: Callable[[int], int]) -> Rows:
        return Rows(
            names=self.names, opcodes=self.opcodes, shapes=self.shapes, arguments=self.arguments,
            tails=self.tails, operands=tuple(chain.from_iterable(self.operands)),
            bounds=list(accumulate(map(len, self.operands), initial=0)),
            root=len(self.names) - 1 if self.root is None else self.root,
            implied=self.implied, inline=self.inline,
            lines=[line_at(start) for start in self.starts],
        )


class Scanner:
    """Scans one text from an offset on; `computations` and `repairs` fill as it goes."""

    def __init__(
        self, text: str, interned: dict[str, str], *, filename: str | None = None,
        first_computation: int = 0,
    ) -> None:
        self.text = text
        self.interned = interned
        self.filename = filename
        self.computations: list[ScannedComputation] = []
        self.repairs: list[Repair] = []
        # Number of computations in front of those scanned here (read by the fast path).
        self.first_computation = first_computation
        self._breaks: list[int] | None = None
        self._names: set[str] = set()
        self._suffixes: dict[str, int] = {}
        self._depth = 0
        # Of the single-instruction form: its parameters by name, and how many there are.
        self._declared: dict[str, int] = {}
        self._parameters = 0

    def forget(self) -> None:
        """Drop what was scanned so far."""
        self.computations.clear()
        self.repairs.clear()
        self._names.clear()
        self._suffixes.clear()

    def _line_at(self, offset: int) -> int:
        if self._breaks is None:
            self._breaks = [match.end() for match in re.finditer("\n", self.text)]
        return bisect_right(self._breaks, offset) + 1

    # --- errors ------------------------------------------------------------------------------

    def error(self, pos: int, expected: str, found: str | None = None) -> HloParseError:
        return HloParseError(self.text, pos, expected, found=found, filename=self.filename)

    def _repair(self, kind: str, message: str, pos: int) -> None:
        """Note what was read around; the first of a kind stands for the others."""
        if not any(repair.kind == kind for repair in self.repairs):
            self.repairs.append(Repair(kind, message, self._line_at(pos)))

    # --- header ------------------------------------------------------------------------------

    def header(self, pos: int) -> tuple[str, dict[str, str], int]:
        """Name, attributes and the offset behind `HloModule NAME, key=value, …` at `pos`."""
        text = self.text
        pos = skip_space(text, pos + len("HloModule"))
        name = NAME.match(text, pos)
        if name is None:
            raise self.error(pos, "the name of the module")
        pos = name.end()
        if text.startswith(":", pos):
            pos += 1
        attributes: dict[str, str] = {}
        while text.startswith(",", after := skip_space(text, pos)):
            key, value, pos = self._attribute(after)
            if key in attributes:  # as XLA
                raise self.error(skip_space(text, after + 1), f"{key} once", "it again")
            attributes[key] = value
        return name[1], attributes, pos

    def _attribute(self, comma: int) -> tuple[str, str, int]:
        text = self.text
        pos = skip_space(text, comma + 1)
        key = _KEY.match(text, pos)
        if key is None:
            raise self.error(pos, "an attribute (name=value)")
        start = skip_space(text, key.end() + 1)
        end = skip_value(text, start, key.group())
        return key.group(), text[start:end], end

    def frames(self, pos: int) -> int:
        """The offset behind the stack-frame tables that start at or after `pos`."""
        text = self.text
        while True:
            start = skip_space(text, pos)
            table = _FRAME_TABLE.match(text, start)
            if table is None:
                return pos
            pos = table.end()
            while (entry := _FRAME_ENTRY.match(text, skip_space(text, pos))) is not None:
                pos = entry.end()

    # --- computations ------------------------------------------------------------------------

    def all_computations(self, pos: int) -> None:
        """Read computations to the end of the text."""
        pos = skip_space(self.text, pos)
        while pos < len(self.text):
            pos = skip_space(self.text, self.computation(pos))

    def computation(self, pos: int) -> int:
        """Read the computation at `pos`; returns the offset behind it."""
        text = self.text
        start = pos
        is_entry = False
        word = IDENTIFIER.match(text, pos)
        if word is not None and word.group() == "ENTRY":
            is_entry = True
            pos = skip_space(text, word.end())
        name = NAME.match(text, pos)
        if name is None and not (is_entry and text.startswith("{", pos)):
            raise self.error(pos, "a computation ('NAME (…) -> shape {' or 'NAME {')")
        if name is not None and name[1] == "HloModule" and not is_entry:
            raise self.error(pos, "one module a text: cut the text here and read each part alone")
        pos = skip_space(text, name.end() if name is not None else pos)
        opening = self._signature(pos)
        if opening >= len(text):
            self._cut(start, "in the header of a computation")
            return len(text)
        if not text.startswith("{", opening):
            raise self.error(opening, "'{' to open the computation")
        builder, pos, closed = self._body(opening + 1)
        thread = None
        if closed:
            thread, pos = self._execution_thread(pos)
        if builder.names:
            self._add(name[1] if name is not None else "entry", builder, is_entry, thread, start)
        elif closed:
            raise self.error(opening + 1, "an instruction", found="an empty computation")
        return pos

    def _add(
        self, name: str, builder: _Builder, is_entry: bool, thread: str | None, start: int
    ) -> int:
        self._names.add(name)
        self.computations.append(
            ScannedComputation(
                name, builder.rows(self._line_at), is_entry, thread, self._line_at(start)
            )
        )
        return self.first_computation + len(self.computations) - 1

    def _signature(self, pos: int) -> int:
        """The offset of the '{' behind `(parameters) -> shape`, which are for readers only."""
        text = self.text
        try:
            if text.startswith("(", pos):
                pos = skip_space(text, match_bracket(text, pos))
            if text.startswith("->", pos):
                shape = skip_space(text, pos + 2)
                end = skip_shape(text, shape)
                if end is None and shape < len(text):
                    raise self.error(shape, "the shape of the result")
                pos = skip_space(text, end or len(text))
        except HloParseError as error:
            if not error.found.startswith("the end of the text"):
                raise
            return len(text)
        return pos

    def _execution_thread(self, pos: int) -> tuple[str | None, int]:
        text = self.text
        thread = None
        while text.startswith(",", after := skip_space(text, pos)):
            key, value, pos = self._attribute(after)
            if key == "execution_thread":
                thread = value.strip("\"'")
        return thread, pos

    def _cut(self, pos: int, where: str) -> None:
        self._repair("truncated", f"the text stops {where}; it was read up to there", pos)

    # --- instructions ------------------------------------------------------------------------

    def _body(self, pos: int) -> tuple[_Builder, int, bool]:
        """Instructions up to the closing brace; (columns, offset behind, whether it closed)."""
        text = self.text
        builder = _Builder()
        while True:
            pos = skip_space(text, pos)
            if pos >= len(text):
                self._cut(builder.starts[-1] if builder.starts else pos, "inside a computation")
                return builder, pos, False
            if text[pos] == "}":
                return builder, pos + 1, True
            if text[pos] in ";":
                pos += 1
                continue
            size = len(builder.names)
            try:
                pos = self._instruction(pos, builder)
            except HloParseError as error:
                if not self._reaches_the_end(error, pos):
                    raise
                self._drop(builder, size)
                self._cut(pos, "inside an instruction")
                return builder, len(text), False

    def _reaches_the_end(self, error: HloParseError, pos: int) -> bool:
        """Whether the instruction at `pos` only fails because the text is cut off in it.

        It does where the reader fails at the end, or at what may be the first half of a word.
        """
        return error.found == "the end of the text" or (
            error.offset >= pos and _HALF_A_WORD.match(self.text, error.offset) is not None
        )

    @staticmethod
    def _drop(builder: _Builder, size: int) -> None:
        for name in builder.names[size:]:
            del builder.index[name]
        for column in (
            builder.names, builder.opcodes, builder.shapes, builder.arguments, builder.tails,
            builder.operands, builder.starts,
        ):
            del column[size:]
        if builder.root is not None and builder.root >= size:
            builder.root = None

    def _instruction(self, pos: int, builder: _Builder) -> int:
        """One `[ROOT] NAME = [shape] opcode(operands), attributes`; the offset behind it."""
        text = self.text
        start = pos
        is_root = False
        name = NAME.match(text, pos)
        if name is not None and name.group() == "ROOT":
            after = skip_space(text, name.end())
            if not text.startswith("=", after):
                is_root, pos = True, after
                name = NAME.match(text, pos)
        if name is None:
            raise self.error(pos, "an instruction (name = shape opcode(operands)) or '}'")
        equals = skip_space(text, name.end())
        if not text.startswith("=", equals):
            raise self.error(equals, f"'=' behind the name '{name[1]}'")
        if name[1] in builder.index:
            raise self.error(
                pos, "a name that is new in this computation", found=f"'{name[1]}' a second time"
            )
        pos = self._operation(skip_space(text, equals + 1), builder, name[1], start)
        if is_root:
            if builder.root is not None:
                raise self.error(start, "one ROOT a computation", found="a second ROOT")
            builder.root = len(builder.names) - 1
        return pos

    def _operation(self, pos: int, builder: _Builder, name: str, start: int) -> int:
        """`[shape] opcode(operands), attributes` under `name`; the offset behind it."""
        text = self.text
        shape, opcode, pos = self._shape_and_opcode(pos)
        closing = match_bracket(text, pos)
        argument = text[pos + 1 : closing - 1]
        operands: tuple[int, ...] = ()
        if opcode == "parameter":
            if not strip_comments(argument).strip().isdecimal():
                raise self.error(pos + 1, "the number of the parameter")
        elif opcode != "constant":
            operands = self._operands(pos + 1, closing - 1, builder)
        tail, inline, pos = self.attributes(closing)
        self._append(builder, name, opcode, shape, argument, tail, operands, start)
        if inline:
            builder.inline[len(builder.names) - 1] = inline
        return pos

    def _append(
        self, builder: _Builder, name: str, opcode: str, shape: str, argument: str, tail: str,
        operands: tuple[int, ...], start: int,
    ) -> None:
        intern = self.interned.setdefault
        builder.index[name] = len(builder.names)
        builder.names.append(name)
        builder.opcodes.append(intern(opcode, opcode))
        builder.shapes.append(intern(shape, shape))
        builder.arguments.append(argument)
        builder.tails.append(tail)
        builder.operands.append(operands)
        builder.starts.append(start)

    def _shape_and_opcode(self, pos: int) -> tuple[str, str, int]:
        """Shape text ("" where left out), opcode and the offset of the '(' behind it."""
        text = self.text
        end = skip_shape(text, pos)
        shape = ""
        if end is not None:
            shape = text[pos:end]
            pos = skip_space(text, end)
        opcode = IDENTIFIER.match(text, pos)
        if opcode is None:
            raise self.error(pos, "an opcode" if shape else "a shape or an opcode")
        opening = skip_space(text, opcode.end())
        if not text.startswith("(", opening):
            expected = f"'(' behind the opcode '{opcode.group()}'"
            raise self.error(opening, expected)
        return shape, opcode.group(), opening

    def attributes(self, pos: int) -> tuple[str, dict[str, tuple[int, ...]], int]:
        """Attribute text from its first comma, inline computations, the offset behind."""
        text = self.text
        start = end = pos
        inline: dict[str, tuple[int, ...]] = {}
        while text.startswith(",", comma := skip_space(text, end)):
            key = _KEY.match(text, skip_space(text, comma + 1))
            if key is not None and key.group() in _CALLING:
                value = skip_space(text, key.end() + 1)
                bodies = self._inline_bodies(value)
                if bodies is not None:
                    inline[key.group()], end = bodies
                    continue
            end = self._attribute(comma)[2]
        return text[start:end].strip(), inline, end

    # --- inline computations -----------------------------------------------------------------

    def _inline_bodies(self, pos: int) -> tuple[tuple[int, ...], int] | None:
        """Computations written in place at `pos`: `{ a = … }` or `{ { a = … }, { … } }`.

        None where `pos` holds names. Returns their positions in the module and the offset behind.
        """
        text = self.text
        if not text.startswith("{", pos):
            return None
        inner = skip_space(text, pos + 1)
        if text.startswith("{", inner):
            found = []
            while text.startswith("{", inner):
                index, inner = self._inline_body(inner)
                found.append(index)
                inner = skip_space(text, inner)
                if text.startswith(",", inner):
                    inner = skip_space(text, inner + 1)
            if not text.startswith("}", inner):
                raise self.error(inner, "'}' behind the inline computations")
            return tuple(found), inner + 1
        word = NAME.match(text, inner)
        if word is None:
            return None
        after = skip_space(text, word.end())
        if word.group() != "ROOT" and not text.startswith("=", after):
            return None
        index, end = self._inline_body(pos)
        return (index,), end

    def _inline_body(self, pos: int) -> tuple[int, int]:
        self._deeper(pos)
        builder, end, closed = self._body(pos + 1)
        self._depth -= 1
        if not closed:
            raise self.error(len(self.text), "'}' to close the inline computation")
        if not builder.names:
            raise self.error(pos + 1, "an instruction", found="an empty computation")
        # XLA calls every inline computation `_`; a number keeps the names apart.
        name = _unique("_", self._names, self._suffixes)
        return self._add(name, builder, False, None, pos), end

    def _deeper(self, pos: int) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error(pos, f"at most {_MAX_DEPTH} levels of nesting", found="one more")

    # --- operands ----------------------------------------------------------------------------

    def _operands(self, pos: int, end: int, builder: _Builder) -> tuple[int, ...]:
        text = self.text
        operands: list[int] = []
        pos = skip_space(text, pos)
        while pos < end:
            if text.startswith("...", pos):
                self._repair("elided-operands", "a printer left operands out ('...')", pos)
                break
            operand, pos = self._operand(pos, end, builder)
            if operand is not None:
                operands.append(operand)
            pos = skip_space(text, pos)
            if pos < end and text[pos] != ",":
                raise self.error(pos, "',' or ')' behind an operand")
            pos = skip_space(text, pos + 1)
        return tuple(operands)

    def _operand(self, pos: int, end: int, builder: _Builder) -> tuple[int | None, int]:
        """One operand: a name, a shape and a name, a nested operation; None for a shape alone.

        A shape alone is a parameter in the single-instruction form; elsewhere XLA ignores it.
        """
        text = self.text
        start = pos
        behind = skip_shape(text, pos)
        shape = ""
        if behind is not None:
            shape = text[pos:behind]
            pos = skip_space(text, behind)
        name = NAME.match(text, pos)
        if name is None:
            if shape and (pos >= end or text[pos] == ","):
                if self._single:
                    return self._undeclared(builder, "", shape), pos
                self._repair("elided-operands", f"an operand has no name, only '{shape}'", start)
                return None, pos
            raise self.error(pos, "an operand")
        after = skip_space(text, name.end())
        if text.startswith("(", after) and not name.group().startswith("%"):
            return self._nested(start, pos, after, shape, builder)
        target = builder.index.get(name[1])
        pos = name.end()
        if target is None:
            return self._unknown(start, pos, name[1], shape, builder), pos
        depth = 0
        while (element := _TUPLE_INDEX.match(text, pos)) is not None:
            depth += 1
            if depth > _MAX_DEPTH:
                raise self.error(pos, f"at most {_MAX_DEPTH} levels of tuples", found="one more")
            target = self._element(builder, target, int(element[1]))
            pos = element.end()
        return target, pos

    def _unknown(self, start: int, pos: int, name: str, shape: str, builder: _Builder) -> int:
        if self._single and shape:
            return self._undeclared(builder, name, shape)
        if name == "null":
            return self._imply(builder, Implied("null", "null", shape))
        import difflib

        near = difflib.get_close_matches(name, builder.names, 1)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise self.error(
            start, f"the name of an instruction above in this computation{hint}", found=f"'{name}'"
        )

    _single = False

    def _imply(self, builder: _Builder, implied: Implied) -> int:
        builder.implied.append(implied)
        return -len(builder.implied)

    def _undeclared(self, builder: _Builder, name: str, shape: str) -> int:
        """A parameter for an operand that the single-instruction form does not declare."""
        known = self._declared.get(name)
        if known is not None:
            return known
        number = self._parameters
        self._parameters += 1
        implied = Implied(
            name or f"parameter.{number}", "parameter", shape, argument=str(number)
        )
        made = self._declared[implied.name] = self._imply(builder, implied)
        return made

    def _element(self, builder: _Builder, target: int, index: int) -> int:
        """The implied get-tuple-element `target#index`."""
        known = builder.implied_at.get((target, index))
        if known is not None:
            return known
        base = builder.names[target] if target >= 0 else builder.implied[~target].name
        shape = builder.shapes[target] if target >= 0 else builder.implied[~target].shape
        implied = Implied(
            f"{base}_{index}", "get-tuple-element", element_text(shape, index), (target,),
            f", index={index}",
        )
        found = builder.implied_at[target, index] = self._imply(builder, implied)
        return found

    def _nested(
        self, start: int, word: int, opening: int, shape: str, builder: _Builder
    ) -> tuple[int, int]:
        """An anonymous operation as operand, `add(negate(x), …)`: a row of its own."""
        self._deeper(word)
        opcode = IDENTIFIER.match(self.text, word)
        if opcode is None:
            raise self.error(word, "an opcode")
        closing = match_bracket(self.text, opening)
        argument = self.text[opening + 1 : closing - 1]
        operands: tuple[int, ...] = ()
        if opcode.group() not in ("constant", "parameter"):
            operands = self._operands(opening + 1, closing - 1, builder)
        name = builder.unique(f"{opcode.group()}.anon")
        self._append(builder, name, opcode.group(), shape, argument, "", operands, start)
        self._depth -= 1
        return len(builder.names) - 1, closing

    # --- the single-instruction form ---------------------------------------------------------

    def single_instruction(self, pos: int) -> int:
        """`x = f32[2] add(f32[2] a, f32[2] b)`, with or without a name, as a whole module."""
        text = self.text
        self._single = True
        builder = _Builder()
        start = pos
        name = NAME.match(text, pos)
        equals = skip_space(text, name.end()) if name is not None else pos
        given = name[1] if name is not None else ""
        if name is not None and text.startswith("=", equals):
            pos = skip_space(text, equals + 1)
        else:
            given = ""
        # The computation stands in front of those written in place, as XLA has it.
        self._add(given, builder, True, None, start)
        opcode = self._shape_and_opcode(pos)[1]
        end = self._operation(pos, builder, given or opcode, start)
        self._single = False
        self.computations[0] = ScannedComputation(
            builder.names[-1], builder.rows(self._line_at), True, None, self._line_at(start)
        )
        return end


def _unique(name: str, taken: Container[str], suffixes: dict[str, int]) -> str:
    """`name`, or `name.1`, `name.2`, …; `suffixes` remembers the last number of each."""
    candidate = name
    while candidate in taken:
        suffixes[name] = suffixes.get(name, 0) + 1
        candidate = f"{name}.{suffixes[name]}"
    return candidate


def element_text(shape: str, index: int) -> str:
    """The text of element `index` of a tuple shape; "" where there is none."""
    from hlo_lens.hlo.shape import parse_shape

    try:
        parsed = parse_shape(shape)
        return str(parsed.elements[index])
    except (ValueError, IndexError):
        return ""


def starts_computation(text: str, pos: int) -> bool:
    """Whether a computation starts at `pos`, rather than a single instruction."""
    word = NAME.match(text, pos)
    if word is None:
        return False
    if word.group() == "ENTRY":
        return True
    after = skip_space(text, word.end())
    if text.startswith("{", after):
        return True
    if not text.startswith("(", after):
        return False
    try:
        behind = skip_space(text, match_bracket(text, after))
    except HloParseError:
        return True
    return text.startswith(("->", "{"), behind)


def starts_instruction(text: str, pos: int) -> bool:
    """Whether `name =`, a shape or `opcode(` starts at `pos`."""
    word = NAME.match(text, pos)
    if word is not None and text.startswith(("=", "("), skip_space(text, word.end())):
        return True
    return text.startswith("(", pos) or skip_shape(text, pos) is not None
