"""Comparisons with units, as people write them: `== 6`, `<= 1.1 GiB`, `< 5 GFLOP`."""

from __future__ import annotations

import re
from typing import Final, cast

from hlo_lens.check.model import SIGNS, Comparison, Sign
from hlo_lens.facts import Column

_FORM: Final = re.compile(r"\s*(==|!=|<=|>=|<|>|=)?\s*([-+]?[0-9][0-9_,]*(?:\.[0-9]+)?)\s*(\S*)\s*")

# Unit -> how many of the unit of the column's type.
_BYTES: Final = {
    "": 1, "b": 1,
    **{f"{prefix}ib": 1024**n for n, prefix in enumerate("kmgtp", 1)},
    **{f"{prefix}b": 1000**n for n, prefix in enumerate("kmgtp", 1)},
}  # fmt: skip
_FLOPS: Final = {
    "": 1, "flop": 1, **{f"{prefix}flop": 1000**n for n, prefix in enumerate("kmgtpe", 1)}
}  # fmt: skip
_PLAIN: Final = {"": 1.0, "%": 0.01}


def comparison(given: object, column: Column | None = None) -> Comparison:
    """The comparison that a text or a number means; of rows where `column` is None.

    `6` and `"6"` are `== 6`. Bytes take B, kB … PB and KiB … PiB, FLOP take FLOP … EFLOP, other
    numbers may be per cent. Raises `ValueError` with a sentence for anything else.
    """
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return Comparison("==", given, f"== {given}")
    match = _FORM.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        raise ValueError(f"{given!r} is no comparison; write one such as '== 6' or '<= 1.1 GiB'")
    sign, number, unit = match.groups()
    units = _units(column)
    if unit.lower() not in units:
        what = "a count" if column is None else f"{column.name}, in {column.unit or column.type}"
        known = ", ".join(one for one in units if one) or "none"
        raise ValueError(f"{what} has no unit {unit!r}; there are: {known}")
    value = float(number.replace("_", "").replace(",", "")) * units[unit.lower()]
    plain = "==" if sign in (None, "=") else sign
    assert plain in SIGNS
    shown = f"{plain} {number}{' ' if unit and unit != '%' else ''}{unit}"
    return Comparison(cast(Sign, plain), int(value) if value.is_integer() else value, shown)


def _units(column: Column | None) -> dict[str, float]:
    if column is not None and column.type == "bytes":
        return dict(_BYTES)
    if column is not None and column.type == "flops":
        return dict(_FLOPS)
    return _PLAIN if column is not None else {"": 1.0}
