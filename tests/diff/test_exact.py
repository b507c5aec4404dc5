"""Exact comparison: what makes two modules different, what does not, and where they part."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_lens.decode import kernels
from hlo_lens.diff.exact import By, Parting, Place, elided_literals, first_parting
from hlo_lens.hlo import parse
from tests import shared
from tests.mutate import harmful, harmless

ROOT = Path(__file__).resolve().parents[2]

GRAPH = """HloModule jit_step, num_partitions=4, \
entry_computation_layout={(f32[8,16]{1,0}, f32[16]{0})->f32[8,16]{1,0}}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%maximum (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %most = f32[] maximum(%a.1, %b.1)
}

ENTRY %main (x: f32[8,16], y: f32[16]) -> f32[8,16] {
  %x = f32[8,16]{1,0} parameter(0), sharding={devices=[4,1]<=[4]}
  %y = f32[16]{0} parameter(1)
  %spread = f32[8,16]{1,0} broadcast(%y), dimensions={1}
  %two = f32[] constant(2), metadata={op_name="jit(step)/two" source_file="model.py" source_line=3}
  %twos = f32[8,16]{1,0} broadcast(%two), dimensions={}
  %scaled = f32[8,16]{1,0} multiply(%x, %twos), metadata={op_name="jit(step)/mul"}
  %shifted = f32[8,16]{1,0} subtract(%scaled, %spread)
  %reduced = f32[8,16]{1,0} all-reduce(%shifted), channel_id=1, replica_groups={{0,1},{2,3}}, \
use_global_device_ids=true, to_apply=%add
  %again = f32[8,16]{1,0} all-reduce(%reduced), channel_id=2, replica_groups={{0,1},{2,3}}, \
use_global_device_ids=true, to_apply=%maximum
  %unused = f32[16]{0} negate(%y)
  ROOT %out = f32[8,16]{1,0} custom-call(%again), custom_call_target="gemm", \
backend_config={"beta":1,"name":"a b"}, frontend_attributes={kind="x y"}
}
"""
SCHEDULED = GRAPH.replace("jit_step,", "jit_step, is_scheduled=true,")


def apart(old: str, new: str, by: By = "program") -> Parting | None:
    """Where two texts part; told the other way round, it is the same place."""
    there = first_parting(parse(old), parse(new), by=by)
    back = first_parting(parse(new), parse(old), by=by)
    if there is None or back is None:
        assert there is back is None
        return None
    if there.old is not None and there.new is not None:
        assert (back.old, back.new) == (there.new, there.old)
    return there


def change(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{text.count(old)} times {old}"
    return text.replace(old, new)


def marked(place: Place | None) -> str:
    """The text of a place from the caret on."""
    assert place is not None
    return place.text[place.column :]


# ---------------------------------------------------------------------------------- the same


@pytest.mark.parametrize("text", [GRAPH, SCHEDULED], ids=["graph", "scheduled"])
def test_a_module_is_the_same_as_itself(text: str) -> None:
    assert apart(text, text) is None
    assert apart(text, text, "text") is None


# What XLA's parser builds another module from: another order of what is taken out of a tuple,
# another spelling of an asynchronous operation.
OTHER_SPELLINGS = {"elements-by-mark", "respell-async"}
CASES = [GRAPH, SCHEDULED, *(path.read_text() for path in shared.texts("cases/*.hlo"))]


@pytest.mark.parametrize("text", CASES)
def test_names_channels_metadata_and_order_where_it_does_not_count_make_no_difference(
    text: str,
) -> None:
    applied = set()
    for name, rewritten in harmless(text):
        if name not in OTHER_SPELLINGS:
            assert apart(text, rewritten) is None, f"{name}\n{rewritten}"
            applied.add(name)
    assert {"rename", "strip-metadata", "comments"} & applied
    assert ("reorder" in applied) is not parse(text).is_scheduled


@pytest.mark.parametrize("text", CASES)
def test_what_changes_the_program_is_a_difference(text: str) -> None:
    rewrites = list(harmful(text))
    assert rewrites
    for name, rewritten in rewrites[:40]:
        assert apart(text, rewritten) is not None, f"{name}\n{rewritten}"
        assert apart(text, rewritten, "text") is not None, name


def test_a_fingerprint_in_the_header_is_an_id() -> None:
    header = "jit_step, frontend_attributes={fingerprint_before_lhs=%r},"
    texts = [GRAPH.replace("jit_step,", header % mark).replace("'", '"') for mark in ("a1", "b2")]
    assert apart(*texts) is None
    texts[1] = texts[1].replace("fingerprint_before_lhs", "xla.sdy.meshes")
    found = apart(*texts)
    assert found is not None
    assert (found.kind, found.name) == ("header", "frontend_attributes")


# ---------------------------------------------------------------------------------- different

# What is changed to what; what parts, by name; what stands at the caret on both sides.
DIFFERENCES = [
    ("constant(2)", "constant(3)", "literal", None, "2)", "3)"),
    ("%spread = f32[8,16]{1,0}", "%spread = f32[8,16]{0,1}", "shape", None, "1,0} b", "0,1} b"),
    ("%twos = f32[8,16]{1,0}", "%twos = f32[8,8]{1,0}", "shape", None, "16]{1,0} b", "8]{1,0} b"),
    ("broadcast(%y), dimensions={1}", "broadcast(%y), dimensions={0}", "attribute", "dimensions",
     "1}", "0}"),
    ('"beta":1', '"beta":0', "attribute", "backend_config", '1,"name"', '0,"name"'),
    ('"a b"', '"ab"', "attribute", "backend_config", 'a b"', 'ab"'),
    ("devices=[4,1]<=[4]", "devices=[1,4]<=[4]", "attribute", "sharding", "4,1]", "1,4]"),
    (", sharding={devices=[4,1]<=[4]}", "", "attribute", "sharding", "sharding={dev", ""),
    ('kind="x y"', 'kind="xy"', "attribute", "frontend_attributes", 'x y"', 'xy"'),
    ("subtract(%scaled, %spread)", "subtract(%spread, %scaled)", "operand", None,
     "%scaled,", "%spread,"),
    ("multiply(%x, %twos)", "divide(%x, %twos)", "opcode", None, "multiply", "divide"),
    ("multiply(%x, %twos)", "multiply(%twos, %x)", "operand", None, "%x,", "%twos,"),
    ("num_partitions=4", "num_partitions=8", "header", "num_partitions", "4", "8"),
    ("to_apply=%maximum", "to_apply=%add", "attribute", "to_apply", "%maximum", "%add"),
    ("channel_id=2", "channel_id=1", "attribute", "channel_id", "2, rep", "1, rep"),
    ("ROOT %most = f32[] maximum", "ROOT %most = f32[] minimum", "opcode", None,
     "maximum", "minimum"),
]  # fmt: skip


@pytest.mark.parametrize("text", [GRAPH, SCHEDULED], ids=["graph", "scheduled"])
@pytest.mark.parametrize(
    ("old", "new", "kind", "name", "here", "there"), DIFFERENCES, ids=[d[1] for d in DIFFERENCES]
)
def test_where_they_part(
    text: str, old: str, new: str, kind: str, name: str | None, here: str, there: str
) -> None:
    found = apart(text, change(text, old, new))
    assert found is not None
    assert (found.kind, found.name) == (kind, name)
    assert marked(found.old).startswith(here)
    assert marked(found.new).startswith(there)
    if kind != "header":
        assert found.old is not None
        assert found.old.text.split(",")[0] in text.splitlines()[found.old.line - 1]


def test_the_place_is_the_line_of_each_side() -> None:
    found = apart(GRAPH, "// one more line\n" + change(GRAPH, "constant(2)", "constant(3)"))
    assert found is not None
    assert found.old is not None
    assert found.new is not None
    assert found.old == Place("main", 19, "%two = f32[] constant(2)", 22)
    assert found.new == Place("main", 20, "%two = f32[] constant(3)", 22)


def test_a_difference_is_told_where_it_begins_not_where_it_shows() -> None:
    wider = GRAPH.replace("f32[8,16]", "f64[8,16]").replace("%two = f32", "%two = f64")
    found = apart(GRAPH, change(wider, "->f64", "->f32").replace("{(f64", "{(f32"))
    assert found is not None
    assert marked(found.old).startswith("f32[8,16]{1,0} parameter(0)")
    inserted = change(GRAPH, "multiply(%x, %twos)", "multiply(%half, %twos)").replace(
        "  %scaled", "  %half = f32[8,16]{1,0} negate(%x)\n  %scaled"
    )
    found = apart(GRAPH, inserted)
    assert found is not None
    assert (found.kind, found.message) == (
        "operand",
        "operand 0 is another value: parameter against negate",
    )
    assert marked(found.old).startswith("%x, ")
    assert marked(found.new).startswith("%half, ")


def swapped(text: str) -> str:
    """Two lines that do not depend on each other in the other order."""
    lines = text.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if "%spread = " in line)
    lines[at : at + 2] = reversed(lines[at : at + 2])
    return "".join(lines)


def test_the_order_counts_where_the_text_is_scheduled() -> None:
    assert apart(GRAPH, swapped(GRAPH)) is None
    found = apart(SCHEDULED, swapped(SCHEDULED))
    assert found is not None
    assert found.kind == "opcode"
    assert marked(found.old).startswith("broadcast(%y)")
    assert marked(found.new).startswith("constant(2)")


def test_the_order_of_computations_never_counts() -> None:
    head, add, rest = SCHEDULED.partition("%add (a: f32[]")
    body, end, rest = (add + rest).partition("}\n\n")
    first, end_of_first, main = rest.partition("}\n\n")
    assert apart(SCHEDULED, head + first + end_of_first + body + end + main) is None


@pytest.mark.parametrize("text", [GRAPH, SCHEDULED], ids=["graph", "scheduled"])
def test_what_nothing_uses_counts(text: str) -> None:
    found = apart(text, change(text, "  %unused = f32[16]{0} negate(%y)\n", ""))
    assert found is not None
    assert found.old is not None
    assert found.old.text.startswith(("%unused", "ROOT %out"))
    assert apart(text, change(text, "negate(%y)", "abs(%y)")) is not None


def test_one_computation_for_two_is_another_program() -> None:
    twin = GRAPH.replace("maximum(%a.1", "add(%a.1")
    found = apart(twin, change(twin, "to_apply=%maximum", "to_apply=%add"))
    assert found is not None
    assert found.name == "to_apply"


def test_control_predecessors_count() -> None:
    ordered = change(GRAPH, "negate(%y)", "negate(%y), control-predecessors={%scaled}")
    found = apart(GRAPH, ordered)
    assert found is not None
    found = apart(ordered, change(ordered, "s={%scaled}", "s={%twos}"))
    assert found is not None
    assert found.name == "control-predecessors"
    assert marked(found.new).startswith("%twos")


def test_computations_that_nothing_calls_are_compared_in_any_order() -> None:
    alone = GRAPH.replace("to_apply=%maximum", "to_apply=%add")
    assert apart(alone, alone) is None
    found = apart(alone, change(alone, "maximum(%a.1", "minimum(%a.1"))
    assert found is not None
    assert found.kind == "opcode"
    cut = alone[: alone.index("%maximum (")] + alone[alone.index("ENTRY") :]
    found = apart(alone, cut)
    assert found is not None
    assert found.kind == "computation"
    assert found.old is not None
    assert found.old.text == "%maximum"
    assert found.new is None


def test_deep_and_wide_texts_are_walked_without_recursion() -> None:
    steps = "\n".join(f"  %v.{n} = f32[] negate(%v.{n - 1})" for n in range(1, 20_000))
    deep = f"HloModule m\n\nENTRY %e {{\n  %v.0 = f32[] parameter(0)\n{steps}\n}}\n"
    assert apart(deep, deep) is None
    found = apart(deep, deep.replace("%v.7 = f32[] negate", "%v.7 = f32[] abs"))
    assert marked(found and found.old).startswith("negate(")


def test_elided_literals_are_counted_and_are_not_a_literal() -> None:
    elided = GRAPH.replace("constant(2)", "constant({...})")
    assert (elided_literals(parse(GRAPH)), elided_literals(parse(elided))) == (0, 1)
    assert apart(elided, elided) is None
    found = apart(GRAPH, elided)
    assert found is not None
    assert found.message == "a literal that one side elides"


# ---------------------------------------------------------------------------------- text


def test_text_compares_lines_without_metadata_and_frames() -> None:
    frames = '\nFileNames\n1 "model.py"\n\nFileLocations\n1 {file_name_id=1 line=3}\n'
    other = GRAPH.replace("%add (a:", f"{frames}\n%add (a:", 1).replace("source_line=3", "a=1")
    assert parse(other).frames_text
    assert apart(GRAPH, other, "text") is None
    assert apart(GRAPH, GRAPH.replace("\n", "  \n").replace("}\n", "}\n\n"), "text") is None


@pytest.mark.parametrize(
    ("old", "new", "line", "here"),
    [
        ("%sum = f32[]", "%total = f32[]", 6, "%sum"),
        ("channel_id=1", "channel_id=9", 23, "1, replica"),
        ("  %y = ", "   %y = ", 17, "%y = f32[16]"),
    ],
)
def test_text_counts_names_ids_and_blanks(old: str, new: str, line: int, here: str) -> None:
    found = apart(GRAPH, change(GRAPH, old, new), "text")
    assert found is not None
    assert found.kind == "line"
    assert found.old is not None
    assert found.old.line == line
    assert here in marked(found.old)


def test_a_text_that_ends_first_parts_at_its_end() -> None:
    found = first_parting(
        parse(GRAPH), parse(GRAPH + "\n%extra {\n  %q = f32[] parameter(0)\n}\n"), by="text"
    )
    assert found is not None
    assert found.old is None
    assert found.new is not None
    assert found.new.text == "%extra {"


# ---------------------------------------------------------------------------------- kernels

BYTECODE = "TUzvUgFNTElS"


def kernel(body: str, locations: str) -> str:
    config = f'{{"custom_call_config":{{"body":"{body}","debug_locations":"{locations}"}}}}'
    return change(GRAPH, '{"beta":1,"name":"a b"}', config)


def test_locations_beside_a_kernel_make_no_difference() -> None:
    assert apart(kernel(BYTECODE, "AAAA"), kernel(BYTECODE, "BBBB")) is None
    assert apart(kernel(BYTECODE, "AAAA"), kernel(BYTECODE, "BBBB"), "text") is not None
    assert apart(kernel(BYTECODE, "AAAA"), kernel(BYTECODE + "BBBB", "AAAA")) is not None


def test_locations_in_the_text_of_a_kernel_make_no_difference() -> None:
    def mlir(function: str, line: int) -> str:
        body = rf'{{ir = "func @{function}() loc(\"k.py\":{line}:0)", num_warps = 4 : i32}}'
        return change(GRAPH, '{"beta":1,"name":"a b"}', body)

    assert apart(mlir("f", 3), mlir("f", 40)) is None
    assert apart(mlir("f", 3), mlir("g", 3)) is not None
    assert apart(mlir("f", 3), mlir("f", 3).replace("4 : i32", "4 : i64")) is not None


KERNEL = """
import jax
from jax.experimental import pallas as pl

