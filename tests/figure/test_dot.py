"""A figure as DOT and in words: the same each time, text stays text, a legend of what occurs."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.figure import THEMES, Figure, Frame, Select, View, draw
from hlo_lens.figure.layout import LayoutError, render
from hlo_lens.files import InputError
from hlo_lens.hlo import parse
from hlo_lens.present.quantities import visible
from hlo_lens.program import Program
from tests.figure.test_framing import STEP
from tests.figure.test_panels import ASYNC, FUSED, LOOP, MOVES, SHARED
from tests.figure.test_selecting import CHAIN
from tests.figure.texts import facts_of

MARKUP = re.compile(r"<[^>]*>")


def figure(text: str, **asked: Any) -> Figure:
    marks = asked.pop("marks", ())
    return draw(facts_of(text, marks=marks), **asked)


def line(dot: str, start: str) -> str:
    (found,) = (one for one in dot.splitlines() if one.strip().startswith(f"{start} ["))
    return found


def label(dot: str, start: str) -> list[str]:
    """The lines of the label of what `start` begins, without markup."""
    found = re.search(r"label=<(.*?)> ?(?:\w+=|\])", line(dot, start))
    assert found is not None
    return [MARKUP.sub("", one) for one in found[1].split("<BR/>")]


def below(one: Figure) -> str:
    """The legend and the caption as text, a row a line."""
    found = re.search(r"label=<(<TABLE.*?</TABLE>)>", one.dot())
    assert found is not None
    return html.unescape(" ".join(MARKUP.sub("", row) for row in found[1].split("</TR>")))


# --- the same each time ---------------------------------------------------------------------------


def written_at_once() -> str:
    """The DOT and the words of some figures."""
    figures = [
        figure(text, nodes=60, **asked)
        for text in (CHAIN, STEP, FUSED, LOOP, SHARED, MOVES)
        for asked in ({}, {"table": "instructions"}, {"table": "instructions", "radius": 1})
    ]
    return "".join(one.dot() + one.dot("dark") + one.alt for one in figures)


def test_the_dot_is_the_same_whatever_the_seed_of_hashes() -> None:
    code = (
        "import sys, tests.figure.test_dot as test\n"
        "sys.stdout.buffer.write(test.written_at_once().encode())"
    )
    root = Path(__file__).parents[2]
    made = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2", "77")
    ]
    assert len(made[0]) > 20_000
    assert made[0] == made[1] == made[2]


def test_the_dot_of_one_figure_is_the_same_twice() -> None:
    one = figure(STEP)
    assert one.dot() == one.dot() == figure(STEP).dot()


# --- nodes and edges ------------------------------------------------------------------------------


def test_a_node_says_its_name_shape_opcode_and_roles() -> None:
    one = figure(CHAIN, marks=[{"first": "a", "second": "a"}], table="marks")
    assert label(one.dot(), "i1") == ["%a", "f32[4]", "negate", "first", "second"]
    assert "penwidth=2" in line(one.dot(), "i1")
    assert "penwidth=1" in line(figure(CHAIN).dot(), "i1")


def test_a_role_that_is_the_opcode_is_not_told_again() -> None:
    one = figure(CHAIN, marks=[{"negate": "a", "exp": "b"}], table="marks")
    assert label(one.dot(), "i1") == ["%a", "f32[4]", "negate"]
    assert label(one.dot(), "i2") == ["%b", "f32[4]", "exponential", "exp"]
    one = figure(FUSED, marks=[{"fusion": "k", "product": "m n"}], table="marks")
    assert [found.label for found in one.panels[0].clusters[0].clusters] == [("%k fusion",)]


def test_what_the_rows_are_stands_above_cut_where_it_is_long() -> None:
    select = Select("marks", label="size {size} " + "and so on " * 12)
    marks = [{"of": name, "size": str(at)} for at, name in enumerate("abcdef", 5)]
    view = View("v", "marks", select=(replace(select, rows=2),))
    one = figure(CHAIN, marks=marks, view=view)
    (heading,) = re.findall(r"label=<(<B>chain.*?)> labeljust", one.dot())
    lines = [MARKUP.sub("", part) for part in heading.split("<BR/>")]
    assert [part[:6] for part in lines] == ["chain", "unknow", "size 5", "size 6"]
    assert lines[2].endswith("and so …")
    assert len(lines[2]) <= 96
    assert "size 5" in one.alt


def test_a_custom_call_says_its_target_and_a_long_name_takes_lines() -> None:
    name = "a_very.long-name_of_an_instruction." + "0123456789" * 4
    text = f"""HloModule m
