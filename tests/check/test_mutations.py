"""The gate under rewrites of every committed text: harmless ones keep every verdict of its starting
file and of the presets, and harmful ones fail an expectation of the starting file.

A run takes a sample of texts and rewrites, the same each time; HLOLENS_MUTATIONS=all takes all, but
for rewrites of single instructions of large texts, of which it takes some.
"""

from __future__ import annotations

import copy
import hashlib
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from hlo_lens.check.judging import judge
from hlo_lens.check.model import Expectation
from hlo_lens.check.presets import presets
from hlo_lens.check.reading import HERE, expectation, read_text
from hlo_lens.check.starting import starting
from hlo_lens.check.starting_text import starting_text
from hlo_lens.facts import Facts, discover_passes
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.present.groups import wanted
from hlo_lens.program import Program
from tests.draft import Block, Draft, Line
from tests.mutate import HARMFUL, HARMLESS, Rewrite, _into_loop, _zero

ROOT = Path(__file__).resolve().parents[2]
TEXTS = sorted(
    path
    for path in (ROOT / "fixtures").rglob("*")
    if path.suffix in (".txt", ".hlo") and path.read_text()[:9] == "HloModule"
)
ALL = os.environ.get("HLOLENS_MUTATIONS") == "all"
_TEXTS, _REWRITES, _LARGEST = 60, 2, 60_000  # of a sample: texts, rewrites of each, characters
_OF_A_LARGE = 10

Outcomes = dict[str, str]


def sample(name: str, among: Sequence[str], many: int) -> list[str]:
    """Some of the names, the same each time."""
    return sorted(among, key=lambda one: hashlib.sha256(f"{name} {one}".encode()).digest())[:many]


def names_of_texts() -> list[str]:
    names = [
        str(path.relative_to(ROOT)) for path in TEXTS if ALL or path.stat().st_size <= _LARGEST
    ]
    return names if ALL else sample("texts", names, _TEXTS)


def facts_of(text: str) -> Facts:
    return Facts(Program([parse(text)]))


SAID = {"family": "cudnn", "at_most": "1 MiB", "at_least": "1 B"}
"""What is said to presets that take something."""


@cache
def by_presets() -> list[Expectation]:
    return [
        expectation(
            {"preset": one.name, **{name: SAID[name] for name in one.parameters}},
            HERE,
            discover_passes(),
        )
        for one in presets().values()
    ]


@cache
def expected_of(text: str) -> list[Expectation]:
    """The starting file of a text, as it is read back."""
    file = starting_text(starting(facts_of(text)))
    return read_text(file.encode(), "expect.toml", discover_passes())


def outcomes(facts: Facts, expectations: Sequence[Expectation]) -> Outcomes:
    return {one.id: one.outcome for one in judge(facts, expectations)}


def rewritten(text: str, rewrite: Rewrite) -> str | None:
    draft = copy.deepcopy(_draft(text))
    return draft.text() if rewrite(draft, random.Random(0)) else None


@cache
def _draft(text: str) -> Draft:
    return Draft.of(text)


# --- harmless ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names_of_texts())
def test_harmless_rewrites_keep_every_verdict(name: str) -> None:
    text = (ROOT / name).read_text()
    given = [*expected_of(text), *by_presets()]
    before = outcomes(facts_of(text), given)
    own = [one.id for one in expected_of(text)]
    assert {id: before[id] for id in own} == dict.fromkeys(own, "passed")
    for each in HARMLESS if ALL else sample(name, list(HARMLESS), _REWRITES):
        changed = rewritten(text, HARMLESS[each])
        if changed is None:
            continue
        facts = facts_of(changed)
        found = outcomes(facts, given)
        if each == "strip-metadata":
            # What needs op_names is not judged; all else is as it was.
            found = {id: before[id] if of == "not judged" else of for id, of in found.items()}
        different = {id: (before[id], of) for id, of in found.items() if of != before[id]}
        assert different == {}, f"{each} changed verdicts"


# --- harmful ----------------------------------------------------------------------------------


