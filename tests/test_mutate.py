"""The mutation harness: its rewrites read back, and do what their names say."""
# ruff: noqa: E501

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from hlo_lens.hlo import Module, parse
from tests.draft import Draft
from tests.hlo.module_generator import module_text
from tests.hlo.reference_parser import needs_jax, reference_answers, too_new
from tests.mutate import HARMFUL, HARMLESS, check_table, harmful, harmless
from tests.shared import needs_shared, texts

TEXT = """HloModule train, num_partitions=4

FileNames
1 "a.py"

FunctionNames
1 "main"
2 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=0 end_column=9}
2 {file_name_id=1 function_name_id=2 line=20 end_line=20 column=0 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

wrapped {
  a = f32[8] parameter(0)
  ROOT s = f32[2] reduce-scatter(a), channel_id=3, replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=sum
}

body {
  state = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  w.remat2 = f32[8,8] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  d = f32[8,8] dot(w.remat2, w.remat2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[8,8]) tuple(next, d)
}

condition {
  state = (s32[], f32[8,8]) parameter(0)
  ROOT go = pred[] compare(state#0, s32[] constant(5)), direction=LT
}

ENTRY main {
  p = f32[8,8] parameter(0)
  q = f32[8] parameter(1), metadata={op_name="q" stack_frame_id=2}
  zero = s32[] constant(0)
  init = (s32[], f32[8,8]) tuple(zero, p)
  loop = (s32[], f32[8,8]) while(init), condition=condition, body=body, backend_config={"known_trip_count":{"n":"5"}}
  g-s = (f32[8], f32[16]) all-gather-start(q), channel_id=1, replica_groups={{0,1},{2,3}}, dimensions={0}, metadata={op_name="g"}
  g-d = f32[16] all-gather-done(g-s)
  r = f32[8] all-reduce(q), channel_id=2, replica_groups=[2,2]<=[2,2]T(1,0), to_apply=sum, control-predecessors={g-d}
  s-s = ((f32[8]), f32[2], u32[]) async-start(r), calls=wrapped
  s-d = f32[2] async-done(s-s)
  c-s = ((f32[8]), f32[4], s32[]) slice-start(r), slice={[0:4]}
  c-d = f32[4] slice-done(c-s)
  ROOT out = (f32[8,8], f32[16], f32[2], f32[4]) tuple(loop#1, g-d, s-d, c-d)
}
"""


def by_name(rewritten: Iterable[tuple[str, str]], name: str) -> Module:
    return parse(next(text for each, text in rewritten if each == name))


def edges(module: Module) -> int:
    return sum(
        len(instruction.operands)
        for computation in module.computations
        for instruction in computation.instructions
    )


def opcodes(module: Module) -> list[str]:
    """Opcodes of the module, sorted; those inside of sugar too."""
    return sorted(opcode for computation in module.expanded() for opcode, _ in computation)


def test_every_rewrite_applies_to_this_text() -> None:
    assert {name for name, _ in harmless(TEXT)} == set(HARMLESS)
    names = {name.partition(" ")[0] for name, _ in harmful(TEXT)}
    assert names == {*HARMFUL, "drop-edge", "into-loop"}


def test_a_draft_is_written_as_it_was_read() -> None:
    assert parse(Draft.of(TEXT).text()).expanded() == parse(TEXT).expanded()


@pytest.mark.parametrize(
    "name",
    [
        "rename",
        "renumber-channels",
        "renumber-frames",
        "strip-metadata",
        "groups-as-lists",
        "groups-as-iotas",
        "groups-as-meshes",
        "no-percent",
        "operand-shapes",
        "comments",
        "many-lines",
    ],
)
def test_the_structure_stays(name: str) -> None:
    assert by_name(harmless(TEXT), name).expanded() == parse(TEXT).expanded()


@pytest.mark.parametrize("name", ["reorder", "reorder-computations"])
def test_the_opcodes_stay(name: str) -> None:
    found = by_name(harmless(TEXT), name)
    assert opcodes(found) == opcodes(parse(TEXT))
    assert found.expanded() != parse(TEXT).expanded()


def test_rename_keeps_the_remat_mark() -> None:
    found = by_name(harmless(TEXT), "rename")
    names = {each for computation in found.computations for each in computation.names}
    old = {each for computation in parse(TEXT).computations for each in computation.names}
    assert not names & old
    assert [each for each in names if each.endswith(".remat2")]


def test_a_schedule_is_not_reordered() -> None:
    scheduled = TEXT.replace("HloModule train", "HloModule train, is_scheduled=true")
    assert "reorder" not in {name for name, _ in harmless(scheduled)}


def test_frames_still_lead_to_the_same_source() -> None:
    found = by_name(harmless(TEXT), "renumber-frames")
    assert found.frames.stack(1) == parse(TEXT).frames.stack(2)
    assert found.entry.instructions["q"].source == "a.py:20"


def test_groups_stay_the_same_groups() -> None:
    def groups(module: Module) -> list[object]:
        return [
            each.replica_groups.groups
            for computation in module.computations
            for each in computation.instructions
            if each.replica_groups is not None
        ]

    forms = [by_name(harmless(TEXT), f"groups-as-{form}") for form in ("lists", "iotas", "meshes")]
    assert [groups(module) for module in forms] == [groups(parse(TEXT))] * 3
    assert [module.entry.instructions["r"].replica_groups.form for module in forms] == [
        "list",
        "iota",
        "mesh",
    ]


