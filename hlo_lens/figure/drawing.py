"""`draw`: a figure of one or more programs, of what is asked for."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lens.facts import Facts
from hlo_lens.figure.model import Panel
from hlo_lens.figure.origin import provenance
from hlo_lens.figure.panels import NODES, panel, whole
from hlo_lens.figure.picture import Figure, theme_of
from hlo_lens.figure.selecting import Wanted, instruction_named, row_ids, wanted_of
from hlo_lens.figure.themes import ThemeName
from hlo_lens.figure.views import COLORS, ColorBy, Select, View, Views, views
from hlo_lens.files import InputError
from hlo_lens.present.quantities import count_text
from hlo_lens.program import Program

if TYPE_CHECKING:
    from hlo_lens.figure.lanes import Lanes, LanesView

_PHASES = {"fwd": "forward", "bwd": "backward", "remat": "rematerialized"}


def draw(
    programs: Program | Facts | Sequence[Program | Facts],
    *,
    view: str | View | None = None,
    table: str | None = None,
    row: int | Sequence[int] | None = None,
    where: str | None = None,
    around: str | Sequence[str] = (),
    radius: int | None = None,
    start: str | None = None,
    end: str | None = None,
    nodes: int | None = None,
    color: ColorBy | None = None,
    keep: str | Sequence[str] = (),
    stage: str | None = None,
    titles: str | Sequence[str] = (),
    theme: ThemeName = "light",
    known: Views | None = None,
) -> Figure:
    """A figure of what is asked for, of each program a panel.

    view: a named view. table with row or where: the members of these rows; a single one with its
    neighbours, unless `radius` is 0. around: names of instructions, with their neighbours `radius`
    computing steps away. start and end: what lies on the operand paths from the one to the other,
    the shortest first. Nothing of these: the whole module, if it has at most `nodes` (40 by
    default) instructions to draw. keep: kinds of instructions that are drawn too, of those that
    `known` leaves out. titles: the heading of each program's panel.

    A view of the schedule shows one computation: that of `around`, by itself or by an instruction
    in it; nothing else chooses a part of it.

    Raises `InputError` where what is asked for does not exist, means nothing or is too large, and
    `NothingSelectedError` where there are no such rows.
    """
    known = known or views()
    chosen = known.view(view) if isinstance(view, str) else view
    given = [programs] if isinstance(programs, (Program, Facts)) else list(programs)
    keep, titles, around = (_listed(one) for one in (keep, titles, around))
    if chosen is not None and chosen.lanes is not None:
        _refuse_for_lanes(
            chosen.name,
            {
                "--table": table, "--row": row, "--where": where, "--from": start, "--to": end,
                "--radius": radius, "--nodes": nodes, "--keep": keep or None,
            },
        )  # fmt: skip
    most = NODES if nodes is None else nodes
    _refuse_meaningless(len(given), most, radius, color, keep, titles, known)
    theme_of(theme)
    wanted = _wanted(chosen, table, row, where, around, radius, start, end)
    several = len(given) > 1
    prefer = chosen.prefer_stage if chosen is not None else ()
    panels: list[Panel | Lanes] = []
    for number, one in enumerate(given):
        facts = one if isinstance(one, Facts) else one.facts
        position = _position(facts.program, stage, prefer)
        title = titles[number] if number < len(titles) else ""
        if chosen is not None and chosen.lanes is not None:
            panels.append(_lanes(facts, position, chosen.lanes, around, title))
            continue
        if wanted.everything:
            _refuse_large(facts, position, known, keep, most)
        panels.append(
            panel(
                facts,
                position,
                wanted,
                known,
                most=most,
                title=title,
                prefix=f"p{number}_" if several else "",
                keep=keep,
            )
        )
    panels = _told_apart(panels)
    by = color or (chosen.color if chosen is not None else "phase")
    families = known.families.names if known.families is not None else {}
    return Figure(
        tuple(panels),
        by,
        chosen.about if chosen is not None else "",
        _PHASES if by == "phase" else families,
        theme,
    )


def _told_apart(panels: Sequence[Panel | Lanes]) -> list[Panel | Lanes]:
    """Panels without a title whose modules have one name, each headed by what of its path is its
    own as well. A title that was given stays as it is."""
    by_name: dict[str, list[Panel | Lanes]] = {}
    for one in panels:
        if not one.title:
            by_name.setdefault(one.name, []).append(one)
    titles: dict[int, str] = {}
    for name, same in by_name.items():
        own = _own_parts([Path(one.file or "").parts for one in same])
        if all(own) and len(set(own)) == len(own) > 1:
            ends = (os.path.join(*parts) for parts in own)
            titles.update((id(one), f"{name} ({end})") for one, end in zip(same, ends, strict=True))
    return [replace(one, title=titles.get(id(one), one.title)) for one in panels]


def _own_parts(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The paths without the parts that all begin with, and without those that all end with where
    something is left of each."""

    def shared(several: Iterable[Iterable[str]]) -> int:
        alike = takewhile(lambda parts: len(set(parts)) == 1, zip(*several, strict=False))
        return sum(1 for _ in alike)

    own = [path[shared(paths) :] for path in paths]
    last = shared(reversed(path) for path in own)
    return [path[: len(path) - last] for path in own] if last < min(map(len, own)) else own


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    """One text is a list of one, not of its letters."""
    return (value,) if isinstance(value, str) else tuple(value)


