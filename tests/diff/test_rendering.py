"""What is said of a comparison: for people, for a pull request, for programs."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from hlo_lens.diff import ProgramDiff, compare
from hlo_lens.diff.as_json import as_data
from hlo_lens.diff.markdown import as_markdown
from hlo_lens.diff.report import report
from hlo_lens.diff.terminal import as_lines
from hlo_lens.facts import Column, Facts, PassResult, discover_passes
from hlo_lens.hlo import parse
from hlo_lens.present.page import plain
from hlo_lens.program import Program
from tests.facts.toys import Toy, table

ROOT = Path(__file__).resolve().parents[2]
GATHER = "all-gather(%x), replica_groups={{0,1}}, dimensions={1}, channel_id="


def step(
    inside: int = 1,
    outside: int = 0,
    *,
    trips: int = 4,
    dtype: str = "f32",
    extra: str = "",
    loop: str = "while",
    loops: int = 1,
) -> str:
    """Loops around some all-gathers, and all-gathers outside of them."""
    array = f"{dtype}[8,16]"
    state = f"(s32[], {array})"
    parts = [f"HloModule {loop}, is_scheduled=true, num_partitions=2\n"]
    chain = []
    for number in range(loops):
        body = [f"  %g.{n} = {dtype}[8,32] {GATHER}{10 * number + n + 1}" for n in range(inside)]
        parts += [
            f"%body.{number} (s: {state}) -> {state} {{",
            f"  %s = {state} parameter(0)",
            "  %i = s32[] get-tuple-element(%s), index=0",
            "  %one = s32[] constant(1)",
            "  %next = s32[] add(%i, %one)",
            f"  %x = {array} get-tuple-element(%s), index=1",
            *body,
            *filter(None, [extra]),
            f"  ROOT %t = {state} tuple(%next, %x)",
            "}\n",
            f"%cond.{number} (c: {state}) -> pred[] {{",
            f"  %c = {state} parameter(0)",
            "  %j = s32[] get-tuple-element(%c), index=0",
            f"  %n = s32[] constant({trips})",
            "  ROOT %less = pred[] compare(%j, %n), direction=LT",
            "}\n",
        ]
        start = f"%in.{number}"
        value = f"%y.{number - 1}" if number else "%x"
        chain += [
            f"  %zero.{number} = s32[] constant(0)",
            f"  {start} = {state} tuple(%zero.{number}, {value})",
            f"  %{loop}.{number} = {state} while({start}), condition=%cond.{number},"
            f" body=%body.{number}",
            f"  %y.{number} = {array} get-tuple-element(%{loop}.{number}), index=1",
        ]
    entry = [f"  %o.{n} = {dtype}[8,32] {GATHER}{n + 91}" for n in range(outside)]
    parts += [
        f"ENTRY %main (p: {array}) -> {array} {{",
        f"  %x = {array} parameter(0)",
        *chain,
        *entry,
        f"  ROOT %out = {array} negate(%y.{loops - 1})",
        "}\n",
    ]
    return "\n".join(parts)


def diff_of(old: str, new: str, **options: object) -> ProgramDiff:
    return compare(Program([parse(old)]), Program([parse(new)]), **options)  # type: ignore[arg-type]


def told(old: str, new: str, *, limit: int = 0, width: int | None = None) -> str:
    return plain(as_lines(report(diff_of(old, new)), limit=limit, width=width))


def section(text: str, title: str) -> list[str]:
    """The lines below a title, up to the next blank one."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"{title}  "))
    return lines[start + 1 : [*lines, ""].index("", start)]


def rows_with(mark: str, lines: list[str]) -> list[list[str]]:
    """The cells of the rows that begin with a mark, what stands below a row as the last of them."""
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith(" " * 6) and rows and line.strip():
            rows[-1].append(line.strip())
        else:
            rows.append(re.split(r"\s{2,}", line.strip()))
    return [row[1:] for row in rows if row[0] == mark]


# ---------------------------------------------------------------------------------- the report


def test_nothing_differs_but_names() -> None:
    text = told(step(2), step(2, loop="renamed"))
    head, old, new, _, stage, same = text.splitlines()
    assert re.match(r"same: \d+ rows of \d+ tables$", head)
    assert (old, new) == ("  old  while", "  new  renamed")
    assert re.match(r"after_optimizations  \d+ instructions the same$", stage)
    assert "loops 1, collectives 2" in same


