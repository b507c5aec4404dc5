"""Starting files: what is expected of small programs, and that it reads back and holds."""

from __future__ import annotations

import ast
import copy
import random
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.check.judging import judge
from hlo_lens.check.reading import read_text
from hlo_lens.check.starting import starting
from hlo_lens.check.starting_text import starting_text
from hlo_lens.check.starting_words import at_most, condition, none_of
from hlo_lens.facts import (
    Cell,
    Column,
    Facts,
    Measure,
    PassResult,
    Summary,
    UnknownTableError,
    discover_passes,
)
from hlo_lens.files import InputError
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests.check.test_judging import LOOP, UNKNOWN_TRIPS
from tests.draft import Draft
from tests.facts.toys import Toy, table
from tests.mutate import HARMLESS

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
DEMO = FIXTURES / "demo/fsdp_train_step.opt.hlo"


@cache
def file_of(text: str, *tables: str) -> str:
    return starting_text(starting(Facts(Program([parse(text)])), tables))


def expected_of(text: str, *tables: str) -> dict[str, Mapping[str, Any]]:
    found = tomllib.loads(file_of(text, *tables))["expect"]
    return {one.get("id", one.get("preset")): one for one in found}


def outcomes(file: str, facts: Facts) -> dict[str, str]:
    expectations = read_text(file.encode(), "expect.toml", discover_passes())
    return {one.id: one.outcome for one in judge(facts, expectations)}


def test_a_table_is_told_in_common_in_groups_and_in_sum() -> None:
    found = expected_of(LOOP, "collectives")
    assert {id: one for id, one in found.items() if "count" not in one} == {
        "collectives-every": {
            "id": "collectives-every",
            "table": "collectives",
            "every": "logical_kind = 'all-reduce' AND dtype = 'f32' AND group_size = 2",
        },
        "collectives-sent-per-step": {
            "id": "collectives-sent-per-step",
            "table": "collectives",
            "sum": "wire_bytes",
            "is": "<= 288 B",
            "per": "step",
        },
    }
    assert [one for one in found.values() if "count" in one] == [
        {
            "id": "collectives-fwd",
            "table": "collectives",
            "where": "phase = 'fwd' AND loop_depth = 0",
            "count": "== 1",
        },
        {
            "id": "collectives-bwd-in-a-loop",
            "table": "collectives",
            "where": "phase = 'bwd' AND loop_depth = 1",
            "count": "== 2",
            "per": "loop execution",
        },
    ]


def test_above_each_stands_what_was_found() -> None:
    lines = file_of(LOOP, "collectives").splitlines()
    above = [lines[at - 1] for at, line in enumerate(lines) if line == "[[expect]]"]
    assert "# sent per step 288 B" in above
    assert "# phase fwd, in no loop: 1 of 3; sent per step 32 B" in above
    assert not any(line.startswith("because") for line in lines)  # is for a person to say


def test_what_is_not_there_is_expected_not_to_come() -> None:
    found = expected_of(LOOP)
    assert found["matmuls-none"] == {
        "id": "matmuls-none",
        "table": "matmuls",
        "none": True,
    }
    assert "attention-none" not in found  # no report says so of every program
    assert "attention-none" in expected_of(LOOP, "attention")


def test_how_many_are_overlapped_is_a_lower_bound() -> None:
    found = expected_of(DEMO.read_text(), "collectives")
    assert found["collectives-overlap"] == {
        "id": "collectives-overlap",
        "table": "collectives",
        "where": "overlapped",
        "count": ">= 6",
    }


def test_there_is_no_other_kind_than_those_that_are_there() -> None:
    found = expected_of(LOOP.replace("all-reduce(x)", "collective-broadcast(x)"), "collectives")
    assert found["collectives-no-other-logical-kind"]["where"] == (
        "logical_kind NOT IN ('all-reduce', 'collective-broadcast')"
    )


def test_what_is_not_known_is_left_out_and_told() -> None:
    file = file_of(UNKNOWN_TRIPS, "collectives")
    assert "collectives-sent-per-step" not in file
    assert "# Left out, as it is not known how often they run" in file
    assert "sent per step ≥ 32 B" in file
    assert set(outcomes(file, Facts(Program([parse(UNKNOWN_TRIPS)]))).values()) == {"passed"}


def test_without_op_names_no_phase_is_expected() -> None:
    text = "\n".join(line.partition(", metadata")[0] for line in LOOP.splitlines())
    file = file_of(text)
    assert "# The text has no op_names, so that no phase is known or expected here." in file
    assert "phase = " not in file
    assert set(outcomes(file, Facts(Program([parse(text)]))).values()) == {"passed"}


def test_a_cut_off_text_is_no_good_program() -> None:
    with pytest.raises(InputError, match="the text is cut off"):
        file_of(LOOP[: LOOP.rindex("ROOT last")])


def test_a_table_has_to_exist() -> None:
    with pytest.raises(UnknownTableError, match="no table loop; did you mean loops"):
        file_of(LOOP, "loop")


