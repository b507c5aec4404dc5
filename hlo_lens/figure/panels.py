"""A panel from a selection: what is drawn of one module, with its paths, frames and words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.facts import Facts, UnknownTableError
from hlo_lens.figure.framing import clusters, frames_around
from hlo_lens.figure.model import Edge, Node, Panel
from hlo_lens.figure.near import (
    MOST_VALUES,
    Neighbours,
    Pruning,
    between,
    everything,
    why_left_out,
)
from hlo_lens.figure.origin import provenance
from hlo_lens.figure.paths import MOST_AROUND, MOST_BETWEEN, Path, Walk
from hlo_lens.figure.selecting import (
    NothingSelectedError,
    Selection,
    Wanted,
    frames_of,
    instruction_named,
    select,
)
from hlo_lens.figure.views import Views
from hlo_lens.files import InputError
from hlo_lens.hlo import Instruction, Module
from hlo_lens.present.quantities import count_text

NODES = 40
"""How many instructions a figure draws unless it is told otherwise: what a page can hold."""


def panel(
    facts: Facts,
    position: int,
    wanted: Wanted,
    known: Views,
    *,
    most: int = NODES,
    title: str = "",
    prefix: str = "",
    keep: Sequence[str] = (),
) -> Panel:
    """What is drawn of module `position`, about `most` nodes. `prefix` begins the ids of its nodes;
    `keep` names kinds of instructions of `known.prune` that are drawn too.

    Raises `InputError` for a table, condition or name that is not there and for a whole module that
    is too large, `NothingSelectedError` where nothing is what was asked for.
    """
    program = facts.program
    module = program.modules[position]
    analysis = program.analysis(module)
    pruning = _pruning(module, known, keep)
    families = _families(facts, position, known)
    ranks = _ranks(known)
    chosen = select(facts, position, wanted, most, lambda one: ranks.get(families.get(one.opcode)))
    _add_nearby(chosen, analysis, wanted, pruning, most)
    frames = frames_around(analysis, chosen.roles)
    drawn = [one for one in chosen.roles if one not in frames and not _is_carry(one, analysis)]
    drawn.sort(key=lambda one: one.id)
    nodes = _nodes(analysis, drawn, chosen, families, prefix)
    most_between = MOST_BETWEEN if wanted.longest_path is None else wanted.longest_path
    walk = Walk(
        analysis, set(drawn), frames, lambda one: pruning.why(one) is not None, most_between
    )
    edges = tuple(_edges(walk, drawn, {node.instr: node.id for node in nodes}))
    chosen.notes += _limits(walk)
    boundaries = [one for frame in wanted.frames for one in frames_of(facts, position, frame)]
    return Panel(
        title=title,
        name=module.name,
        stage=program.stages[position],
        file=module.filename,
        nodes=nodes,
        edges=edges,
        clusters=clusters(analysis, nodes, boundaries, chosen.roles, prefix),
        about=provenance(program),
        total=module.instruction_count,
        left_out=why_left_out(set(drawn), frames, pruning.why),
        notes=tuple(chosen.notes),
        heading=tuple(dict.fromkeys(chosen.heading)),
        sha256=module.sha256,
    )


def whole(facts: Facts, position: int, known: Views, keep: Sequence[str]) -> list[Instruction]:
    """What is drawn of the whole module `position`, where nothing is chosen."""
    module = facts.program.modules[position]
    return everything(module, facts.program.analysis(module), _pruning(module, known, keep))


def _pruning(module: Module, known: Views, keep: Sequence[str]) -> Pruning:
    by_opcode = {opcode: why for why, opcodes in known.prune.items() for opcode in opcodes}
    return Pruning(module, by_opcode, frozenset(known.prune).difference(keep))


def _is_carry(instr: Instruction, analysis: ModuleAnalysis) -> bool:
    """Whether it is the tuple that a called computation is given: what is in it is drawn."""
    return (
        instr.opcode == "parameter"
        and instr.shape_text.startswith("(")
        and bool(analysis.graph.callers(instr.computation))
    )


def _add_nearby(
    chosen: Selection, analysis: ModuleAnalysis, wanted: Wanted, pruning: Pruning, most: int
) -> None:
    """Add what lies between, around, or everything, as far as the figure has room."""
    module = analysis.module
    if wanted.everything:
        chosen.roles.update(dict.fromkeys(everything(module, analysis, pruning), ()))
        return
    if wanted.between:
        first, last = (instruction_named(module, name) for name in wanted.between)
        _add_between(chosen, analysis, first, last, pruning, most)
    phases = {analysis.phase(one).phase for one in chosen.roles} | {"other", None}

    def is_wanted(one: Instruction) -> bool:
        return not wanted.same_phase or analysis.phase(one).phase in phases

    radius = wanted.radius
    if radius is None:
        radius = 1 if wanted.selects and len(chosen.roles) == 1 else 0
    found = Neighbours(analysis, pruning, is_wanted, wanted.neighbours)
    for near, over in found.around(list(chosen.roles), radius):
        room = max(0, most - len(chosen.roles))
        over += max(0, len(near) - room)
        if over:
            chosen.notes.append(f"{count_text(over)} neighbour{'s'[over == 1 :]} left out")
        chosen.roles.update(dict.fromkeys(near[:room], ()))
    if found.gave_up:
        chosen.notes.append(
            f"of what lies around an instruction the nearest {count_text(MOST_VALUES)} values were"
            " looked at"
        )


def _add_between(
    chosen: Selection,
    analysis: ModuleAnalysis,
    first: Instruction,
    last: Instruction,
    pruning: Pruning,
    most: int,
) -> None:
    way = between(analysis, first, last)
    if not way:
        raise NothingSelectedError(f"no operand path from %{first.name} to %{last.name}")
    chosen.add(first, "from")
    chosen.add(last, "to")
    inside = [one for one in way if pruning.why(one) is None and one not in chosen.roles]
    room = max(0, most - len(chosen.roles))
    if len(inside) > room:
        chosen.notes.append(
            f"{count_text(len(inside) - room)} more instructions lie on the paths between"
        )
    chosen.roles.update(dict.fromkeys(inside[:room], ()))


def _nodes(
    analysis: ModuleAnalysis,
    drawn: Iterable[Instruction],
    chosen: Selection,
    families: Mapping[str, str],
    prefix: str,
) -> tuple[Node, ...]:
    return tuple(
        Node(
            id=f"{prefix}i{instr.id}",
            instr=instr,
            roles=tuple(role for role in chosen.roles[instr] if role),
            selected=bool(chosen.roles[instr]),
            phase=analysis.phase(instr).phase,
            family=families.get(instr.opcode),
            notes=_argument(analysis, instr),
        )
        for instr in drawn
    )


def _argument(analysis: ModuleAnalysis, instr: Instruction) -> tuple[str, ...]:
    """jax's name of the argument that a parameter of the entry is; none where its own says it."""
    if instr.opcode != "parameter" or instr.computation is not analysis.module.entry:
        return ()
    name = instr.op_name
    return (name,) if name and re.sub(r"\W", "_", name) != instr.name.partition(".")[0] else ()


