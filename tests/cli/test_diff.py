"""`hlolens diff`: exit codes, sides, options, formats, and the page about it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_hostile_text import ACTS, PAYLOADS, TEXT
from tests.conftest import Ran
from tests.diff.test_rendering import step
from tests.mutate import harmless
from tests.test_readme import BLOCK, at_root, output_of

Cli = Callable[..., Ran]

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ROOT / "fixtures" / "hlo" / "pairs"
PAGE = ROOT / "docs" / "diff.md"


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """A program, and the same with two all-gathers less in its loop."""
    old, new = tmp_path / "old.hlo", tmp_path / "new.hlo"
    old.write_text(step(3))
    new.write_text(step(1))
    return old, new


@pytest.fixture
def twin(tmp_path: Path) -> tuple[Path, Path]:
    """A program under two sets of names."""
    old, new = tmp_path / "old.hlo", tmp_path / "new.hlo"
    old.write_text(step(2))
    new.write_text(dict(harmless(step(2)))["rename"])
    return old, new


# ---------------------------------------------------------------------------------- exit codes


def test_exit_codes(cli: Cli, sides: tuple[Path, Path], twin: tuple[Path, Path]) -> None:
    assert cli("diff", *twin).code == 0
    old, new = sides
    old.write_text(step(3))
    new.write_text(step(1))
    ran = cli("diff", old, new)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("different: collectives 2, instructions 2; ")
    assert cli("diff", old).code == 2


def test_the_same_program_by_other_names(cli: Cli, twin: tuple[Path, Path]) -> None:
    ran = cli("diff", *twin)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("same: ")
    ran = cli("diff", *twin, "--exact", "program")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("same program\n")
    ran = cli("diff", *twin, "--exact", "text")
    assert ran.code == 1
    assert ran.out.startswith("different text\n")


def test_what_cannot_be_read_is_told_of_both_sides(cli: Cli, tmp_path: Path) -> None:
    ran = cli("diff", tmp_path / "no.hlo", tmp_path / "none.hlo")
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("no such file or folder") == 2
    (tmp_path / "bad.hlo").write_text("HloModule m\nENTRY e {\n  %x = \n}\n")
    ran = cli("diff", tmp_path / "bad.hlo", tmp_path / "bad.hlo")
    assert ran.code == 2
    assert ran.err.count("bad.hlo:") == 2


@pytest.mark.parametrize("option", ["--only", "--ignore-table"])
def test_a_mistyped_table_is_guessed(cli: Cli, sides: tuple[Path, Path], option: str) -> None:
    ran = cli("diff", *sides, option, "colectives")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("hlolens: error: no table colectives; did you mean collectives")


def test_what_does_not_go_together(cli: Cli, sides: tuple[Path, Path]) -> None:
    for options in (["--only", "loops"], ["--ignore-table", "loops"], ["--limit", "3"]):
        ran = cli("diff", *sides, "--exact", "text", *options)
        assert ran.code == 2
        assert "--exact compares no tables" in ran.err
    assert cli("diff", *sides, "--exact", "names").code == 2
    assert cli("diff", *sides, "--limit", "-1").code == 2


def test_what_a_config_file_sets_is_no_mistake(
    cli: Cli, sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sides[0].parent)
    Path("hlolens.toml").write_text('[diff]\nignore-table = ["collectives"]\nlimit = 1\n')
    assert cli("diff", *sides).out.startswith("different: instructions 2; ")
    assert cli("diff", *sides, "--exact", "program").code == 1


def test_one_side_from_standard_input(cli: Cli, sides: tuple[Path, Path]) -> None:
    old, _ = sides
    ran = cli("diff", old, "-", stdin=step(1).encode())
    assert ran.code == 1
    assert "\n  new  while  <stdin>\n" in ran.out
    assert cli("diff", "-", old, stdin=step(3).encode()).code == 0
    ran = cli("diff", "-", "-", stdin=b"")
    assert ran.code == 2
    assert "one of the two sides" in ran.err


# ---------------------------------------------------------------------------------- folders


def dump(folder: Path, before: str | None, after: str | None, module: str = "jit_step") -> Path:
    folder.mkdir(exist_ok=True)
    for text, stage in ((before, "before_optimizations"), (after, "after_optimizations")):
        if text is not None:
            (folder / f"module_0001.{module}.{stage}.txt").write_text(text)
    return folder


def test_stages_of_dump_folders(cli: Cli, tmp_path: Path) -> None:
    old = dump(tmp_path / "old", step(3), step(2))
    new = dump(tmp_path / "new", step(3), step(1))
    ran = cli("diff", old, new)
    assert ran.code == 1
    stages = re.findall(r"^(\w+_optimizations)  \d+ instr", ran.out, re.MULTILINE)
    assert stages == ["after_optimizations", "before_optimizations"]
    assert cli("diff", old, new, "--stage", "before").code == 0
    assert cli("diff", old, new, "--stage", "opt").code == 1
    ran = cli("diff", old, new, "--exact", "program")
    assert ran.code == 1
    assert ran.out.startswith("different program in after_optimizations\n")


def test_stages_that_one_side_alone_has(cli: Cli, tmp_path: Path) -> None:
    old = dump(tmp_path / "old", step(1), step(2))
    new = dump(tmp_path / "new", None, step(2))
    ran = cli("diff", old, new)
    assert ran.code == 0
    assert "not compared, on the old side only: before_optimizations\n" in ran.out
    both = [dump(tmp_path / "a", step(1), None), dump(tmp_path / "b", step(1), step(1))]
    one, other = both
    (other / "module_0001.jit_step.before_optimizations.txt").rename(
        other / "module_0001.jit_step.after_spmd_partitioner.txt"
    )
    for options in ([], ["--exact", "program"]):
        ran = cli("diff", one, other, *options)
        assert (ran.code, ran.out) == (2, "")
        assert "no stage in common" in ran.err
        assert "before_optimizations" in ran.err
        assert "after_spmd_partitioner" in ran.err


def test_two_stages_of_one_program(cli: Cli, tmp_path: Path) -> None:
    folder = dump(tmp_path / "dump", step(3), step(1))
    ran = cli("diff", *sorted(folder.iterdir(), reverse=True))
    assert ran.code == 1
    assert "\nbefore_optimizations → after_optimizations  " in ran.out


def test_a_module_of_several(cli: Cli, tmp_path: Path) -> None:
    old = dump(dump(tmp_path / "old", None, step(1)), None, step(3), "jit_other")
    new = dump(dump(tmp_path / "new", None, step(1)), None, step(1), "jit_other")
    ran = cli("diff", old, new)
    assert ran.code == 2
    assert "choose one with --module" in ran.err
    assert cli("diff", old, new, "--module", "jit_step").code == 0
    assert cli("diff", old, new, "--module", "jit_other").code == 1


# ---------------------------------------------------------------------------------- options


def test_nothing_to_compare_is_no_same(cli: Cli, sides: tuple[Path, Path]) -> None:
    ran = cli("diff", *sides, "--only", "loops", "--ignore-table", "loops")
    assert ran.code == 2
    assert "nothing to compare" in ran.err


def test_only_and_ignored_tables(cli: Cli, sides: tuple[Path, Path]) -> None:
    assert cli("diff", *sides, "--only", "loops").code == 0
    ran = cli("diff", *sides, "--only", "collectives", "--only", "loops")
    assert ran.code == 1
    assert ran.out.startswith("different: collectives 2; 2 rows the same\n")
    ran = cli("diff", *sides, "--ignore-table", "collectives")
    assert "collectives" not in ran.out
    ran = cli("diff", *sides, "--only", "instructions", "--format", "json")
    tables = json.loads(ran.out)["stages"][0]["tables"]
    assert [table["table"] for table in tables] == ["instructions"]
    assert len(tables[0]["removed"]) == 2


def test_limit(cli: Cli, tmp_path: Path) -> None:
    old, new = tmp_path / "old.hlo", tmp_path / "new.hlo"
    kernels = "\n".join(
        f'  %k.{n} = f32[8,16] custom-call(%x), custom_call_target="k{n:02}"' for n in range(30)
    )
    old.write_text(step(1))
    new.write_text(step(1, extra=kernels))
    out = cli("diff", old, new).out
    assert "  … 18 more lines; --limit 0 shows all\n" in out
    assert "--limit" not in cli("diff", old, new, "--limit", "0").out
    assert "k29" in cli("diff", old, new, "--limit", "0").out
    assert "… 29 more lines" in cli("diff", old, new, "--limit", "1").out
    data = json.loads(cli("diff", old, new, "--format", "json").out)
    assert len(data["stages"][0]["instructions"]["only_new"]) == 30
    data = json.loads(cli("diff", old, new, "--format", "json", "--limit", "4").out)
    assert len(data["stages"][0]["instructions"]["only_new"]) == 4
    assert data["stages"][0]["instructions"]["left_out"] == {"only_new": 26}


def test_formats_and_output(cli: Cli, sides: tuple[Path, Path], tmp_path: Path) -> None:
    data = json.loads(cli("diff", *sides, "--format", "json").out)
    assert (data["diff_version"], data["same"]) == (1, False)
    assert [side["modules"][0]["file"] for side in (data["old"], data["new"])] == [*map(str, sides)]
    ran = cli("diff", *sides, "--format", "markdown", "-o", tmp_path / "diff.md")
    assert (ran.code, ran.out) == (1, "")
    assert (tmp_path / "diff.md").read_text().startswith("## ❌ Different: ")
    exact = json.loads(cli("diff", *sides, "--exact", "program", "--format", "json").out)
    assert (exact["exact"], exact["same"]) == ("program", False)
    parting = exact["stages"][0]["parting"]
    assert parting["kind"] == "opcode"
    assert parting["new"]["text"][parting["new"]["column"] :].startswith("tuple(")
    ran = cli("diff", *sides, "--exact", "text", "--format", "markdown")
    assert ran.out.startswith("## ❌ Different text\n")


def test_colors_are_asked_for(cli: Cli, sides: tuple[Path, Path]) -> None:
    for options in ([], ["--exact", "program"]):
        plain = cli("diff", *sides, *options).out
        assert "\x1b" not in plain
        colored = cli("diff", *sides, *options, "--color", "always").out
        assert "\x1b[" in colored
        assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain


def test_a_pass_that_fails_is_told(
    cli: Cli, sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import hlo_lens_passes.loops as module

    def crash(*args: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(type(module.PASS), "run", crash)
    ran = cli("diff", *sides)
    assert "boom" in ran.err


def test_completion() -> None:
    words = "hlolens diff --ignore-table loo"
    environment = os.environ | {
        "_HLOLENS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "hlo_lens"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "plain,loops\n"


# ---------------------------------------------------------------------------------- exact


def test_where_two_programs_part(cli: Cli, tmp_path: Path) -> None:
    old, new = tmp_path / "old.hlo", tmp_path / "new.hlo"
    old.write_text(step(2))
    new.write_text("\n" + step(2, trips=8))
    ran = cli("diff", old, new, "--exact", "program")
    assert (ran.code, ran.err) == (1, "")
    lines = ran.out.splitlines()
    start = lines.index("after_optimizations  another literal")
    number = step(2).splitlines().index("  %n = s32[] constant(4)") + 1
    assert lines[start + 1 :] == [
        f"  {old}:{number} in cond.0",
        "    %n = s32[] constant(4)",
        "                        ^",
        f"  {new}:{number + 1} in cond.0",
        "    %n = s32[] constant(8)",
        "                        ^",
    ]


def test_a_long_line_is_shown_around_the_place(cli: Cli, tmp_path: Path) -> None:
    old, new = tmp_path / "old.hlo", tmp_path / "new.hlo"
    names = ", ".join(f"{n}" for n in range(200))
    extra = f"  %k = s32[200] constant({{{names}}})"
    old.write_text(step(1, extra=extra))
    new.write_text(step(1, extra=extra.replace(" 150,", " 151,")))
    lines = cli("diff", old, new, "--exact", "program").out.splitlines()
    at = next(n for n, line in enumerate(lines) if "150, 151" in line)
    assert lines[at].startswith("    %k = …")
    assert lines[at].endswith("…")
    assert len(lines[at]) <= 120
    assert lines[at][lines[at + 1].index("^") :].startswith("150")
    assert lines[at + 3][lines[at + 4].index("^") :].startswith("151")


def test_a_side_that_ends(cli: Cli, tmp_path: Path) -> None:
    old, new = tmp_path / "old.hlo", tmp_path / "new.hlo"
    old.write_text(step(1))
    new.write_text(step(1) + "%more {\n  %q = f32[] parameter(0)\n}\n")
    ran = cli("diff", old, new, "--exact", "text")
    assert f"\n  {old}: ended\n  {new}:" in ran.out
    ran = cli("diff", old, new, "--exact", "program")
    assert "a computation that nothing calls is on one side only" in ran.out


def test_what_the_texts_do_not_hold_is_told(cli: Cli, tmp_path: Path) -> None:
    elided = tmp_path / "elided.hlo"
    elided.write_text(step(1, extra="  %k = s32[200] constant({...})"))
    out = cli("diff", elided, elided, "--exact", "program").out
    assert out.startswith("same program\n")
    assert re.search(r"elides as \{...\}, whose values are not\s+compared: 1\n", out)
    cut = tmp_path / "cut.hlo"
    cut.write_text(step(1)[:-40])
    assert "a text is cut off" in cli("diff", cut, cut, "--exact", "program").out


# ---------------------------------------------------------------------------------- real programs

# What a pull request claims, and where it shows.
CLAIMS = [
    # The query weight is gathered once in the backward.
    ("query-gather-twice", "query-gather-once", "tpu-tpu7x-8", "collectives", -1),
    # One absmax for all layers, in front of the loop: an all-reduce in either loop goes.
    ("fake-quant-in-loop", "fake-quant-absmax", "tpu-tpu7x-8", "collectives", -1),
    # The gradient of the norm scales is reduced behind the loop.
    ("hand-norm-scale-in-loop", "hand-norm-scale-hoisted", "hand-made", "collectives", 0),
    # A gather in the place of the product with a one-hot matrix.
    ("embedding-one-hot", "embedding-gather", "rocm-gfx950", "matmuls", -2),
]


@pytest.mark.parametrize(("old", "new", "target", "table", "rows"), CLAIMS, ids=lambda x: str(x))
def test_claims_of_pull_requests(
    cli: Cli, old: str, new: str, target: str, table: str, rows: int
) -> None:
    ran = cli("diff", PAIRS / old / target, PAIRS / new / target, "--format", "json")
    assert ran.code == 1
    stage = json.loads(ran.out)["stages"][-1]
    (found,) = (one for one in stage["tables"] if one["table"] == table)
    assert len(found["added"]) - len(found["removed"]) == rows
    assert found["removed"]


@pytest.mark.parametrize(
    ("right", "wrong", "target"),
    [
        ("gate-split-concat", "gate-split-swapped", "rocm-gfx950"),
        ("hand-query-gather-once", "hand-query-gather-constrained", "hand-made"),
        ("positions-saved", "positions-natural", "tpu-tpu7x-8"),
    ],
)
def test_wrong_variants_are_told_apart(cli: Cli, right: str, wrong: str, target: str) -> None:
    ran = cli("diff", PAIRS / right / target, PAIRS / wrong / target)
    assert ran.code == 1
    assert ran.out.startswith("different: ")
    assert cli("diff", PAIRS / right / target, PAIRS / right / target).code == 0


# ---------------------------------------------------------------------------------- hostile text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_text_of_a_file_acts_nowhere(cli: Cli, tmp_path: Path, payload: str) -> None:
    old, new = tmp_path / "old.hlo", tmp_path / "new.hlo"
    old.write_bytes(TEXT.replace("@", PAYLOADS[payload]).encode())
    changed = TEXT.replace("@", PAYLOADS[payload] + "x").replace("f32[8,8] dot", "bf16[8,8] dot")
    new.write_bytes(changed.encode())
    views = ("", "--format markdown", "--exact program", "--exact text", "--only instructions")
    for view in (*views, "--exact text --format markdown"):
        options = view.split()
        ran = cli("diff", old, new, *options)
        assert ran.code == 1, (options, ran.err)
        assert ACTS.search(ran.out) is None, options
    page = cli("diff", old, new, "--format", "markdown").out
    assert "<script" not in page
    for rows in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({re.sub(r"\\.", "", row).count("|") for row in rows.splitlines()}) == 1, rows
    json.loads(cli("diff", old, new, "--format", "json").out)
    json.loads(cli("diff", old, new, "--exact", "program", "--format", "json").out)


# ---------------------------------------------------------------------------------- the page


@pytest.mark.parametrize(
    "block",
    list(BLOCK.finditer(PAGE.read_text(encoding="utf-8"))),
    ids=lambda block: block["command"],
)
def test_a_block_of_the_page_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        printed = output_of(block["command"], block["lines"], block["code"])
    assert block["output"] == printed, "python -m tests.test_readme docs/diff.md puts it in place"


def test_every_output_of_the_page_is_checked() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(list(BLOCK.finditer(text))) == text.count("output of:") == 4


def test_the_python_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code is not None
    before = dump(tmp_path / "before", None, step(2))
    after = dump(tmp_path / "after", None, step(1))
    text = code[1].replace("before/", str(before)).replace("after/", str(after))
    exec(compile(text, "diff.md", "exec"), {})
    assert capsys.readouterr().out == "g.1\n"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("cudnn-window-train", "mask_type CAUSAL → NO_MASK, sliding_window_length 0 → 48"),
        ("cudnn-bidirectional", "mask_type CAUSAL → NO_MASK"),
    ],
)
def test_the_mask_and_the_window_of_fused_attention_are_told(
    cli: Cli, other: str, said: str
) -> None:
    folder = Path(__file__).resolve().parents[2] / "fixtures" / "hlo" / "attention"
    sides = [folder / name / "cuda-h100" for name in ("cudnn-train", other)]
    for limit in ((), ("--limit", "0")):
        ran = cli("diff", *sides, "--only", "custom_calls", *limit)
        assert f"config {said}" in " ".join(ran.out.split())
    assert "more" not in ran.out