def test_a_table_of_a_new_pass_is_expected_to_stay_without_a_line_here() -> None:
    columns = (
        Column("color", "enum", "structural", "its color", values=("red", "blue")),
        Column("size", "bytes", "measure", "its size"),
    )
    measures = (Measure("size", "once", "size"),)
    summary = Summary("things", 5, by=(Cell("color"),), measures=measures)
    toy = Toy(
        "things",
        (replace(table("things", *columns), summary=summary),),
        lambda *_: PassResult({"things": THINGS}),
    )
    facts = Facts(Program([parse(LOOP)]), [*discover_passes().passes, toy])
    file = starting_text(starting(facts))
    found = [one for one in tomllib.loads(file)["expect"] if one.get("table") == "things"]
    assert [{key: one[key] for key in list(one)[2:]} for one in found] == [
        {"where": "color = 'red'", "count": "== 2"},
        {"where": "color = 'blue'", "count": "== 1"},
        {"sum": "size", "is": "<= 3,079 B"},
    ]


THINGS: list[dict[str, object]] = [
    {"module": 0, "instr": 1, "color": "blue", "size": 7},
    {"module": 0, "instr": 2, "color": "red", "size": 1024},
    {"module": 0, "instr": 2, "color": "red", "size": 2048},
]


def test_no_line_of_it_names_a_table() -> None:
    registry = discover_passes(installed=False)
    for path in (ROOT / "hlo_lens/check").glob("starting*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
        # Whether the text is cut off and has op_names is said of modules.
        assert not texts & set(registry.owners) - {"modules"}, path


@cache
def draft_of_the_demo() -> Draft:
    return Draft.of(DEMO.read_text())


@pytest.mark.parametrize("name", sorted(set(HARMLESS) - {"strip-metadata"}))
def test_the_same_program_written_otherwise_has_the_same_file(name: str) -> None:
    """So there are no names in it, of instructions, computations or files, and no numbers."""
    draft = copy.deepcopy(draft_of_the_demo())
    if not HARMLESS[name](draft, random.Random(0)):
        pytest.skip(f"{name} does not apply to it")
    assert file_of(draft.text()) == file_of(DEMO.read_text())


def test_a_person_reads_it_to_the_end() -> None:
    assert 15 <= len(expected_of(DEMO.read_text())) <= 40


@pytest.mark.parametrize(
    "folder",
    [
        "plain/fsdp/tpu-v6e-8", "remat/offload-scanned/rocm-gfx950", "moe/ragged-layer/rocm-gfx950",
        "attention/splash-train/tpu-v6e-1", "pairs/query-gather-twice/tpu-tpu7x-8",
    ],
)  # fmt: skip
def test_of_a_compile_with_stages_and_side_files_it_holds(folder: str) -> None:
    facts = Facts(load(FIXTURES / "hlo" / folder))
    found = outcomes(starting_text(starting(facts)), facts)
    assert set(found.values()) == {"passed"}


# --- words ------------------------------------------------------------------------------------

KIND = Column("kind", "text", "identity", "what it is")
KEPT = Column("kept", "bool", "structural", "whether it is kept")
BYTES = Column("size", "bytes", "measure", "its size")
FLOPS = Column("work", "flops", "measure", "its work")


def test_conditions_are_sql() -> None:
    assert condition(KIND, "it's") == "kind = 'it''s'"
    assert condition(KIND, "a", unknown=True) == "kind IS 'a'"
    assert condition(KIND, None) == "kind IS NULL"
    assert [condition(KEPT, value) for value in (True, False)] == ["kept", "NOT kept"]
    assert condition(KEPT, False, unknown=True) == "kept IS 0"
    assert none_of(KIND, ["a"]) == "kind <> 'a'"
    assert none_of(KIND, ["a", None, "b"]) == "kind IS NOT NULL AND kind NOT IN ('a', 'b')"


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (BYTES, 7, "<= 7 B"),
        (BYTES, 1536, "<= 1.5 KiB"),
        (BYTES, 22020096, "<= 21 MiB"),
        (BYTES, 22020097, "<= 22,020,097 B"),
        (FLOPS, 2500, "<= 2.5 kFLOP"),
        (FLOPS, 2_500_000_000_000, "<= 2.5 TFLOP"),
        (KIND, 12345, "<= 12,345"),
    ],
)
def test_a_bound_is_exact(column: Column, value: int, text: str) -> None:
    assert at_most(column, value) == text


def test_what_a_program_says_is_quoted() -> None:
    hostile = LOOP.replace(
        "all-reduce(x), replica_groups={{0,1}}, to_apply=add",
        """custom-call(x), custom_call_target="a'b\\"]\\nc\\x7f\"""",
    )
    file = file_of(hostile, "custom_calls", "kernels", "loops")
    assert set(outcomes(file, Facts(Program([parse(hostile)]))).values()) == {"passed"}
