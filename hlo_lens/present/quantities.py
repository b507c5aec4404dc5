"""Quantities for people: bytes, FLOPs, counts and bounds; exact numbers belong in JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

UNKNOWN = "–"
"""What stands for NULL: not known, never 0."""

_BINARY = ("KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("k", "M", "G", "T", "P", "E")


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number that is at least `low`, and at most `high`; `high` None: no bound is known."""

    low: int
    high: int | None

    def __add__(self, other: Bounds) -> Bounds:
        known = self.high is not None and other.high is not None
        return Bounds(self.low + other.low, self.high + other.high if known else None)  # type: ignore[operator]

    def __mul__(self, other: Bounds) -> Bounds:
        if self.high == 0 or other.high == 0:  # none of it, or never
            return Bounds(0, 0)
        known = self.high is not None and other.high is not None
        return Bounds(self.low * other.low, self.high * other.high if known else None)  # type: ignore[operator]

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


def exactly(number: int) -> Bounds:
    """The bounds of a number that is known."""
    return Bounds(number, number)


def bounds_text(bounds: Bounds, text: Callable[[int], str] = str) -> str:
    """`32`, `≤ 8`, `≥ 3`, `2 – 5`, `–` where there is no bound but 0.

    A sum over an unknown loop is a bound and reads as one.
    """
    if bounds.is_exact:
        return text(bounds.low)
    if bounds.high is None:
        return f"≥ {text(bounds.low)}" if bounds.low else UNKNOWN
    if not bounds.low:
        return f"≤ {text(bounds.high)}"
    return f"{text(bounds.low)} – {text(bounds.high)}"


def executions_text(bounds: Bounds | None, trips_kind: str | None) -> str:
    """How often something runs: `32`, `≤ 8`, `≥ 4 (unknown trip count)`, or not known."""
    if bounds is None:
        return UNKNOWN
    why = " (unknown trip count)" if bounds.high is None and trips_kind == "unknown" else ""
    return bounds_text(bounds, count_text) + why


def count_text(count: int) -> str:
    """A whole number, its thousands set apart: "64,451"."""
    return f"{count:,}"


def bytes_text(count: int | None) -> str:
    """`count` bytes for people: "512 B", "1.5 KiB", "38.1 GiB"; "–" where it is not known."""
    if count is None:
        return UNKNOWN
    if abs(count) < 1024:
        return f"{count} B"
    value = float(count)
    for unit in _BINARY:
        value /= 1024
        if abs(value) < 1000 or unit == _BINARY[-1]:
            break
    return f"{value:.1f} {unit}"


def flops_text(count: float | None) -> str:
    """`count` floating-point operations for people: "512 FLOP", "8.6 GFLOP"."""
    if count is None:
        return UNKNOWN
    if abs(count) < 1000:
        return f"{count:g} FLOP"
    value = float(count)
    for unit in _DECIMAL:
        value /= 1000
        if abs(value) < 999.95 or unit == _DECIMAL[-1]:
            break
    return f"{value:.1f} {unit}FLOP"


def visible(text: str) -> str:
    """Text of a file on one line: a control character as its escape, so that none acts."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )
