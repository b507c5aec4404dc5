"""`hlolens inspect`: formats, files, tables, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.inspect.test_report import NAMELESS, STEP

Cli = Callable[..., Ran]


@pytest.fixture
def step(tmp_path: Path) -> Path:
    path = tmp_path / "step.hlo"
    path.write_text(STEP)
    return path


def test_the_report_is_plain_text_off_a_terminal(cli: Cli, step: Path) -> None:
    ran = cli("inspect", step)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"jit_step  {step}\n  after_optimizations · scheduled")
    assert "\x1b" not in ran.out
    assert "\ncollectives  2  what one device sends, in a ring\n" in ran.out
    assert f"hlolens inspect {step} --table collectives" in ran.out.splitlines()[-1]


def test_color_when_it_is_asked_for(cli: Cli, step: Path) -> None:
    ran = cli("inspect", step, "--color", "always")
    assert "\x1b[1mjit_step\x1b[0m  " in ran.out


def test_columns_bounds_the_width(cli: Cli, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def widest() -> int:
        return max(map(len, cli("inspect", step).out.partition("next:")[0].splitlines()))

    wide = widest()
    monkeypatch.setenv("COLUMNS", "100")
    assert widest() <= 100 < wide
    monkeypatch.delenv("COLUMNS")
    assert widest() >= wide  # a file or pipe has no width


def test_several_files_are_shown_in_turn(cli: Cli, step: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.hlo"
    other.write_text(NAMELESS)
    out = cli("inspect", step, other).out
    assert out.index("jit_step  ") < out.index(f"\nm  {other}\n  unknown · ")


def test_of_several_files_one_bad_the_rest_is_shown(cli: Cli, step: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.hlo"
    bad.write_text("HloModule x\nENTRY e {\n  a = f32[ parameter(0)\n}\n")
    ran = cli("inspect", bad, tmp_path / "missing.hlo", step)
    assert ran.code == 2
    assert ran.out.startswith("jit_step  ")
    assert f"{bad}:3:" in ran.err
    assert "missing.hlo: no such file" in ran.err
    as_json = cli("inspect", bad, step, "--format", "json")
    assert as_json.code == 2
    assert [one["name"] for one in json.loads(as_json.out)["programs"]] == ["jit_step"]


def test_a_file_that_is_cut_off_is_a_report_with_a_finding(cli: Cli, tmp_path: Path) -> None:
    cut = tmp_path / "cut.hlo"
    cut.write_text(STEP[: STEP.index("backward_cond (w")])
    ran = cli("inspect", cut)
    assert ran.code == 0
    assert "· cut off ·" in ran.out or "no-entry" in ran.out
    assert "missing-computation" not in ran.out


def test_standard_input(cli: Cli) -> None:
    ran = cli("inspect", "-", stdin=STEP.encode())
    assert ran.code == 0
    assert ran.out.startswith("jit_step  <stdin>\n")
    assert "next: hlolens tree FILE\n" in ran.out  # what came in is gone


def test_json(cli: Cli, step: Path) -> None:
    ran = cli("inspect", step, "--format", "json")
    data = json.loads(ran.out)
    assert (ran.code, data["schema_version"]) == (0, 1)
    [one] = data["programs"]
    assert one["modules"][0]["file"] == str(step)
    assert {"modules", "loops", "collectives", "matmuls", "custom_calls"} <= set(one["tables"])
    assert "instructions" not in one["tables"]
    assert one["tables"]["collectives"][0]["wire_bytes"] == 262144


def test_a_table_in_full_instead_of_the_report(cli: Cli, step: Path) -> None:
    out = cli("inspect", step, "--table", "loops").out
    assert out.startswith(f"jit_step  {step}\n\nloops: a row is a while;")
    assert "while.f" in out
    assert "collectives" not in out
    heads = out.splitlines()[3].split()
    assert heads[:5] == ["id", "module", "instr", "name", "phase"]


def test_json_columns_stand_last_in_a_table(cli: Cli, step: Path) -> None:
    heads = cli("inspect", step, "--table", "collectives").out.splitlines()[3].split()
    assert heads[-2:] == ["axes", "axis_sizes"]
    heads = cli("inspect", step, "--table", "collectives", "--format", "markdown").out
    assert "| axes | axis_sizes | axes_from |" in heads.replace("\\_", "_")


def test_tables_in_json_are_those_asked_for(cli: Cli, step: Path) -> None:
    arguments = ("--table", "loops", "--table", "edges", "--table", "loops", "--format", "json")
    tables = json.loads(cli("inspect", step, *arguments).out)["programs"][0]["tables"]
    assert list(tables) == ["loops", "edges"]


def test_all_tables(cli: Cli, step: Path) -> None:
    one = json.loads(cli("inspect", step, "--all", "--format", "json").out)["programs"][0]
    assert {"instructions", "edges", "members", "findings"} <= set(one["tables"])
    assert len(one["tables"]["instructions"]) == 35
    text = cli("inspect", step, "--all").out
    assert "\ninstructions: a row is " in text


def test_a_table_as_markdown(cli: Cli, step: Path) -> None:
    out = cli("inspect", step, "--table", "loops", "--format", "markdown").out
    assert "### Loops (2)\n" in out
    assert "| id | module | instr | name |" in out


def test_an_unknown_table_is_an_error_with_a_hint(cli: Cli, step: Path) -> None:
    ran = cli("inspect", step, "--table", "loop")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "hlolens: error: no table loop; did you mean loops?\n"


def test_markdown_into_a_file(cli: Cli, step: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.md"
    ran = cli("inspect", step, "--format", "markdown", "-o", target)
    assert (ran.code, ran.out) == (0, "")
    assert target.read_text().startswith("## jit_step\n")


def test_a_file_that_cannot_be_written(cli: Cli, step: Path, tmp_path: Path) -> None:
    ran = cli("inspect", step, "-o", tmp_path / "no" / "report.txt")
    assert ran.code == 2
    assert f"error: {tmp_path / 'no' / 'report.txt'}: no such file or folder" in ran.err


def test_no_file(cli: Cli) -> None:
    ran = cli("inspect")
    assert ran.code == 2
    assert "FILE" in ran.err


def test_a_glob_takes_several_modules_of_a_folder(cli: Cli, tmp_path: Path) -> None:
    for number, name in enumerate(("jit_a", "jit_b", "other"), start=1):
        (tmp_path / f"module_000{number}.{name}.after_optimizations.txt").write_text(NAMELESS)
    (tmp_path / "module_0004.jit_c.after_optimizations.txt").write_text("HloModule x\nENTRY {")
    ran = cli("inspect", tmp_path, "--module", "*jit_[abc]*", "--format", "json")
    files = [one["modules"][0]["file"] for one in json.loads(ran.out)["programs"]]
    assert [Path(file).name.split(".")[1] for file in files] == ["jit_a", "jit_b"]
    assert (ran.code, "jit_c.after" in ran.err) == (2, True)
    sql = "SELECT count(*) FROM modules"
    assert cli("query", tmp_path, sql, "--module", "*_[ab].*").out == ""
    assert "3" in cli("query", tmp_path, sql, "--module", "module_000[123]*").out
    nothing = cli("inspect", tmp_path, "--module", "x*")
    assert (nothing.code, "no module matches 'x*'" in nothing.err) == (2, True)
    assert "choose one with --module" in cli("show", tmp_path, "a", "--module", "*").err


def test_a_dump_folder_is_one_program(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "module_0001.jit_step.before_optimizations.txt").write_text(NAMELESS)
    (tmp_path / "module_0001.jit_step.gpu_after_optimizations.txt").write_text(STEP)
    out = cli("inspect", tmp_path).out
    assert "What follows is of after_optimizations" in out
    assert "\ncollectives  2  " in out
    before = cli("inspect", tmp_path, "--stage", "before_optimizations").out
    assert "no loops; no collectives" in before


def test_a_folder_of_several_modules_asks_which(cli: Cli, tmp_path: Path) -> None:
    for name in ("module_0001.jit_a", "module_0002.jit_b"):
        (tmp_path / f"{name}.before_optimizations.txt").write_text(NAMELESS)
    ran = cli("inspect", tmp_path)
    assert ran.code == 2
    assert "--module" in ran.err
    assert cli("inspect", tmp_path, "--module", "jit_a").code == 0


def test_a_file_stays_as_it_was_where_nothing_can_be_read(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "report.txt"
    out.write_text("before\n")
    for output_format in ("terminal", "json", "markdown"):
        ran = cli("inspect", tmp_path / "gone.hlo", "--format", output_format, "-o", out)
        assert (ran.code, ran.out) == (2, "")
        assert out.read_text() == "before\n"
    ran = cli("inspect", tmp_path / "gone.hlo", "--format", "json")
    assert (ran.code, json.loads(ran.out)["programs"]) == (2, [])


def test_an_output_without_a_name(cli: Cli, step: Path) -> None:
    ran = cli("inspect", step, "-o", "")
    assert ran.code == 2
    assert ran.err.startswith("hlolens: error: -o needs the name of a file\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk(cli: Cli, step: Path) -> None:
    ran = cli("inspect", step, "-o", "/dev/full")
    assert (ran.code, ran.err) == (2, "hlolens: error: /dev/full: no space left on device\n")