def test_async_in_another_spelling() -> None:
    entry = by_name(harmless(TEXT), "respell-async").entry
    found = {name: entry.instructions[name] for name in ("g-s", "g-d", "s-s", "s-d", "c-s", "c-d")}
    assert {name: each.opcode for name, each in found.items()} == {
        "g-s": "async-start",
        "g-d": "async-done",
        "s-s": "reduce-scatter-start",
        "s-d": "reduce-scatter-done",
        "c-s": "async-start",
        "c-d": "async-done",
    }
    assert [each.called[0].root.opcode for each in found.values() if each.called] == [
        "all-gather",
        "reduce-scatter",
        "slice",
    ]
    assert found["g-s"].called[0].root.channel_id == 1
    assert found["g-s"].shape_text == "((f32[8]), f32[16])"


def test_async_spelled_twice_is_as_before() -> None:
    once = next(text for name, text in harmless(TEXT) if name == "respell-async")
    twice = next(text for name, text in harmless(once) if name == "respell-async")
    assert parse(twice).entry.opcodes == parse(Draft.of(TEXT).text()).entry.opcodes
    assert parse(twice).expanded()[-1] == parse(TEXT).expanded()[-1]
    assert opcodes(parse(twice)) == opcodes(parse(TEXT))


def test_elements_by_mark_and_back() -> None:
    marked = next(text for name, text in harmless(TEXT) if name == "elements-by-mark")
    assert "get-tuple-element" not in marked
    assert opcodes(parse(marked)) == opcodes(parse(TEXT))
    assert "#" not in next(text for name, text in harmless(marked) if name.endswith("-instruction"))


def test_dtypes_change() -> None:
    found = by_name(harmful(TEXT), "change-dtypes")
    assert found.entry.instructions["p"].shape.dtype == "bf16"
    assert found.entry.instructions["zero"].shape.dtype == "s32"
    assert found.expanded() == parse(TEXT).expanded()


def test_groups_change() -> None:
    found = by_name(harmful(TEXT), "change-groups")
    assert found.entry.instructions["g-s"].replica_groups.groups == ((0, 1, 2, 3),)
    inside = found.computations["wrapped"].root.replica_groups
    assert inside.groups == ((0, 1), (2, 3))


def test_trip_counts_change() -> None:
    found = by_name(harmful(TEXT), "change-trip-counts")
    loop = found.entry.instructions["loop"]
    assert loop.backend_config.get("known_trip_count", "n") == "6"
    bounds = [each for each in found.computations["condition"].instructions if each.literal]
    assert [each.literal.scalar for each in bounds] == [6]


def test_an_edge_is_dropped() -> None:
    found = by_name(harmful(TEXT), "drop-edge d 1")
    assert found.computations["body"].instructions["d"].operands[1].opcode == "constant"
    assert edges(found) == edges(parse(TEXT))


def test_an_operation_moves_into_a_loop() -> None:
    found = by_name(harmful(TEXT), "into-loop r")
    entry = found.entry
    assert entry.instructions["r"].opcode == "get-tuple-element"
    loop = entry.instructions["r"].operands[0]
    assert loop.opcode == "while"
    moved = loop.called_by["body"][0].instructions["moved"]
    assert (moved.opcode, moved.channel_id) == ("all-reduce", 2)
    assert loop.operands[0].operands[1] == entry.instructions["q"]


def bytes_written(text: str) -> int:
    entry = parse(text).entry
    return sum(each.shape.bytes or 0 for each in entry.instructions if each.opcode == "all-reduce")


def test_check_table_answers() -> None:
    assert check_table(TEXT, bytes_written) == 32


def test_check_table_finds_an_answer_that_hangs_on_names() -> None:
    def by_its_name(text: str) -> bool:
        return "loop" in parse(text).entry.instructions

    with pytest.raises(AssertionError, match="rename changed the answer"):
        check_table(TEXT, by_its_name)
    with pytest.raises(AssertionError, match="no harmful rewrite"):
        check_table(TEXT, by_its_name, skip={"rename"})


def test_check_table_finds_an_answer_that_says_nothing() -> None:
    with pytest.raises(AssertionError, match="no harmful rewrite"):
        check_table(TEXT, lambda text: "constant")


def _without_elements(text: str) -> str:
    """`text` with get-tuple-element for its two `#`, for a reference that is older than them."""
    gte = "  at = s32[] get-tuple-element(state), index=0\n  ROOT go"
    text = text.replace("  ROOT go", gte).replace("state#0", "at")
    gte = "  looped = f32[8,8] get-tuple-element(loop), index=1\n  ROOT out"
    return text.replace("  ROOT out", gte).replace("loop#1", "looped")


@needs_jax
def test_rewrites_are_hlo_to_the_reference() -> None:
    source = _without_elements(TEXT) if too_new(TEXT) else TEXT
    rewritten = [each for each in (*harmless(source), *harmful(source)) if not too_new(each[1])]
    answers = reference_answers([text for _, text in rewritten])
    refused = {
        name: answer.error
        for (name, _), answer in zip(rewritten, answers, strict=True)
        if answer.structure is None
    }
    assert refused == {}


@pytest.mark.parametrize("seed", range(25))
def test_random_modules_can_be_rewritten(seed: int) -> None:
    text = module_text(random.Random(seed), instructions=8)
    for _, rewritten in (*harmless(text), *harmful(text)):
        parse(rewritten)


@needs_shared
def test_case_files_can_be_rewritten() -> None:
    paths = texts("cases/*.hlo")
    assert len(paths) == 18
    for path in paths:
        text = path.read_text()
        expanded = parse(text).expanded()
        for name, rewritten in harmless(text):
            if name in ("rename", "comments", "many-lines", "operand-shapes", "no-percent"):
                assert parse(rewritten).expanded() == expanded, (path.name, name)
            else:
                parse(rewritten)
