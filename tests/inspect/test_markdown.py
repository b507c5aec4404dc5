"""The report as Markdown: what a reviewer reads first, what is folded, what stays the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from hlo_lens.facts import Cell, Facts, Finding, Measure, PassResult, Rule, Summary
from hlo_lens.figure.drawing import views_with_rows
from hlo_lens.figure.layout import CHOICE
from hlo_lens.hlo import parse
from hlo_lens.inspect import Report, as_markdown, report
from hlo_lens.inspect.markdown import COMMENT, Linked, Page, pages_as_markdown
from hlo_lens.program import Program
from tests.conftest import Ran
from tests.facts.toys import OPS, ops, program
from tests.inspect.test_report import NAMELESS, STEP, report_of
from tests.test_readme import BLOCK, ROOT, at_root, output_of

PAGE = ROOT / "docs" / "pull-request.md"
Cli = Callable[..., Ran]


def toy_report(
    findings: list[Finding] | None = None, rows: list[str] | None = None, name: str = "opcode"
) -> Report:
    """A report of these findings and of a table with these opcodes, grouped by `name`."""
    summary = Summary("operations", 5, by=(Cell(name),), measures=(Measure("count", "rows"),))
    table = replace(OPS, summary=summary)
    ops_rows = [{"module": 0, "instr": 0, "opcode": each} for each in rows or []]
    result = PassResult({"ops": ops_rows}, findings=findings or [])
    rules = tuple(Rule(rule, "note", "r", "r") for rule in {one.rule for one in findings or []})
    toy = ops(tables=(table,), does=lambda *_: result, rules=rules)
    return report(Facts(program(), [toy]))


def found(number: int, rule: str = "some-rule", **more: str) -> list[Finding]:
    return [Finding(rule, "note", f"m{n}", 0, 0, (), **more) for n in range(number)]


# -- the verdict ----------------------------------------------------------------------------------


def test_a_verdict_stands_first() -> None:
    facts = Facts(Program([parse(STEP, filename="runs/step.hlo")]))
    name, _, verdict, *_ = as_markdown(report(facts)).splitlines()
    assert name == "## jit_step"
    assert verdict.startswith(
        "ℹ️ **1 note** · `runs/step.hlo` · after_optimizations · scheduled · partitions 2 · "
    )


def test_it_counts_by_level_the_gravest_first() -> None:
    levels = ("note", "error", "note", "warning")
    findings = [Finding("r", level, f"m{n}", 0) for n, level in enumerate(levels)]  # type: ignore[arg-type]
    assert "\n❌ **1 error, 1 warning, 2 notes**" in as_markdown(toy_report(findings))
    assert "\n✅ **no findings**" in as_markdown(toy_report())
    assert "### Findings" not in as_markdown(toy_report())


def test_of_several_stages_it_is_of_the_one_that_runs() -> None:
    before = "HloModule jit_step\nENTRY e {\n  ROOT a = f32[] parameter(0)\n}\n"
    stages = Program(program(before, STEP).modules, ["before_optimizations", "after_optimizations"])
    text = as_markdown(report(Facts(stages)))
    assert "**2 notes** · after_optimizations · " in text
    assert "\n- before_optimizations · " in text


# -- findings -------------------------------------------------------------------------------------


def test_findings_stand_in_front_of_the_tables_with_their_place() -> None:
    text = as_markdown(report_of(STEP))
    assert text.index("### Findings") < text.index("Loops (2)") < text.index("Collectives (2)")
    item = next(line for line in text.splitlines() if "trip-count-unknown" in line)
    assert item.startswith("- ℹ️ **note** `trip-count-unknown`: while.b: trip count not known")
    assert re.search(r"\(line \d+ of the text\)\\?$", item)


def test_the_source_stands_for_the_line_of_the_text_which_changes_with_every_build() -> None:
    text = STEP.replace(
        '(layers))/while"}', '(layers))/while" source_file="@a|b.py" source_line=3}'
    )
    item = next(line for line in as_markdown(report_of(text)).splitlines() if "trip-count" in line)
    assert "of the text" not in item
    assert "(@<!-- -->a\\|b.py:3)" in item


def test_findings_of_one_rule_stand_together() -> None:
    mixed = [*found(1, "b"), *found(2, "a", help="do it"), Finding("b", "note", "n", 0, 0)]
    lines = as_markdown(toy_report(mixed)).splitlines()
    at = lines.index("- ℹ️ **note** `a` × 2: do it")
    assert lines[at + 1 : at + 3] == [f"  - m{n} (`a` · line 3 of the text)" for n in (0, 1)]
    assert lines[at + 4] == "- ℹ️ **note** `b` × 2"


def test_more_than_ten_of_a_rule_are_folded_and_many_more_counted() -> None:
    text = as_markdown(toy_report(found(70)), file="a step.hlo")
    opened, _, rest = text.partition("  <details><summary>40 more of some-rule</summary>\n")
    assert "`some-rule` × 70\n" in opened
    assert [len(re.findall(r"^  - m\d+ ", part, re.M)) for part in (opened, rest)] == [10, 40]
    assert "\n  … 20 more; `hlolens inspect 'a step.hlo'` shows all\n" in rest
    assert "more" not in as_markdown(toy_report(found(10))).partition("### Findings")[2]


# -- tables ---------------------------------------------------------------------------------------


def test_tables_are_folded_under_their_number_and_last_sum() -> None:
    text = as_markdown(report_of(STEP))
    lines = text.splitlines()
    at = lines.index("<details><summary>Loops (2)</summary>")
    assert lines[at + 1 : at + 5] == [
        "",
        "| loop | phase | trip count is | loops | runs | carry | stacked |",
        "|---|---|---|---:|---:|---:|---:|",
        "| while.f ×4 | fwd | inferred | 1 | 1 | 256.0 KiB | 0 B |",
    ]
    assert "<details><summary>Collectives (2) · sent per step ≥ 1.0 MiB</summary>" in text
    assert text.count("<details>") == text.count("</details>") > 2


def test_a_title_is_html() -> None:
    """Escapes of Markdown are text there."""
    summary = Summary("many | <operations>", 5, by=(Cell("opcode"),))
    rows = PassResult({"ops": [{"module": 0, "instr": 0, "opcode": "x"}]})
    toy = ops(tables=(replace(OPS, summary=summary),), does=lambda *_: rows)
    text = as_markdown(report(Facts(program(), [toy])))
    assert "<summary>Many | &lt;operations&gt; (1)</summary>" in text


def test_a_long_table_is_cut_and_says_so() -> None:
    text = as_markdown(toy_report(rows=[f"op{n}" for n in range(130)]), file="f.hlo")
    assert len(re.findall(r"^\| op\d+ \|", text, re.M)) == 100
    assert "\n… 30 more rows; `hlolens inspect f.hlo` shows all\n" in text


# -- what stays the same --------------------------------------------------------------------------


def test_it_is_the_same_every_time() -> None:
    assert as_markdown(report_of(STEP)) == as_markdown(report_of(STEP))


def test_loops_are_told_apart_by_their_order_not_by_the_number_that_the_compiler_gave() -> None:
    numbered = STEP.replace("while.f", "while.12").replace("while.b", "while.7")
    again = STEP.replace("while.f", "while.3").replace("while.b", "while.45")
    one, two = (as_markdown(report_of(text)) for text in (numbered, again))
    assert "\n| 1st while ×4 | fwd |" in one
    assert "\n| 2nd while ×? | bwd |" in one
    differing = [a for a, b in zip(one.splitlines(), two.splitlines(), strict=True) if a != b]
    assert len(differing) == 2
    assert "**note** `trip-count-unknown`: while.7" in differing[0]
    assert differing[1].endswith("1st while is while.12; 2nd while is while.7</sub>")


def test_the_only_loop_of_a_name_needs_no_number_and_a_name_without_one_stays() -> None:
    text = as_markdown(report_of(STEP.replace("while.b", "backward.3")))
    assert "\n| backward ×? |" in text
    assert "\n| while.f ×4 |" in text
    assert "backward is backward.3</sub>" in text


def test_groups_stand_by_their_words_with_numbers_by_value() -> None:
    rows = ["dot 10", "dot 9", "add"]
    texts = {as_markdown(toy_report(rows=order)) for order in (rows, rows[::-1])}
    assert len(texts) == 1
    assert re.findall(r"^\| (\w+ ?\d*) \|", texts.pop(), re.M)[1:4] == ["add", "dot 9", "dot 10"]


@pytest.mark.parametrize("name", ["remat/full-scanned/rocm-gfx950", "moe/ragged-layer"])
def test_other_numbers_give_the_same_page(name: str) -> None:
    folder = ROOT / "fixtures" / "hlo" / name
    path = sorted(folder.rglob("after_optimizations.txt"))[0]
    text = path.read_text()

    def renumbered(match: re.Match[str]) -> str:
        return f"{match[1]}.{int(match[2]) + 7000}"

    other = re.sub(r"(%[A-Za-z_][\w.-]*?)\.(\d+)(?![\w.])", renumbered, text)
    assert other != text
    pages = [
        re.sub(r"^(?:<sub>|  ?- |- ).*\n|\d[\d.,]* [KM]iB · \d+% of", "", page, flags=re.M)
        for page in (as_markdown(report_of(one)) for one in (text, other))
    ]
    assert pages[0] == pages[1]
    assert "(1)" in pages[0]


# -- size -----------------------------------------------------------------------------------------


def long_report() -> Report:
    rules = [finding for n in range(60) for finding in found(60, f"rule-{n}")]
    findings = [replace(one, message=f"{one.message} {'@x|' * 80}") for one in rules]
    return toy_report(findings, [f"{'|' * 900} {n}" for n in range(1000)])


@pytest.mark.parametrize("size", [5_000, 20_000, COMMENT])
def test_a_page_has_a_size_and_says_what_is_left_out(size: int) -> None:
    text = as_markdown(long_report(), file="f.hlo", size=size)
    assert len(text) <= size
    assert "\n❌ " not in text
    assert "\nℹ️ **3,600 notes**" in text
    left = next(line for line in text.splitlines() if line.startswith("Left out"))
    assert left.startswith("Left out, as the page would be too long: rule-")
    assert re.search(r"Operations \(1,000\)| and \d+ more", left)
    assert "\n`hlolens inspect f.hlo` shows all.\n" in text
    assert text.count("<details>") == text.count("</details>")


def test_a_text_that_is_cut_says_how_long_it_is() -> None:
    text = as_markdown(toy_report([Finding("r", "note", "a" * 5000, 0)]))
    assert f"{'a' * 1000}… (5,000 characters)" in text


def test_several_programs_are_listed_first_and_share_the_size() -> None:
    pages = [Page(report_of(STEP), "s.hlo"), Page(report_of(NAMELESS)), Page(long_report())]
    text = pages_as_markdown(pages)
    assert text.startswith(
        "- ℹ️ **1 note**: jit_step (`s.hlo`)\n- ℹ️ **1 note**: m\n"
        "- ℹ️ **3,600 notes**: toy\n\n## jit_step\n"
    )
    assert re.findall("^## (.*)", text, re.M) == ["jit_step", "m", "toy"]
    assert COMMENT / 2 < len(text) <= COMMENT
    many = pages_as_markdown([Page(report_of(STEP))] * 400)
    assert len(many) <= COMMENT
    assert re.search(r"^\d+ more reports are left out for length; give fewer files\.$", many, re.M)


def test_the_command_can_write_several_programs(cli: Cli, tmp_path: Path) -> None:
    for name, text in (("a.hlo", STEP), ("b.hlo", NAMELESS)):
        (tmp_path / name).write_text(text)
    ran = cli("inspect", tmp_path / "a.hlo", tmp_path / "b.hlo", "--format", "markdown")
    assert (ran.code, ran.err) == (0, "")
    first, second, empty, head, *_ = ran.out.splitlines()
    assert (first.startswith("- ℹ️ **1 note**: jit_step ("), "a.hlo" in first) == (True, True)
    assert (second.startswith("- ℹ️ **1 note**: m ("), "b.hlo" in second) == (True, True)
    assert (empty, head) == ("", "## jit_step")


# -- figures --------------------------------------------------------------------------------------


def test_figures_stand_folded_behind_the_findings() -> None:
    figure = Linked("remat: what <is> replayed", "2 of 9 [x] are drawn", PurePath("f/a b.svg"))
    text = as_markdown(report_of(STEP), figures=[figure])
    assert (
        "<details><summary>Figure: remat: what &lt;is&gt; replayed</summary>\n\n"
        "![2 of 9 \\[x\\] are drawn](f/a%20b.svg)\n\n</details>\n"
    ) in text
    assert text.index("### Findings") < text.index("Figure:") < text.index("Loops (2)")


def test_figures_go_with_the_report_in_markdown(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(STEP)
    for options in ((), ("--format", "markdown", "--table", "loops")):
        ran = cli("inspect", path, "--figures", tmp_path / "figures", *options)
        assert (ran.code, ran.out) == (2, "")
        assert "--figures goes with the report of --format markdown" in ran.err
    assert not (tmp_path / "figures").exists()


def test_the_command_draws_the_views_that_have_rows(cli: Cli, tmp_path: Path) -> None:
    demo = ROOT / "fixtures" / "demo" / "fsdp_train_step.opt.hlo"
    folder, page = tmp_path / "figures", tmp_path / "pages" / "report.md"
    page.parent.mkdir()
    options = ("--format", "markdown", "--figures", folder, "-o", page)
    ran = cli("inspect", demo, demo, *options)
    if "no layout engine" in ran.err:
        assert (ran.code, "![" in page.read_text()) == (2, False)
        pytest.skip("neither dot nor pygraphviz is installed")
    assert (ran.code, ran.err) == (0, "")
    links = re.findall(r"!\[.* instructions .*\]\((.*)\)", page.read_text())
    views = views_with_rows(Facts(Program([parse(demo.read_text())])))
    assert links == [
        f"../figures/jit_train_step{which}.{view}.svg" for which in ("", "-2") for view in views
    ]
    assert len(views) >= 3
    for link in links:
        assert (page.parent / link).read_text(encoding="utf-8").rstrip().endswith("</svg>")


def test_without_a_layout_engine_the_page_has_no_figures_and_it_is_told(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHOICE, "none")
    demo = ROOT / "fixtures" / "demo" / "fsdp_train_step.opt.hlo"
    ran = cli("inspect", demo, "--format", "markdown", "--figures", tmp_path / "figures")
    assert (ran.code, ran.err.count("hlolens: error: ")) == (2, 1)
    assert ran.out.startswith("## jit_train_step\n")
    assert "![" not in ran.out
    assert not (tmp_path / "figures").exists()


# -- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "block", list(BLOCK.finditer(PAGE.read_text())), ids=lambda block: block["command"]
)
def test_a_block_of_the_page_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        printed = output_of(block["command"], block["lines"], block["code"])
    assert block["output"] == printed, (
        "python -m tests.test_readme docs/pull-request.md puts it in place"
    )


def test_every_output_of_the_page_is_checked() -> None:
    text = PAGE.read_text()
    assert len(list(BLOCK.finditer(text))) == text.count("output of:") == 1
