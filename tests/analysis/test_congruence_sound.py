"""Random programs, computed: what has one number has one value, element by element."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.analysis.numbered import numbers

Place = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """Elements in row-major order."""

    sizes: tuple[int, ...]
    elements: tuple[int, ...]

    def at(self, place: Place) -> int:
        index = 0
        for size, one in zip(self.sizes, place, strict=True):
            index = index * size + one
        return self.elements[index]


def array(sizes: tuple[int, ...], element: Callable[[Place], int]) -> Array:
    places = itertools.product(*map(range, sizes))
    return Array(sizes, tuple(element(place) for place in places))


class Programs:
    """A random program: its lines, and what each of them gives."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.values: dict[str, Array] = {}
        self.plain: list[str] = []  # those in the usual layout
        for number in range(3):
            sizes = tuple(self.random.choice(((4, 6), (6, 4), (4, 2, 3), (4, 4), (2, 2, 6))))
            value = array(sizes, lambda place: self.random.randint(-9, 9))
            self.add(value, f"parameter({number})")
        makers = (
            self.transpose, self.reshape, self.elementwise, self.elementwise, self.product,
            self.product, self.slice, self.sum, self.filled, self.bitcast, self.joined,
        )  # fmt: skip
        while len(self.lines) < 40:
            self.random.choice(makers)()

    def add(self, value: Array, operation: str, layout: str = "") -> None:
        if math.prod(value.sizes) > 200 or max(map(abs, value.elements)) > 10**6:
            return
        name = f"v{len(self.lines)}"
        shape = f"f32[{','.join(map(str, value.sizes))}]{layout}"
        self.lines.append(f"  {name} = {shape} {operation}")
        self.values[name] = value
        if not layout:
            self.plain.append(name)

    def any(self) -> tuple[str, Array]:
        name = self.random.choice(self.plain)
        return name, self.values[name]

    def transpose(self) -> None:
        name, value = self.any()
        order = self.random.sample(range(len(value.sizes)), len(value.sizes))
        sizes = tuple(value.sizes[d] for d in order)

        def element(place: Place) -> int:
            given = [0] * len(order)
            for at, d in zip(place, order, strict=True):
                given[d] = at
            return value.at(tuple(given))

        dimensions = ",".join(map(str, order))
        self.add(array(sizes, element), f"transpose({name}), dimensions={{{dimensions}}}")

    def bitcast(self) -> None:
        """From the usual layout to one that makes it a transpose."""
        name, value = self.any()
        rank = len(value.sizes)
        layout = self.random.sample(range(rank), rank)
        sizes = [0] * rank
        for size, d in zip(value.sizes, reversed(layout), strict=True):
            sizes[d] = size

        def element(place: Place) -> int:
            return value.at(tuple(place[d] for d in reversed(layout)))

        text = ",".join(map(str, layout))
        before = len(self.lines)
        self.add(array(tuple(sizes), element), f"bitcast({name})", f"{{{text}}}" if rank else "")
        if len(self.lines) > before:  # the other operations take arrays in the usual layout
            self.add(self.values[f"v{before}"], f"copy(v{before})")

    def reshape(self) -> None:
        name, value = self.any()
        sizes = [s for s in value.sizes if s != 1]
        at = self.random.randrange(len(sizes) + 1)
        if self.random.random() < 0.4 and len(sizes) > 1 and at + 1 < len(sizes):
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif at < len(sizes) and sizes[at] % 2 == 0 and len(sizes) < 4:
            sizes[at : at + 1] = [2, sizes[at] // 2]
        else:
            sizes.insert(at, 1)
        self.add(Array(tuple(sizes), value.elements), f"reshape({name})")

    def elementwise(self) -> None:
        one, a = self.any()
        if self.random.random() < 0.3:
            self.add(Array(a.sizes, tuple(-e for e in a.elements)), f"negate({one})")
            return
        alike = [name for name in self.plain if self.values[name].sizes == a.sizes]
        two = self.random.choice(alike)
        b = self.values[two]
        opcode = self.random.choice(("add", "subtract", "multiply", "maximum"))
        function: dict[str, Callable[[int, int], int]] = {
            "add": lambda x, y: x + y, "subtract": lambda x, y: x - y,
            "multiply": lambda x, y: x * y, "maximum": max,
        }  # fmt: skip
        pairs = zip(a.elements, b.elements, strict=True)
        elements = tuple(function[opcode](x, y) for x, y in pairs)
        self.add(Array(a.sizes, elements), f"{opcode}({one}, {two})")

    def product(self) -> None:
        """A dot, or the convolution that it is."""
        (one, a), (two, b) = self.any(), self.any()
        found = [(c, d) for c in range(len(a.sizes)) for d in range(len(b.sizes))]
        found = [(c, d) for c, d in found if a.sizes[c] == b.sizes[d]]
        if not found:
            return
        c, d = self.random.choice(found)
        free_a = [k for k in range(len(a.sizes)) if k != c]
        free_b = [k for k in range(len(b.sizes)) if k != d]
        sizes = tuple([a.sizes[k] for k in free_a] + [b.sizes[k] for k in free_b])

        def element(place: Place) -> int:
            total = 0
            for k in range(a.sizes[c]):
                left, right = list(place[: len(free_a)]), list(place[len(free_a) :])
                left.insert(c, k)
                right.insert(d, k)
                total += a.at(tuple(left)) * b.at(tuple(right))
            return total

        value = array(sizes, element)
        if len(a.sizes) == len(b.sizes) == 2 and self.random.random() < 0.5:
            labels = f"{'fb' if c == 0 else 'bf'}_{'io' if d == 0 else 'oi'}->"
            if self.random.random() < 0.5:
                turned = array(sizes[::-1], lambda place: element(place[::-1]))
                self.add(turned, f"convolution({one}, {two}), dim_labels={labels}fb")
            else:
                self.add(value, f"convolution({one}, {two}), dim_labels={labels}bf")
            return
        dims = f"lhs_contracting_dims={{{c}}}, rhs_contracting_dims={{{d}}}"
        self.add(value, f"dot({one}, {two}), {dims}")

    def slice(self) -> None:
        name, value = self.any()
        starts = [self.random.choice((0, 0, size // 2)) for size in value.sizes]
        sizes = tuple(
            (size + 1) // 2 if self.random.random() < 0.5 else size - start
            for size, start in zip(value.sizes, starts, strict=True)
        )
        if any(s + n > size for s, n, size in zip(starts, sizes, value.sizes, strict=True)):
            return

        def element(place: Place) -> int:
            return value.at(tuple(s + k for s, k in zip(starts, place, strict=True)))

        ranges = ", ".join(f"[{s}:{s + n}]" for s, n in zip(starts, sizes, strict=True))
        self.add(array(sizes, element), f"slice({name}), slice={{{ranges}}}")

    def sum(self) -> None:
        name, value = self.any()
        d = self.random.randrange(len(value.sizes)) if value.sizes else None
        if d is None:
            return
        sizes = value.sizes[:d] + value.sizes[d + 1 :]

        def element(place: Place) -> int:
            return sum(value.at((*place[:d], k, *place[d:])) for k in range(value.sizes[d]))

        self.add(array(sizes, element), f"reduce({name}, zero), dimensions={{{d}}}, to_apply=sum")

    def filled(self) -> None:
        sizes = self.any()[1].sizes
        number = self.random.choice(("zero", "two"))
        elements = (0 if number == "zero" else 2,) * math.prod(sizes)
        self.add(Array(sizes, elements), f"broadcast({number}), dimensions={{}}")

    def joined(self) -> None:
        """Spread over a new dimension, in front or behind."""
        name, value = self.any()
        rank = len(value.sizes)
        first = self.random.random() < 0.5
        sizes = (2, *value.sizes) if first else (*value.sizes, 2)
        dims = ",".join(str(d + first) for d in range(rank))
        spread = array(sizes, lambda place: value.at(place[1:] if first else place[:-1]))
        self.add(spread, f"broadcast({name}), dimensions={{{dims}}}")

    @property
    def text(self) -> str:
        body = "\n".join(self.lines)
        return f"""HloModule m
sum {{
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}}
ENTRY main {{
  zero = f32[] constant(0)
  two = f32[] constant(2)
{body}
  ROOT r = f32[] negate(zero)
}}
"""


@pytest.mark.parametrize("seed", range(150))
def test_what_has_one_number_has_one_value(seed: int) -> None:
    program = Programs(seed)
    values: dict[int, tuple[str, tuple[int, ...]]] = {}
    for name, found in numbers(program.text).items():
        if name in program.values:
            (number,) = found
            elements = program.values[name].elements
            first, expected = values.setdefault(number, (name, elements))
            assert elements == expected, f"{first} and {name}\n{program.text}"


def test_much_of_what_has_one_value_has_one_number() -> None:
    """Else the other test says nothing."""
    same = 0
    for seed in range(50):
        program = Programs(seed)
        found = numbers(program.text)
        by_number = {min(found[name]) for name in program.values}
        same += len(program.values) - len(by_number)
    assert same > 500
