"""The report: heads, sections, what is absent, findings, what to try next."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hlo_lens.facts import (
    COMMON,
    Cell,
    Column,
    Facts,
    Finding,
    Measure,
    PassResult,
    Rule,
    Summary,
    discover_passes,
)
from hlo_lens.hlo import parse
from hlo_lens.inspect import Report, as_data, as_lines, as_markdown, report
from hlo_lens.present.page import plain
from hlo_lens.program import Program
from hlo_lens.query import query
from tests.facts.toys import OPS, Toy, ops, program

ROOT = Path(__file__).resolve().parents[2]

# A training step: a loop of 4 forward, one of unknown length backward.
STEP = """\
HloModule jit_step, is_scheduled=true, num_partitions=2

add (a: f32[], b: f32[]) -> f32[] {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

forward_body (s: (s32[], f32[256,256])) -> (s32[], f32[256,256]) {
  s = (s32[], f32[256,256]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[256,256]{1,0} get-tuple-element(s), index=1
  gather = f32[256,512]{1,0} all-gather(x), channel_id=1, replica_groups={{0,1}}, dimensions={1}, use_global_device_ids=true, metadata={op_name="jit(step)/jvp(layer)/all_gather" source_file="model.py" source_line=7}
  dot.f = f32[256,256]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/jvp(layer)/dot_general" source_file="model.py" source_line=8}
  ROOT t = (s32[], f32[256,256]{1,0}) tuple(next, dot.f)
}

forward_cond (c: (s32[], f32[256,256])) -> pred[] {
  c = (s32[], f32[256,256]{1,0}) parameter(0)
  j = s32[] get-tuple-element(c), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(j, n), direction=LT
}

backward_body (u: (pred[], f32[256,256])) -> (pred[], f32[256,256]) {
  u = (pred[], f32[256,256]{1,0}) parameter(0)
  y = f32[256,256]{1,0} get-tuple-element(u), index=1
  dot.b = f32[256,256]{1,0} dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/transpose(jvp(layer))/dot_general"}
  reduce = f32[256,256]{1,0} all-reduce(dot.b), channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add, metadata={op_name="jit(step)/transpose(jvp(layer))/psum"}
  limit = f32[] constant(1)
  part = f32[1,1]{1,0} slice(reduce), slice={[0:1], [0:1]}
  value = f32[] reshape(part)
  more = pred[] compare(value, limit), direction=LT
  ROOT v = (pred[], f32[256,256]{1,0}) tuple(more, reduce)
}

backward_cond (w: (pred[], f32[256,256])) -> pred[] {
  w = (pred[], f32[256,256]{1,0}) parameter(0)
  ROOT go = pred[] get-tuple-element(w), index=0
}

ENTRY main (p: f32[256,256]) -> f32[256,256] {
  p = f32[256,256]{1,0} parameter(0)
  zero = s32[] constant(0)
  in = (s32[], f32[256,256]{1,0}) tuple(zero, p)
  while.f = (s32[], f32[256,256]{1,0}) while(in), condition=forward_cond, body=forward_body, metadata={op_name="jit(step)/jvp(layers)/while"}
  h = f32[256,256]{1,0} get-tuple-element(while.f), index=1
  yes = pred[] constant(true)
  back = (pred[], f32[256,256]{1,0}) tuple(yes, h)
  while.b = (pred[], f32[256,256]{1,0}) while(back), condition=backward_cond, body=backward_body, metadata={op_name="jit(step)/transpose(jvp(layers))/while"}
  ROOT out = f32[256,256]{1,0} get-tuple-element(while.b), index=1
}
"""  # noqa: E501


NAMELESS = "HloModule m\nENTRY e {\n  ROOT a = f32[] parameter(0)\n}\n"


def report_of(*texts: str) -> Report:
    return report(Facts(program(*texts)))


def text_of(*texts: str, width: int | None = None) -> str:
    return plain(as_lines(report_of(*texts), width=width))


def section(text: str, title: str) -> list[str]:
    """The lines of the section that begins with `title`, without the title."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"{title}  "))
    end = lines.index("", start)
    return [line.rstrip() for line in lines[start + 1 : end]]


# -- what is in it --------------------------------------------------------------------------------


def test_first_it_says_what_the_module_is() -> None:
    name, about, *_ = text_of(STEP, width=200).splitlines()
    assert name == "jit_step"
    assert about.startswith("  after_optimizations · scheduled · partitions 2 · device shapes · ")
    assert "computations 6 · instructions 35" in about
    assert "% of the instructions have an op_name" in about


def test_loops_are_shown_with_their_trip_counts() -> None:
    assert section(text_of(STEP), "loops")[:3] == [
        "  loop        phase  trip count is  loops  runs      carry  stacked",
        "  while.f ×4  fwd    inferred           1     1  256.0 KiB      0 B",
        "  while.b ×?  bwd    unknown            1     1  256.0 KiB      0 B",
    ]


def test_a_total_over_an_unknown_loop_is_a_bound() -> None:
    _, forward, backward, _, total = section(text_of(STEP), "collectives")
    assert forward.split()[:4] == ["while.f", "×4", "fwd", "all-gather"]
    assert forward.endswith("4      0/1     256.0 KiB        1.0 MiB")
    assert backward.endswith("– (unknown trip count)      0/1     256.0 KiB              –")
    assert total.split()[0] == "total"
    assert total.endswith("≥ 4 (unknown trip count)      0/2     512.0 KiB      ≥ 1.0 MiB")


def test_matmuls_are_weighed_by_executions() -> None:
    _, forward, backward, *_ = section(text_of(STEP), "matmuls")
    assert forward.split()[-4:] == ["33.6", "MFLOP", "134.2", "MFLOP"]
    assert backward.split()[-3:] == ["33.6", "MFLOP", "–"]


def test_a_sum_says_which_rows_it_does_not_know() -> None:
    """A ragged convolution is written over every group, and does not say how many rows each has."""
    runs = [column for column in COMMON if column.name.startswith("executions")]
    table = replace(
        OPS,
        summary=Summary(
            "operations",
            5,
            by=(Cell("opcode"),),
            measures=(Measure("size", "per_step", "size"),),
            unknown=(Cell("is_root", words=("last", "")), Cell("opcode")),
        ),
        columns=(*OPS.columns, *runs, Column("size", "bytes", "measure", "size")),
    )
    row = {"module": 0, "executions": 1, "executions_min": 1, "executions_max": 1, "operands": []}
    sizes = (("a", 8, False), ("b", None, False), ("b", None, False), ("b", None, True))
    rows = [row | {"opcode": op, "size": size, "is_root": last} for op, size, last in sizes]
    toy = ops(tables=(table,), does=lambda *_: PassResult({"ops": rows}))
    found = report(Facts(program(), [toy]))
    text = plain(as_lines(found))
    assert section(text, "operations")[-2:] == [
        "  total   ≥ 8 B",
        "  size not known of 2 b, 1 last b",
    ]
    assert "\nsize not known of 2 b, 1 last b.\n" in as_markdown(found)


def test_signs_are_explained_once_where_they_are_used() -> None:
    text = text_of(STEP)
    assert text.splitlines().count("– not known, ≥ at least") == 1
    assert "not known" not in text.partition("notes")[0].replace("– not known", "")


def test_what_is_absent_is_said_on_one_line() -> None:
    assert "no custom calls\n" in text_of(STEP)
    assert "no loops; no collectives; no matmuls; no custom calls\n" in text_of(NAMELESS)


def test_without_metadata_it_says_that_phases_cannot_be_told() -> None:
    text = text_of(NAMELESS)
    assert "0% of the instructions have an op_name · phases and sources cannot be told" in " ".join(
        text.split()
    )
    assert "no-metadata" in text
    assert "debug_info=True" in text


def test_findings_have_rule_place_and_level() -> None:
    text = text_of(STEP)
    assert "\nnotes  1\n  trip-count-unknown  while.b: trip count not known" in text
    assert "    while.b · line " in text
    assert "hlolens rules ID explains a rule" in text


def test_a_program_without_findings_says_so() -> None:
    named = NAMELESS.replace("(0)", '(0), metadata={op_name="x"}')
    assert "no findings  hlolens rules lists" in text_of(named)
    assert "no findings" not in text_of(NAMELESS)


def test_it_ends_with_what_to_try_next() -> None:
    facts = Facts(Program([parse(STEP, filename="a step.hlo")]))
    next_lines = plain(as_lines(report(facts))).rstrip().splitlines()[-3:]
    assert [line.strip().removeprefix("next: ") for line in next_lines] == [
        "hlolens tree 'a step.hlo'",
        "hlolens query 'a step.hlo' \"SELECT name, phase, wire_bytes, executions, source"
        ' FROM collectives ORDER BY wire_bytes DESC LIMIT 10"',
        "hlolens inspect 'a step.hlo' --table collectives",
    ]


def test_what_it_says_to_try_next_can_be_asked() -> None:
    sql = report_of(STEP).next[1].split('"')[1]
    assert len(query([program(STEP)], sql).rows) == 2


# -- stages ---------------------------------------------------------------------------------------


def test_of_several_stages_the_sections_are_of_the_one_that_runs() -> None:
    before = "HloModule jit_step\nENTRY e {\n  ROOT a = f32[] parameter(0)\n}\n"
    stages = Program(program(before, STEP).modules, ["before_optimizations", "after_optimizations"])
    found = report(Facts(stages))
    text = plain(as_lines(found))
    assert found.stage == "after_optimizations"
    assert [head.about[0] for head in found.heads] == [
        "before_optimizations",
        "after_optimizations",
    ]
    assert "What follows is of after_optimizations; --stage chooses another." in text
    assert "  before_optimizations · " in text
    assert [section.rows for section in found.sections if section.title == "matmuls"] == [2]


# -- widths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_number_is_cut_where_it_is_narrow(width: int) -> None:
    text = text_of(STEP, width=width)
    for number in ("256.0 KiB", "134.2 MFLOP", "1.0 MiB", "all-gather", "while.f", "×4"):
        assert number in text


def test_a_file_is_told_beside_the_name_and_sentences_fold_without_a_width() -> None:
    facts = Facts(Program([parse(STEP, filename="step.hlo")]))
    head, *rest = plain(as_lines(report(facts))).partition("\nloops")[0].splitlines()
    assert head == "jit_step  step.hlo"
    assert len(rest) > 1
    assert max(map(len, rest)) <= 100


def test_it_fits_where_it_can() -> None:
    lines = text_of(STEP, width=110).partition("next:")[0].splitlines()
    assert max(map(len, lines)) <= 110


# -- any table ------------------------------------------------------------------------------------


def shown(summary: Summary, **changes: object) -> str:
    """The report with one pass, whose table `ops` has that summary."""
    table = replace(OPS, summary=summary)
    return plain(as_lines(report(Facts(program(), [ops(tables=(table,), **changes)]))))


COUNT = Measure("count", "rows")


def test_a_table_of_a_new_pass_is_shown_without_a_line_here() -> None:
    summary = Summary("operations", 5, "as written", by=(Cell("opcode"),), measures=(COUNT,))
    assert section(shown(summary), "operations") == [
        "  opcode     count",
        "  parameter      1",
        "  multiply       1",
        "  add            1",
        "  ────────────────",
        "  total          3",
    ]


def test_a_table_without_a_summary_is_not_shown_nor_computed() -> None:
    toy = ops()
    text = plain(as_lines(report(Facts(program(), [toy]))))
    assert toy.runs == []
    assert text.splitlines()[1].startswith("no findings")


def test_a_column_that_says_nothing_is_left_out() -> None:
    unknown = replace(OPS, columns=(*OPS.columns, Column("color", "text", "identity", "color")))
    summary = Summary("operations", 5, by=(Cell("is_root"), Cell("color")), measures=(COUNT,))
    table = replace(unknown, summary=summary)
    text = plain(as_lines(report(Facts(program(), [ops(tables=(table,))]))))
    assert section(text, "operations")[0] == "  is root  count"


def test_an_empty_table_says_nothing_unless_it_is_looked_for() -> None:
    none = lambda *_: PassResult({})  # noqa: E731
    by = (Cell("opcode"),)
    assert "operations" not in shown(Summary("operations", 5, by=by), does=none)
    assert "no operations\n" in shown(
        Summary("operations", 5, none="no operations", by=by), does=none
    )


def test_a_pass_that_only_has_rules_is_run_for_its_findings() -> None:
    rule = Rule("odd", "warning", "Odd.", "It is odd.")
    finding = Finding("odd", "warning", "c is odd", 0, 2, help="make it even")
    toy = Toy("odd", (), lambda *_: PassResult({}, findings=[finding]), rules=(rule,))
    text = plain(as_lines(report(Facts(program(), [toy]))))
    assert (
        "warnings  1\n  odd  c is odd\n    c · line 5 of the text\n    help: make it even\n" in text
    )


def test_the_gravest_findings_come_first() -> None:
    levels = ("note", "error", "warning")
    rules = tuple(Rule(f"a-{level}", level, "x", "x") for level in levels)
    found = [Finding(f"a-{level}", level, f"an {level}") for level in levels]
    toy = Toy("many", (), lambda *_: PassResult({}, findings=found), rules=rules)
    facts = Facts(program(), [toy])
    text = plain(as_lines(report(facts)))
    assert text.index("errors") < text.index("warnings") < text.index("notes")
    assert [one["level"] for one in as_data([facts])["programs"][0]["findings"]] == [  # type: ignore[index]
        "error",
        "warning",
        "note",
    ]


def test_a_pass_that_fails_is_a_finding_and_the_rest_is_shown() -> None:
    def crash(*_: object) -> PassResult:
        raise RuntimeError("cannot cope")

    by = (Cell("opcode"),)
    broken = Toy("broken", (replace(OPS, name="bad", summary=Summary("bad", 1, by=by)),), crash)
    good = ops(tables=(replace(OPS, summary=Summary("operations", 5, by=by)),))
    text = plain(as_lines(report(Facts(program(), [broken, good]))))
    assert "pass-failed  pass broken: RuntimeError: cannot cope" in text
    assert "operations  3" in text


def test_what_a_file_holds_cannot_act_on_the_terminal() -> None:
    table = replace(OPS, summary=Summary("operations", 5, by=(Cell("opcode"),)))
    row = {"module": 0, "instr": 0, "opcode": "a\x1b]0;title\x07", "operands": [], "is_root": True}
    toy = ops(tables=(table,), does=lambda *_: PassResult({"ops": [row]}))
    assert "\x1b" not in plain(as_lines(report(Facts(program(), [toy]))))


def test_no_view_names_a_pass_or_its_tables() -> None:
    registry = discover_passes(installed=False)
    names = {one.name for one in registry.passes} | set(registry.owners)
    for folder in ("inspect", "tree", "present"):
        for path in (ROOT / "hlo_lens" / folder).glob("*.py"):
            tree = ast.parse(path.read_text())
            texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
            # "modules" is a key of the JSON, and is made of the program itself.
            assert not (texts & names) - {"modules"}, path


# -- JSON -----------------------------------------------------------------------------------------


def test_json_has_full_rows_and_exact_numbers() -> None:
    data = json.loads(json.dumps(as_data([Facts(program(STEP))])))
    assert data["schema_version"] == 1
    [one] = data["programs"]
    assert sorted(one) == ["findings", "modules", "name", "tables"]
    assert one["modules"] == [
        {
            "module": 0, "name": "jit_step", "stage": "after_optimizations", "file": None,
            "main": True,
        }
    ]  # fmt: skip
    gather, reduce = one["tables"]["collectives"]
    assert (gather["name"], gather["wire_bytes"], gather["executions"]) == ("gather", 262144, 4)
    assert (reduce["executions"], reduce["executions_min"], reduce["executions_max"]) == (
        None,
        0,
        None,
    )
    assert gather["overlapped"] is False
    assert one["tables"]["custom_calls"] == []


def test_json_values_are_no_text() -> None:
    tables = as_data([Facts(program(STEP))], ["loops", "instructions"])["programs"][0]["tables"]  # type: ignore[index]
    assert sorted(tables) == ["instructions", "loops"]
    assert tables["loops"][0]["stacked"] == []
    assert len(tables["instructions"]) == 35


def test_json_findings_have_their_place() -> None:
    [finding] = as_data([Facts(program(STEP))])["programs"][0]["findings"]  # type: ignore[index]
    assert finding["rule"] == "trip-count-unknown"
    assert (finding["level"], finding["name"], finding["module"]) == ("note", "while.b", 0)
    assert finding["evidence"] == [["loops", 1]]
    assert isinstance(finding["text_line"], int)
