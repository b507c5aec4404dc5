"""Broken texts: a sentence with line and column, or everything up to where the text is cut off."""
# ruff: noqa: E501 (texts stay as they are written)

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from hlo_lens.hlo import HloParseError, parse
from tests.hlo.features import FEATURES
from tests.shared import needs_shared, texts

HEAD = "HloModule m\n\nENTRY e {\n  p = f32[2] parameter(0)\n"


@dataclass(frozen=True, slots=True)
class Broken:
    """A text and the error it must give: where, and words of what was expected and found."""

    text: str
    line: int
    column: int
    expected: str
    found: str


def _in_entry(line: str, column: int, expected: str, found: str, *, lines_on: int = 0) -> Broken:
    return Broken(f"{HEAD}{line}\n}}\n", 5 + lines_on, column, expected, found)


BROKEN = {
    "empty": Broken("", 1, 1, "HLO text", "the end of the text"),
    "blank": Broken(" \n\t\n", 3, 1, "HLO text", "the end of the text"),
    "only a comment": Broken("// nothing\n", 2, 1, "HLO text", "the end of the text"),
    "header only": Broken("HloModule m\n", 2, 1, "a computation", "the end of the text"),
    "no module name": Broken("HloModule {\n", 1, 11, "the name of the module", "{"),
    "JSON": Broken('{"a": 1}', 1, 1, "HLO text", '{"a": 1}'),
    "MLIR": Broken("module @jit_f attributes {a = 1 : i32} {\n", 1, 1, "HLO text", "module @jit_f"),
    "prose": Broken("Hello world, this is no HLO\n", 1, 1, "HLO text", "Hello world"),
    "a script": Broken("import jax\nprint(jax)\n", 1, 1, "HLO text", "import jax"),
    "a web page": Broken("<!DOCTYPE html>\n", 1, 1, "HLO text", "<!DOCTYPE"),
    "binary": Broken("\x7fELF\x02\x01\x01\x00", 1, 1, "HLO text", "ELF"),
    "an attribute of the header again": Broken(
        "HloModule m, a=1,\n  a=2\nENTRY e {\n", 2, 3, "a once", "it again"
    ),
    "two modules": Broken(f"{HEAD}}}\n{HEAD}}}\n", 6, 1, "one module a text", "HloModule m"),
    "two entries": Broken(
        f"{HEAD}}}\nENTRY f {{ q = f32[] parameter(0) }}\n", 6, 1, "one ENTRY", "a second ENTRY"
    ),
    "empty computation": Broken(
        "HloModule m\nENTRY e {\n}\n", 2, 10, "an instruction", "an empty computation"
    ),
    "brace too many": Broken(f"{HEAD}}}\n}}\n", 6, 1, "a computation", "}"),
    "no shape of the result": Broken(
        "ENTRY e (p: f32[2]) -> {\n  p = f32[2] parameter(0)\n}\n", 1, 24, "shape of the result", "{"
    ),
    "unknown operand": _in_entry("  n = f32[2] negate(q)", 21, "an instruction above", "'q'"),
    "operand that is nearly known": Broken(
        f"{HEAD}  other = f32[2] negate(p)\n  ROOT n = f32[2] negate(otter)\n}}\n",
        6, 26, "did you mean 'other'?", "'otter'",
    ),
    "operand below": Broken(
        f"{HEAD}  a = f32[2] negate(b)\n  b = f32[2] negate(p)\n}}\n",
        5, 21, "an instruction above", "'b'",
    ),
    "operand is itself": _in_entry("  a = f32[2] add(p, a)", 21, "an instruction above", "'a'"),
    "no equals sign": _in_entry("  n f32[2] negate(p)", 5, "'=' behind the name 'n'", "f32[2]"),
    "no opcode": _in_entry("  n = f32[2]", 1, "an opcode", "}", lines_on=1),
    "no parenthesis": _in_entry("  n = f32[2] negate p", 21, "'(' behind the opcode", "p"),
    "same name twice": _in_entry("  p = f32[2] negate(p)", 3, "a name that is new", "'p'"),
    "two roots": Broken(
        f"{HEAD}  ROOT a = f32[2] negate(p)\n  ROOT b = f32[2] negate(p)\n}}\n",
        6, 3, "one ROOT", "a second ROOT",
    ),
    "parenthesis that never closes": Broken(
        f"{HEAD}  n = f32[2] negate(p\n  ROOT r = f32[2] negate(p)\n}}\n",
        5, 20, "')' to close the '(' of line 5", "line 6",
    ),
    "string that never closes": _in_entry(
        "  n = f32[2] negate(p), x=\"y", 27, "'\"' to close the '\"' of line 5", "line 6"
    ),
    "no number of a parameter": _in_entry(
        "  q = f32[2] parameter(x)", 24, "the number of the parameter", "x)"
    ),
    "no comma between operands": _in_entry("  n = f32[2] add(p p)", 20, "',' or ')'", "p)"),
    "attribute without a value": _in_entry(
        "  n = f32[2] negate(p), dimensions=", 1, "a value for 'dimensions'", "}", lines_on=1
    ),
    "attribute without a name": _in_entry("  n = f32[2] negate(p), , a=1", 25, "an attribute", ","),
    "comma too many": _in_entry("  n = f32[2] negate(p),", 1, "an attribute", "}", lines_on=1),
    "words behind an instruction": _in_entry(
        "  n = f32[2] negate(p) extra", 1, "'=' behind the name 'extra'", "}", lines_on=1
    ),
    "strange character": _in_entry("  n = f32[2] negate(p)!", 23, "an instruction", "!"),
    "tabs in front": _in_entry("\t\tn = f32[2] negate(qq)", 21, "an instruction above", "'qq'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("fast", [True, False])
def test_broken_text(name: str, fast: bool) -> None:
    broken = BROKEN[name]
    with pytest.raises(HloParseError) as raised:
        parse(broken.text, filename="broken.hlo", fast=fast)
    error = raised.value
    assert (error.line, error.column) == (broken.line, broken.column), error.render()
    assert broken.expected in error.expected, error.render()
    assert broken.found in error.found, error.render()
    assert error.filename == "broken.hlo"
    assert str(error).startswith(f"broken.hlo:{broken.line}:{broken.column}: expected ")


def caret_points_at(error: HloParseError) -> str:
    """The text above the caret, from the caret on."""
    *_, line, caret = error.render().split("\n")
    return line[caret.index("^") :]


@pytest.mark.parametrize("name", ["unknown operand", "no equals sign", "tabs in front", "prose"])
def test_the_caret_stands_under_the_column(name: str) -> None:
    with pytest.raises(HloParseError) as raised:
        parse(BROKEN[name].text)
    assert caret_points_at(raised.value).startswith(BROKEN[name].found.strip("'"))
    assert raised.value.source_line == BROKEN[name].text.split("\n")[raised.value.line - 1]


def test_a_long_line_is_shown_around_the_caret() -> None:
    operands = ", ".join(["p"] * 200)
    with pytest.raises(HloParseError) as raised:
        parse(f"{HEAD}  n = f32[2] add({operands}, oops, {operands})\n}}\n")
    assert caret_points_at(raised.value).startswith("oops, p")
    assert max(map(len, raised.value.render().split("\n"))) < 140


def test_lines_end_in_carriage_returns_too() -> None:
    with pytest.raises(HloParseError) as raised:
        parse(BROKEN["unknown operand"].text.replace("\n", "\r\n"))
    assert (raised.value.line, raised.value.column) == (5, 21)
    assert "\r" not in raised.value.render()


def test_bare_text_has_a_place_too() -> None:
    with pytest.raises(HloParseError, match=r"^<text>:1:1: expected HLO text"):
        parse("")


# -- cut-off texts --------------------------------------------------------------------------------


def test_cut_inside_an_instruction() -> None:
    module = parse(f"{HEAD}  n = f32[2] negate(p)\n  ROOT r = f32[2] add(p")
    assert list(module.entry.names) == ["p", "n"]
    assert [(repair.kind, repair.line) for repair in module.repairs] == [("truncated", 6)]
    assert module.truncated


def test_cut_between_instructions() -> None:
    module = parse(HEAD)
    assert list(module.entry.names) == ["p"]
    assert [repair.kind for repair in module.repairs] == ["truncated"]


def test_cut_in_front_of_the_entry() -> None:
    """What is called was read; that no entry is there is said."""
    module = parse("HloModule m\nf {\n  a = f32[] parameter(0)\n}\nENTRY e {\n")
    assert [each.name for each in module.computations] == ["f"]
    assert {repair.kind for repair in module.repairs} == {"truncated", "no-entry"}


def test_missing_computation() -> None:
    module = parse(f"{HEAD}  ROOT c = f32[2] call(p), to_apply=%gone\n}}\n")
    assert [(repair.kind, repair.line) for repair in module.repairs] == [("missing-computation", 5)]
    assert "gone" in module.repairs[0].message
    assert module.entry.root.called == ()


def read_to_the_cut(text: str, cut: int, whole: list[str]) -> None:
    """A prefix gives a prefix of the instructions, marked as cut off, or is refused in order."""
    try:
        module = parse(text[:cut])
    except HloParseError:
        return
    names = [name for computation in module.computations for name in computation.names]
    assert names == whole[: len(names)], cut
    closed = text[:cut].rstrip().endswith("}") or text[cut:].strip() == ""
    assert module.truncated or closed, cut


@pytest.mark.parametrize("name", FEATURES)
def test_feature_texts_cut_anywhere(name: str) -> None:
    """Nothing but HloParseError, whatever the cut. Cuts in names and numbers may read otherwise."""
    text = FEATURES[name].text
    for cut in range(len(text)):
        try:
            parse(text[:cut]).expanded()
        except HloParseError as error:
            assert error.line >= 1  # noqa: PT017 (any prefix may be refused, none may crash)


@needs_shared
def test_real_texts_cut_anywhere() -> None:
    paths = texts("cases/0*.hlo", "gfx950/scan/scanned/*before*.txt")
    assert paths
    for path in paths:
        text = path.read_text()
        whole = [name for each in parse(text).computations for name in each.names]
        first = text.index("(0)")
        for cut in range(first, len(text), max(1, len(text) // 150)):
            read_to_the_cut(text, cut, whole)


@needs_shared
def test_a_cut_real_text_is_never_refused() -> None:
    """Behind its first instruction, a printed text that stops anywhere is read to there."""
    text = texts("cases/01*.hlo")[0].read_text()
    for cut in range(text.index("\n", text.index("(0)")), len(text)):
        parse(text[:cut])


# -- hostile texts --------------------------------------------------------------------------------

LARGE = 100_000
# A few milliseconds each where time grows with the length, minutes where with its square.
LONG = {
    "arrows in a header that opens nothing": "HloModule m\n" + "e (a) -> " * LARGE,
    "arrows behind parameters": f"{HEAD}}}\ng (p: {' -> x' * LARGE}\n",
    "comments in a comment": f"{HEAD}  ROOT n = f32[2] negate(p), {'/*' * LARGE}*/ a=1\n}}\n",
    "comments that do not end": f"{HEAD}  n = f32[2] add({'/*' * LARGE})\n}}\n",
    "comments that do not end, in attributes": f"{HEAD}  n = f32[2] add(p), a={{{'/*b' * LARGE}\n",
    "buffers": f"{HEAD}  n = {'b(' * LARGE}\n}}\n",
    "elements of elements": f"{HEAD}  n = f32[2] negate(p{'#0' * LARGE})\n}}\n",
    "undeclared operands": f"tuple({', '.join(f'f32[2] a{i}' for i in range(LARGE // 5))})",
    "undeclared operands without names": f"tuple({', '.join(['f32[2]'] * (LARGE // 5))})",
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("fast", [True, False])
def test_time_grows_with_the_length_of_hostile_texts(name: str, fast: bool) -> None:
    start = time.perf_counter()
    try:
        parse(LONG[name], fast=fast)
    except HloParseError as error:
        assert len(error.render()) < 1000  # noqa: PT017 (any may be refused)
    assert time.perf_counter() - start < 8


def test_a_word_that_is_no_comment_in_a_bracket() -> None:
    text = f"{HEAD}  q = f32[2] custom-call(p), backend_config={{path=/*, mode='x'}}\n  ROOT n = f32[2] negate(q)\n}}\n"
    assert list(parse(text, fast=False).entry.names) == ["p", "q", "n"]


def test_an_error_shows_no_control_characters() -> None:
    with pytest.raises(HloParseError) as raised:
        parse(f"{HEAD}  n = f32[2] \x1b]0;title\x07\x1b[31m negate(p)\n}}\n")
    assert raised.value.render().replace("\n", "").isprintable()


def test_an_error_shows_a_long_name_in_part() -> None:
    with pytest.raises(HloParseError) as raised:
        parse(f"{HEAD}  {'n' * LARGE} f32[2] negate(p)\n}}\n")
    assert len(str(raised.value)) < 400
