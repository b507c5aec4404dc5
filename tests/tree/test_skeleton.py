"""The skeleton: where lines stand, what is folded, what they add up to."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hlo_lens.facts import (
    COMMON,
    Cell,
    Column,
    Facts,
    Lane,
    Measure,
    PassResult,
    Summary,
    Table,
    common,
)
from hlo_lens.present.page import plain
from hlo_lens.program import Program
from hlo_lens.tree import Node, Options, Skeleton, as_data, as_lines, skeleton
from tests.facts.toys import Toy, program
from tests.inspect.test_report import STEP


def tree(*texts: str, **options: object) -> list[str]:
    """The tree of built-in tables as lines, without head and totals."""
    return lines_of(skeleton(Facts(program(*texts))), **options)


def lines_of(found: Skeleton, **options: object) -> list[str]:
    text = plain(as_lines(found, Options(**options)))  # type: ignore[arg-type]
    return text.partition("\n\n")[2].partition("\n\n")[0].splitlines()


def squeezed(line: str) -> str:
    """The line with one blank where it has more."""
    return " ".join(line.split())


# -- the built-in tables --------------------------------------------------------------------------


def test_collectives_and_matmuls_stand_in_their_loops_in_order() -> None:
    heading, *lines = tree(STEP)
    assert squeezed(heading) == "each runs sends per step computes per step phase instruction"
    assert [line.split("  ")[0] for line in lines] == [
        "entry main",
        "├ while ×4",
        "│ ├ all-gather",
        "│ ├ dot",
        "├ while ×?",
        "│ ├ dot",
        "│ ├ all-reduce",
    ]
    assert [line.split()[-1] for line in lines[1:]] == [
        "while.f", "gather", "dot.f", "while.b", "dot.b", "reduce",
    ]  # fmt: skip


def test_a_line_says_what_it_is_each_and_per_step() -> None:
    gather, dot = tree(STEP)[3:5]
    assert squeezed(gather)[4:] == (
        "all-gather sync f32[256,256] exposed 256.0 KiB 4 1.0 MiB fwd gather"
    )
    assert squeezed(dot)[4:] == ("dot f32 m256 n256 k256 33.6 MFLOP 4 134.2 MFLOP fwd dot.f")


def test_a_loop_adds_up_what_is_in_it() -> None:
    entry, forward = tree(STEP)[1:3]
    assert squeezed(forward) == "├ while ×4 1.0 MiB 134.2 MFLOP fwd while.f"
    assert squeezed(entry) == "entry main ≥ 1.0 MiB ≥ 134.2 MFLOP"


def test_what_is_in_an_unknown_loop_is_a_bound() -> None:
    loop, dot = tree(STEP)[5:7]
    assert squeezed(loop) == "├ while ×? trip count unknown – – bwd while.b"
    assert squeezed(dot) == "│ ├ dot f32 m256 n256 k256 33.6 MFLOP – – bwd dot.b"


def test_totals_are_by_lane_and_kind() -> None:
    text = plain(as_lines(skeleton(Facts(program(STEP)))))
    totals = text.split("\n\n")[-1].splitlines()
    assert list(map(squeezed, totals[2:])) == [
        "communication all-gather 1 4 1.0 MiB",
        "all-reduce 1 – –",
        "compute dot 2 ≥ 4 ≥ 134.2 MFLOP",
    ]


def test_one_lane() -> None:
    found = skeleton(Facts(program(STEP)), only="compute")
    assert [line.split("  ")[0] for line in lines_of(found)[1:]] == [
        "entry main", "├ while ×4", "│ ├ dot", "├ while ×?", "│ ├ dot",
    ]  # fmt: skip
    assert {total.lane.name for total in found.totals} == {"compute"}


def test_depth_hides_what_is_deeper_and_says_how_much() -> None:
    lines = tree(STEP, depth=1)
    assert [line.split("  ")[0] for line in lines[1:]] == ["entry main", "├ while ×4", "├ while ×?"]
    assert "… 2 more lines inside" in lines[2]
    assert "1.0 MiB" in lines[2]


def test_sources_and_groups_are_shown_when_asked_for() -> None:
    assert not any("model.py" in line or "groups" in line for line in tree(STEP))
    assert tree(STEP, source=True)[3].endswith("model.py:7")
    assert "groups 1×2  channel 1" in tree(STEP, details=True)[3]


def test_text_order_is_said_where_it_is_no_schedule() -> None:
    text = plain(as_lines(skeleton(Facts(program(STEP.replace(", is_scheduled=true", ""))))))
    assert text.splitlines()[1].startswith("not scheduled: text order")
    assert "not scheduled" not in plain(as_lines(skeleton(Facts(program(STEP)))))


def test_nothing_to_show() -> None:
    text = plain(as_lines(skeleton(Facts(program()))))
    assert text.splitlines() == [
        "toy  unknown",
        "not scheduled: text order, which may not be the order it runs in",
        "",
        "entry main",
        "nothing that communicates or computes is known",
    ]


# -- places ---------------------------------------------------------------------------------------

MARKS = Table(
    "marks",
    "an instruction whose name begins with mark",
    (
        *COMMON,
        Column("kind", "text", "identity", "kind"),
        Column("size", "bytes", "measure", "size"),
    ),
    Summary(
        "marks",
        order=1,
        by=(Cell("kind"),),
        lane=Lane(
            "compute",
            line=(Cell("kind"), Cell("size")),
            total=Measure("moves", "per_step", "size"),
            skip=(("kind", ("hidden",)),),
        ),
    ),
)


def find_marks(given: Program, facts: Facts) -> PassResult:
    rows = [
        common(given, 0, one) | {"kind": one.name.split(".")[1], "size": 10}
        for computation in given.modules[0].computations
        for one in computation.instructions
        if one.name.startswith("mark.")
    ]
    return PassResult({"marks": rows})


TOY = Toy("marks", (MARKS,), find_marks)


def marks(text: str, **options: object) -> list[str]:
    """The first column of the tree of the marks in a text, without its heading."""
    found = skeleton(Facts(program(text), [TOY]))
    return [line.split("  ")[0] for line in lines_of(found, **options)[1:]]


def module(*computations: str) -> str:
    return "HloModule m\n" + "\n".join(computations)


LEAF = "leaf {\n  p = f32[] parameter(0)\n  ROOT mark.a = f32[] negate(p)\n}"
ADD = (
    "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n"
    "  ROOT mark.add = f32[] add(x, y)\n}"
)


@pytest.mark.parametrize(
    "caller",
    [
        "f = f32[] fusion(p), kind=kLoop, calls=leaf",
        "s = ((f32[]), f32[], s32[]) async-start(p), calls=leaf\n  d = f32[] async-done(s)",
        "c = f32[] custom-call(p), custom_call_target=\"t\", called_computations={leaf}",
    ],
)  # fmt: skip
def test_what_is_in_a_fusion_or_wrapper_stands_where_that_does(caller: str) -> None:
    text = module(
        LEAF,
        f"ENTRY e {{\n  p = f32[] parameter(0)\n  mark.first = f32[] negate(p)\n  {caller}\n"
        "  ROOT mark.last = f32[] negate(p)\n}",
    )
    assert marks(text) == ["entry e", "├ first", "├ a", "├ last"]
    item = skeleton(Facts(program(text), [TOY])).roots[0].children[1]
    assert not isinstance(item, Node)
    assert item.instr.name in ("f", "s", "c")


def test_what_is_applied_to_elements_stands_where_it_is_applied() -> None:
    text = module(
        ADD,
        "ENTRY e {\n  p = f32[8] parameter(0)\n  z = f32[] constant(0)\n"
        "  ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply=add\n}",
    )
    assert marks(text) == ["entry e", "├ add"]


def test_a_called_computation_of_one_line_is_no_level() -> None:
    text = module(
        LEAF, "ENTRY e {\n  p = f32[] parameter(0)\n  ROOT c = f32[] call(p), to_apply=leaf\n}"
    )
    assert marks(text) == ["entry e", "├ a"]


def test_a_called_computation_of_more_is_a_level_and_shown_once() -> None:
    two = LEAF.replace("ROOT mark.a", "mark.b = f32[] negate(p)\n  ROOT mark.a")
    text = module(
        two,
        "ENTRY e {\n  p = f32[] parameter(0)\n  c = f32[] call(p), to_apply=leaf\n"
        "  ROOT d = f32[] call(c), to_apply=leaf\n}",
    )
    found = skeleton(Facts(program(text), [TOY]))
    assert marks(text) == ["entry e", "├ call", "│ ├ b", "│ ├ a", "├ call"]
    assert "(its inside stands above)" in lines_of(found)[-1]
    assert [node.omitted for node in found.roots[0].children] == [None, "again"]  # type: ignore[union-attr]
    # Both calls count: that is 2 runs of each.
    assert [(total.rows, total.runs and total.runs.low) for total in found.totals] == [
        (1, 2),
        (1, 2),
    ]


def test_branches() -> None:
    text = module(
        LEAF,
        "other {\n  ROOT q = f32[] parameter(0)\n}",
        "ENTRY e {\n  w = pred[] parameter(1)\n  p = f32[] parameter(0)\n"
        "  ROOT c = f32[] conditional(w, p, p), true_computation=leaf, false_computation=other\n}",
    )
    assert marks(text) == ["entry e", "├ conditional", "│ ├ branch", "│ │ ├ a", "│ ├ branch"]
    found = skeleton(Facts(program(text), [TOY]))
    assert squeezed(lines_of(found)[4]) == "│ │ ├ a 10 B 10 B ≤ 1 ≤ 10 B mark.a"


def test_a_conditional_with_nothing_in_it_is_left_out() -> None:
    text = module(
        "other {\n  ROOT q = f32[] parameter(0)\n}",
        "ENTRY e {\n  w = pred[] parameter(1)\n  mark.p = f32[] parameter(0)\n"
        "  ROOT c = f32[] conditional(w, mark.p, mark.p), true_computation=other,"
        " false_computation=other\n}",
    )
    assert marks(text) == ["entry e", "├ p"]


def test_a_loop_is_shown_with_nothing_in_it_unless_one_lane_is_asked_for() -> None:
    text = STEP.replace("while.f", "mark.w")
    found = skeleton(Facts(program(text), [TOY]))
    assert [line.split("  ")[0] for line in lines_of(found)[1:]] == [
        "entry main", "├ while ×4", "├ while ×?",
    ]  # fmt: skip
    only = skeleton(Facts(program(text), [TOY]), only="compute")
    # A row about the loop itself stands on the loop's line.
    assert [line.split("  ")[0] for line in lines_of(only)[1:]] == ["entry main", "├ while ×4"]
    assert " w " in lines_of(only)[2]


def test_what_nothing_calls_stands_behind_the_entry() -> None:
    text = module(LEAF, "ENTRY e {\n  ROOT mark.p = f32[] parameter(0)\n}")
    assert marks(text) == ["entry e", "├ p", "leaf, which nothing calls", "├ a"]


def test_a_computation_that_calls_itself_is_no_endless_tree() -> None:
    text = module(
        "loop {\n  p = f32[] parameter(0)\n  mark.a = f32[] negate(p)\n"
        "  ROOT c = f32[] call(mark.a), to_apply=loop\n}",
        "ENTRY e {\n  p = f32[] parameter(0)\n  ROOT c = f32[] call(p), to_apply=loop\n}",
    )
    assert "├ call" in marks(text)


@pytest.mark.parametrize("operation", ["call(p), to_apply", "fusion(p), kind=kLoop, calls"])
def test_what_is_nested_absurdly_deep_is_read_and_added_up(operation: str) -> None:
    levels = [
        f"level.{n} {{\n  p = f32[] parameter(0)\n  mark.a = f32[] negate(p)\n"
        f"  ROOT c = f32[] {operation}=level.{n - 1}\n}}"
        for n in range(1, 1500)
    ]
    entry = f"ENTRY e {{\n  p = f32[] parameter(0)\n  ROOT c = f32[] {operation}=level.1499\n}}"
    found = skeleton(Facts(program(module(LEAF.replace("leaf", "level.0"), *levels, entry)), [TOY]))
    lines = lines_of(found)
    assert ("nested too deep" in lines[-1]) == operation.startswith("call")
    assert [(each.rows, each.total and each.total.low) for each in found.totals] == [(1500, 15000)]
    assert json.dumps(as_data(found))


def test_rows_of_one_instruction_are_one_line_of_the_first_table() -> None:
    assert MARKS.summary is not None
    second = replace(MARKS, name="more", summary=replace(MARKS.summary, order=2))
    more = Toy("more", (second,), lambda p, f: PassResult({"more": find_marks(p, f).rows["marks"]}))
    text = module("ENTRY e {\n  ROOT mark.p = f32[] parameter(0)\n}")
    found = skeleton(Facts(program(text), [TOY, more]))
    assert [item.table.name for item in found.roots[0].walk()] == ["marks"]


def test_rows_that_the_lane_skips_are_no_lines() -> None:
    text = module(
        "ENTRY e {\n  mark.hidden = f32[] parameter(1)\n  ROOT mark.p = f32[] parameter(0)\n}"
    )
    assert marks(text) == ["entry e", "├ p"]


# -- folding --------------------------------------------------------------------------------------


def entry(*kinds: str) -> str:
    lines = [f"  mark.{kind}.{number} = f32[] negate(p)" for number, kind in enumerate(kinds)]
    return module("\n".join(["ENTRY e {", "  p = f32[] parameter(0)", *lines, "}"]))


def test_lines_that_are_alike_and_follow_each_other_are_one() -> None:
    assert marks(entry("a", "a", "b", "a", "a", "a")) == ["entry e", "├ 2 × a", "├ b", "├ 3 × a"]


def test_a_folded_line_adds_up() -> None:
    found = skeleton(Facts(program(entry("a", "a", "a")), [TOY]))
    assert squeezed(lines_of(found)[2]) == "├ 3 × a 10 B 10 B 3 30 B mark.a.0 +2"


def test_a_block_that_follows_itself_is_shown_once() -> None:
    layers = ["a", "b", "b", "c"] * 5
    assert marks(entry("x", *layers, "y")) == [
        "entry e", "├ x", "├ 5 × these lines", "│ ├ a", "│ ├ 2 × b", "│ ├ c", "├ y",
    ]  # fmt: skip
    found = skeleton(Facts(program(entry("x", *layers, "y")), [TOY]))
    assert squeezed(lines_of(found)[3]) == "├ 5 × these lines 200 B"
    assert squeezed(lines_of(found)[5]) == "│ ├ 2 × b 10 B 10 B 10 100 B mark.b.2 +9"


def test_a_short_block_is_shown_once_from_three_times_on() -> None:
    assert marks(entry("a", "b", "a", "b")) == ["entry e", "├ a", "├ b", "├ a", "├ b"]
    assert marks(entry(*"ababab")) == ["entry e", "├ 3 × these lines", "│ ├ a", "│ ├ b"]


def test_lines_of_other_phases_are_not_alike() -> None:
    text = entry("a", "a").replace(
        "mark.a.1 = f32[] negate(p)",
        'mark.a.1 = f32[] negate(p), metadata={op_name="jit(f)/jvp(g)"}',
    )
    assert marks(text) == ["entry e", "├ a", "├ a"]


def test_sources_that_are_shown_are_not_folded_away() -> None:
    text = entry("a", "a")
    for number in (0, 1):
        text = text.replace(
            f"mark.a.{number} = f32[] negate(p)",
            f"mark.a.{number} = f32[] negate(p),"
            f' metadata={{source_file="m.py" source_line={number + 1}}}',
        )
    assert marks(text) == ["entry e", "├ 2 × a"]
    assert marks(text, source=True) == ["entry e", "├ a", "├ a"]


# -- JSON -----------------------------------------------------------------------------------------


def test_json_nests_and_is_not_folded() -> None:
    data = json.loads(json.dumps(as_data(skeleton(Facts(program(STEP))))))
    assert (data["schema_version"], data["name"], data["is_scheduled"]) == (1, "jit_step", True)
    [root] = data["roots"]
    forward, backward = root["children"]
    assert (root["kind"], root["computation"], root["executions"]) == ("entry", "main", 1)
    assert (forward["kind"], forward["name"], forward["trip_count"]) == ("loop", "while.f", 4)
    assert (backward["trip_count"], backward["trips_kind"]) == (None, "unknown")
    assert [child["name"] for child in forward["children"]] == ["gather", "dot.f"]
    gather = forward["children"][0]
    assert (gather["lane"], gather["table"], gather["phase"]) == (
        "communication",
        "collectives",
        "fwd",
    )
    assert (gather["total"], gather["row"]["wire_bytes"]) == (1048576, 262144)
    assert backward["children"][1]["total"] is None
    assert backward["children"][1]["total_min"] == 0


def test_json_totals() -> None:
    gather, reduce, dot = as_data(skeleton(Facts(program(STEP))))["totals"]  # type: ignore[misc]
    assert (gather["kind"], gather["executions"], gather["total"]) == ("all-gather", 4, 1048576)
    assert (reduce["executions"], reduce["executions_min"]) == (None, 0)
    assert (dot["lane"], dot["rows"], dot["column"]) == ("compute", 2, "flops")


def test_a_cut_text_has_no_entry_that_it_does_not_hold() -> None:
    cut = STEP[: STEP.index("ENTRY")]
    found = skeleton(Facts(program(cut.rstrip().rstrip("}"))))
    assert found.truncated
    assert "entry" not in [root.kind for root in found.roots]
    text = plain(as_lines(found))
    assert "cut off: what follows is of the part that is there" in text
    whole = skeleton(Facts(program(STEP)))
    assert [root.kind for root in whole.roots] == ["entry"]
    assert "cut off" not in plain(as_lines(whole))
