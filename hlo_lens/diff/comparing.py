"""`compare`: two programs, stage by stage, by the tables that are asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hlo_lens.analysis import Loop, ModuleAnalysis
from hlo_lens.diff.bodies import body_deltas
from hlo_lens.diff.matching import match
from hlo_lens.diff.model import ProgramDiff, Row, StageDiff
from hlo_lens.diff.tables import Scene, diff_table
from hlo_lens.facts import FINDINGS, Facts, Table
from hlo_lens.program import Program


class NothingInCommonError(ValueError):
    """Two programs have no stage in common; the message says which each has."""


def compare(
    old: Program | Facts,
    new: Program | Facts,
    *,
    only: Collection[str] = (),
    ignore: Collection[str] = (),
    stages: Collection[str] | None = None,
) -> ProgramDiff:
    """What differs between two programs: tables, loop bodies and matched instructions, a stage at
    a time.

    only: the tables that are compared, any there are; without it, those that a report shows (they
    have a summary) and the findings. ignore: tables that are left out. stages: the stages that are
    compared, by name; without it, all that both sides have. Two programs of one module each are
    compared whatever their stages are called.

    Instructions are matched by what they compute and what becomes of it, rows by their
    instructions; names, ids, channels, metadata and the order of the text make no difference.
    Compared are the columns of role identity, structural and measure, and the loop a row is in.

    Raises `UnknownTableError`, with a suggestion, for a name in `only` or `ignore` that is no
    table; `NothingInCommonError` where no stage is on both sides.
    """
    old, new = _facts(old), _facts(new)
    tables = _tables(old, new, only, ignore)
    pairs = stage_pairs(old.program, new.program, stages)
    rows = _rows(old, tables), _rows(new, tables)
    found = [_stage(old, new, at, to, tables, rows, whole=not only) for _, at, to in pairs]
    return ProgramDiff(
        old,
        new,
        tuple(found),
        _alone(old.program, [at for _, at, _ in pairs]),
        _alone(new.program, [to for _, _, to in pairs]),
    )


def stage_pairs(
    old: Program, new: Program, stages: Collection[str] | None = None
) -> list[tuple[str, int, int]]:
    """The stages that two programs have in common, as (name, position in old, position in new).

    A stage that is there twice is matched in order. Two programs of one module each have that in
    common, whatever it is called. Raises `NothingInCommonError` where there is none.
    """
    if len(old.modules) == len(new.modules) == 1 and stages is None:
        return [(old.stages[0], 0, 0)]
    left: dict[str, list[int]] = {}
    for to, name in enumerate(new.stages):
        left.setdefault(name, []).append(to)
    pairs = [
        (name, at, left[name].pop(0))
        for at, name in enumerate(old.stages)
        if left.get(name) and (stages is None or name in stages)
    ]
    if not pairs:
        what = "" if stages is None else f" of {', '.join(stages)}"
        raise NothingInCommonError(
            f"no stage{what} in common: the old program has {', '.join(old.stages)};"
            f" the new one has {', '.join(new.stages)}"
        )
    return pairs


def _facts(given: Program | Facts) -> Facts:
    return given if isinstance(given, Facts) else Facts(given)


def _alone(program: Program, compared: Collection[int]) -> tuple[str, ...]:
    return tuple(name for at, name in enumerate(program.stages) if at not in compared)


# ---------------------------------------------------------------------------------- tables


def _tables(old: Facts, new: Facts, only: Collection[str], ignore: Collection[str]) -> list[Table]:
    """The tables that are compared, in the order of a report. A table that one side has no pass
    for, or another form of, cannot be compared."""
    wanted = {old.table(name).name for name in only}
    left_out = {old.table(name).name for name in ignore}
    found = [
        table
        for table in old.tables
        if table in new.tables and table.name not in left_out
        if (table.name in wanted if only else table.summary is not None or table is FINDINGS)
    ]
    return sorted(found, key=_order)


def _order(table: Table) -> tuple[bool, int, str]:
    summary = table.summary
    return summary is None, 0 if summary is None else summary.order, table.name


def _rows(facts: Facts, tables: Sequence[Table]) -> dict[str, dict[int, list[Row]]]:
    """The rows by table and position of the module. Findings on the whole program stand with the
    module that runs; they are those of passes that a report runs."""
    main = facts.program.index(facts.program.main)
    found: dict[str, dict[int, list[Row]]] = {}
    for table in tables:
        modules = found.setdefault(table.name, {})
        at = table.position("module")
        for row in _finding_rows(facts) if table is FINDINGS else facts.rows(table.name):
            module = row[at]
            modules.setdefault(module if isinstance(module, int) else main, []).append(row)
    return found


def _finding_rows(facts: Facts) -> list[Row]:
    facts.run(
        one
        for one in facts.registry.passes
        if one.rules or any(table.summary is not None for table in one.tables)
    )
    return facts.finding_rows()


# ---------------------------------------------------------------------------------- stages


def _stage(
    old: Facts,
    new: Facts,
    at: int,
    to: int,
    tables: Sequence[Table],
    rows: tuple[dict[str, dict[int, list[Row]]], dict[str, dict[int, list[Row]]]],
    whole: bool,
) -> StageDiff:
    analyses = [
        facts.program.analysis(facts.program.modules[module])
        for facts, module in ((old, at), (new, to))
    ]
    matching = match(*analyses)
    scene = Scene(matching, *(_loops(analysis) for analysis in analyses))
    found = tuple(
        diff_table(scene, table, rows[0][table.name].get(at, ()), rows[1][table.name].get(to, ()))
        for table in tables
    )
    return StageDiff(at, to, matching, found, body_deltas(matching, *analyses), whole)


def _loops(analysis: ModuleAnalysis) -> dict[int, Loop]:
    return {loop.instr.id: loop for loop in analysis.loops}