def test_the_headline_names_the_tables_and_the_numbers_of_rows() -> None:
    head = told(step(3), step(1)).splitlines()[0]
    assert re.match(r"different: collectives 2, instructions 2; \d+ rows the same$", head)


def test_the_sums_that_differ_stand_first() -> None:
    lines = told(step(3), step(1)).splitlines()
    start = next(at for at, line in enumerate(lines) if "old" in line and "new" in line)
    sums = [re.split(r"\s{2,}", line.strip()) for line in lines[start + 1 : start + 5]]
    assert sums == [
        ["collectives", "count", "3", "1", "−2", "−67%"],
        ["runs", "12", "4", "−8", "−67%"],
        ["sent per run", "4.5 KiB", "1.5 KiB", "−3.0 KiB", "−67%"],
        ["sent per step", "18.0 KiB", "6.0 KiB", "−12.0 KiB", "−67%"],
    ]
    assert "the same: " in lines[start + 5]


def test_rows_that_are_alike_are_one_line() -> None:
    text = told(step(3), step(1))
    (row,) = rows_with("−", section(text, "collectives"))
    assert row[:4] == ["while.0 ×4", "all-gather", "sync", "f32"]
    assert row[4:9] == ["2", "8", "0/2", "3.0 KiB", "12.0 KiB"]
    text = told(step(2), step(2, trips=8))
    (row,) = rows_with("~", section(text, "collectives"))
    assert row[4:6] == ["2", "8 → 16"]
    assert row[8] == "12.0 KiB → 24.0 KiB"


def test_what_changes_by_the_value_on_each_side() -> None:
    text = told(step(2), step(2, dtype="bf16"))
    (row,) = rows_with("~", section(text, "collectives"))
    assert row[3] == "f32 → bf16"
    assert any(cell.startswith("operand shape f32[8,16] → bf16[8,16]; ") for cell in row)
    text = told(step(1), step(1, trips=8))
    (row,) = rows_with("~", section(text, "loops"))
    # Bounds that are the number are not told again.
    assert row[-1] == "trip count 4 → 8"


def configured(config: str, operands: int = 1) -> str:
    """A call with that config."""
    array = "f32[2,8]{1,0}"
    return (
        f"HloModule m\n\nENTRY main {{\n  p = {array} parameter(0)\n  ROOT c = {array}"
        f' custom-call({", ".join(["p"] * operands)}), custom_call_target="mine",'
        f" backend_config={config}\n}}\n"
    )


def changed_config(old: str, new: str, *, whole: bool = False) -> str:
    diff = diff_of(configured(old), configured(new), only=["custom_calls"])
    (found,) = report(diff, whole=whole).stages[0].sections[0].lines
    return found.also.removeprefix("config ")


def test_what_differs_in_json_stands_by_its_keys_what_is_in_no_list_first() -> None:
    old = '{"inner":{"shape":{"sizes":["1","8"]},"parts":[{"n":1},{"n":2},{"n":3}],"mask":"A"}}'
    new = '{"inner":{"shape":{"sizes":["2","8"]},"parts":[{"n":4},{"n":5},{"n":6}],"mask":"B"}}'
    first = "mask A → B, shape.sizes [1,8] → [2,8], parts[0].n 1 → 4"
    assert changed_config(old, new) == f"{first} and 2 more"
    assert changed_config(old, new, whole=True) == (f"{first}, parts[1].n 2 → 5, parts[2].n 3 → 6")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('{"a":{"b":{"c":1,"d":2}}}', '{"a":{"b":{"c":3,"d":2}}}', "c 1 → 3"),
        ('{"a":{"c":1},"b":{"c":1}}', '{"a":{"c":2},"b":{"c":3}}', "a.c 1 → 2, b.c 1 → 3"),
        ('{"a":1}', '{"a":1,"on":true}', "on – → true"),
        ('{"a":["x","y"]}', '{"a":["x","z"]}', "a[1] y → z"),
        ('{"a":["x","y"]}', '{"a":["x"]}', "a 2 → 1 entries"),
        ('{"a":[1,2]}', '{"a":[1]}', "a [1,2] → [1]"),
        ('{"a":[{"n":1}]}', '{"a":[{"n":2}]}', "a[0].n 1 → 2"),
        ('{"a":{"n":1}}', '{"a":7}', "a n 1 → 7"),
    ],
)
def test_how_a_place_in_json_reads(old: str, new: str, said: str) -> None:
    assert changed_config(old, new) == said


