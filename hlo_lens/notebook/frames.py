"""Rows as pandas or polars data frames: NULL stays missing, whole numbers stay whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from hlo_lens.facts.sqlite import QueryResult

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Kind = Literal["whole", "number", "truth", "text", "ids", "any"]

_KINDS: dict[str, Kind] = {
    "ref": "whole",
    "refs": "ids",
    "int": "whole",
    "float": "number",
    "bytes": "whole",
    "flops": "whole",
    "bool": "truth",
}
_LARGEST = 2**63


def kind_of(type: str) -> Kind:
    """What the values of a column of that type are."""
    return _KINDS.get(type, "text")


def pandas_of_query(result: QueryResult) -> pd.DataFrame:
    """A query's answer; truth values are 0 and 1, as in SQL."""
    return pandas_frame(_unique(result.columns), result.rows, _found_kinds(result))


def polars_of_query(result: QueryResult) -> pl.DataFrame:
    """A query's answer; truth values are 0 and 1, as in SQL."""
    return polars_frame(_unique(result.columns), result.rows, _found_kinds(result))


def pandas_frame(
    names: Sequence[str], rows: Sequence[tuple[object, ...]], kinds: Sequence[Kind]
) -> pd.DataFrame:
    """A frame of columns Int64, Float64, boolean, string or object. Raises ImportError."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install pandas") from error
    dtypes = {"whole": "Int64", "number": "Float64", "truth": "boolean", "text": "string"}
    data = {}
    for name, kind, values in _columns(names, rows, kinds):
        dtype = dtypes.get(kind)
        if dtype is None:
            data[name] = pd.Series(values, dtype=object)
        else:
            data[name] = pd.Series(pd.array(values, dtype=dtype))
    return pd.DataFrame(data)


def polars_frame(
    names: Sequence[str], rows: Sequence[tuple[object, ...]], kinds: Sequence[Kind]
) -> pl.DataFrame:
    """A frame of columns Int64, Float64, Boolean, String, List(Int64) or Object.

    Raises ImportError.
    """
    try:
        import polars as pl
    except ImportError as error:
        raise ImportError("to_polars needs polars: pip install polars") from error
    dtypes = {
        "whole": pl.Int64,
        "number": pl.Float64,
        "truth": pl.Boolean,
        "text": pl.String,
        "ids": pl.List(pl.Int64),
    }
    series = []
    for name, kind, values in _columns(names, rows, kinds):
        unknown = all(value is None for value in values)
        dtype = dtypes.get(kind, pl.Null if unknown else pl.Object)
        series.append(pl.Series(name, values, dtype=dtype))
    return pl.DataFrame(series)


def _columns(
    names: Sequence[str], rows: Sequence[tuple[object, ...]], kinds: Sequence[Kind]
) -> Iterator[tuple[str, Kind, list[object]]]:
    """Each column's values, made to fit what its kind is stored as."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    for name, kind, column in zip(names, kinds, columns, strict=True):
        values = list(column)
        if kind == "whole" and not all(map(_fits, values)):
            kind = "number"
        if kind == "number":
            values = [_float(value) for value in values]
        elif kind == "text":
            values = _encodable(values)
        yield name, kind, values


def _fits(value: object) -> bool:
    """Whether a value is missing or a whole number of 64 bits."""
    return value is None or (isinstance(value, int) and -_LARGEST <= value < _LARGEST)


def _float(value: object) -> float | None:
    if not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _encodable(values: list[object]) -> list[object]:
    """The texts, half a surrogate pair as a question mark: neither library can hold one."""
    return [
        value.encode(errors="replace").decode()
        if isinstance(value, str) and not value.isascii()
        else value
        for value in values
    ]


def _found_kinds(result: QueryResult) -> list[Kind]:
    """What the values of each column are, told by the values: SQL gives them no type."""
    kinds: list[Kind] = []
    for at in range(len(result.columns)):
        types = {type(row[at]) for row in result.rows} - {type(None)}
        if types == {int}:
            kinds.append("whole")
        elif types and types <= {int, float}:
            kinds.append("number")
        else:
            kinds.append("text" if types == {str} else "any")
    return kinds


def _unique(names: Sequence[str]) -> list[str]:
    """The names, one that is there already as `name:1`, which is how SQLite does it."""
    found: dict[str, None] = {}
    for name in names:
        number, own = 0, name
        while own in found:
            number += 1
            own = f"{name}:{number}"
        found[own] = None
    return list(found)
