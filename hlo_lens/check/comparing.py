"""Comparisons with units, as people write them: `== 6`, `<= 1.1 GiB`, `< 5 GFLOP`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, cast

from hlo_lens.check.model import SIGNS, Comparison, Sign
from hlo_lens.check.places import written
from hlo_lens.facts import Column

SIGN: Final = r"(?:==|!=|<=|>=|<|>|=)"
_WHOLE: Final = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:_[0-9]+)*)"
COUNT: Final = rf"\+?{_WHOLE}(?:\.0+)?"
NUMBER: Final = rf"[-+]?{_WHOLE}(?:\.[0-9]+)?"
"""1000, 1_000, 1,000, 1.5; not 1,5, which may mean 1.5."""
_FORM: Final = re.compile(rf"\s*({SIGN})?\s*({NUMBER})\s*([^\s0-9.,_]\S*)?\s*", re.ASCII)
_NO_COUNT: Final = "there never are {} rows; write a whole number, 0 or more"
MOST: Final = 10**30
"""Beyond any number of bytes, operations or runs; and what a float still holds."""

# Unit -> how many of the unit of the column's type; and in words, which there are.
_BYTES: Final = {
    "b": 1,
    **{f"{prefix}ib": 1024**n for n, prefix in enumerate("kmgtp", 1)},
    **{f"{prefix}b": 1000**n for n, prefix in enumerate("kmgtp", 1)},
}
_FLOPS: Final = {
    "flop": 1, **{f"{prefix}flop": 1000**n for n, prefix in enumerate("kmgtpe", 1)}
}  # fmt: skip
_UNITS: Final[Mapping[str, tuple[Mapping[str, Fraction | int], str]]] = {
    "bytes": (_BYTES, "B, kB … PB, KiB … PiB"),
    "flops": (_FLOPS, "FLOP, kFLOP … EFLOP"),
    "count": ({}, "none"),
    "": ({"%": Fraction(1, 100)}, "%"),
}


def comparison(given: object, column: Column | None = None) -> Comparison:
    """The comparison that a text or a number means; of rows where `column` is None.

    `6` and `"6"` are `== 6`. Bytes take B, kB … PB and KiB … PiB, FLOP take FLOP … EFLOP, other
    numbers may be per cent. Raises `ValueError` with a sentence for anything else.
    """
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        if not abs(given) <= MOST:  # NaN is no less, either
            raise ValueError(f"{written(given)} is no number to compare with")
        if column is None and (given < 0 or given != int(given)):
            raise ValueError(_NO_COUNT.format(given))
        return Comparison("==", given, f"== {given}")
    match = _FORM.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        raise ValueError(
            f"{written(given)} is no comparison; write one such as '== 6' or '<= 1.1 GiB'"
        )
    sign, number, unit = match.groups()
    value = _value(number, unit or "", column)
    if column is None and not re.fullmatch(COUNT, number, re.ASCII):
        raise ValueError(_NO_COUNT.format(number))
    plain = "==" if sign in (None, "=") else sign
    assert plain in SIGNS
    shown = f"{plain} {number}{' ' if unit and unit != '%' else ''}{unit or ''}"
    return Comparison(cast(Sign, plain), value, shown)


def number_of_bytes(given: object) -> int:
    """The size that a whole number or a text such as `4 GiB` means.

    Raises `ValueError` with a sentence for anything else.
    """
    text = str(given) if type(given) is int and 0 <= given <= MOST else given
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[1]:
        raise ValueError(f"{written(given)} is no size; write one such as '4 GiB'")
    size = _value(match[2], match[3] or "", Column("size", "bytes", "measure", "a size"))
    if size < 0 or not isinstance(size, int):
        raise ValueError(f"{written(given)} is no whole number of bytes")
    return size


def _value(number: str, unit: str, column: Column | None) -> float:
    """A number in the unit of the column; a whole one exactly. Raises `ValueError`."""
    kind = "count" if column is None else column.type
    units, known = _UNITS.get(kind, _UNITS[""])
    if unit and unit.lower() not in units:
        what = "a count" if column is None else column.name
        raise ValueError(f"{what} has no unit {unit!r}; there are: {known}")
    digits = number.replace("_", "").replace(",", "")
    if len(digits) > 30:
        raise ValueError(f"{number!r} is no number to compare with")
    value = Fraction(digits) * (units[unit.lower()] if unit else 1)
    return int(value) if value.denominator == 1 else float(value)