def kernel(x, o):
    o[...] = x[...] * {factor}

def step(x):
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8, 128), x.dtype))(x)
"""


def lowered(factor: int, line: int) -> str:
    """The HLO of a TPU kernel whose source begins at that line."""
    import jax

    names: dict[str, object] = {}
    exec(compile("\n" * line + KERNEL.format(factor=factor), "model.py", "exec"), names)
    traced = jax.jit(names["step"]).trace(jax.ShapeDtypeStruct((8, 128), "float32"))
    return str(traced.lower(lowering_platforms=("tpu",)).as_text("hlo"))


@pytest.mark.jax
def test_a_kernel_that_moved_in_its_file_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    here, moved, other = lowered(2, 0), lowered(2, 40), lowered(3, 0)
    assert apart(here, moved, "text") is not None
    assert apart(here, moved) is None
    found = apart(here, other)
    assert found is not None
    assert (found.kind, found.name) == ("attribute", "backend_config")
    # Without jaxlib a body is compared as it is.
    monkeypatch.setattr(kernels, "_context", lambda: None)
    kernels._text_of.cache_clear()
    assert apart(here, moved) is not None
    kernels._text_of.cache_clear()


@pytest.mark.jax
@pytest.mark.parametrize("case", ["triton-gfx950/rocm-gfx950", "splash/tpu-v6e-1"])
def test_the_bodies_of_real_kernels_are_read(case: str) -> None:
    text = (ROOT / "fixtures/hlo/attention" / case / "after_optimizations.txt").read_text()
    configs = [
        config.raw
        for computation in parse(text).computations
        for instruction in computation.instructions
        if instruction.opcode == "custom-call" and (config := instruction.backend_config)
    ]
    bodies = [kernels.without_locations(raw) for raw in configs if "TUzvU" in raw or "EFR" in raw]
    assert bodies
    assert all("module" in body and ".py" not in body and "loc(" not in body for body in bodies)


STEP = """
import jax, jax.numpy as jnp

def {name}(weights, x):
    def layer(h, weight):
        return jnp.tanh(h @ weight), None

    def loss(weights):
        h, _ = jax.lax.scan(jax.checkpoint(layer), x, weights)
        return ({power})(h).sum()

    return jax.value_and_grad(loss)(weights)
"""


def compiled(name: str, line: int, power: str = "lambda h: h ** 2") -> list[str]:
    """The HLO of a function of that name, before and after optimization, which may compile it
    anew each time."""
    import jax

    names: dict[str, object] = {}
    source = "\n" * line + STEP.format(name=name, power=power)
    exec(compile(source, f"{name}.py", "exec"), names)
    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((4, 64, 64), (8, 64))]
    lowered = jax.jit(names[name]).lower(*shapes)
    return [lowered.as_text("hlo", debug_info=True), lowered.compile().as_text()]


@pytest.mark.jax
def test_two_compiles_of_one_function_are_the_same_program() -> None:
    here, elsewhere = compiled("step", 0), compiled("train", 40)
    other = compiled("step", 0, "lambda h: h ** 3")
    for old, new, cubed in zip(here, elsewhere, other, strict=True):
        assert apart(old, new) is None
        assert apart(old, new, "text") is not None
        assert apart(old, cubed) is not None