def test_all_columns_of_a_row_that_changed_are_told_where_all_is_asked_for() -> None:
    def text(extra: str) -> str:
        return configured('{"a":1}').replace(", backend_config", f"{extra}, backend_config")

    more = ", output_to_operand_aliasing={{}: (0, {})}, api_version=API_VERSION_TYPED_FFI"
    new = configured('{"a":2}', 2).replace(", backend_config", f"{more}, backend_config")
    diff = diff_of(text(""), new, only=["custom_calls"])
    (few,) = report(diff).stages[0].sections[0].lines
    (many,) = report(diff, whole=True).stages[0].sections[0].lines
    assert few.also.endswith("; and 1 more")
    assert "more" not in many.also
    for told in ("config a 1 → 2", "aliasing 0 → 1 entries", "operand layouts 1 → 2 entries"):
        assert told in many.also


def test_what_left_its_loop() -> None:
    lines = section(told(step(1, 0), step(0, 1)), "collectives")
    (row,) = rows_with("~", lines)
    assert row[0] == "while.0 ×4 → no loop"
    assert row[5] == "4 → 1"
    assert row[9] == "o.0"
    assert not any("loop depth" in cell for cell in row)


def test_a_loop_has_the_name_of_the_new_side() -> None:
    lines = section(told(step(2), step(1, loop="other")), "collectives")
    assert rows_with("−", lines)[0][0] == "other.0 ×4"


def test_instructions_of_each_loop() -> None:
    lines = section(told(step(1, 0), step(0, 1)), "loop bodies")
    assert [line.strip() for line in lines] == [
        "~ outside of loops  1 more, 5 unchanged",
        "+1  all-gather  f32[8,32]  0 → 1",
        "~ while.0 ×4  1 fewer, 7 unchanged",
        "−1  all-gather  f32[8,32]  1 → 0",
    ]


def test_what_is_no_kernel_is_told_by_opcode_unless_all_is_shown() -> None:
    more = "  %a = f32[8,16] abs(%x)\n  %b = f32[8,32] broadcast(%i), dimensions={}"
    lines = section(told(step(1), step(1, extra=more), limit=5), "loop bodies")
    assert [line.strip() for line in lines][1:] == ["abs +1, broadcast +1"]
    lines = section(told(step(1), step(1, extra=more)), "loop bodies")
    assert [line.split() for line in lines][1:] == [
        ["+1", "abs", "f32[8,16]", "0", "→", "1"],
        ["+1", "broadcast", "f32[8,32]", "0", "→", "1"],
    ]


def test_instructions_that_changed_in_themselves() -> None:
    """No table says anything of these, and they are another program."""
    more = "  %k = f32[8,16] {}(%x)\n  %l = f32[8,16] subtract(%k, %x)"
    changes = {
        "%k, %x)": ("%x, %k)", "subtract", "order of operands", "%k, %x", "%x, %k"),
        "%l = f32[8,16] sub": (
            "%l = f32[8,16]{0,1} sub",
            "subtract",
            "layout",
            "f32[8,16]",
            "f32[8,16]{0,1}",
        ),
    }
    for old, (new, opcode, what, before, after) in changes.items():
        text = step(1, extra=more.format("abs"))
        told_of = told(text, text.replace(old, new))
        assert re.match(r"different: instructions \d; ", told_of)
        row = re.split(r"\s{2,}", section(told_of, "changed instructions")[1].strip())
        assert row[:5] == [opcode, "1", what, before, after]
    lines = section(told(text, text.replace("constant(1)", "constant(3)")), "changed instructions")
    assert any(line.split()[:5] == ["constant", "1", "literal", "1", "3"] for line in lines)


def test_loops_that_differ_in_the_same_way_are_told_once() -> None:
    lines = section(told(step(2, loops=3), step(1, loops=3)), "loop bodies")
    assert re.search(r"while\.\d ×4 and 2 more like it  1 fewer, 8 unchanged$", lines[0])
    assert len(lines) == 2


def test_a_loop_of_one_side() -> None:
    lines = section(told(step(1, loops=2), step(1, loops=1)), "loop bodies")
    assert any(re.match(r"  − while\.\d ×4  \d+ fewer$", line) for line in lines)
    lines = section(told(step(1, loops=1), step(1, loops=2)), "loop bodies")
    assert any(re.match(r"  \+ while\.\d ×4  \d+ more$", line) for line in lines)