def harmful(text: str) -> Iterator[tuple[str, Rewrite]]:
    """Rewrites that a gate must see: whole ones, and of each collective, matmul and kernel that it
    is dropped, or put into a loop."""
    yield from HARMFUL.items()
    facts = facts_of(text)
    module = facts.program.main
    blocks = {computation.index: at for at, computation in enumerate(module.computations)}
    for id in sorted(_works(facts)):
        instruction = module.instruction(id)
        at = blocks[instruction.computation.index]
        yield f"drop {instruction.name}", _dropped(at, instruction.name)
        yield f"into-loop {instruction.name}", _looped(at, instruction.name)


def _works(facts: Facts) -> set[int]:
    """The instructions that the skeleton shows: what communicates, multiplies, calls a kernel."""
    found: set[int] = set()
    for table in facts.tables:
        lane = None if table.summary is None else table.summary.lane
        if lane is None:
            continue
        for row in wanted(table, facts.rows(table.name), lane.skip):
            instr = row[table.position("instr")]
            found |= {instr} if isinstance(instr, int) else set()
    return found


def _dropped(at: int, name: str) -> Rewrite:
    """A constant stands where the instruction was; a start goes with its done."""

    def drop(draft: Draft, r: random.Random) -> bool:
        block = draft.blocks[at]
        before = [one for one in draft.blocks if is_unused(draft, one)]
        line = block.line(name)
        ends = [line]
        while ends[-1].opcode.endswith(("-start", "-update")):
            users = [one for one in block.users(ends[-1].name) if one.name != ends[-1].name]
            if len(users) != 1 or not users[0].opcode.endswith(("-update", "-done")):
                return False
            ends.append(users[0])
        last = ends[-1]
        last.opcode, last.operands, last.argument = "constant", None, _zero(last.shape)
        last.attributes = {}
        for gone in ends[:-1]:
            block.lines.remove(gone)
        while unused := [
            one for one in draft.blocks if is_unused(draft, one) and one not in before
        ]:
            for one in unused:
                draft.blocks.remove(one)
        return True

    return drop


def is_unused(draft: Draft, block: Block) -> bool:
    return block.name != draft.entry and not draft.callers(block.name)


def _looped(at: int, name: str) -> Rewrite:
    def loop(draft: Draft, r: random.Random) -> bool:
        block = draft.blocks[at]
        line = block.line(name)
        # Only what is of arrays can be carried, and what is in no fusion can hold a loop.
        names = [line.name, *(line.operands or ())]
        if line.opcode.endswith(("-start", "-update", "-done")) or line.opcode == "while":
            return False
        if not line.operands or any("#" in one or _is_tuple(block.line(one)) for one in names):
            return False
        if any(caller.opcode == "fusion" for caller in draft.callers(block.name)):
            return False
        return _into_loop(at, name)(draft, r)

    return loop


def _is_tuple(line: Line) -> bool:
    return line.shape.startswith("(")


CHANGES = {
    "change-dtypes": "SELECT dtype, '', '' FROM collectives"
    " UNION ALL SELECT lhs_dtype, rhs_dtype, out_dtype FROM matmuls ORDER BY 1, 2, 3",
    "change-groups": "SELECT group_size FROM collectives ORDER BY 1",
    "change-trip-counts": "SELECT trip_count FROM loops ORDER BY 1",
}
"""What a rewrite of the whole text must have changed before the gate has to see it."""


def has_to_be_seen(each: str, text: str, changed: str) -> bool:
    """Whether facts say otherwise: of a rewrite of one instruction, they always do."""
    question = CHANGES.get(each)
    if question is None:
        return True
    before, after = (
        run_query([facts_of(one)], question, limit_rows=10_000).rows for one in (text, changed)
    )
    return before != after


@pytest.mark.parametrize("name", names_of_texts())
def test_harmful_rewrites_fail_an_expectation(name: str) -> None:
    text = (ROOT / name).read_text()
    rewrites = dict(harmful(text))
    many = len(rewrites) if len(text) <= _LARGEST else _OF_A_LARGE
    chosen = [*HARMFUL, *sample(name, list(rewrites), many)] if ALL else []
    for each in chosen or sample(name, list(rewrites), _REWRITES):
        changed = rewritten(text, rewrites[each])
        if changed is None or not has_to_be_seen(each, text, changed):
            continue
        found = outcomes(facts_of(changed), expected_of(text))
        assert "failed" in found.values(), f"{each} is not seen: {Counter(found.values())}"
