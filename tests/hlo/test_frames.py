"""Stack frames: the printed parent is the caller's id plus one, and damage never loops."""

import re

import pytest

from hlo_lens.hlo.frames import Frame, parse_frames
from tests.shared import needs_shared, texts

TABLES = r"""
FileNames
1 "train.py"
2 "model\".py"

FunctionNames
1 "main"
2 "loss"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=4 end_column=9}
2 {file_name_id=2, function_name_id=2, line=20, end_line=21, column=8, end_column=3}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=2 parent_frame_id=1}
"""

MAIN = Frame("train.py", "main", 10, 4, 10, 9)
LOSS = Frame('model".py', "loss", 20, 8, 21, 3)


@pytest.mark.parametrize(
    ("frame", "stack"), [(1, (MAIN,)), (2, (LOSS, MAIN)), (3, (LOSS,)), (0, ()), (9, ())]
)
def test_innermost_first(frame: int, stack: tuple[Frame, ...]) -> None:
    assert parse_frames(TABLES).stack(frame) == stack


def test_blank_text_is_an_empty_table() -> None:
    assert len(parse_frames("\n // nothing\n")) == 0
    assert parse_frames("").stack(1) == ()


def test_line_breaks_mean_nothing() -> None:
    assert parse_frames(" ".join(TABLES.split())).stack(2) == (LOSS, MAIN)


@pytest.mark.parametrize("parent", [0, 1, 2, 3, 4, 7, -5])
def test_damaged_tables_end_the_stack(parent: int) -> None:
    table = parse_frames(
        f"""StackFrames
        1 {{file_location_id=9 parent_frame_id=3}}
        2 {{file_location_id=0 parent_frame_id={parent}}}"""
    )
    assert len(table.stack(2)) <= 2
    assert table.stack(2)[0] == Frame("", "", 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        '1 "a"',
        "FileNames\n1 {line=1}",
        'StackFrames\n1 "a"',
        "StackFrames\n1 {file_location_id=x}",
        "FileNames\n1 'a",
        "%f (a: f32[]) -> f32[] {",
    ],
)
def test_bad_text_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \S+"):
        parse_frames(text)


@needs_shared
def test_the_frames_of_a_remat_fixture_lead_from_the_loss_to_main() -> None:
    (path,) = texts("gfx950/remat/full/before_optimizations.txt")
    tables = re.search(r"^FileNames.*?(?=\n\n[%\w]+[^\n]*\{$)", path.read_text(), re.M | re.S)
    assert tables is not None
    table = parse_frames(tables.group())
    stacks = [[frame.function for frame in table.stack(number)] for number in table.frames]
    assert max(stacks, key=len) == [
        "_layer",
        "remat_fixture.<locals>.remat_full_loss",
        "_compile_and_run",
        "remat_fixture",
        "main",
        "<module>",
        "_run_code",
        "_run_module_as_main",
    ]
