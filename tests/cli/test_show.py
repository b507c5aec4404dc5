"""`hlolens show`: one instruction or computation, and how it is reached."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.cli.show import told_once
from hlo_lens.hlo import Instruction
from tests.conftest import Ran

Cli = Callable[..., Ran]

HLO = """HloModule jit_f, is_scheduled=true

FileNames
1 "/src/train.py"
2 "/src/model.py"

FunctionNames
1 "step"
2 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=5 end_column=9}
2 {file_name_id=2 function_name_id=2 line=20 end_line=20 column=7 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a, %b)
}

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %add.1 = f32[8]{0} add(%p, %p), metadata={op_name="jit(f)/jvp(layer)/add" stack_frame_id=2}
}

%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[8]{0} get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %fusion.1 = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  %fusion.2 = f32[8]{0} fusion(%fusion.1), kind=kLoop, calls=%fused
  ROOT %t = (s32[], f32[8]{0}) tuple(%next, %fusion.2)
}

%condition (c: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]{0}) parameter(0)
  %j = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(3)
  ROOT %less = pred[] compare(%j, %n), direction=LT
}

%dead (q: f32[]) -> f32[] {
  ROOT %q = f32[] parameter(0)
}

ENTRY %main (x.1: f32[8]) -> f32[] {
  %x.1 = f32[8]{0} parameter(0)
  %zero = s32[] constant(0)
  %init = (s32[], f32[8]{0}) tuple(%zero, %x.1)
  %while.1 = (s32[], f32[8]{0}) while(%init), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %out = f32[8]{0} get-tuple-element(%while.1), index=1
  %start = f32[] constant(0)
  ROOT %reduce.1 = f32[] reduce(%out, %start), dimensions={0}, to_apply=%sum
}
"""  # noqa: E501


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "step.hlo"
    path.write_text(HLO)
    return path


@pytest.fixture
def show(cli: Cli, file: Path) -> Callable[..., list[dict[str, Any]]]:
    """The JSON records that `hlolens show FILE …` prints."""

    def run(*args: str) -> list[dict[str, Any]]:
        ran = cli("show", file, *args, "--format", "json")
        assert ran.code == 0, ran.err
        records: list[dict[str, Any]] = json.loads(ran.out)
        return records

    return run


Show = Callable[..., list[dict[str, Any]]]


def lines(ran: Ran, label: str) -> list[str]:
    """What stands beside `label`, over its lines."""
    found: list[str] = []
    inside = False
    for line in ran.out.splitlines():
        match = re.match(r"(\S[\S ]*?)  +(.*)|  +(.*)", line)
        if match and match[1]:
            inside = match[1] == label
        if match and inside:
            found.append(match[2] or match[3])
    return found


def test_an_instruction(cli: Cli, file: Path) -> None:
    ran = cli("show", file, "fused/add.1")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "add.1  add  #4 in fused, its root, line 27"
    assert "ROOT %add.1 = f32[8]{0} add(%p, %p), metadata=" in ran.out
    assert lines(ran, "shape") == ["f32[8]{0}  32 B"]
    assert lines(ran, "operands") == ["p  parameter  f32[8]{0}  32 B"] * 2
    assert lines(ran, "reached") == [
        "main → while.1 (body) → fusion.1 (fusion) → add.1",
        "main → while.1 (body) → fusion.2 (fusion) → add.1",
    ]
    assert lines(ran, "runs") == ["6 times; in loop while.1"]
    assert lines(ran, "phase") == ["fwd, from its op_name"]
    assert lines(ran, "op_name") == ["jit(f)/jvp(layer)/add"]
    assert lines(ran, "source") == ["/src/model.py:20:7  layer", "/src/train.py:10:5  step"]


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("abc", ["a", "b", "c"]),
        ("aab", ["a", "… the line above again", "b"]),
        ("xabababy", ["x", "a", "b", "… the 2 lines above again, 2 times", "y"]),
        ("abcab", ["a", "b", "c", "a", "b"]),
    ],
)
def test_callers_that_repeat_are_told_once(told: str, shown: list[str]) -> None:
    assert list(told_once(told)) == shown


def test_a_loop_says_its_trip_count(cli: Cli, file: Path) -> None:
    ran = cli("show", file, "while.1")
    assert lines(ran, "trip count") == ["3, as the text says"]
    assert lines(ran, "body") == ["body"]
    assert lines(ran, "users") == ["out  get-tuple-element  f32[8]{0}  32 B"]
    assert lines(ran, "backend_config") == ['{"known_trip_count": {"n": "3"}}']
    assert "backend_config={…}" in ran.out
    assert (
        'backend_config={"known_trip_count":{"n":"3"}}'
        in cli("show", file, "while.1", "--full").out
    )


@pytest.mark.parametrize("name", ["fused/add.1", "%fused/%add.1", "fused/%add.1", "#4", " #4 "])
def test_the_ways_to_name_an_instruction(show: Show, name: str) -> None:
    (found,) = show(name)
    assert (found["kind"], found["computation"], found["name"]) == ("instruction", "fused", "add.1")


def test_a_parameter_is_found_by_the_name_of_its_argument(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    argument = r"""parameter(0), metadata={op_name="state[0][\'w\']"}"""
    path.write_text(HLO.replace("%x.1 = f32[8]{0} parameter(0)", f"%x.1 = f32[8]{{0}} {argument}"))
    ran = cli("show", path, "state[0]['w']")
    assert (ran.code, ran.err) == (0, "")
    assert "%x.1 = f32[8]{0} parameter(0)" in ran.out
    assert cli("show", path, "state[0]").code == 1


def test_a_name_of_several_is_listed(cli: Cli, file: Path) -> None:
    ran = cli("show", file, "add.1")
    assert (ran.code, ran.out) == (1, "")
    assert "2 instructions are named add.1" in ran.err
    assert "\n  sum/add.1\n  fused/add.1\n" in ran.err
    both = cli("show", file, "add.1", "--all")
    assert both.code == 0
    assert "in sum, its root" in both.out
    assert "in fused, its root" in both.out


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("whle.1", "did you mean while.1"),
        ("fusion", "did you mean fusion.1, fusion.2?"),
        ("fused/ad.1", "did you mean fused/add.1?"),
        ("zzz", "nothing is named zzz in jit_f\n"),
        ("#999", "nothing is named #999"),
    ],
)
def test_what_is_not_there_is_a_no_with_a_guess(cli: Cli, file: Path, name: str, hint: str) -> None:
    ran = cli("show", file, name)
    assert (ran.code, ran.out) == (1, "")
    assert hint in ran.err


def test_a_name_of_another_stage_is_told(cli: Cli, tmp_path: Path) -> None:
    for stage, name in (("before", "dot.1"), ("after", "gemm.1")):
        (tmp_path / f"module_0001.jit_f.{stage}_optimizations.txt").write_text(
            f"ENTRY e {{\n  ROOT {name} = f32[] parameter(0)\n}}\n"
        )
    ran = cli("show", tmp_path, "dot.1")
    assert ran.code == 1
    assert "it is in before_optimizations (--stage before_optimizations)" in ran.err
    assert cli("show", tmp_path, "dot.1", "--stage", "before").code == 0


def test_a_computation(cli: Cli, file: Path) -> None:
    ran = cli("show", file, "body")
    assert ran.out.splitlines()[0] == "body  computation  8 instructions, line 30"
    assert lines(ran, "reached") == ["main → while.1 (body)"]
    assert lines(ran, "runs") == ["3 times; in loop while.1"]
    assert lines(ran, "root") == ["t  tuple  (s32[], f32[8]{0})  36 B"]
    assert "2 fusion" in lines(ran, "opcodes")[0]
    assert "ENTRY computation" in cli("show", file, "main").out


def test_a_name_of_a_computation_and_an_instruction_shows_both(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    path.write_text(HLO.replace("%while.1", "%body"))
    ran = cli("show", path, "body", "--format", "json")
    assert [each["kind"] for each in json.loads(ran.out)] == ["computation", "instruction"]


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("main", "1 time"),
        ("condition", "4 times; in loop while.1"),
        ("sum", "once an element that it is applied to"),
        ("dead", "never"),
    ],
)
def test_how_often_it_runs(cli: Cli, file: Path, name: str, runs: str) -> None:
    assert lines(cli("show", file, name), "runs") == [runs]


def test_an_unknown_trip_count(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    text = HLO.replace(', backend_config={"known_trip_count":{"n":"3"}}', "")
    path.write_text(text.replace("tuple(%zero, %x.1)", "tuple(%k, %x.1)").replace(
        "  %zero = s32[] constant(0)", "  %k = s32[] parameter(1)"))  # fmt: skip
    assert lines(cli("show", path, "while.1"), "trip count") == ["?, the text does not tell"]
    assert lines(cli("show", path, "fusion.1"), "runs") == [
        "at least 0 times; trip count unknown; in loop while.1"
    ]


def test_dead_code_and_entry_say_so(cli: Cli, file: Path) -> None:
    assert lines(cli("show", file, "dead"), "reached") == ["not from ENTRY"]
    assert lines(cli("show", file, "main"), "reached") == ["is ENTRY"]


def test_the_record(show: Show) -> None:
    (found,) = show("fused/add.1")
    assert found["id"] == 4
    assert found["bytes"] == 32
    assert found["runs"] == {
        "executions": 6, "executions_min": 6, "executions_max": 6, "trips_kind": "annotated",
    }  # fmt: skip
    assert found["reach"]["paths"][0] == [["while.1", "body"], ["fusion.1", "fusion"]]
    assert found["frames"][0]["file"] == "/src/model.py"


def test_an_attribute_that_cannot_be_read_is_told(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    path.write_text(HLO.replace("stack_frame_id=2", "stack_frame_id=two"))
    ran = cli("show", path, "fused/add.1")
    assert ran.code == 0
    assert lines(ran, "unreadable")[0].startswith("metadata: ")


def test_stack_frames_that_cannot_be_read_are_told(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    path.write_text(HLO.replace("FunctionNames\n", "FunctionNames\n9 {line=1}\n"))
    ran = cli("show", path, "fused/add.1")
    assert ran.code == 0
    assert lines(ran, "unreadable")[0].startswith("stack frames: ")


def test_a_broken_instruction_is_bad_input(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attributes are read late, so their mistakes show late; they are the input's all the same."""

    def broken(self: Instruction) -> str:
        raise ValueError("a string doesn't end")

    monkeypatch.setattr(Instruction, "op_name", property(broken))
    ran = cli("show", file, "fused/add.1")
    assert ran.code == 2
    assert ran.err == (f"hlolens: error: {file}:27: add.1 cannot be read: a string doesn't end\n")