def _families(facts: Facts, position: int, known: Views) -> Mapping[str, str]:
    families = known.families
    if families is None:
        return {}
    try:
        table = facts.table(families.table)
        at, key, value = (table.position(one) for one in ("module", families.key, families.value))
    except (KeyError, UnknownTableError) as problem:
        raise InputError("[families]", str(problem.args[0])) from None
    return {str(row[key]): str(row[value]) for row in facts.rows(table.name) if row[at] == position}


def _ranks(known: Views) -> dict[str | None, int]:
    """How early a family is drawn of what does not fit."""
    first = known.families.first if known.families is not None else ()
    return {family: at for at, family in enumerate(first)}


def _limits(walk: Walk) -> Iterable[str]:
    if walk.too_long:
        yield (
            f"paths through more than {walk.most} instructions that compute"
            f" ({min(MOST_AROUND, walk.most)} of a path round a loop) are not drawn"
        )
    if walk.too_many:
        yield (
            f"paths beyond the nearest {count_text(walk.room)} values behind an instruction are"
            " not drawn"
        )


def _edges(
    walk: Walk, drawn: Iterable[Instruction], ids: Mapping[Instruction, str]
) -> Iterable[Edge]:
    """One edge a source and target: the shortest path; how many more operands it reaches."""
    for target in drawn:
        best: dict[Instruction, Path] = {}
        also: dict[Instruction, int] = {}
        for path in walk.into(target):
            also[path.source] = also.get(path.source, -1) + 1
            known = best.get(path.source)
            if known is None or path.length < known.length:
                best[path.source] = path
        for source, path in best.items():
            yield Edge(
                source=ids[source],
                target=ids[target],
                operand=path.operand,
                element=path.element,
                through=path.through,
                next_iteration=path.around,
                also=also[source],
            )
