"""What two programs can tell alike: only then does no difference mean that there is none."""

from __future__ import annotations

import json
from pathlib import Path

from hlo_lens.check.selection import not_whole
from hlo_lens.dumps import BUFFER_ASSIGNMENT
from hlo_lens.facts import Facts
from hlo_lens.present.quantities import visible
from hlo_lens.program import UNKNOWN, Program

BASELINE = "the baseline"
THIS = "this program"


def why_not(good: Facts, facts: Facts, at: int, to: int) -> str | None:
    """Why the module `at` of `good` cannot be compared with the module `to` of `facts`."""
    sides = ((BASELINE, good, at), (THIS, facts, to))
    for who, one, _ in sides:
        # Passes compare stages, so that a fact about one needs the others.
        for module in one.program.modules:
            if why := not_whole(module):
                return why.replace("the text", f"the text of {who}", 1)
    named = [one.program.modules[position].has_metadata for _, one, position in sides]
    if named[0] != named[1]:
        who = sides[named[0]][0]
        return (
            f"the text of {who} has no op_names, the other has: phases, what is kept and what is"
            " replayed are not known there"
        )
    stages = [one.program.stages[position] for _, one, position in sides]
    if stages[0] != stages[1] and UNKNOWN not in stages:
        return visible(f"{BASELINE} is {stages[0]}, {THIS} is {stages[1]}")
    scopes = [
        row["size_scope"]
        for _, one, position in sides
        for row in one.records_by_module("modules").get(position, ())
        if row["size_scope"] is not None
    ]
    if len(set(scopes)) > 1:
        return f"the shapes of {BASELINE} are {scopes[0]}, those of {THIS} {scopes[1]}"
    return None


# ---------------------------------------------------------------------------------- side files


def lone_side_files(good: Facts, facts: Facts) -> str:
    """Which side files say something to one of the programs alone, as a sentence; "" for none."""
    ours, theirs = _readable(good.program), _readable(facts.program)
    return "; ".join(
        f"{visible(', '.join(sorted(names)))} {'lies' if len(names) == 1 else 'lie'} beside {who}"
        " alone"
        for who, names in ((BASELINE, ours - theirs), (THIS, theirs - ours))
        if names
    )


def without_lone_side_files(good: Facts, facts: Facts) -> tuple[Facts, Facts]:
    """Both programs as they are with the side files that both have."""
    names = _readable(good.program) & _readable(facts.program)
    return _only_with(good, names), _only_with(facts, names)


def _only_with(facts: Facts, names: set[str]) -> Facts:
    its = facts.program
    kept = {name: path for name, path in its.side_files.items() if name in names}
    program = Program(its.modules, its.stages, name=its.name, side_files=kept)
    return Facts(program, facts.registry.passes)


def _readable(program: Program) -> set[str]:
    """The names of the side files that say something: not of one that is no JSON."""
    files = program.side_files.items()
    return {name for name, path in files if name == BUFFER_ASSIGNMENT or _is_json(path)}


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return True