def calling(name: str, *callees: str) -> str:
    calls = "".join(
        f"  c{n} = f32[] call(x), to_apply={each}\n" for n, each in enumerate(callees)
    )
    return f"{name} {{\n  x = f32[] parameter(0)\n{calls}  ROOT n = f32[] negate(x)\n}}\n"


def test_call_paths_may_be_deep(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    names = [f"f{i}" for i in range(3000)]
    path.write_text(
        calling(names[-1])
        + "".join(calling(*names[i : i + 2]) for i in range(2998, -1, -1))
        + calling("ENTRY e", "f0")
    )
    (found,) = json.loads(cli("show", path, "f2999", "--format", "json").out)
    assert (len(found["reach"]["paths"][0]), found["reach"]["more"]) == (3000, 0)


def test_of_very_many_call_paths_some_are_shown(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    callees = "".join(calling(f"f{i}", f"f{i + 1}", f"f{i + 1}") for i in range(99, -1, -1))
    path.write_text(calling("f100") + callees + calling("ENTRY e", "f0"))
    shown = lines(cli("show", path, "f100"), "reached")
    assert len(shown) == 9
    assert shown[-1].endswith("more call paths")


def test_computations_that_call_in_circles(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    path.write_text(calling("f", "f", "g") + calling("g", "f") + calling("ENTRY e", "f"))
    assert lines(cli("show", path, "g"), "reached") == ["e → c0 (call) → c1 (call)"]


def test_long_things_are_shortened_unless_full(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    body, numbers = "A" * 3000, ",".join('"1"' for _ in range(3000))
    path.write_text(
        "ENTRY e {\n  p = f32[] parameter(0)\n  ROOT c = f32[] custom-call(p), "
        f'custom_call_target="k", x="{"y" * 3000}", '
        f'backend_config={{"body":"{body}","list":[{numbers}]}}\n}}\n'
    )
    short, full = cli("show", path, "c"), cli("show", path, "c", "--full")
    assert len(short.out) < 4000
    assert '"AAAA' in short.out
    assert "(3000 characters; --full)" in short.out
    assert "more lines (--full)" in short.out
    assert body in full.out
    assert "--full)" not in full.out


def test_a_call_cycle_in_bad_text_ends(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.hlo"
    path.write_text(
        "a {\n  p = f32[] parameter(0)\n  ROOT c = f32[] call(p), to_apply=b\n}\n"
        "b {\n  p = f32[] parameter(0)\n  ROOT c = f32[] call(p), to_apply=a\n}\n"
        "ENTRY e {\n  p = f32[] parameter(0)\n  ROOT c = f32[] call(p), to_apply=a\n}\n"
    )
    assert cli("show", path, "b/c").code == 0