def test_a_limit_cuts_every_list_and_says_so() -> None:
    whole = told(step(2, 2), step(1, 0))
    assert "--limit" not in whole
    shown = rows_with("−", section(whole, "collectives"))
    assert [row[0] for row in shown] == ["while.0 ×4", "no loop"]
    lines = section(told(step(2, 2), step(1, 0), limit=1), "collectives")
    assert len(rows_with("−", lines)) == 1
    assert lines[-1] == "  … 1 more line; --limit 0 shows all"
    assert told(step(2, 2), step(1, 0), limit=2) == whole


def test_no_line_is_wider_than_it_may_be() -> None:
    text = told(step(2), step(2, dtype="bf16", trips=8), width=100)
    assert max(map(len, text.splitlines())) <= 100


def test_signs_are_explained() -> None:
    def last(old: str, new: str) -> str:
        return told(old, new).splitlines()[-1]

    assert last(step(2), step(1)) == "− only in old"
    assert last(step(1), step(1, trips=8)) == "~ changed"
    assert last(step(1), step(2)) == "+ only in new"
    assert "only in" not in told(step(1), step(1))


def test_two_stages_the_one_that_runs_first() -> None:
    def program(inside: int) -> Program:
        stages = ["before_optimizations", "after_optimizations"]
        return Program([parse(step(3)), parse(step(inside))], stages)

    text = plain(as_lines(report(compare(program(2), program(1)))))
    stages = [line.split()[0] for line in text.splitlines() if "instructions the same" in line]
    assert stages == ["after_optimizations", "before_optimizations"]
    alone = Program([parse(step(2))], ["after_optimizations"])
    text = plain(as_lines(report(compare(program(2), alone))))
    assert text.startswith("same: ")
    assert "not compared, on the old side only: before_optimizations" in text


def test_two_stages_of_one_program_are_named() -> None:
    sides = [Program([parse(step(1))], [f"{when}_optimizations"]) for when in ("before", "after")]
    text = plain(as_lines(report(compare(*sides))))
    assert "\nbefore_optimizations → after_optimizations  " in text


def test_a_text_that_is_cut_off_is_told() -> None:
    cut = step(1)[:-40]
    assert "the new text is cut off" in told(step(1), cut)


def test_a_side_without_op_names_is_told() -> None:
    bare = step(1)
    named = bare.replace("negate(%y.0)", 'negate(%y.0), metadata={op_name="jit(f)/neg"}')
    assert "the new text has no op_names" in told(named, bare)
    assert "the old text has no op_names" in told(bare, named)
    assert "has no op_names" not in told(named, named) + told(bare, step(2))


def test_findings_are_told_with_what_they_say() -> None:
    unclear = step(1).replace("compare(%j, %n)", 'custom-call(%j, %n), custom_call_target="?"')
    unclear = unclear.replace(", direction=LT", "")
    lines = section(told(step(1), unclear), "findings")
    assert any("while.0" in line for line in lines)


def test_a_table_of_somebody_elses_pass_is_shown() -> None:
    """Nothing knows tables by name: one that a plugin fills is compared and shown."""
    widgets = table("widgets", Column("size", "text", "structural", "how large it is"))

    def facts(*sizes: str) -> Facts:
        rows = [{"module": 0, "size": size} for size in sizes]
        fills = Toy("widgets", (widgets,), lambda program, facts: PassResult({"widgets": rows}))
        return Facts(Program([parse(step(1))]), [fills])

    text = plain(as_lines(report(compare(facts("m"), facts("m", "l", "l"), only=["widgets"]))))
    assert text.startswith("different: widgets 2; 1 row the same\n")
    lines = section(text, "widgets")
    assert rows_with("+", lines) == [["l", "2"]]


def test_no_part_of_it_names_a_pass_or_its_tables() -> None:
    registry = discover_passes(installed=False)
    names = {one.name for one in registry.passes} | set(registry.owners)
    # Keys of the JSON and words of the report, which are made of the programs, and a phase.
    names -= {"instructions", "loops", "modules", "remat"}
    for path in (ROOT / "hlo_lens" / "diff").glob("*.py"):
        tree = ast.parse(path.read_text())
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert not texts & names, (path, texts & names)


# ---------------------------------------------------------------------------------- JSON


