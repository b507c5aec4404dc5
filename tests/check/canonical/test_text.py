"""The canonical text: what does not matter does not show in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_lens.check.canonical import canonical_text
from hlo_lens.hlo import parse
from tests.mutate import harmful, harmless

FIXTURES = Path(__file__).parents[3] / "fixtures"
TEXTS = (
    "demo/fsdp_train_step.opt.hlo",
    "hlo/plain/fsdp/cuda-h100-8/after_optimizations.txt",
    "hlo/plain/fsdp/cuda-h100-8/after_spmd_partitioner.txt",
    "hlo/pairs/hand-query-queue-once/hand-made/after_optimizations.txt",
    "hlo/moe/ragged-scanned/tpu-v6e-1/after_optimizations.txt",
    "hlo/moe/expert-parallel/cuda-h100-8/before_optimizations.txt",
    "hlo/attention/cudnn-full-remat/cuda-h100/after_optimizations.txt",
    "hlo/attention/te/rocm-gfx950/before_optimizations.txt",
)


def canonical(text: str) -> str:
    return str(canonical_text(parse(text)))


def entry(*lines: str, header: str = "HloModule m", before: str = "") -> list[str]:
    """The canonical lines of an ENTRY computation."""
    body = "".join(f"  {line}\n" for line in lines)
    text = canonical(f"{header}\n{before}\nENTRY %e {{\n{body}}}\n")
    return [line.strip() for line in text.partition("ENTRY")[2].splitlines()[1:-1]]


def attribute_of(written: str, opcode: str = "all-to-all") -> str:
    """An attribute of an operation on one value, as it is printed."""
    lines = entry("%p = f32[8] parameter(0)", f"ROOT %r = f32[8] {opcode}(%p), {written}")
    return lines[-1].partition("), ")[2]


# --- the whole ---


def test_names_ids_layouts_and_metadata_are_gone() -> None:
    text = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%region_0.3 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.9 = f32[] add(f32[] %a, f32[] %b), metadata={op_name="jit(f)/add"}
}

ENTRY %main.12 (Arg_0.1: f32[8]) -> f32[8] {
  %Arg_0.1 = f32[8]{0:T(128)S(1)} parameter(0)
  ROOT %ar.5 = f32[8]{0} all-reduce(f32[8]{0} %Arg_0.1), channel_id=42, \
replica_groups={{0,1},{2,3}}, to_apply=%region_0.3, metadata={op_name="x"}
}
"""
    assert canonical(text).splitlines() == [
        "HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8])->f32[8]}",
        "",
        "%all-reduce_to_apply.1 (parameter.1: f32[], parameter.2: f32[]) -> f32[] {",
        "  %parameter.1 = f32[] parameter(0)",
        "  %parameter.2 = f32[] parameter(1)",
        "  ROOT %add.1 = f32[] add(%parameter.1, %parameter.2)",
        "}",
        "",
        "ENTRY %main (parameter.3: f32[8]) -> f32[8] {",
        "  %parameter.3 = f32[8] parameter(0)",
        "  ROOT %all-reduce.1 = f32[8] all-reduce(%parameter.3), channel_id=1, "
        "replica_groups=[2,2]<=[4], to_apply=%all-reduce_to_apply.1",
        "}",
    ]


@pytest.mark.parametrize("name", TEXTS)
def test_a_harmless_rewrite_does_not_show(name: str) -> None:
    text = (FIXTURES / name).read_text()
    expected = canonical(text)
    for rewrite, rewritten in harmless(text):
        assert canonical(rewritten) == expected, rewrite


@pytest.mark.parametrize("name", TEXTS[:4])
def test_a_harmful_rewrite_shows(name: str) -> None:
    text = (FIXTURES / name).read_text()
    expected = canonical(text)
    rewrites = [rewritten for _, (_, rewritten) in zip(range(20), harmful(text), strict=False)]
    assert rewrites
    assert all(canonical(rewritten) != expected for rewritten in rewrites)


@pytest.mark.parametrize("name", TEXTS)
def test_it_reads_back_to_itself_and_has_no_double_brace(name: str) -> None:
    text = canonical((FIXTURES / name).read_text())
    assert canonical(text) == text
    assert "{{" not in text


# --- order ---


