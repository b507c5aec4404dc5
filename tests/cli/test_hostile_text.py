"""Text of a file acts neither on a terminal nor in a table, JSON or Markdown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

Cli = Callable[..., Ran]

PAYLOADS = {
    "a terminal escape": "\x1b]0;title\x07\x1b[31m",
    "an escape, escaped": r"\033[31m\x1b[31m",
    "one byte of control": "\x9b31m",
    "text from right to left": "\u202eabc",
    "line separators": "a\u2028b\u2029c\x0bd\x85",
    "a carriage return": "a\rb",
    "a line break": "a\nb",
    "NUL": r"a\000b",
    "markup of rich": "[red]x[/red][bold",
    "HTML": "</details><script>alert(1)</script>",
    "marks of Markdown": r"a|b`c` *d* ~~e~~ \\| [f](http://g) # h",
    "separators": "a,b;c\td",
    "bytes that are no text": r"\xff\xed\xa0\x80",
}

TEXT = """HloModule m, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%body (t: (f32[8,16])) -> (f32[8,16]) {
  ROOT %t = (f32[8,16]) parameter(0)
}

%cond (t: (f32[8,16])) -> pred[] {
  %t = (f32[8,16]) parameter(0)
  ROOT %go = pred[] custom-call(%t), custom_call_target="@"
}

ENTRY %main (p: f32[8,16]) -> f32[8,16] {
  %p = f32[8,16] parameter(0)
  %d = f32[8,8] dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={1}, metadata={op_name="@/jvp(x)/dot" source_file="@" source_line=3}
  %q = f32[8,16] custom-call(%p), custom_call_target="@", metadata={op_name="@" source_file="@" source_line=3}, backend_config="@", frontend_attributes={k="@"}
  %t = f32[8,16] custom-call(%q), custom_call_target="__gpu$xla.gpu.triton", backend_config={name = "@", grid_x = 1 : i32}
  %i = (f32[8,16]) tuple(%p)
  %w = (f32[8,16]) while(%i), condition=%cond, body=%body, metadata={op_name="@" source_file="@" source_line=1}
  ROOT %r = f32[8,16] all-reduce(%t), replica_groups={{0,1}}, to_apply=%sum, metadata={op_name="@" source_file="@" source_line=1}
}
"""  # noqa: E501

ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

VIEWS = (
    ("inspect",),
    ("inspect", "--all"),
    ("inspect", "--format", "markdown"),
    ("inspect", "--format", "markdown", "--all"),
    ("tree", "--source", "--groups"),
    ("show", "q"),
    ("show", "r", "--full"),
    ("query", "select * from instructions"),
    ("query", "select * from custom_calls"),
)


@pytest.fixture(params=PAYLOADS)
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "hostile.hlo"
    path.write_bytes(TEXT.replace("@", PAYLOADS[request.param]).encode())
    return path


def view(cli: Cli, path: Path, verb: str, *rest: str) -> str:
    ran = cli(verb, path, *rest)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def test_nothing_acts_on_a_terminal(cli: Cli, hostile: Path) -> None:
    for verb, *rest in VIEWS:
        found = ACTS.search(view(cli, hostile, verb, *rest))
        assert found is None, (verb, rest, found)


def test_colors_are_ours_alone(cli: Cli, hostile: Path) -> None:
    for verb, *rest in VIEWS:
        out = view(cli, hostile, verb, *rest, "--color", "always")
        assert ACTS.search(re.sub(r"\x1b\[[\d;]*m", "", out)) is None, (verb, rest)


def test_json_is_valid(cli: Cli, hostile: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for verb, *rest in (("inspect", "--all"), ("tree",), ("show", "q"), VIEWS[-2], VIEWS[-1]):
        json.loads(view(cli, hostile, verb, *rest, "--format", "json"), parse_constant=refuse)


def test_csv_has_as_many_fields_in_each_row(cli: Cli, hostile: Path) -> None:
    out = view(cli, hostile, "query", "select * from custom_calls", "--format", "csv")
    rows = list(csv.reader(io.StringIO(out, newline="")))
    assert len(rows) == 4
    assert len(set(map(len, rows))) == 1


def test_markdown_has_as_many_cells_in_each_row_and_no_html(cli: Cli, hostile: Path) -> None:
    for rest in ((), ("--all",)):
        out = view(cli, hostile, "inspect", "--format", "markdown", *rest)
        assert "<script" not in out
        assert out.count("</details>") == out.count("<details>")
        assert "[f](" not in out
        tables = re.findall(r"(?:^\|.*\n)+", out, re.MULTILINE)
        for table in tables:
            rows = [re.sub(r"\\.", "", row).count("|") for row in table.splitlines()]
            assert len(set(rows)) == 1, table


@pytest.mark.parametrize("name", ["a\x1b[31mb.hlo", "a\nb.hlo", "[red]a[bold.hlo", "-$(a).hlo"])
def test_names_of_files(cli: Cli, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TEXT)
    for verb, *rest in VIEWS:
        out = view(cli, path, verb, *rest)
        assert ACTS.search(out) is None, (verb, rest)
    ran = cli("ls", tmp_path)
    assert ACTS.search(ran.out) is None
    assert len(ran.out.splitlines()) == 2
    assert name in ran.out or not name.isprintable()
