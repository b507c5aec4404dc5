"""`hlo_lens.diff.compare`: stages, tables that are asked for, and what is told of a program."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hlo_lens
from hlo_lens.diff import NothingInCommonError, ProgramDiff, compare, stage_pairs
from hlo_lens.facts import FINDINGS, Facts, UnknownTableError, discover_passes
from hlo_lens.hlo import parse
from hlo_lens.program import AFTER, BEFORE, Program
from tests.diff.comparing import program, table
from tests.diff.texts import GATHERED_INSIDE, GATHERED_ONCE, unrolled

ROOT = Path(__file__).parents[2]


def staged(**texts: str) -> Program:
    """A Program of these texts by stage."""
    return Program([parse(text) for text in texts.values()], list(texts))


def tables_of(found: ProgramDiff) -> list[str]:
    (stage,) = found.stages
    return [each.table.name for each in stage.tables]


# -- what is compared


def test_by_default_what_a_report_shows_and_the_findings() -> None:
    found = compare(program(GATHERED_INSIDE), program(GATHERED_ONCE))
    summarised = {each.name for each in discover_passes().tables if each.summary is not None}
    assert set(tables_of(found)) == summarised | {FINDINGS.name}


def test_the_tables_that_are_asked_for_and_no_others() -> None:
    sides = program(GATHERED_INSIDE), program(GATHERED_ONCE)
    assert tables_of(compare(*sides, only=["edges", "collectives"])) == ["collectives", "edges"]
    without = compare(*sides, ignore=["collectives"])
    assert "collectives" not in tables_of(without)
    assert "matmuls" in tables_of(without)


def test_no_pass_runs_that_no_compared_table_needs() -> None:
    facts = Facts(program(GATHERED_INSIDE))
    found = compare(facts, program(GATHERED_ONCE), only=["matmuls"])
    assert found.old is facts
    assert facts.findings == ()
    assert "collectives" not in facts._rows


@pytest.mark.parametrize("option", ["only", "ignore"])
def test_a_table_that_is_none_is_an_error_with_a_suggestion(option: str) -> None:
    sides = program(GATHERED_INSIDE), program(GATHERED_ONCE)
    with pytest.raises(UnknownTableError, match="did you mean collectives"):
        compare(*sides, **{option: ["colectives"]})


def test_an_instruction_that_differs_is_a_difference_though_no_table_says_so() -> None:
    text = unrolled(2)
    sides = program(text), program(text.replace("add(t1, x1)", "add(x1, t1)"))
    found = compare(*sides)
    assert all(each.same for each in found.stages[0].tables)
    assert not found.same
    assert compare(*sides, only=["matmuls"]).same  # nothing else was asked


def test_facts_are_not_computed_again() -> None:
    facts = Facts(program(GATHERED_INSIDE))
    rows = facts.rows("collectives")
    assert compare(facts, facts).same
    assert facts.rows("collectives") is rows


# -- stages


def test_stages_are_compared_by_name() -> None:
    old = staged(before_optimizations=unrolled(2), after_optimizations=GATHERED_INSIDE)
    new = staged(
        after_optimizations=GATHERED_ONCE, other=unrolled(1), before_optimizations=unrolled(2)
    )
    found = compare(old, new)
    stages = [(old.stages[one.old], new.stages[one.new]) for one in found.stages]
    assert stages == [(BEFORE, BEFORE), (AFTER, AFTER)]
    assert [one.same for one in found.stages] == [True, False]
    assert (found.only_old, found.only_new) == ((), ("other",))
    assert found.main is found.stages[1]
    assert [one.old for one in compare(old, new, stages=[BEFORE]).stages] == [0]


def test_two_lone_modules_are_compared_whatever_their_stages_are_called() -> None:
    found = compare(staged(one=unrolled(2)), staged(other=unrolled(2)))
    assert found.same
    assert (found.only_old, found.only_new) == ((), ())


def test_nothing_in_common_says_what_each_has() -> None:
    sides = staged(a=unrolled(1), b=unrolled(1)), staged(c=unrolled(1))
    message = r"no stage in common: the old program has a, b; the new one has c"
    for ask in (compare, stage_pairs):
        with pytest.raises(NothingInCommonError, match=message):
            ask(*sides)  # type: ignore[operator]
    with pytest.raises(NothingInCommonError, match="no stage of x in common"):
        compare(*sides, stages=["x"])


def test_a_stage_that_is_there_twice_is_matched_in_order() -> None:
    texts = unrolled(1), unrolled(2)
    old = Program([parse(text) for text in texts], ["pass", "pass"])
    assert stage_pairs(old, old) == [("pass", 0, 0), ("pass", 1, 1)]
    assert compare(old, old).same


# -- how it is found


def test_it_is_part_of_the_package_and_costs_nothing_before_it_is_used() -> None:
    assert hlo_lens.diff.compare is compare
    code = (
        "import sys, hlo_lens; print(any(name.startswith('hlo_lens.diff') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_no_module_of_it_names_a_pass_or_its_tables() -> None:
    registry = discover_passes(installed=False)
    names = {one.name for one in registry.passes} | set(registry.owners)
    # What a program is made of, keys of the JSON, and a phase.
    words = {"instructions", "loops", "modules", "remat"}
    for path in (ROOT / "hlo_lens" / "diff").glob("*.py"):
        tree = ast.parse(path.read_text())
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert not (texts & names) - words, path


def test_two_programs_that_have_nothing_alike() -> None:
    found = compare(program(GATHERED_INSIDE), program(unrolled(2)))
    assert not found.same
    assert table(found, "collectives").removed != ()


# -- two compiles


@pytest.mark.jax
def test_two_compiles_of_one_program_differ_in_nothing() -> None:
    import jax
    import jax.numpy as jnp

    def layer(x: Any, w: Any) -> tuple[Any, None]:
        return jnp.tanh(x @ w), None

    def first(x: Any, ws: Any) -> Any:
        return jax.lax.scan(layer, x, ws)[0].sum()

    def second(x: Any, ws: Any) -> Any:
        return jax.lax.scan(layer, x, ws)[0].sum()

    def deeper(x: Any, ws: Any) -> Any:
        return jnp.sin(jax.lax.scan(layer, x, ws)[0]).sum()

    shapes = jax.ShapeDtypeStruct((8, 16), "float32"), jax.ShapeDtypeStruct((4, 16, 16), "float32")
    programs = [
        hlo_lens.from_jax(lowered := jax.jit(jax.grad(one, 1)).lower(*shapes), lowered.compile())
        for one in (first, second, deeper)
    ]
    same = compare(programs[0], programs[1])
    assert len(same.stages) == 2
    assert same.same
    assert not compare(programs[0], programs[2]).same