def test_a_schedule_is_kept_and_parameters_come_first() -> None:
    lines = (
        "%b = f32[8] parameter(1)",
        "%n = f32[8] negate(%b)",
        "%a = f32[8] parameter(0)",
        "%m = f32[8] tanh(%a)",
        "ROOT %s = f32[8] add(%m, %n)",
    )
    opcodes = ["parameter", "parameter", "negate", "tanh", "add"]
    scheduled = entry(*lines, header="HloModule m, is_scheduled=true")
    assert [line.split("(")[0].split()[-1] for line in scheduled] == opcodes
    assert scheduled[0].endswith("parameter(0)")
    # Where there is no schedule, operands decide.
    free = [line.split("(")[0].split()[-1] for line in entry(*lines)]
    assert free == ["parameter", "parameter", "tanh", "negate", "add"]


def test_what_none_uses_stands_by_what_it_computes() -> None:
    one = '%s = f32[8] custom-call(%p), custom_call_target="s", custom_call_has_side_effect=true'
    other = '%t = f32[8] custom-call(%p), custom_call_target="t", custom_call_has_side_effect=true'
    parameter, root = "%p = f32[8] parameter(0)", "ROOT %r = f32[8] negate(%p)"
    assert entry(parameter, one, other, root) == entry(parameter, root, other, one)


def test_an_element_stands_once_in_front_of_its_first_user_and_an_unused_one_nowhere() -> None:
    lines = entry(
        "%t = (f32[8], f32[4]) parameter(0)",
        "%unused = f32[4] get-tuple-element(%t), index=1",
        "%x = f32[8] get-tuple-element(%t), index=0",
        "%c = f32[8] constant({...})",
        "%y = f32[8] get-tuple-element(%t), index=0",
        "ROOT %r = f32[8] add(%x, %y)",
        header="HloModule m, is_scheduled=true",
    )
    assert lines == [
        "%parameter.1 = (f32[8], f32[4]) parameter(0)",
        "%constant.1 = f32[8] constant({...})",
        "%get-tuple-element.1 = f32[8] get-tuple-element(%parameter.1), index=0",
        "ROOT %add.1 = f32[8] add(%get-tuple-element.1, %get-tuple-element.1)",
    ]


def test_no_name_begins_another_one() -> None:
    negated = [f"%n{at} = f32[8] negate(%{f'n{at - 1}' if at else 'p'})" for at in range(11)]
    lines = entry("%p = f32[8] parameter(0)", *negated)
    names = [line.removeprefix("ROOT ").split()[0] for line in lines]
    assert names[1:3] == ["%negate.01", "%negate.02"]
    assert not any(a != b and b.startswith(a) for a in names for b in names)


# --- asynchronous operations ---

