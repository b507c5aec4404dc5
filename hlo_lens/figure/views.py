"""Named views: which rows a figure draws and how, as data in TOML that a user can extend.

`data/views.toml` says what the keys mean. A view of a user's file comes before a built-in one of
the same name; its `[prune]` lists and `[families]` replace the built-in ones.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from hlo_lens.facts import Cell
from hlo_lens.figure.lanes_rows import BarKind, Bars, LanesView, Verdict, Work
from hlo_lens.files import InputError

_MOST = 2**31 - 1  # of anything that is counted

ColorBy = Literal["phase", "family"]
COLORS: tuple[ColorBy, ...] = ("phase", "family")
BAR_KINDS: tuple[BarKind, ...] = get_args(BarKind)


@dataclass(frozen=True, slots=True)
class Select:
    """Rows whose members are drawn: those of `table` for which the SQL condition `where` holds, in
    `order`, at most `rows`; of them the members in `roles`, or all: at most `each` of a row and
    role, and `members` of all rows. `label`: what is told of each row, with its columns in braces.
    `ids`: only the rows with these ids; `told`: without a label, what a report groups the rows by.
    A file has no key for these two.
    """

    table: str
    where: str = ""
    order: str = ""
    rows: int | None = None
    roles: tuple[str, ...] = ()
    members: int | None = None
    each: int | None = None
    label: str = ""
    told: bool = False
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame around the drawn members of each row that lie in one computation. `label` has columns
    of the row in braces."""

    table: str
    label: str
    where: str = ""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """What is drawn under a name; `data/views.toml` says what the fields mean.

    kind: `graph`, or `lanes` for the schedule, which `lanes` then describes.
    """

    name: str
    about: str
    kind: Literal["graph", "lanes"] = "graph"
    color: ColorBy = "phase"
    around: int = 0
    prefer_stage: tuple[str, ...] = ()
    select: tuple[Select, ...] = ()
    frame: tuple[Frame, ...] = ()
    same_phase: bool = False
    neighbours: int | None = None
    longest_path: int | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    lanes: LanesView | None = None


