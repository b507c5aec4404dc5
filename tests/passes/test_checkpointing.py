"""The checkpointing table: what is counted of residuals, replays and memory, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import AFTER, BEFORE, Program, load
from tests.mutate import check_table
from tests.passes.asking import ask
from tests.passes.test_residuals import BWD, FWD, loops
from tests.shared import needs_shared, unpacked

REMAT = Path(__file__).parents[2] / "fixtures" / "hlo" / "remat"

# Two layers tanh(h @ w): the backward takes what tanh gave, or makes it again behind a barrier.
HEAD = """HloModule m
ENTRY main {
  x = f32[8,16] parameter(0)
  w = f32[16,16] parameter(1)
  h = f32[8,16] cosine(x), metadata={op_name="jit(f)/jvp()/cos"}
  d = f32[8,16] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/jvp()/checkpoint/dot_general"}
  t = f32[8,16] tanh(d), metadata={op_name="jit(f)/jvp()/checkpoint/tanh"}
  y = f32[8,16] sine(t), metadata={op_name="jit(f)/jvp()/sin"}
"""  # noqa: E501
KEEPS = f"""{HEAD}  m = f32[8,16] multiply(x, t), metadata={{op_name="jit(f)/transpose(jvp())/mul"}}
  ROOT r = (f32[8,16], f32[8,16]) tuple(y, m)
}}
"""
REPLAYS = f"""{HEAD}  given = (f32[8,16], f32[16,16]) tuple(h, w)
  kept = (f32[8,16], f32[16,16]) opt-barrier(given)
  h2 = f32[8,16] get-tuple-element(kept), index=0
  w2 = f32[16,16] get-tuple-element(kept), index=1
  d2 = f32[8,16] dot(h2, w2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot_general"}}
  t2 = f32[8,16] tanh(d2), metadata={{op_name="jit(f)/transpose(jvp())/checkpoint/rematted_computation/tanh"}}
  m = f32[8,16] multiply(x, t2), metadata={{op_name="jit(f)/transpose(jvp())/checkpoint/mul"}}
  ROOT r = (f32[8,16], f32[8,16]) tuple(y, m)
}}
"""  # noqa: E501
FLOPS = 2 * 8 * 16 * 16

KEPT = "select saved_values, saved_bytes, saved_from, stacked_bytes, saved_exact from checkpointing"
AGAIN = (
    "select regions, replayed_operations, replayed_matmuls, replayed_kernels, replayed_collectives,"
    " replayed_flops, forward_flops, recompute_factor from checkpointing"
)
MEMORY = "select peak_bytes, peak_from, temp_bytes from checkpointing"


def test_what_goes_to_the_backward_is_kept() -> None:
    assert ask(KEEPS, KEPT) == [(1, 512, "direct", 0, 1)]
    assert ask(KEEPS, AGAIN) == [(0, 0, 0, 0, 0, 0, FLOPS, 0.0)]


def test_what_is_behind_a_barrier_is_replayed() -> None:
    assert ask(REPLAYS, KEPT) == [(1, 512, "barrier", 0, 1)]
    assert ask(REPLAYS, AGAIN) == [(1, 2, 1, 0, 0, FLOPS, FLOPS, 1.0)]


FUSED = """HloModule m
first {
  a = f32[8,16] parameter(0)
  b = f32[16,16] parameter(1)
  d1 = f32[8,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/jvp()/checkpoint/dot_general"}
  ROOT e1 = f32[8,16] tanh(d1), metadata={op_name="jit(f)/jvp()/checkpoint/tanh"}
}
second {
  a = f32[8,16] parameter(0)
  b = f32[16,16] parameter(1)
  d2 = f32[8,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/jvp()/checkpoint/dot_general"}
  ROOT e2 = f32[8,16] sine(d2), metadata={op_name="jit(f)/jvp()/checkpoint/sin"}
}
again {
  a = f32[8,16] parameter(0)
  b = f32[16,16] parameter(1)
  d3 = f32[8,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot_general"}
  ROOT e3 = f32[8,16] cosine(d3), metadata={op_name="jit(f)/transpose(jvp())/checkpoint/cos"}
}
ENTRY main {
  x = f32[8,16] parameter(0)
  w = f32[16,16] parameter(1)
  v = f32[16,16] parameter(2)
  t = f32[8,16] fusion(x, w), kind=kLoop, calls=first, metadata={op_name="jit(f)/jvp()/checkpoint/tanh"}
  s = f32[8,16] fusion(x, w), kind=kLoop, calls=second, metadata={op_name="jit(f)/jvp()/checkpoint/sin"}
  c = f32[8,16] fusion(x, w), kind=kLoop, calls=again, metadata={op_name="jit(f)/transpose(jvp())/checkpoint/cos"}
  ROOT r = (f32[8,16], f32[8,16], f32[8,16]) tuple(t, s, c)
}
"""  # noqa: E501


MICROBATCHES = """HloModule m
step {
  p = (s32[], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,16] get-tuple-element(p), index=1
  one = s32[] constant(1)
  h = f32[8,16] cosine(x), metadata={op_name="jit(f)/while/body/jvp()/cos"}
  y = f32[8,16] sine(h), metadata={op_name="jit(f)/while/body/jvp()/sin"}
  m = f32[8,16] multiply(y, h), metadata={op_name="jit(f)/while/body/transpose(jvp())/mul"}
  next = s32[] add(i, one), metadata={op_name="jit(f)/while/body/add"}
  ROOT r = (s32[], f32[8,16]) tuple(next, m)
}
go {
  p = (s32[], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT g = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8,16] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[8,16]) tuple(z, x)
  ROOT w = (s32[], f32[8,16]) while(t), condition=go, body=step, metadata={op_name="jit(f)/while"}
}
"""


def test_a_loop_over_microbatches_keeps_what_one_of_them_does() -> None:
    """The forward and the backward are in it: what it keeps is there for one iteration."""
    assert ask(MICROBATCHES, KEPT) == [(2, 1024, "direct", 0, 1)]
    # In a loop of the forward nothing is kept but what it stacks.
    forward = MICROBATCHES.replace('"jit(f)/while"', '"jit(f)/jvp()/while"')
    assert ask(forward, "select count(*) from residuals") == [(0,)]
    # A function that it calls may keep more.
    function = MICROBATCHES.replace("sine(h)", "call(h), to_apply=g").replace(
        "go {",
        "g {\n  a = f32[8,16] parameter(0)\n  ROOT b = f32[8,16] sine(a),"
        ' metadata={op_name="sin"}\n}\ngo {',
        1,
    )
    assert ask(function, "select saved_exact from checkpointing") == [(0,)]


def test_a_product_that_is_copied_into_two_fusions_is_one_of_the_forward() -> None:
    """As one that is replayed is: the factor is that of the program."""
    factor = "select replayed_flops, forward_flops, recompute_factor from "
    for table in ("checkpointing", "remat"):
        sql = (factor + table).replace(
            "replayed_flops", "flops" if table == "remat" else "replayed_flops"
        )
        assert ask(FUSED, sql) == [(FLOPS, FLOPS, 1.0)]
        # Of another weight it is no copy.
        other = FUSED.replace(
            "fusion(x, w), kind=kLoop, calls=second", "fusion(x, v), kind=kLoop, calls=second"
        )
        assert ask(other, sql) == [(FLOPS, 2 * FLOPS, 0.5)]
    # Twice in the program itself, it is two.
    twice = KEEPS.replace(
        "  y = f32[8,16] sine(t)",
        "  d2 = f32[8,16] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},"
        ' metadata={op_name="jit(f)/jvp()/checkpoint/dot_general"}\n'
        "  y = f32[8,16] add(t, d2)",
    )
    assert ask(twice, "select forward_flops from checkpointing") == [(2 * FLOPS,)]


def test_what_loops_stack_is_kept_once() -> None:
    text = loops(forward=FWD, backward=BWD)
    # y, the carry of the forward loop, is given to the backward, too.
    assert ask(text, KEPT) == [(2, 160, "stacked + direct", 128, 1)]


@pytest.mark.parametrize("other", [{"given": "ws"}, {"given": "ws", "returned": True}])
def test_an_output_of_a_scan_is_not_kept_for_the_backward(other: dict[str, object]) -> None:
    text = loops(forward=FWD, backward=BWD, **other)  # type: ignore[arg-type]
    assert ask(text, "select saved_from, stacked_bytes from checkpointing") == [("direct", 0)]


def test_a_copy_of_an_input_is_counted_apart() -> None:
    sql = "select stacked_bytes, copied_input_bytes from checkpointing"
    assert ask(loops("row", forward=FWD, backward=BWD), sql) == [(0, 128)]
    assert ask(loops(forward=FWD, backward=BWD), sql) == [(128, 0)]


def test_what_a_replay_stacks_does_not_cross_over() -> None:
    """A checkpoint around a scan: the loop runs again, and its own backward reads its stacks."""
    remat = "jit(f)/transpose(jvp())/checkpoint/rematted_computation/while"
    text = loops(forward=remat, backward=BWD).replace(
        "new = f32[4,8] dynamic-update-slice(kept, part, i, zero)",
        "new = f32[4,8] dynamic-update-slice(kept, part, i, zero),"
        f' metadata={{op_name="{remat}/body/dynamic_update_slice"}}',
    )
    assert ask(text, "select kind, phase from residuals") == [("stacked", "remat")]
    assert ask(text, KEPT) == [(0, 0, "nothing", 0, 1)]
    # It is the loop that counts: what writes the slices may be a function of several loops.
    for name, rows in (
        ("jit(f)/transpose(jvp())/while/body/dynamic_update_slice", [(0, 0, "nothing", 0, 1)]),
        ("jit(f)/jvp()/while/body/dynamic_update_slice", [(0, 0, "nothing", 0, 1)]),
    ):
        assert ask(text.replace(f"{remat}/body/dynamic_update_slice", name), KEPT) == rows
    forward = text.replace(f'"{remat}"', f'"{FWD}"')
    assert ask(forward, "select stacked_bytes from checkpointing") == [(128,)]


def test_what_is_offloaded_is_counted_apart() -> None:
    text = loops(forward=FWD, backward=BWD)
    sql = "select saved_values, stacked_bytes, offloaded_bytes from checkpointing"
    assert ask(text, sql) == [(2, 128, 0)]
    assert ask(text.replace("f32[4,8] ", "f32[4,8]{1,0:S(5)} "), sql) == [(1, 0, 128)]


def test_after_optimization_values_outside_of_loops_are_results_of_fusions() -> None:
    assert ask(KEEPS, KEPT, stage=AFTER) == [(1, 512, "direct", 0, 0)]
    stacks = loops(forward=FWD, backward=BWD)
    assert ask(stacks, KEPT, stage=AFTER) == [(2, 160, "stacked + direct", 128, 0)]
    # Nothing seen is not nothing kept: operations that are merged have one name of several.
    alone = HEAD.replace("  y =", "  ROOT y =") + "}\n"
    assert ask(alone, KEPT) == [(0, 0, "nothing", 0, 1)]
    assert ask(alone, KEPT, stage=AFTER) == [(None, None, None, None, 0)]


def test_functions_that_the_text_calls_keep_what_is_not_seen() -> None:
    lines = KEEPS.splitlines()
    layer = [
        "HloModule m",
        "layer {",
        "  h = f32[8,16] parameter(0)",
        "  w = f32[16,16] parameter(1)",
        "  d = f32[8,16] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "  ROOT t = f32[8,16] tanh(d)",
        "}",
    ]
    call = '  t = f32[8,16] call(h, w), to_apply=layer, metadata={op_name="jit(f)/jvp()/layer"}'
    kept = [line for line in lines[1:] if not line.startswith(("  d =", "  t ="))]
    text = "\n".join([*layer, *kept[:4], call, *kept[4:]])
    ((exact,),) = ask(text, "select saved_exact from checkpointing")
    assert exact == 0
    # In the backward it keeps nothing.
    assert ask(text.replace("jvp()/layer", "transpose(jvp())/layer"), KEPT)[0][-1] == 1


def test_without_op_names_nothing_is_known_but_what_loops_stack() -> None:
    nameless = REPLAYS.replace("op_name", "op_type")
    assert ask(nameless, KEPT) == [(None, None, None, None, 0)]
    assert ask(KEEPS.replace("op_name", "op_type"), AGAIN) == [(None,) * 8]
    assert ask(loops(), KEPT) == [(1, 128, "stacked", 128, 0)]
    # What stands behind a barrier and computes the same is told without a name.
    assert ask(nameless, AGAIN) == [(1, 1, 1, 0, 0, FLOPS, None, None)]


def test_of_a_text_that_is_cut_off_nothing_is_known() -> None:
    cut = REPLAYS[: REPLAYS.index("  ROOT r")]
    assert parse(cut).truncated
    assert ask(cut, KEPT) == [(None,) * 5]
    assert ask(cut, AGAIN) == [(None,) * 8]


def test_the_compilers_own_rematerialization_is_no_policy() -> None:
    text = KEEPS.replace(
        "  m = f32[8,16] multiply(x, t),",
        "  d.remat = f32[8,16] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},"
        ' metadata={op_name="jit(f)/jvp()/checkpoint/dot_general"}\n'
        "  m = f32[8,16] multiply(x, d.remat),",
    )
    assert ask(text, "select kind from remat") == [("compiler",)]
    assert ask(text, AGAIN)[0][:6] == (0, 0, 0, 0, 0, 0)


def test_what_the_compiler_undid_needs_both_stages() -> None:
    def undone(*texts: str) -> list[tuple[object, ...]]:
        stages = (BEFORE, AFTER)[-len(texts) :]
        program = Program([parse(text) for text in texts], stages)
        return run_query([Facts(program)], "select undone_operations from checkpointing").rows

    assert undone(REPLAYS, REPLAYS) == [(0,), (0,)]
    assert undone(REPLAYS) == [(None,)]
    assert undone(KEEPS, KEEPS) == [(0,), (0,)]
    # The label is on nothing any more: no region after optimization has the number.
    assert undone(REPLAYS, KEEPS) == [(1,), (1,)]


def test_the_table_under_rewrites() -> None:
    check_table(REPLAYS, f"{KEPT} union all select null, null, null, null, null")
    check_table(REPLAYS, AGAIN)
    check_table(KEEPS, KEPT)
    check_table(loops(), "checkpointing")


# -- memory ---------------------------------------------------------------------------------------

TOLD = {
    "argument_size_in_bytes": 1000,
    "output_size_in_bytes": 400,
    "alias_size_in_bytes": 100,
    "temp_size_in_bytes": 3000,
    "peak_memory_in_bytes": 4200,
}
ON_CPU = 'backend_config={"outer_dimension_partitions":["2"]}'


def memory(folder: Path, told: object, *, cpu: bool = False, stage: str = AFTER) -> object:
    folder.mkdir(exist_ok=True)
    text = KEEPS.replace("tanh(d),", f"tanh(d), {ON_CPU},") if cpu else KEEPS
    (folder / f"{stage}.txt").write_text(text)
    content = told if isinstance(told, str) else json.dumps(told)
    (folder / "memory_analysis.json").write_text(content)
    ((*cells,),) = run_query([Facts(load(folder))], MEMORY).rows
    return tuple(cells)


def test_the_peak_is_of_the_side_file(tmp_path: Path) -> None:
    assert memory(tmp_path / "other", TOLD) == (4200, "peak_memory", 3000)
    assert memory(tmp_path / "cpu", TOLD, cpu=True) == (4300, "allocations", 3000)
    older = {name: size for name, size in TOLD.items() if not name.startswith("peak")}
    assert memory(tmp_path / "older", older) == (4300, "allocations", 3000)
    assert memory(tmp_path / "none", TOLD | {"peak_memory_in_bytes": 0}) == (
        4300,
        "allocations",
        3000,
    )


def test_before_optimization_there_is_no_peak(tmp_path: Path) -> None:
    assert memory(tmp_path, TOLD, stage=BEFORE) == (None, None, None)
    assert ask(KEEPS, MEMORY, stage=AFTER) == [(None, None, None)]


@pytest.mark.parametrize(
    "told", ["", "{", "[]", "1", "{}", {"peak_memory_in_bytes": None}, "[" * 10**5], ids=str
)
def test_a_side_file_that_says_nothing(tmp_path: Path, told: object) -> None:
    assert memory(tmp_path, told) == (None, None, None)


@pytest.mark.parametrize("value", [True, -1, "1", 1.5, None], ids=str)
def test_what_is_no_number_of_bytes_is_not_known(tmp_path: Path, value: object) -> None:
    assert memory(tmp_path, TOLD | {"temp_size_in_bytes": value}) == (4200, "peak_memory", None)
    only = {"peak_memory_in_bytes": value, "temp_size_in_bytes": 3000}
    assert memory(tmp_path, only) == (None, None, 3000)


# -- fixtures and real dumps ----------------------------------------------------------------------

TARGETS = ("cpu", "tpu-v6e-1", "cuda-h100", "rocm-gfx950")
STACK = 4 * 64 * 128 * 2
LAYER = 2 * 64 * 128 * 128


def of_fixture(case: str, target: str, sql: str) -> list[tuple[object, ...]]:
    return run_query([Facts(load(REMAT / case / target))], sql).rows


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("case", "stacks", "replayed"),
    [
        ("none", 3, 0),
        ("full", 1, 1),
        ("mistyped", 1, 1),
        ("none-meant", 1, 1),
        ("dots-saveable", 2, 0),
        ("named", 2, 0),
        ("twice", 3, 0),
    ],
)
def test_scanned_layers_under_every_policy(
    case: str, stacks: int, replayed: int, target: str
) -> None:
    sql = (
        "select saved_bytes, saved_exact, replayed_matmuls, replayed_flops, forward_flops,"
        " replayed_operations > 0 from checkpointing"
    )
    row = (stacks * STACK, 1, replayed, replayed * 4 * LAYER, 4 * LAYER, int(case != "none"))
    assert of_fixture(f"{case}-scanned", target, sql) == [row, row]


@pytest.mark.parametrize("target", TARGETS)
def test_an_offloaded_product(target: str) -> None:
    sql = "select saved_bytes, offloaded_bytes from checkpointing"
    row = (2 * STACK, 0) if target == "cpu" else (STACK, STACK)
    assert of_fixture("offload-scanned", target, sql) == [row, row]


@pytest.mark.parametrize("target", TARGETS)
def test_unrolled_layers(target: str) -> None:
    sql = "select saved_bytes, saved_from, saved_exact from checkpointing where module = 0"
    assert of_fixture("none", target, sql) == [(4 * STACK // 4, "direct", 1)]
    assert of_fixture("full", target, sql) == [(STACK // 4, "barrier", 1)]
    sql = "select replayed_flops, recompute_factor, undone_operations from checkpointing"
    before = (2 * LAYER, 1.0)
    if target == "cpu":
        assert of_fixture("full", target, sql) == [(*before, 1), (LAYER, 0.5, 1)]
    else:
        assert of_fixture("full", target, sql) == [(*before, 0), (*before, 0)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("folder", ["none-scanned", "full"])
def test_the_peak_of_a_compile(folder: str, target: str) -> None:
    told = json.loads((REMAT / folder / target / "memory_analysis.json").read_text())
    expected = (told["peak_memory_in_bytes"], "peak_memory", told["temp_size_in_bytes"])
    if target == "cpu":
        sizes = [told[f"{name}_size_in_bytes"] for name in ("argument", "output", "temp")]
        expected = (sum(sizes), "allocations", sizes[2])
        # Of all temporaries, less than a hundredth is in what is called the peak.
        assert told["peak_memory_in_bytes"] - sum(sizes[:2]) < sizes[2] // 100
    assert of_fixture(folder, target, MEMORY) == [(None, None, None), expected]


@needs_shared
@pytest.mark.parametrize(
    ("name", "stacked", "matmuls", "factor"),
    [("none", 5_639_536_640, 0, 0.0), ("full", 67_108_864, 8, 0.6364)],
)
def test_what_a_policy_trades_on_a_tpu(
    name: str, stacked: int, matmuls: int, factor: float
) -> None:
    (path,) = unpacked("dumps/tpu-maxtext.tar.xz").rglob(f"v6e_2x4.{name}.opt.hlo")
    sql = (
        "select stacked_bytes, saved_exact, replayed_matmuls, round(recompute_factor, 4),"
        " peak_bytes from checkpointing"
    )
    assert run_query([Facts(load(path))], sql).rows == [(stacked, 0, matmuls, factor, None)]