SPELLINGS = {
    "own": (
        "",
        "%s = (f32[8], f32[16]) all-gather-start(%p), replica_groups={{0,1}}, dimensions={0}",
        "ROOT %d = f32[16] all-gather-done(%s)",
    ),
    "wrapped": (
        "%w {\n %q = f32[8] parameter(0)\n"
        " ROOT %g = f32[16] all-gather(%q), replica_groups={{0,1}}, dimensions={0}\n}\n",
        "%s = ((f32[8]), f32[16], s32[]) async-start(%p), calls=%w",
        "ROOT %d = f32[16] async-done(%s), calls=%w",
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_one_spelling_of_a_start(spelling: str) -> None:
    before, start, done = SPELLINGS[spelling]
    lines = entry("%p = f32[8] parameter(0)", start, done, before=before)
    assert lines[1:] == [
        "%all-gather-start.1 = (f32[8], f32[16]) all-gather-start(%parameter.1), "
        "replica_groups=[1,2]<=[2], dimensions={0}",
        "ROOT %all-gather-done.1 = f32[16] all-gather-done(%all-gather-start.1)",
    ]


def test_an_async_start_of_more_than_one_operation_stays_one() -> None:
    inside = ("%q = f32[8] parameter(0)", "%n = f32[8] tanh(%q)", "ROOT %m = f32[8] negate(%n)")
    before = "%w {\n" + "\n".join(inside) + "\n}\n"
    lines = entry(
        "%p = f32[8] parameter(0)",
        "%s = ((f32[8]), f32[8], s32[]) async-start(%p), calls=%w",
        "ROOT %d = f32[8] async-done(%s), calls=%w",
        before=before,
    )
    shape = "((f32[8]), f32[8])"
    assert lines[1].endswith(f"= {shape} async-start(%parameter.2), calls=%async-start_calls.1")
    assert lines[2].endswith("async-done(%async-start.1)")


# --- values ---


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("{{0,1},{2,3}}", "[2,2]<=[4]"),
        ("[2,2]<=[4]", "[2,2]<=[4]"),
        ("mesh['x'=2,'y'=2] {'y'}", "[2,2]<=[4]"),
        ("{{0,2},{1,3}}", "[2,2]<=[2,2]T(1,0)"),
        ("mesh['x'=2,'y'=2] {'x'}", "[2,2]<=[2,2]T(1,0)"),
        ("[4,2]<=[2,2,2]T(1,0,2)", "[4,2]<=[2,2,2]T(1,0,2)"),
        ("{{0,1},{4,5},{2,3},{6,7}}", "[4,2]<=[2,2,2]T(1,0,2)"),
        ("[2,4]<=[2,2,2]T(0,1,2)", "[2,4]<=[8]"),
        ("{{0}}", "[1,1]<=[1]"),
        ("{{0,3},{1,2}}", "{ {0,3},{1,2} }"),
        ("{{0,1,2},{3}}", "{ {0,1,2},{3} }"),
        ("{{4,5}}", "{ {4,5} }"),
        ("{{1,0},{3,2}}", "{ {1,0},{3,2} }"),
        ("{}", "{}"),
    ],
)
def test_replica_groups(written: str, printed: str) -> None:
    assert attribute_of(f"replica_groups={written}") == f"replica_groups={printed}"


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("{devices=[2,1]0,1}", "{devices=[2,1]<=[2]}"),
        ("{mesh['a'=2], [{'a'}, {}]}", "{devices=[2,1]<=[2]}"),
        ("{devices=[2,2]0,2,1,3 last_tile_dim_replicate}",
         "{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"),
        ("{devices=[2]1,0}", "{devices=[2]1,0}"),
        ("{replicated metadata={op_name=\"x\"}}", "{replicated}"),
        ("{maximal device=3}", "{maximal device=3}"),
        ("{manual}", "{manual}"),
        ("{{replicated}, {devices=[2]0,1}}", "{ {replicated}, {devices=[2]<=[2]} }"),
    ],
)  # fmt: skip
def test_sharding(written: str, printed: str) -> None:
    assert attribute_of(f"sharding={written}", "negate") == f"sharding={printed}"


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ('backend_config={"b": {"n": "4"}, "a": []}', 'backend_config={"a":[],"b":{"n":"4"}}'),
        (r'backend_config="{\"a\": 1}"', 'backend_config={"a":1}'),
        (f'backend_config={{"body":"{"x" * 300}"}}', 'backend_config={"body":"..."}'),
        (f'backend_config="{"x" * 300}"', 'backend_config="..."'),
        ('frontend_attributes={b="1",a="{{0,1}}"}', 'frontend_attributes={a="{ {0,1} }",b="1"}'),
        (
            "output_to_operand_aliasing={{}: (0, {}), {1}: (2, {0})}",
            "output_to_operand_aliasing={ {}: (0, {}), {1}: (2, {0})}",
        ),
        ("operand_layout_constraints={f32[8]{0}}, api_version=API", "api_version=API"),
        ("lhs_batch_dims={}, x_dims={0 /* 1 */ , 2}", "x_dims={0, 2}"),
        ("backend_config={\"a\":1}, custom_call_target=\"t\"",
         'custom_call_target="t", backend_config={"a":1}'),
    ],
)  # fmt: skip
def test_attributes(written: str, printed: str) -> None:
    assert attribute_of(written, "custom-call") == printed


@pytest.mark.parametrize(
    ("shape", "written", "printed"),
    [
        ("s32[]", " 5 ", "5"),
        ("f32[2,2]{1,0}", "{ { 1, 2 }, { 3, 4 } }", "{ {1, 2}, {3, 4} }"),
        ("f32[2,2]{1,0}", "{ /*i0=0*/ {1,2}, /*i0=1*/ {3,4} }", "{ {1, 2}, {3, 4} }"),
        ("s32[11]", f"{{{', '.join('1' * 11)}}}", "{...}"),
        ("s32[10]", f"{{{', '.join('1' * 10)}}}", f"{{{', '.join('1' * 10)}}}"),
        ("s32[5]", "{...}", "{...}"),
    ],
)
def test_constants(shape: str, written: str, printed: str) -> None:
    (line,) = entry(f"ROOT %c = {shape} constant({written})")
    assert line.partition(" constant")[2] == f"({printed})"