@dataclass(frozen=True, slots=True)
class Families:
    """Where the family of an opcode stands: a table, its column of opcodes and that of families;
    `names`: what a family reads as; `first`: of what does not fit, these are drawn, in order."""

    table: str
    key: str
    value: str
    names: Mapping[str, str] = field(default_factory=dict)
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Views:
    """Views by name; `prune`: why an opcode is not drawn → the opcodes."""

    views: Mapping[str, View]
    prune: Mapping[str, frozenset[str]]
    families: Families | None

    def view(self, name: str) -> View:
        """The view of that name. Raises `InputError` with what there is."""
        if name in self.views:
            return self.views[name]
        close = difflib.get_close_matches(name, list(self.views), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError("--view", f"no view {name!r}{hint}; there are {', '.join(self.views)}")


def views(paths: Sequence[str | Path] = ()) -> Views:
    """The views of the user's files, the first before the later ones, then the built-in ones.

    Raises `InputError` where a file is no TOML or says what no view has, `OSError` where it cannot
    be read.
    """
    found: dict[str, View] = {}
    prune: dict[str, frozenset[str]] = {}
    families: Families | None = None
    for path in paths:
        its = _read(str(path), Path(path).read_bytes())
        for name, view in its.views.items():
            found.setdefault(name, view)
        prune = {**its.prune, **prune}
        families = families or its.families
    built_in = _built_in()
    return Views(
        {**found, **{name: one for name, one in built_in.views.items() if name not in found}},
        {**built_in.prune, **prune},
        families or built_in.families,
    )


@cache
def _built_in() -> Views:
    place = resources.files("hlo_lens.figure") / "data" / "views.toml"
    return _read("views.toml", place.read_bytes())


def _read(path: str, data: bytes) -> Views:
    try:
        content = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # ValueError: also of a number of many digits
        raise InputError(path, f"not TOML: {error}") from None
    try:
        _check(content, {"view", "prune", "families"}, "the file")
        read = [_view(one) for one in _tables(content, "view")]
        _check_once([view.name for view in read])
        prune = {
            why: frozenset(_texts(opcodes, f"prune.{why}"))
            for why, opcodes in _table(content, "prune").items()
        }
        families = _families(_table(content, "families")) if "families" in content else None
    except (TypeError, ValueError) as error:
        raise InputError(path, str(error)) from None
    return Views({view.name: view for view in read}, prune, families)


def _check_once(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"view {name} stands there twice")


def _view(given: Mapping[str, Any]) -> View:
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("a [[view]] has a name")
    where = f"view {name}"
    _check(given, {one.name for one in fields(View)}, where)
    kind, color = given.get("kind", "graph"), given.get("color", "phase")
    if kind not in ("graph", "lanes"):
        raise ValueError(f"{where}: kind is graph or lanes, not {kind!r}")
    if color not in COLORS:
        raise ValueError(f"{where}: color is {' or '.join(COLORS)}, not {color!r}")
    names = _table(given, "names")
    counts = {
        key: _count(given[key], f"{where}: {key}")
        for key in ("around", "neighbours", "longest_path")
        if key in given
    }
    return View(
        name=name,
        about=_text(given, "about", where),
        kind=kind,
        color=color,
        prefer_stage=_texts(given.get("prefer_stage", []), f"{where}: prefer_stage"),
        select=tuple(_select(one, where) for one in _tables(given, "select")),
        frame=tuple(_frame(one, where) for one in _tables(given, "frame")),
        same_phase=_truth(given, "same_phase", where),
        names={role: _word(word, f"{where}: names") for role, word in names.items()},
        lanes=_lanes(_table(given, "lanes"), where) if kind == "lanes" else None,
        **counts,
    )


_SELECT: frozenset[str] = frozenset(one.name for one in fields(Select)) - {"ids", "told"}


def _select(given: Mapping[str, Any], where: str) -> Select:
    _check(given, _SELECT, f"{where}: select")
    counts: dict[str, Any] = {
        key: _count(given[key], f"{where}: {key}")
        for key in ("rows", "members", "each")
        if key in given
    }
    return Select(
        table=_text(given, "table", f"{where}: select"),
        where=_maybe_text(given, "where", f"{where}: select"),
        order=_maybe_text(given, "order", f"{where}: select"),
        roles=_texts(given.get("roles", []), f"{where}: roles"),
        label=_maybe_text(given, "label", f"{where}: select"),
        **counts,
    )


def _frame(given: Mapping[str, Any], where: str) -> Frame:
    _check(given, {one.name for one in fields(Frame)}, f"{where}: frame")
    return Frame(
        table=_text(given, "table", f"{where}: frame"),
        label=_text(given, "label", f"{where}: frame"),
        where=_maybe_text(given, "where", f"{where}: frame"),
        roles=_texts(given.get("roles", []), f"{where}: roles"),
    )


_BARS: frozenset[str] = frozenset(one.name for one in fields(Bars)) - {"verdicts"}


def _lanes(given: Mapping[str, Any], where: str) -> LanesView:
    where = f"{where}: lanes"
    _check(given, {one.name for one in fields(LanesView)} | {"verdicts"}, where)
    verdicts = tuple(_verdict(one, where) for one in _tables(given, "verdicts"))
    return LanesView(
        bars=tuple(
            Bars(verdicts=verdicts, **_fields(one, _BARS, f"{where}: bars"))
            for one in _tables(given, "bars")
        ),
        work=tuple(
            Work(**_fields(one, {field.name for field in fields(Work)}, f"{where}: work"))
            for one in _tables(given, "work")
        ),
        quiet=frozenset(_texts(given.get("quiet", []), f"{where}: quiet")),
        **{name: _count(given[name], where) for name in ("steps", "lanes") if name in given},
    )


def _verdict(given: Mapping[str, Any], where: str) -> Verdict:
    where = f"{where}: verdicts"
    _check(given, {one.name for one in fields(Verdict)}, where)
    kind = given.get("kind")
    if kind not in BAR_KINDS:
        raise ValueError(f"{where}: kind is one of {', '.join(BAR_KINDS)}, not {kind!r}")
    label, words = (_text(given, name, where) for name in ("label", "words"))
    return Verdict(kind, label, Cell(words), _maybe_text(given, "where", where))


def _fields(given: Mapping[str, Any], known: Collection[str], where: str) -> dict[str, Any]:
    """The fields of a `Bars` or `Work`: texts, but for cells, roles and a truth value."""
    _check(given, known, where)
    found: dict[str, Any] = {name: _text(given, name, where) for name in ("table", "title")}
    cells = given.get("cells", [])
    if not isinstance(cells, list):
        raise ValueError(f"{where}: cells is a list, not {cells!r}")
    found["cells"] = tuple(_cell(one, where) for one in cells)
    for name in given.keys() - found.keys():
        if name == "roles":
            found[name] = _texts(given[name], f"{where}: roles")
        elif name == "instead":
            found[name] = _truth(given, name, where)
        else:
            found[name] = _text(given, name, where)
    return found


def _cell(given: object, where: str) -> Cell:
    """A text with columns in braces, or a table with it and the values that show nothing."""
    if isinstance(given, dict):
        _check(given, ("text", "blank"), f"{where}: cells")
        return Cell(_text(given, "text", where), blank=_texts(given.get("blank", []), where))
    if not isinstance(given, str):
        raise ValueError(f"{where}: a cell is a text, not {given!r}")
    return Cell(given)


def _families(given: Mapping[str, Any]) -> Families:
    _check(given, {one.name for one in fields(Families)}, "[families]")
    table, key, value = (_text(given, name, "[families]") for name in ("table", "key", "value"))
    words = _table(given, "names").items()
    names = {family: _word(word, "[families]: names") for family, word in words}
    return Families(table, key, value, names, _texts(given.get("first", []), "[families]: first"))


def _check(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, list(known), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {sorted(known)}"
            raise ValueError(f"{where} has no key {key!r}{hint}")


def _text(given: Mapping[str, Any], key: str, where: str) -> str:
    value = given.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}: {key} is a text, not {value!r}")
    return value


def _maybe_text(given: Mapping[str, Any], key: str, where: str) -> str:
    return _word(given.get(key, ""), f"{where}: {key}")


def _word(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where} is a text, not {value!r}")
    return value


def _truth(given: Mapping[str, Any], key: str, where: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{where}: {key} is true or false, not {value!r}")
    return value


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{where} is a list of texts, not {value!r}")
    return tuple(value)


def _count(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise ValueError(f"{where} is a number from 0 to {_MOST}, not {value!r}")
    return value


def _table(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = given.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} is a table, not {value!r}")
    return value


def _tables(given: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = given.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError(f"[[{key}]] are tables, not {value!r}")
    return value
