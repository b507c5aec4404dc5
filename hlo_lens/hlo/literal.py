"""Literals: the constant data in `constant({1, 2})`, read as Python values only when asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from hlo_lens.hlo.attributes import strip_comments
from hlo_lens.hlo.shape import Shape, parse_shape

Value: TypeAlias = bool | int | float | complex

_ELIDED = re.compile(r"\{\s*\.\.\.\s*\}")
# Parentheses (of tuples and complex numbers) and commas carry nothing that the shape doesn't say.
# A written shape stands before the data in text of 2018; `[1,2]:` is an index of sparse text.
_TOKEN = re.compile(
    r"""[\s,()]++
      | (?P<brace>[{}])
      | (?P<elided>\.\.\.)
      | [a-z][a-z0-9]*\[[^\[\]]*\](?:\{[0-9,]+\})?
      | (?:\[[0-9,\s]*\]|[0-9]++)\s*+:
      | (?P<number>-?[A-Za-z0-9_.+\-]++(?:\(0x[0-9a-fA-F]+\))?)
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Literal:
    """Data as written, `text`, and the shape it fills.

    Nothing is read before it is asked for, so a literal of any text can be made.
    """

    text: str
    shape: Shape

    @property
    def elided(self) -> bool:
        """Whether some array is printed as `{...}`: its contents aren't in the text."""
        return _ELIDED.search(self.text) is not None

    @property
    def scalar(self) -> Value | None:
        """The value of a scalar; None for an array or a tuple.

        Raises:
            ValueError: the text is no value of the shape's dtype.
        """
        if not self.shape.is_array or self.shape.dimensions:
            return None
        return next(self.values())

    def values(self) -> Iterator[Value]:
        """All values in the order of the text, tuple elements one after another.

        pred gives bool, s* and u* int, f* float (any nan payload is dropped), c* complex. An
        elided array gives nothing.

        Raises:
            ValueError: while iterating, where the text doesn't fit the shape.
        """
        tokens = _tokens(self.text)
        for leaf in self.shape.leaves():
            if leaf.dtype not in ("token", "opaque"):
                yield from _leaf_values(tokens, leaf)
        rest = next(tokens, None)
        if rest is not None:
            raise ValueError(f"expected the end of a literal of {self.shape}, found {rest!r}")

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= 40 else self.text[:37] + "..."
        return f"Literal({shown!r}, {str(self.shape)!r})"


def parse_shaped_literal(text: str) -> Literal:
    """`s32[2]{0} {1, 2}`, the form of the `literal=` attribute.

    Raises:
        ValueError: no shape stands in front.
    """
    text = strip_comments(text).strip()
    end = _shape_end(text)
    return Literal(text[end:].strip(), parse_shape(text[:end]))


def _shape_end(text: str) -> int:
    """Where the shape in front ends: at the first blank outside parentheses."""
    depth = 0
    for found in re.finditer(r"[()\s]", text):
        if found.group().isspace():
            if depth == 0:
                return found.start()
        else:
            depth += 1 if found.group() == "(" else -1
    raise ValueError(f"expected a shape and a literal, found {text[:60]!r}")


def _tokens(text: str) -> Iterator[str]:
    """Braces, `...` and numbers of a literal."""
    text = strip_comments(text)
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"expected a value, found {text[position : position + 40]!r}")
        position = found.end()
        if found.lastgroup is not None:
            yield found.group()


def _leaf_values(tokens: Iterator[str], shape: Shape) -> Iterator[Value]:
    """The values of one array, taken from `tokens`."""
    read = _reader(shape.dtype)
    first = next(tokens, "")
    if first != "{":
        # A bare number fills the first element of an array, as in the reference; the rest is 0.
        value = read(chain((first,), tokens))
        yield value
        for _ in range(1, shape.element_count or 1):
            yield type(value)(0)
        return
    count, elided = 0, False
    for item in _braced_values(tokens, shape.dtype == "pred", read):
        if item is None:
            elided = True
        else:
            count += 1
            yield item
    written_whole = not (elided or any(shape.dynamic) or _is_sparse(shape))
    if written_whole and count != shape.element_count:
        raise ValueError(f"the literal of {shape} holds {count} values")


def _is_sparse(shape: Shape) -> bool:
    return shape.layout is not None and shape.layout.sparse_elements is not None


def _braced_values(
    tokens: Iterator[str], is_pred: bool, read: Callable[[Iterator[str]], Value]
) -> Iterator[Value | None]:
    """The values up to the brace that closes the array; None for `...`."""
    depth = 1
    for token in tokens:
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0:
                return
        elif token == "...":
            yield None
        elif is_pred and len(token) > 1 and not token.strip("01"):
            yield from (digit == "1" for digit in token)  # text of 2018 has `{10110}`
        else:
            yield read(chain((token,), tokens))
    raise ValueError("expected '}' at the end of a literal")


def _reader(dtype: str) -> Callable[[Iterator[str]], Value]:
    """How to take one value of this dtype from tokens."""
    if dtype == "pred":
        return _bool
    if dtype in ("c64", "c128"):
        return _complex
    if dtype[0] in "su" and dtype[1:].isdigit():
        return _int
    return _float


def _bool(tokens: Iterator[str]) -> bool:
    token = next(tokens, "")
    if token not in ("true", "false", "1", "0"):
        raise ValueError(f"expected true or false in a literal, found {token!r}")
    return token in ("true", "1")


def _int(tokens: Iterator[str]) -> int:
    token = next(tokens, "")
    try:
        return int(token)
    except ValueError:
        raise ValueError(f"expected an integer in a literal, found {token!r}") from None


def _float(tokens: Iterator[str]) -> float:
    token = next(tokens, "")
    try:
        return float(token.partition("(")[0])
    except ValueError:
        raise ValueError(f"expected a number in a literal, found {token!r}") from None


def _complex(tokens: Iterator[str]) -> complex:
    return complex(_float(tokens), _float(tokens))