ENTRY main {{
  x = f32[4]{{0:T(8)}} parameter(0)
  ROOT {name} = (f32[4]{{0}}, bf16[2,2]{{1,0}}, s32[], u8[7], pred[1]) custom-call(x),
    custom_call_target="kernel$one"
}}
"""
    lines = label(figure(text).dot(), "i1")
    assert "".join(lines[:-6]) == f"%{name}"
    assert max(map(len, lines)) <= 34
    assert lines[-6:] == [
        "(f32[4],", "bf16[2,2],", "s32[],", "u8[7],", "… 1 more)", "custom-call kernel$one"
    ]  # fmt: skip
    assert label(figure(text).dot(), "i0") == ["%x", "f32[4]", "parameter"]


@pytest.mark.parametrize("name", ["n" * 10_000, "jit_" * 2_500])
def test_what_stands_above_a_panel_and_in_a_frame_is_folded_and_cut(name: str) -> None:
    frame = Frame("marks", f"a {name}")
    view = View("v", "marks", select=(Select("marks"),), frame=(frame,), names={"of": name})
    text = CHAIN.replace("HloModule chain", f"HloModule {name}")
    text = text.replace("ROOT f = f32[4] tanh(e)", "ROOT f = f32[4] custom-call(e), custom_call_")
    text = text.replace("custom_call_", f'custom_call_target="{name}"')
    one = figure(text, marks=[{"of": "d e"}, {"of": "f"}], view=view, titles=[f"{name}_t"])
    dot = one.dot()
    told = [MARKUP.sub("", part) for part in re.split("<BR/>|label=<|> ", dot)]
    assert max(len(part) for part in told if "tooltip" not in part) <= 200
    above, _, _ = dot.partition("labeljust=c")
    assert above.count("…") == 2  # the title, and the module with its stage


def test_frames_around_one_node_are_told_in_it_and_around_more_are_drawn() -> None:
    dot = figure(FUSED, around="m", radius=0).dot()
    assert label(dot, "i2")[-1] == "in %k fusion"
    assert "cluster_f" not in dot
    dot = figure(FUSED, around=["m", "n"], radius=0).dot()
    assert "cluster_f" in dot
    assert "in %k" not in dot
    dot = figure(LOOP, around="m", radius=0).dot()
    assert "cluster_f" in dot  # a loop is always drawn


def test_an_edge_says_its_element_and_what_is_between() -> None:
    text = CHAIN.replace("f32[4] exponential(a)", "(f32[4], f32[4]) custom-call(a)")
    text = text.replace("add(b, a)", "add(g, a)").replace(
        "  c =", "  g = f32[4] get-tuple-element(b), index=1\n  c ="
    )
    dot = figure(text, around=["b", "c", "f"], radius=0).dot()
    assert "#1" in line(dot, "i2 -> i4")
    assert "style" not in line(dot, "i2 -> i4")
    assert label(dot, "i4 -> i7") == ["&#160;2&#160;"]
    assert "style=dashed" in line(dot, "i4 -> i7")
    assert "%c → d sine → e cosine → %f, operand 0" in line(dot, "i4 -> i7")


def test_an_edge_to_the_next_iteration_is_dotted() -> None:
    dot = figure(LOOP, around=["m", "n"], radius=0).dot()
    assert "style=dotted" in line(dot, "i7 -> i6")
    assert "next iteration" in line(dot, "i7 -> i6")
    assert "style" not in line(dot, "i6 -> i7")


def test_an_edge_from_the_forward_to_the_backward_pass_is_thick() -> None:
    dot = figure(STEP).dot()
    assert "penwidth" in line(dot, "i2 -> i4")
    assert "penwidth" not in line(dot, "i4 -> i5")
    assert "penwidth" not in line(dot, "i1 -> i2")


# --- legend and caption ---------------------------------------------------------------------------


def test_the_legend_has_the_phases_and_signs_that_occur() -> None:
    told = below(figure(STEP))
    for word in ("■ forward", "■ backward", "■ rematerialized", "thick edge: from the forward"):
        assert word in told
    assert "dashed" not in told
    assert "dotted" not in told
    told = below(figure(CHAIN, around=["b", "f"], radius=0))
    assert "■" not in told  # no phase is known
    assert "dashed line, with a number" in told
    assert "thick border: what was asked for" in told
    assert "thick edge" not in told
    assert "#n" not in told
    assert "dotted line: to a later iteration of a loop" in below(figure(LOOP))


def test_the_legend_names_families_by_their_words() -> None:
    told = below(figure(ASYNC, color="family", around="ag", radius=1))
    assert "■ communication" in told
    assert "■ elementwise" in told
    assert "matmul" not in told


def test_print_tells_looks_in_words() -> None:
    told = figure(STEP).dot("print")
    assert "■" not in told
    assert re.search("grey: backward", told)
    colors = set(re.findall(r'(?:fillcolor|color)="?(#[0-9a-f]{6})', told))
    assert all(color[1:3] == color[3:5] == color[5:7] for color in colors)


def test_themes_differ_in_colours_only() -> None:
    one = figure(STEP)
    texts = {re.sub(r"#[0-9a-f]{6}", "", one.dot(name)) for name in ("light", "dark")}
    assert len(texts) == 1
    assert len({one.dot(name) for name in THEMES}) == 3


def test_the_caption_says_what_is_left_out() -> None:
    one = figure(MOVES, around="b", radius=1)
    assert one.caption[0] == (
        "3 of 17 instructions are drawn; left out of the same computations: "
        "3 of other things, 5 of constants, 4 of tuples, 2 of layout, shape or dtype"
    )
    assert re.fullmatch(r"drawn by hlolens \S+", one.caption[-1])
    for sentence in one.caption:
        assert sentence in below(one)


def test_the_caption_of_several_panels_says_it_of_each() -> None:
    facts = [facts_of(CHAIN), facts_of(MOVES)]
    one = draw(facts, around="a", radius=0, titles=["none"])
    assert one.title == "none | moves"
    assert one.caption[0].startswith("none: 1 of 7 instructions")
    assert one.caption[1].startswith("moves: 1 of 17 instructions")
    dot = one.dot()
    ids = re.findall(r"^\s*(p\d_i\d+) \[", dot, re.MULTILINE)
    assert ids == ["p0_i1", "p1_i2"]
    assert len(re.findall("subgraph cluster_p", dot)) == 2


def test_the_caption_tells_modules_of_one_title_apart() -> None:
    facts = [facts_of(CHAIN), facts_of(MOVES)]
    one = draw(facts, around="a", radius=0, titles=["dump", "dump"])
    assert one.caption[0].startswith("dump (chain): 1 of 7 instructions")
    assert one.caption[1].startswith("dump (moves): 1 of 17 instructions")


def test_panels_without_a_title_are_told_apart_by_their_files() -> None:
    def title(*files: str | None, titles: Sequence[str] = ()) -> str:
        programs = [Program([parse(CHAIN, filename=file)]) for file in files]
        return draw(programs, around="a", radius=0, titles=titles).title

    assert title("hlo/none/step.hlo", "hlo/full/step.hlo") == "chain (none) | chain (full)"
    assert title("hlo/one.hlo", "hlo/two.hlo") == "chain (one.hlo) | chain (two.hlo)"
    assert title("a/x/s.hlo", "b/y/s.hlo", "b/z/s.hlo") == "chain (a/x) | chain (b/y) | chain (b/z)"
    assert title("s/s", "s/s/s") == "chain"  # no part is the first one's own
    assert title("a.hlo", None) == title("a.hlo", "a.hlo") == "chain"
    assert title("a.hlo", "b.hlo", titles=["one"]) == "one | chain"
    assert title("a.hlo", "b.hlo", titles=["one", "one"]) == "one"


def test_the_name_of_a_module_is_told_beside_a_title_that_does_not_say_it() -> None:
    files = [Program([parse(CHAIN, filename=name)]) for name in ("a.hlo", "b.hlo")]
    assert "chain ·" not in figure(CHAIN, around="a").dot()
    assert "chain ·" not in draw(files, around="a").dot()
    assert draw(files, around="a", titles=["one"]).dot().count("chain ·") == 1


def test_what_is_told_of_more_rows_than_fit_above_a_panel_is_counted() -> None:
    marks = [{"of": "a", "size": str(size)} for size in range(8)]
    one = figure(CHAIN, marks=marks, view=View("v", "x", select=(Select("marks", label="{size}"),)))
    assert "<BR/>5<BR/>and 2 more>" in one.dot()
    marks = marks[:6]
    one = figure(CHAIN, marks=marks, view=View("v", "x", select=(Select("marks", label="{size}"),)))
    assert "more>" not in one.dot()


def test_what_is_no_format_or_theme_is_a_sentence() -> None:
    one = figure(CHAIN)
    with pytest.raises(InputError, match="written as svg, png, pdf, dot, not 'gif'"):
        one.render("gif")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="--theme: no theme 'pink'; there are light, dark, print"):
        one.dot("pink")  # type: ignore[arg-type]


def test_the_figure_in_words() -> None:
    told = figure(FUSED, around="m", radius=1).alt
    assert told.startswith("Dataflow of fused (")
    assert "4 instructions:" in told
    assert "m, multiply (asked for) from " in told
    assert "n, negate from m" in told
    assert "%k fusion holds m, n." in told


def test_the_provenance_says_what_was_drawn_of_which_text() -> None:
    one = figure(CHAIN, around="b", radius=0)
    (panel,) = one.provenance()["panels"]  # type: ignore[misc]
    assert panel["instructions"] == ["b"]
    assert panel["sha256"] == one.panels[0].sha256
    assert len(panel["sha256"]) == 64


# --- hostile text ---------------------------------------------------------------------------------

HOSTILE = [
    "</script><script>alert(1)</script>", "<b>x</b>", "a\\N\\G\\l", "&amp;&#65;", "]]>", "-->",
    "a</TABLE>", "{|}", "%s", "\u202egnp", "é😀",
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_targets_and_op_names_stay_text(value: str) -> None:
    text = f"""HloModule m
ENTRY main {{
  x = f32[4] parameter(0)
  k = f32[4] custom-call(x), custom_call_target="{value}",
    metadata={{op_name="jit(f)/{value}"}}
  ROOT r = f32[4] negate(k)
}}
"""
    one = figure(text)
    dot = one.dot()
    tags = {tag.strip("/") for tag in re.findall(r"<(/?\w+)", dot)}
    assert tags <= {"B", "I", "BR", "FONT", "TABLE", "TR", "TD"}
    shown = [html.unescape(one) for one in label(dot, "i1")]
    assert shown[2] == "custom-call " + visible(value).replace("\\", "\\\\")
    try:
        svg = render(dot, "svg").decode()
    except LayoutError as problem:
        pytest.skip(f"no layout engine: {problem}")
    assert "<script" not in svg
    assert "<b>" not in svg


def test_hostile_titles_and_files_stay_text(tmp_path: Path) -> None:
    one = draw(facts_of(CHAIN), titles=["</TABLE><script>\\N\n\0"], around="a", radius=0)
    dot = one.dot()
    assert "<script" not in dot
    assert "\0" not in dot
    assert "&lt;/TABLE&gt;&lt;script&gt;" in dot