def _refuse_for_lanes(name: str, given: Mapping[str, object]) -> None:
    """Raises `InputError` for what chooses instructions, of which lanes draw no choice."""
    refused = [option for option, value in given.items() if value is not None]
    if refused:
        raise InputError(
            f"--view {name}",
            f"it draws the schedule of a whole computation, so {', '.join(refused)} would change"
            " nothing; --around NAME chooses the computation",
        )


def _refuse_meaningless(
    programs: int,
    most: int,
    radius: int | None,
    color: str | None,
    keep: Sequence[str],
    titles: Sequence[str],
    known: Views,
) -> None:
    """Raises `InputError` for a number or a word that no figure can be drawn by."""
    if not programs:
        raise InputError("a figure", "there is no program to draw")
    if most < 1:
        raise InputError("--nodes", f"a figure draws at least 1 instruction, not {most}")
    if radius is not None and radius < 0:
        raise InputError("--radius", f"a neighbour is 0 or more instructions away, not {radius}")
    if color is not None and color not in COLORS:
        raise InputError("--color-by", f"colours tell {' or '.join(COLORS)}, not {color!r}")
    for kind in keep:
        if kind not in known.prune:
            raise InputError("--keep", f"no kind {kind!r}; there are {', '.join(known.prune)}")
    if len(titles) > programs:
        raise InputError(
            "--title",
            f"{count_text(len(titles))} titles for {count_text(programs)}"
            f" panel{'s'[programs == 1 :]}: {titles[programs]!r} would stand nowhere",
        )


def _lanes(
    facts: Facts, position: int, view: LanesView, around: Sequence[str], title: str
) -> Lanes:
    """The schedule of the computation that `around` names, by itself or by an instruction in it;
    of a while, that of its body."""
    module = facts.program.modules[position]
    chosen = None
    for name in around:
        chosen = module.computations.get(name.strip().lstrip("%"))
        if chosen is None:
            instr = instruction_named(module, name)
            chosen = instr.called_by.get("body", (instr.computation,))[0]
    from hlo_lens.figure.lanes import lanes

    found = lanes(facts, view, chosen)
    return replace(found, title=title, about=provenance(facts.program))


def _wanted(
    view: View | None,
    table: str | None,
    row: int | Sequence[int] | None,
    where: str | None,
    around: Sequence[str],
    radius: int | None,
    start: str | None,
    end: str | None,
) -> Wanted:
    wanted = Wanted() if view is None else wanted_of(view)
    if table is not None:
        own = Select(table, where or "", ids=None if row is None else _ids(row), told=True)
        wanted = replace(wanted, selects=(own, *wanted.selects))
    elif row is not None or where is not None:
        raise InputError("--row and --where", "they are about a table; name it with --table")
    if (start is None) != (end is None):
        raise InputError("--from and --to", "a path has two ends; give both")
    default = 2 if around else wanted.radius
    return replace(
        wanted,
        around=tuple(around),
        radius=default if radius is None else radius,
        between=None if start is None or end is None else (start, end),
    )


def _ids(row: int | Sequence[int]) -> tuple[int, ...]:
    """The ids of rows that are asked for; none is no row."""
    try:
        return tuple(map(operator.index, row if isinstance(row, Iterable) else [row]))
    except TypeError:
        raise InputError("--row", f"a row is asked for by its id, not by {row!r:.80}") from None


def _refuse_large(
    facts: Facts, position: int, known: Views, keep: Sequence[str], most: int
) -> None:
    """Raises `InputError` where the whole module is too large, with what could be drawn instead."""
    count = len(whole(facts, position, known, keep))
    if count <= most:
        return
    module = facts.program.modules[position]
    counts = views_with_rows(facts, known)
    named = [f"--view {name} ({count_text(n)} row{'s'[n == 1 :]})" for name, n in counts.items()]
    raise InputError(
        module.filename or module.name,
        f"{count_text(count)} instructions are too many for one figure; choose some with "
        + ", ".join([*named, "--table, --around NAME or --from NAME --to NAME"])
        + ", or allow more with --nodes",
    )


def views_with_rows(facts: Facts, known: Views | None = None) -> dict[str, int]:
    """The named views that have something to draw of this program, with how many rows they draw
    where there is room.

    Fills the tables that the views are of.
    """
    known = known or views()
    found = {}
    for name, view in known.views.items():
        position = _position(facts.program, None, view.prefer_stage)
        if view.lanes is not None:
            count = _bars(facts, view.lanes)
        else:
            count = sum(len(row_ids(facts, position, one)[: one.rows]) for one in view.select)
        if count:
            found[name] = count
    return found


def _bars(facts: Facts, view: LanesView) -> int:
    """How many bars a schedule has to draw; 0 where there is none."""
    from hlo_lens.figure.lanes import lanes

    try:
        return len(lanes(facts, view).bars)
    except InputError:
        return 0


def _position(program: Program, stage: str | None, prefer: Sequence[str]) -> int:
    """The module to draw: of the stage that is asked for or preferred, else the one that runs."""
    for name in (stage, *prefer):
        module = program.stage(name) if name is not None else None
        if module is not None:
            return program.index(module)
        if name is not None and name == stage:
            raise InputError(
                program.name, f"no stage {stage!r}; there are {', '.join(program.stages)}"
            )
    return program.index(program.main)
