"""The schedule as lanes: small scheduled texts, and the steps, bars and lanes that they give."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hlo_lens.facts import Cell, Facts
from hlo_lens.figure.lanes import Bars, Lanes, LanesView, Verdict, Work, lanes
from hlo_lens.figure.lanes_dot import lanes_node
from hlo_lens.files import InputError
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests import shared

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "hlo"

VERDICTS = (
    Verdict(
        "synchronous",
        "synchronous",
        Cell("the program waits"),
        "is_sync OR (start IS NULL AND done IS NULL AND NOT coalesce(overlapped, 0))",
    ),
    Verdict(
        "hidden", "hidden", Cell("{heavy_between} heavy of {compute_between}"), "heavy_between > 0"
    ),
    Verdict("partly", "light", Cell("{compute_between} light"), "compute_between > 0"),
    Verdict("exposed", "exposed", Cell("nothing between")),
)
VIEW = LanesView(
    bars=(
        Bars("collectives", "collectives", (Cell("{logical_kind}"),), VERDICTS, size="wire_bytes"),
        Bars(
            "async_pairs",
            "parts",
            (Cell("{wraps}"),),
            VERDICTS,
            where="inside IS NULL AND (collective IS NOT NULL OR start IS NULL)",
            size="bytes",
        ),
        Bars("async_pairs", "copies", (Cell("{wraps}"),), VERDICTS, size="bytes", instead=True),
    ),
    work=(Work("matmuls", "matmuls", (Cell("{flops}"),), roles=("matmul",)),),
    quiet=frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast")),
)

SYNC = 'backend_config={"collective_backend_config":{"is_sync":true}}'
GROUP = "replica_groups={{0,1}}, dimensions={0}"
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def scheduled(entry: str, *computations: str) -> Program:
    blocks = "\n\n".join(computations)
    text = f"HloModule m, is_scheduled=true\n\n{blocks}\n\nENTRY main {{\n{entry}\n}}\n"
    return Program([parse(text)])


def drawn(entry: str, *computations: str, view: LanesView = VIEW, of: str | None = None) -> Lanes:
    program = scheduled(entry, *computations)
    computation = None if of is None else program.main.computations.get(of)
    return lanes(Facts(program), view, computation)


def rows(figure: Lanes) -> list[tuple[str, str]]:
    """(positions, what) of each step."""
    return [
        (
            str(one.first) if one.first == one.last else f"{one.first}-{one.last}",
            f"{one.kind} {one.name or ' / '.join(one.lines)}",
        )
        for one in figure.steps
    ]


def bars(figure: Lanes) -> list[tuple[str | None, str | None, int, int, int, str]]:
    """(start, done, first position, last position, lane, kind) of each bar."""
    return [
        (
            bar.start,
            bar.done,
            figure.steps[bar.first].first,
            figure.steps[bar.last].last,
            bar.lane,
            bar.kind,
        )
        for bar in figure.bars
    ]


GATHER = f"""  p = f32[8] parameter(0)
  a = f32[8,8] parameter(1)
  s = (f32[8], f32[16]) all-gather-start(p), {GROUP}
  BETWEEN
  d = f32[16] all-gather-done(s)
  ROOT t = (f32[16], f32[8,8]) tuple(d, a)"""


def gather(between: str) -> str:
    """An entry with an all-gather under way while `between` runs."""
    return GATHER.replace("BETWEEN", between)


@pytest.mark.parametrize(
    ("between", "kind", "words"),
    [
        (f"q = f32[8,8] dot(a, a), {DOT}", "hidden", "1 heavy of 1"),
        ("q = f32[8,8] negate(a)", "partly", "1 light"),
        ("q = f32[8,8] copy(a)", "exposed", "nothing between"),
    ],
)
def test_a_bar_says_what_lies_between(between: str, kind: str, words: str) -> None:
    figure = drawn(gather(between))
    assert bars(figure) == [("s", "d", 2, 4, 0, kind)]
    assert figure.bars[0].words == words
    assert figure.bars[0].lines == ("all-gather",)


def test_heavy_work_has_a_row_with_what_the_tables_know() -> None:
    figure = drawn(gather(f"q = f32[8,8] dot(a, a), {DOT}"))
    assert rows(figure) == [("2", "start s"), ("3", "work q"), ("4", "done d")]
    work = figure.steps[1]
    assert (work.shape, work.lines, work.heavy) == ("f32[8,8]", ("1.0 kFLOP",), 1)
    assert figure.heading == ("ENTRY %main", "collectives: 1 hidden (32 B)")
    assert figure.left_out == {"that only name values": 3}


def test_two_that_are_open_at_once_stand_beside_each_other() -> None:
    figure = drawn(
        f"""  p = f32[8] parameter(0)
  a = f32[8,8] parameter(1)
  s = (f32[8], f32[16]) all-gather-start(p), {GROUP}
  r = (f32[8], f32[16]) all-gather-start(p), {GROUP}
  q = f32[8,8] dot(a, a), {DOT}
  d = f32[16] all-gather-done(s)
  e = f32[16] all-gather-done(r)
  u = (f32[8], f32[16]) all-gather-start(p), {GROUP}
  v = f32[16] all-gather-done(u)
  ROOT t = (f32[16], f32[16], f32[16]) tuple(d, e, v)"""
    )
    assert bars(figure) == [
        ("s", "d", 2, 5, 0, "hidden"),
        ("r", "e", 3, 6, 1, "hidden"),
        ("u", "v", 7, 8, 0, "exposed"),
    ]
    assert figure.width == 2


def test_what_waits_is_synchronous_with_and_without_a_start() -> None:
    figure = drawn(
        f"""  p = f32[8] parameter(0)
  a = f32[8,8] parameter(1)
  s = (f32[8], f32[16]) all-gather-start(p), {GROUP}, {SYNC}
  d = f32[16] all-gather-done(s)
  q = f32[8,8] dot(a, a), {DOT}
  g = f32[16] all-gather(p), {GROUP}
  ROOT t = (f32[16], f32[16], f32[8,8]) tuple(d, g, q)"""
    )
    assert bars(figure) == [("s", "d", 2, 3, 0, "synchronous"), ("g", "g", 5, 5, 0, "synchronous")]
    assert rows(figure)[-1] == ("5", "both g")
    assert figure.kinds == {"synchronous": "synchronous"}


def test_unremarkable_instructions_are_one_row() -> None:
    light = "\n".join(f"  n{i} = f32[8,8] negate(a)" for i in range(7))
    figure = drawn(gather(f"{light}\n  c = f32[8,8] copy(a)"))
    assert rows(figure)[1] == ("3-10", "run 8 instructions: negate ×7, copy")
    assert (figure.steps[1].compute, figure.steps[1].heavy) == (7, 0)


def test_heavy_work_without_room_is_counted_in_one_row() -> None:
    dots = "\n".join(f"  q{i} = f32[8,8] dot(a, a), {DOT}" for i in range(50))
    figure = drawn(gather(f"{dots}\n  n = f32[8,8] negate(a)"))
    said = "run 50 heavy: %q0, %q1 and 48 more; matmuls: 50 / %n (negate)"
    assert rows(figure) == [("2", "start s"), ("3-53", said), ("54", "done d")]
    assert figure.steps[1].heavy == 50


def test_work_outside_of_bars_gives_its_rows_to_work_in_them() -> None:
    outside = "\n".join(f"  o{i} = f32[8,8] dot(a, a), {DOT}" for i in range(4))
    inside = "\n".join(f"  q{i} = f32[8,8] dot(a, a), {DOT}" for i in range(4))
    text = gather(inside).replace("  s =", f"{outside}\n  s =")
    figure = drawn(text)
    assert [what for _, what in rows(figure)] == [
        "run 4 heavy: %o0, %o1 and 2 more; matmuls: 4",
        "start s", "work q0", "work q1", "work q2", "work q3", "done d",
    ]  # fmt: skip


def test_work_in_a_fusion_stands_where_the_fusion_runs() -> None:
    fused = f"""fused {{
  x = f32[8,8] parameter(0)
  y = f32[8,8] dot(x, x), {DOT}
  ROOT z = f32[8,8] negate(y)
}}"""
    figure = drawn(gather("f = f32[8,8] fusion(a), kind=kOutput, calls=fused"), fused)
    assert rows(figure)[1] == ("3", "work f")
    assert figure.steps[1].lines == ("1.0 kFLOP",)


BODY = f"""body {{
  c = (s32[], f32[8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  x = f32[8] get-tuple-element(c), index=1
  a = f32[8,8] get-tuple-element(c), index=2
  bs = (f32[8], f32[16]) all-gather-start(x), {GROUP}
  q = f32[8,8] dot(a, a), {DOT}
  bd = f32[16] all-gather-done(bs)
  y = f32[8] slice(bd), slice={{[0:8]}}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[8], f32[8,8]) tuple(j, y, q)
}}"""
CONDITION = """condition {
  c = (s32[], f32[8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(4)
  ROOT l = pred[] compare(i, n), direction=LT
}"""
LOOP = f"""  p = f32[8] parameter(0)
  a = f32[8,8] parameter(1)
  s = (f32[8], f32[16]) all-gather-start(p), {GROUP}
  d = f32[16] all-gather-done(s)
  z = s32[] constant(0)
  init = (s32[], f32[8], f32[8,8]) tuple(z, p, a)
  ROOT w = (s32[], f32[8], f32[8,8]) while(init), condition=condition, body=body"""


def test_the_computation_with_the_most_bytes_in_a_step_is_drawn() -> None:
    figure = drawn(LOOP, BODY, CONDITION)
    assert figure.heading == ("body %body of %w ×4", "collectives: 1 hidden (32 B)")
    assert bars(figure) == [("bs", "bd", 4, 6, 0, "hidden")]
    assert figure.notes == ("there are bars in ENTRY %main (1) too",)


def test_a_loop_is_one_row_of_what_is_around_it() -> None:
    figure = drawn(LOOP, BODY, CONDITION, of="main")
    assert rows(figure)[-1] == ("6", "work w ×4")
    assert figure.steps[-1].lines == ("inside: 1.0 kFLOP",)


PIPELINED = f"""body {{
  c = (s32[], f32[8,8], (f32[8], f32[16])) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  a = f32[8,8] get-tuple-element(c), index=1
  s = (f32[8], f32[16]) get-tuple-element(c), index=2
  q = f32[8,8] dot(a, a), {DOT}
  d = f32[16] all-gather-done(s)
  x = f32[8] slice(d), slice={{[0:8]}}
  n = (f32[8], f32[16]) all-gather-start(x), {GROUP}
  e = f32[8,8] negate(q)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[8,8], (f32[8], f32[16])) tuple(j, e, n)
}}"""
PIPELINED_CONDITION = CONDITION.replace("f32[8], f32[8,8]", "f32[8,8], (f32[8], f32[16])")
PIPELINE = f"""  p = f32[8] parameter(0)
  a = f32[8,8] parameter(1)
  z = s32[] constant(0)
  s0 = (f32[8], f32[16]) all-gather-start(p), {GROUP}
  init = (s32[], f32[8,8], (f32[8], f32[16])) tuple(z, a, s0)
  w = (s32[], f32[8,8], (f32[8], f32[16])) while(init), condition=condition, body=body
  g = (f32[8], f32[16]) get-tuple-element(w), index=2
  ROOT d9 = f32[16] all-gather-done(g)"""


def test_what_a_loop_carries_on_is_open_at_both_edges() -> None:
    figure = drawn(PIPELINE, PIPELINED, PIPELINED_CONDITION, of="body")
    assert bars(figure) == [
        (None, "d", 4, 5, 0, "open"),
        ("n", None, 7, 10, 0, "open"),
    ]
    assert [bar.words for bar in figure.bars] == [
        "started in the previous iteration (carry element 2); 1 heavy of 1 compute meanwhile here",
        "waited for in the next iteration (carry element 2); 0 heavy of 1 compute meanwhile here",
    ]


def test_what_a_loop_takes_and_gives_is_open_there() -> None:
    figure = drawn(PIPELINE, PIPELINED, PIPELINED_CONDITION, of="main")
    assert bars(figure) == [("s0", None, 3, 5, 0, "open"), (None, "d9", 5, 7, 1, "open")]
    said = [bar.words.split(";")[0] for bar in figure.bars]
    assert said == ["goes on into %w", "was started in %w"]


def test_copies_are_drawn_where_nothing_communicates() -> None:
    copies = """  p = f32[8] parameter(0)
  s = (f32[8], f32[8], u32[]) copy-start(p)
  n = f32[8] negate(p)
  d = f32[8] copy-done(s)
  ROOT t = (f32[8], f32[8]) tuple(n, d)"""
    assert bars(drawn(copies)) == [("s", "d", 1, 3, 0, "partly")]
    gather = f"  g = f32[16] all-gather(n), {GROUP}\n  ROOT"
    both = drawn(copies.replace("  ROOT", gather))
    assert [bar.start for bar in both.bars] == ["g"]


def test_the_largest_are_drawn_where_not_all_have_room() -> None:
    pairs = "\n".join(
        f"  s{i} = (f32[{8 * i}], f32[{16 * i}]) all-gather-start(p{i}), {GROUP}\n"
        f"  d{i} = f32[{16 * i}] all-gather-done(s{i})"
        for i in range(1, 10)
    )
    parameters = "\n".join(f"  p{i} = f32[{8 * i}] parameter({i - 1})" for i in range(1, 10))
    text = f"{parameters}\n{pairs}\n  ROOT t = (f32[16]) tuple(d1)"
    view = LanesView(VIEW.bars, VIEW.work, VIEW.quiet, steps=7)
    figure = drawn(text, view=view)
    assert [bar.start for bar in figure.bars] == ["s7", "s8", "s9"]
    assert figure.notes == ("the largest 3 of 9 bars are drawn",)
    assert len(figure.steps) <= 7
    assert figure.heading[1] == "collectives: 9 exposed (1.4 KiB)"


def test_bars_of_one_lane_never_meet() -> None:
    chosen = random.Random(7)
    program = scheduled(LOOP, BODY, CONDITION)
    figure = lanes(Facts(program), VIEW)
    assert figure.width == 1
    text = "\n".join(f"  n{i} = f32[8] negate(p)" for i in range(60))
    starts = sorted(chosen.sample(range(60), 12))
    lines = text.splitlines()
    for number, at in enumerate(starts):
        end = min(at + chosen.randint(1, 20), 59)
        lines[at] += f"\n  s{number} = (f32[8], f32[16]) all-gather-start(p), {GROUP}"
        lines[end] += f"\n  d{number} = f32[16] all-gather-done(s{number})"
    entry = "  p = f32[8] parameter(0)\n" + "\n".join(lines) + "\n  ROOT r = f32[8] negate(p)"
    view = LanesView(VIEW.bars, VIEW.work, VIEW.quiet, steps=100, lanes=12)
    found = drawn(entry, view=view)
    assert len(found.bars) == 12
    for one in found.bars:
        for other in found.bars:
            apart = one.last < other.first or other.last < one.first
            assert one is other or one.lane != other.lane or apart


@pytest.mark.parametrize(
    ("header", "problem"),
    [("", "is not scheduled"), (", is_scheduled=true", "nothing in this module communicates")],
)
def test_there_is_nothing_to_draw(header: str, problem: str) -> None:
    text = f"HloModule m{header}\n\nENTRY main {{\n  ROOT p = f32[8] parameter(0)\n}}\n"
    with pytest.raises(InputError, match=problem):
        lanes(Facts(Program([parse(text)])), VIEW)


@pytest.mark.parametrize(
    ("bars", "problem"),
    [
        (Bars("collectivs", "c", (), VERDICTS), "did you mean"),
        (Bars("collectives", "c", (Cell("wires"),), VERDICTS), "no column wires"),
        (Bars("collectives", "c", (), VERDICTS, where="wires > 1"), "wires"),
        (Bars("collectives", "c", (), VERDICTS, size="wires"), "no column wires"),
        (Bars("collectives", "c", (Cell("{"),), VERDICTS), "a cell of collectives: Single '{'"),
        (Bars("collectives", "c", (Cell("{id:q}"),), VERDICTS), "a cell of collectives: "),
        (Bars("collectives", "c", (Cell("{id:>999}"),), VERDICTS), "wider than 200 characters"),
        (Bars("collectives", "c", (), VERDICTS, where="0) OR (1"), "is one expression"),
        (
            Bars("collectives", "c", (), (replace(VERDICTS[0], where="\"wires\" = 'wires'"),)),
            'no column "wires"',
        ),
    ],
)
def test_a_view_that_names_what_is_not_there_is_refused(bars: Bars, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        drawn(LOOP, BODY, CONDITION, view=LanesView((bars,)))


# ---------------------------------------------------------------------------- DOT


def table_of(label: str) -> ElementTree.Element:
    assert (label[0], label[-1]) == ("<", ">")
    return ElementTree.fromstring(label[1:-1])


def grid(label: str) -> list[int]:
    """Columns that each row of the table fills, cells from above included."""
    covered: dict[int, int] = {}
    widths: list[int] = []
    for number, row in enumerate(table_of(label)):
        own = sum(int(cell.get("COLSPAN", 1)) for cell in row)
        for cell in row:
            for below in range(1, int(cell.get("ROWSPAN", 1))):
                covered[number + below] = covered.get(number + below, 0) + 1
        widths.append(own + covered.get(number, 0))
    return widths


@pytest.mark.parametrize("of", ["main", "body"])
def test_every_row_of_the_table_fills_the_columns(of: str) -> None:
    figure = drawn(PIPELINE, PIPELINED, PIPELINED_CONDITION, of=of)
    assert set(grid(lanes_node(figure))) == {2 + figure.width}


def test_the_label_is_the_same_from_run_to_run() -> None:
    made = {lanes_node(drawn(LOOP, BODY, CONDITION)) for _ in range(2)}
    assert len(made) == 1


def test_every_bar_says_in_words_what_its_colour_says() -> None:
    texts = set(table_of(lanes_node(drawn(LOOP, BODY, CONDITION))).itertext())
    assert {"%bs", "1 heavy of 1", "hidden", "heavy work"} <= texts


HOSTILE = ["</TABLE>", "<B>x</B>", "&amp;", r"\N", '"q"', "a\x1bb", "\u202eevil"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_text(name: str) -> None:
    figure = drawn(gather("q = f32[8,8] negate(a)"))
    step = replace(figure.steps[0], name=name)
    bar = replace(figure.bars[0], start=name, lines=(name,), words=name)
    label = lanes_node(
        replace(figure, steps=(step, *figure.steps[1:]), bars=(bar,), heading=(name,))
    )
    assert set(grid(label)) == {3}  # the same table: no tag came in
    assert not {"\x1b", "\u202e"} & set(label)
    assert not re.search(r"(?<!\\)(\\\\)*\\N", label)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("name", HOSTILE)
def test_graphviz_takes_hostile_names(name: str) -> None:
    figure = replace(drawn(LOOP, BODY, CONDITION), heading=(name, ""))
    source = f"digraph {{ lanes [shape=plain label={lanes_node(figure)}] }}"
    ran = subprocess.run(
        ["dot", "-Tsvg"], input=source.encode(), capture_output=True, timeout=60, check=True
    )
    shown = " ".join(ElementTree.fromstring(ran.stdout).itertext())
    assert b"rror" not in ran.stderr
    if name.isprintable():
        assert name in shown


# ---------------------------------------------------------------------------- real texts


def test_latency_hiding_puts_a_product_between_start_and_done() -> None:
    folder = FIXTURES / "plain"
    found = {}
    for case in ("on", "off"):
        path = folder / f"latency-hiding-{case}" / "rocm-gfx950-8" / "after_optimizations.txt"
        figure = lanes(Facts(load(path)), VIEW)
        found[case] = [bar.kind for bar in figure.bars]
    assert found == {"on": ["hidden"], "off": ["synchronous"]}


@shared.needs_shared
def test_a_large_tpu_text_is_drawn_in_little_time() -> None:
    folder = shared.unpacked("dumps/tpu-maxtext.tar.xz")
    path = next(folder.rglob("gemma2-9b.full.tpu7x.opt.hlo"))
    facts = Facts(load(path))
    for source in (*VIEW.bars, *VIEW.work):
        facts.rows(source.table)
    began = time.perf_counter()
    figure = lanes(facts, VIEW)
    label = lanes_node(figure)
    assert time.perf_counter() - began < 2
    assert len(figure.steps) <= VIEW.steps
    assert figure.width <= VIEW.lanes
    assert {bar.kind for bar in figure.bars} == {"hidden"}
    assert set(grid(label)) == {2 + figure.width}
