"""`hlolens check NEW --against GOOD`: each exit code, what it prints, and what it refuses."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.check.test_judging import LOOP
from tests.conftest import Ran
from tests.mutate import harmless

Cli = Callable[..., Ran]

WIDER = LOOP.replace("{{0,1}}", "{{0,1,2,3}}")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return written(tmp_path, "good.hlo", LOOP)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return written(tmp_path, "new.hlo", WIDER)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_same_by_other_names_is_0(cli: Cli, good: Path, tmp_path: Path) -> None:
    ran = cli(
        "check",
        written(tmp_path, "new.hlo", dict(harmless(LOOP))["rename"]),
        "--against",
        good,
    )
    assert (ran.code, ran.err) == (0, "")
    assert "✗" not in ran.out
    assert "✓ unchanged: modules, loops, " in ran.out
    assert " findings, instructions\n" in ran.out
    assert ran.out.count("✓") == 1
    assert ran.out.endswith("17 passed\n")


def test_what_differs_is_1_with_rows_and_a_command_that_runs(
    cli: Cli, good: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    ran = cli("check", new, "--against", good)
    assert ran.code == 1
    lines = ran.out.splitlines()
    at = lines.index("  ✗ unchanged-collectives")
    assert lines[at + 1] == f"      expected: collectives as in {good}"
    assert lines[at + 2].startswith("      found: 3 changed; sent per run ")
    assert lines[at + 3].startswith("      nearest: it passes with --allow-change collectives:")
    assert lines[at + 4].split("  ")[3:5] == ["r1", "line 15"]
    assert "group_size 2 → 4" in lines[at + 4]
    verb, *arguments = shlex.split(lines[at + 7])[1:]
    assert (verb, arguments) == (
        "diff",
        [str(good), str(new), "--only", "collectives", "--limit", "0"],
    )
    shown = cli(verb, *arguments)
    assert (shown.code, shown.err) == (1, "")


def test_what_is_allowed_is_0_and_told(cli: Cli, good: Path, new: Path) -> None:
    allowed = ("collectives", "collective_waste", "findings", "instructions:changed", "loops")
    options = [part for one in allowed for part in ("--allow-change", one)]
    ran = cli("check", new, "--against", good, *options)
    assert (ran.code, ran.err) == (0, "")
    assert "  ✓ unchanged-collectives\n      3 changed, as allowed\n" in ran.out
    assert "  ✓ unchanged-loops\n      --allow-change loops was not needed\n" in ran.out


def test_one_of_several_programs_that_differs_is_1(cli: Cli, good: Path, new: Path) -> None:
    ran = cli("check", good, new, "--against", good)
    assert ran.code == 1
    assert ran.out.count(" aliases, collectives, ") == 1
    assert ran.out.count("✗ unchanged-collectives") == 1


def test_what_cannot_be_compared_is_2_and_says_why(cli: Cli, good: Path, tmp_path: Path) -> None:
    cut = written(tmp_path, "cut.hlo", LOOP[: LOOP.index("  ROOT last")])
    ran = cli("check", cut, "--against", good)
    assert (ran.code, ran.err) == (2, "")
    assert "  ? unchanged\n" in ran.out
    assert "not judged: the text of this program is cut off" in ran.out
    assert ran.out.endswith("1 not judged\n")


def test_each_stage_has_a_line_of_its_own(cli: Cli, tmp_path: Path) -> None:
    for stage in ("before_optimizations", "after_optimizations"):
        written(tmp_path, f"module_0001.jit_f.{stage}.txt", LOOP)
    ran = cli("check", tmp_path, "--against", tmp_path)
    assert ran.code == 0
    lines = [line for line in ran.out.splitlines() if "✓" in line]
    assert [line.partition(":")[0] for line in lines] == [
        "  ✓ unchanged",
        "  ✓ unchanged in before_optimizations",
    ]


def test_what_one_side_does_not_know_is_2_with_the_rows(cli: Cli, tmp_path: Path) -> None:
    good = written(tmp_path, "good.hlo", LOOP)
    nameless = LOOP.replace(', metadata={op_name="jit(f)/jvp()/last"}', "")
    options = ("--allow-change", "collectives", "--allow-change", "collective_waste")
    ran = cli("check", written(tmp_path, "new.hlo", nameless), "--against", good, *options)
    assert (ran.code, ran.err) == (2, "")
    assert "✗" not in ran.out
    at = ran.out.index("  ? unchanged-loops\n")
    assert "      not judged: phase of 1 row: one side does not know it\n" in ran.out[at:]
    assert "      w  line 31  phase fwd → –\n" in ran.out[at:]


def test_a_stage_that_the_program_lacks_is_2(cli: Cli, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    for stage in ("before_optimizations", "after_optimizations"):
        written(dump, f"module_0001.jit_f.{stage}.txt", LOOP)
    new = written(tmp_path, "module_0001.jit_f.after_optimizations.txt", LOOP)
    ran = cli("check", new, "--against", dump)
    assert ran.code == 2
    assert "? unchanged-before_optimizations" in ran.out
    assert cli("check", dump, "--against", dump).code == 0
    assert cli("check", new, "--against", dump, "--stage", "after_optimizations").code == 0
    ran = cli("check", dump, "--against", new)
    assert ran.code == 0
    assert (
        "  ✓ unchanged-modules\n      the baseline has no before_optimizations: not compared\n"
        in ran.out
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--allow-change", "colectives"], "no table colectives; did you mean collectives"),
        (["--allow-change", "collectives:wire_byte"], "did you mean 'wire_bytes'?"),
        (["--allow-change", "collectives where phse = 1"], "no column phse, did you mean phase"),
        (["--allow-change", "collectives where phase = 'backward'"], "phase never is 'backward'"),
    ],
)
def test_what_does_not_exist_is_2(
    cli: Cli, good: Path, new: Path, options: list[str], said: str
) -> None:
    ran = cli("check", new, "--against", good, *options)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("hlolens: error: --allow-change")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_usage(cli: Cli, good: Path, new: Path, tmp_path: Path) -> None:
    ran = cli("check", new, "--allow-change", "collectives")
    assert ran.code == 2
    assert "--allow-change is for a comparison: give --against GOOD" in ran.err
    ran = cli("check", "-", "--against", "-", stdin=LOOP.encode())
    assert ran.code == 2
    assert "standard input can be the program or GOOD, not both" in ran.err
    ran = cli("check", new, "--against", tmp_path / "gone.hlo")
    assert (ran.code, ran.out) == (2, "")
    assert "gone.hlo: no such file or folder" in ran.err
    assert cli("check", "-", "--against", good, stdin=LOOP.encode()).code == 0
    ran = cli("check", "-", "--against", good, stdin=WIDER.encode())
    assert ran.code == 1
    assert f"hlolens diff {good} NEW --only collectives" in ran.out


def test_hostile_names_do_not_act(cli: Cli, good: Path, tmp_path: Path) -> None:
    hostile = WIDER.replace("first", "fi\x1b[31mrst")
    ran = cli("check", written(tmp_path, "hostile\x1b[2J.hlo", hostile), "--against", good)
    assert ran.code == 1
    assert "\x1b" not in ran.out


def test_beside_expectations(cli: Cli, good: Path, new: Path, tmp_path: Path) -> None:
    gate = written(tmp_path, "gate.toml", "[[expect]]\ntable = 'collectives'\ncount = 3\n")
    ran = cli("check", new, "--against", good, "--expect", gate)
    assert ran.code == 1
    assert "✓ collectives-count" in ran.out
    assert "✗ unchanged-collectives" in ran.out
