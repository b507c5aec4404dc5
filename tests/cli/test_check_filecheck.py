"""`hlolens check --filecheck` and `hlolens show --canonical`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.check.test_filechecking import HLO
from tests.conftest import Ran
from tests.test_readme import BLOCK, at_root, output_of

Cli = Callable[..., Ran]
FIXTURES = Path(__file__).parents[2] / "fixtures"
PAGE = Path(__file__).parents[2] / "docs/filecheck.md"
STAGES = FIXTURES / "hlo/plain/fsdp/cuda-h100-8"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "step.hlo"
    path.write_text(HLO)
    return path


def checks(folder: Path, *lines: str) -> Path:
    path = folder / "step.check"
    path.write_text("".join(f"// {line}\n" for line in lines))
    return path


def test_what_holds_is_0(cli: Cli, text: Path, tmp_path: Path) -> None:
    file = checks(tmp_path, "CHECK: dot(", "CHECK-NEXT: all-reduce(")
    ran = cli("check", text, "--filecheck", file)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1:] == [f"  ✓ {file}", "1 passed"]


def test_what_does_not_is_1_with_the_line_and_a_command(
    cli: Cli, text: Path, tmp_path: Path
) -> None:
    file = checks(tmp_path, "CHECK: dot(", "CHECK-NEXT: tanh(")
    ran = cli("check", text, "--filecheck", file)
    assert (ran.code, ran.err) == (1, "")
    told = " ".join(ran.out.split())
    assert f"✗ {file} expected: {file}:2: CHECK-NEXT: tanh( found: the next line is" in told
    assert f"hlolens show {text} --canonical" in told


def test_the_command_that_it_names_shows_the_text(cli: Cli, text: Path) -> None:
    ran = cli("show", text, "--canonical")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "HloModule step, is_scheduled=true"
    assert lines[13] == "  ROOT %tanh.1 = f32[8,8] tanh(%all-reduce.1)"


def test_an_instruction_or_a_computation_in_canonical_text(cli: Cli, text: Path) -> None:
    ran = cli("show", text, "reduced", "--canonical")
    assert ran.out == (
        "  %all-reduce.1 = f32[8,8] all-reduce(%dot.1), channel_id=1, "
        "replica_groups={ {0,2},{3,1} }, to_apply=%all-reduce_to_apply.1\n"
    )
    assert cli("show", text, "sum", "--canonical").out.splitlines()[-1] == "}"
    assert cli("show", text, "none", "--canonical").code == 1


def test_show_without_a_name_says_what_to_give(cli: Cli, text: Path) -> None:
    ran = cli("show", text)
    assert (ran.code, ran.out) == (2, "")
    assert "--canonical" in ran.err
    assert cli("show", text, "--canonical", "--format", "json").code == 2


def test_a_bad_file_is_2_and_told_by_its_line(cli: Cli, text: Path, tmp_path: Path) -> None:
    ran = cli("check", text, "--filecheck", checks(tmp_path, "CHECK: dot(", "CHECK: {{[}}"))
    assert (ran.code, ran.out) == (2, "")
    assert "step.check:2: Malformed regex" in ran.err
    ran = cli("check", text, "--filecheck", checks(tmp_path, "nothing"))
    assert (ran.code, "nothing would be checked" in ran.err) == (2, True)
    ran = cli("check", text, "--filecheck", tmp_path / "none.check")
    assert (ran.code, "no such file" in ran.err) == (2, True)


def test_without_the_package_it_is_2_and_says_what_to_install(
    cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "filecheck", None)
    ran = cli("check", text, "--filecheck", checks(tmp_path, "CHECK: dot("))
    assert ran.code == 2
    assert "pip install 'hlo-lens[filecheck]'" in " ".join(ran.out.split())


def test_prefixes_stand_behind_the_file(cli: Cli, text: Path, tmp_path: Path) -> None:
    file = checks(tmp_path, "TPU: dot(", "GPU: cublas")
    assert cli("check", text, "--filecheck", f"{file}:TPU").code == 0
    assert cli("check", text, "--filecheck", f"{file}:TPU,GPU").code == 1
    assert cli("check", text, "--filecheck", f"{file}:TPU", "--filecheck", f"{file}:GPU").code == 1


def test_the_stage_that_is_asked_for_is_checked(cli: Cli, tmp_path: Path) -> None:
    file = checks(tmp_path, "CHECK: all-gather(")
    assert cli("check", STAGES, "--stage", "after_spmd_partitioner", "--filecheck", file).code == 0
    assert cli("check", STAGES, "--filecheck", file).code == 1  # there, it is asynchronous


def test_each_program_is_checked(cli: Cli, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.hlo"
    other.write_text(HLO.replace("tanh", "negate"))
    ran = cli("check", text, other, "--filecheck", checks(tmp_path, "CHECK: tanh("))
    assert (ran.code, ran.out.splitlines()[-1]) == (1, "1 passed, 1 failed")


def test_control_characters_of_a_text_do_not_act(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "odd.hlo"
    path.write_text(HLO.replace("dot(%x", 'custom-call(%x').replace(
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}", 'custom_call_target="\x1b[31m"'
    ))  # fmt: skip
    ran = cli("show", path, "--canonical")
    assert (ran.code, "\x1b" in ran.out) == (0, False)
    ran = cli("check", path, "--filecheck", checks(tmp_path, "CHECK-NOT: custom-call("))
    assert (ran.code, "\x1b" in ran.out) == (1, False)


# --- the page ---


@pytest.mark.parametrize(
    "block", list(BLOCK.finditer(PAGE.read_text())), ids=lambda block: block["command"]
)
def test_an_output_on_the_page_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        assert block["output"] == output_of(block["command"], block["lines"], block["code"]), (
            "`python -m tests.test_readme docs/filecheck.md` puts it in place; look at what changed"
        )


def test_every_command_with_an_output_is_checked() -> None:
    assert len(list(BLOCK.finditer(PAGE.read_text()))) == PAGE.read_text().count("output of:") > 0