def test_json_is_complete_and_exact() -> None:
    diff = diff_of(step(3), step(1))
    data = json.loads(json.dumps(as_data(diff)))
    assert (data["diff_version"], data["same"]) == (1, False)
    assert data["old"]["modules"][0]["name"] == "while"
    (stage,) = data["stages"]
    assert stage["instructions"]["matched"] == 17
    assert stage["instructions"]["changed"] == []
    assert [one["name"] for one in stage["instructions"]["only_old"]] == ["g.1", "g.2"]
    tables = {one["table"]: one for one in stage["tables"]}
    collectives = tables["collectives"]
    assert [row["name"] for row in collectives["removed"]] == ["g.1", "g.2"]
    assert collectives["removed"][0]["wire_bytes"] == 1536
    assert (collectives["unchanged"], collectives["added"], collectives["changed"]) == (1, [], [])
    sums = {one["label"]: (one["old"], one["new"]) for one in collectives["sums"]}
    assert sums["runs"] == ({"least": 12, "most": 12}, {"least": 4, "most": 4})
    (loop,) = stage["loops"]
    assert loop["old"]["trip_count"] == 4
    assert loop["counts"] == [
        {"opcode": "all-gather", "dtype": "f32", "shape": "f32[8,32]", "old": 3, "new": 1}
    ]


def test_json_of_changed_rows() -> None:
    (stage,) = json.loads(json.dumps(as_data(diff_of(step(1), step(1, trips=8)))))["stages"]
    tables = {one["table"]: one for one in stage["tables"]}
    (changed,) = tables["collectives"]["changed"]
    assert (changed["old"]["executions"], changed["new"]["executions"]) == (4, 8)
    assert {"column": "executions", "old": 4, "new": 8} in changed["changes"]
    assert changed["moved"] is None


def test_json_of_the_same_program() -> None:
    data = as_data(diff_of(step(2), step(2, loop="other")))
    assert data["same"] is True
    (stage,) = data["stages"]  # type: ignore[misc]
    assert stage["loops"] == []
    assert all(not one["added"] + one["removed"] + one["changed"] for one in stage["tables"])


def test_json_is_cut_where_that_is_asked() -> None:
    whole = as_data(diff_of(step(5), step(1)))
    assert "left_out" not in json.dumps(whole)
    (stage,) = as_data(diff_of(step(5), step(1)), limit=2)["stages"]  # type: ignore[misc]
    (collectives,) = (one for one in stage["tables"] if one["table"] == "collectives")
    assert len(collectives["removed"]) == 2
    assert collectives["left_out"] == {"removed": 2}
    assert stage["instructions"]["left_out"] == {"only_old": 2}
    assert len(stage["tables"]) > 2


# ---------------------------------------------------------------------------------- Markdown


def test_markdown() -> None:
    text = as_markdown(report(diff_of(step(3), step(1))), limit=12)
    assert text.startswith("## ❌ Different: collectives 2, instructions 2; ")
    assert "| collectives | count | 3 | 1 | −2 | −67% |" in text
    assert "### Collectives: 2 removed, 1 unchanged" in text
    assert "```diff\n@@ while.0 ×4 @@ 2 fewer, 8 unchanged\n-2 all-gather" in text
    same = as_markdown(report(diff_of(step(1), step(1))))
    assert same.startswith("## ✅ Same: ")


def test_markdown_folds_long_tables_away_and_cuts_at_the_limit() -> None:
    extra = "\n".join(
        f'  %k.{n} = f32[8,16] custom-call(%x), custom_call_target="k{n}"' for n in range(15)
    )
    diff = diff_of(step(1), step(1, extra=extra))
    text = as_markdown(report(diff))
    assert "<details><summary>Custom calls: 15 added" in text
    assert text.count("<details>") == text.count("</details>")
    text = as_markdown(report(diff), limit=3)
    assert "### Custom calls: 15 added" in text
    assert "… 12 more lines; --limit 0 shows all" in text
    for rows in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({row.count("|") for row in rows.splitlines()}) == 1


@pytest.mark.parametrize("name", ["a\x1b[31mb", "````x", "<script>"])
def test_text_of_a_file_acts_nowhere(name: str) -> None:
    said = f'custom-call(%x), custom_call_target="{name}"'
    diff = diff_of(step(1), step(1, extra=f"  %k = f32[8,16] {said}"))
    for text in (plain(as_lines(report(diff))), as_markdown(report(diff))):
        assert "\x1b" not in text
        assert (
            "<script" not in re.sub("^```.*?^```", "", text, flags=re.M | re.S) or "|" not in text
        )
