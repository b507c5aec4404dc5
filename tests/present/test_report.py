"""What reports on one topic share: columns that say nothing, findings of one rule, the legend."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_lens.facts import Finding
from hlo_lens.present.markdown import as_markdown
from hlo_lens.present.page import Column, plain
from hlo_lens.present.report import Section, without_unknown
from hlo_lens.present.terminal import as_lines, first_of_rules, legend

SECTION = Section(
    "things",
    "of a step",
    (Column("name"), Column("phase"), Column("size", right=True)),
    (("a", "–", "–"), ("b", "–", "–")),
    ("total", "", "–"),
    below=("under a", ""),
    notes=("last",),
)


@dataclass(frozen=True)
class Made:
    name: str = "m"
    place: str = "m.hlo"
    head: tuple[tuple[str, str], ...] = (("runs", "twice"),)
    sections: tuple[Section, ...] = (SECTION,)
    findings: tuple[Finding, ...] = ()


def test_columns_that_say_nothing_are_left_out_but_those_that_are_kept() -> None:
    kept = without_unknown(SECTION)
    assert [column.heading for column in kept.columns] == ["name"]
    assert (kept.lines, kept.total) == ((("a",), ("b",)), ("total",))
    assert (kept.below, kept.notes) == (SECTION.below, SECTION.notes)
    kept = without_unknown(SECTION, keep=("phase",))
    assert kept.lines == (("a", "–"), ("b", "–"))
    assert without_unknown(Section("none")) == Section("none")


def test_a_report_as_lines_and_as_markdown() -> None:
    assert plain(as_lines(Made())).splitlines() == [
        "m  m.hlo",
        "  runs  twice",
        "",
        "things  of a step",
        "  name   phase  size",
        "  a      –         –",
        "      under a",
        "  b      –         –",
        "  ──────────────────",
        "  total            –",
        "  last",
        "",
        "– not known",
    ]
    assert as_markdown(Made(), "things").splitlines() == [
        "## m: things",
        "",
        "m.hlo",
        "",
        "- **runs**: twice",
        "",
        "### Things",
        "",
        "Of a step.",
        "",
        "| name | phase | size | |",
        "|---|---|---:|---|",
        "| a | – | – | under a |",
        "| b | – | – |  |",
        "| **total** |  | **–** |",
        "",
        "last  ",
        "",
        "<sub>– not known</sub>",
    ]


def test_the_legend_explains_the_signs_that_are_used_and_a_range_is_none() -> None:
    def of(*cells: str) -> str:
        return legend(
            [Section("s", columns=(Column("a"),), lines=tuple((cell,) for cell in cells))]
        )

    assert of("1", "2 – 3") == ""
    assert of("–") == "– not known"
    assert of("≥ 3", "bf16×–") == "– not known, ≥ at least"


def test_of_one_rule_the_first_are_told_with_its_help_once() -> None:
    alike = [Finding("r", "note", f"m{n}", 0, None, (), "do it") for n in range(4)]
    other = Finding("q", "note", "other", 0)
    told = list(first_of_rules([*alike[:2], other, *alike[2:]], 3))
    assert [(one.message, one.help, left) for one, left in told] == [
        ("m0", None, ""),
        ("m1", None, ""),
        ("m2", "do it", "1 more of r; JSON has all"),
        ("other", None, ""),
    ]
    assert len(list(first_of_rules([*alike, other], 0))) == 5
    text = plain(as_lines(Made(findings=tuple(alike)), of_a_rule=2))
    assert text.endswith("note r  m0\nnote r  m1\n  help: do it\n  2 more of r; JSON has all\n")
    assert "- 2 more of r; JSON has all\n" in as_markdown(
        Made(findings=tuple(alike)), "x", of_a_rule=2
    )
