"""The residuals table: what loops stack and who reads it, barriers, values outside of loops."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.program import Program, load
from tests.mutate import check_table
from tests.passes.asking import ask, ask_file
from tests.shared import needs_shared, texts, unpacked
from tests.test_readme import BLOCK, at_root, output_of

ROOT = Path(__file__).parents[2]
REMAT = ROOT / "fixtures" / "hlo" / "remat"
PAGE = ROOT / "docs" / "residuals.md"

# Four iterations of tanh write what they get; four more read it from the last to the first.
LOOPS = """HloModule m
fwd {{
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8] get-tuple-element(p), index=1
  kept = f32[4,8] get-tuple-element(p), index=2
  xs = f32[4,8] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  two = s32[] constant(2)
  cut = f32[1,8] dynamic-slice(xs, {from_index}, zero), dynamic_slice_sizes={{1,8}}
  row = f32[8] reshape(cut)
  t = f32[8] tanh(h)
  out = f32[8] add(t, row)
  part = f32[1,8] reshape({written})
  new = f32[4,8] dynamic-update-slice(kept, part, i, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(next, out, new, xs)
}}
fwd_go {{
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(i, n), direction=LT
}}
bwd {{
  p = (s32[], f32[8], f32[4,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  g = f32[8] get-tuple-element(p), index=1
  stack = f32[4,8] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  three = s32[] constant(3)
  k = s32[] subtract(three, j)
{read}
  c = f32[8] cosine(saved)
  d = f32[8] multiply(g, c)
  next = s32[] add(j, one)
  ROOT r = (s32[], f32[8], f32[4,8]) tuple(next, d, stack)
}}
bwd_go {{
  p = (s32[], f32[8], f32[4,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(j, n), direction=LT
}}
ENTRY main {{
  x = f32[8] parameter(0)
  ws = f32[4,8] parameter(1)
  z = s32[] constant(0)
  nil = f32[] constant(0)
  buffer = f32[4,8] broadcast(nil), dimensions={{}}
  t = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(z, x, buffer, ws)
  w = (s32[], f32[8], f32[4,8], f32[4,8]) while(t), condition=fwd_go, body=fwd{forward}
  y = f32[8] get-tuple-element(w), index=1
  s = f32[4,8] get-tuple-element(w), index=2
  u = (s32[], f32[8], f32[4,8]) tuple(z, y, {given})
  v = (s32[], f32[8], f32[4,8]) while(u), condition=bwd_go, body=bwd{backward}
  gx = f32[8] get-tuple-element(v), index=1
  ROOT out = (f32[8], f32[8]{more_type}) tuple(y, gx{more})
}}
"""
READ = """  line = f32[1,8] dynamic-slice(stack, k, zero), dynamic_slice_sizes={1,8}
  saved = f32[8] reshape(line)"""
WHAT = "select kind, shape, bytes, bytes_per_iteration from residuals where kind != 'direct'"
BUFFER = ("f32[4,8]", 128, 32)


def loops(
    written: str = "t",
    read: str = READ,
    *,
    from_index: str = "i",
    forward: str = "",
    backward: str = "",
    given: str = "s",
    returned: bool = False,
) -> str:
    names = {
        key: f', metadata={{op_name="{name}"}}' if name else ""
        for key, name in (("forward", forward), ("backward", backward))
    }
    more = {"more": ", s", "more_type": ", f32[4,8]"} if returned else {"more": "", "more_type": ""}
    return LOOPS.format(
        written=written, read=read, from_index=from_index, given=given, **names, **more
    )


FWD, BWD = "jit(f)/jvp()/while", "jit(f)/transpose(jvp())/while"


def test_a_stacked_residual() -> None:
    text = loops()
    assert ask(text, WHAT) == [("stacked", *BUFFER)]
    joined = (
        "select r.name, tuple_index, f.name, b.name, p.name, evidence from residuals r"
        " join instructions f on f.instr = forward_loop join instructions b on"
        " b.instr = backward_loop join instructions p on p.instr = producer"
    )
    said = (
        "new writes a slice an iteration of w; line in v takes it; no op_name says backward: it"
        " takes them in the opposite order"
    )
    assert ask(text, joined) == [("new", 2, "w", "v", "t", said)]
    named = loops(forward=FWD, backward=BWD)
    assert ask(named, joined) == [("new", 2, "w", "v", "t", said.partition("; no")[0])]
    assert ask(
        text,
        "select m.role, i.name from members m join instructions i on i.id = m.instr"
        " where m.\"table\" = 'residuals' order by m.role",
    ) == [("backward", "v"), ("producer", "t"), ("read", "line"), ("while", "w"), ("write", "new")]


def test_names_decide_who_is_backward_where_there_are_any() -> None:
    same_order = READ.replace("stack, k", "stack, j")
    assert ask(loops(read=same_order), WHAT) == [("ys", *BUFFER)]
    assert ask(loops(read=same_order, forward=FWD, backward=BWD), WHAT) == [("stacked", *BUFFER)]
    assert ask(loops(forward=FWD, backward=FWD), WHAT) == [("ys", *BUFFER)]
    assert ask(loops(forward="jit(f)/while", backward="jit(f)/while"), WHAT) == [("ys", *BUFFER)]
    assert ask(loops(forward=BWD, backward=BWD), WHAT) == []  # a gradient


def test_a_loop_of_remat_keeps_what_a_backward_loop_reads() -> None:
    """A checkpoint around a scan runs the forward loop again, in the backward."""
    remat = "jit(f)/transpose(jvp())/checkpoint/rematted_computation/while"
    assert ask(loops(forward=remat, backward=BWD), WHAT) == [("stacked", *BUFFER)]
    assert ask(loops(forward=remat, backward=BWD, given="ws", returned=True), WHAT) == []


@pytest.mark.parametrize(
    "read",
    [
        READ.replace("stack, k", "stack, three"),  # always the same slice
        READ.replace(
            "k, zero), dynamic_slice_sizes={1,8}", "zero, k), dynamic_slice_sizes={4,2}"
        ).replace("f32[1,8]", "f32[4,2]"),  # across the slices
        READ.replace("stack, k, zero", "stack, k, j")
        .replace("{1,8}", "{1,4}")
        .replace("f32[1,8]", "f32[1,4]"),  # not all of a slice
        "  flat = f32[32] reshape(stack)\n  saved = f32[8] slice(flat), slice={[0:8]}",
    ],
)
def test_a_loop_that_slices_otherwise_reads_no_residual(read: str) -> None:
    assert ask(loops(read=read, forward=FWD, backward=BWD), WHAT) == [("ys", *BUFFER)]


def test_what_is_returned_is_used_and_what_is_not_is_unread() -> None:
    assert ask(loops(given="ws", returned=True), WHAT) == [("ys", *BUFFER)]
    assert ask(loops(given="ws"), WHAT) == [("unread", *BUFFER)]


def test_a_copy_of_an_input() -> None:
    joined = (
        "select kind, i.name, backward_loop is not null from residuals r"
        " left join instructions i on i.instr = r.input"
    )
    assert ask(loops("row"), joined) == [("copy_of_input", "ws", 1)]
    assert ask(loops("row", given="ws", returned=True), joined) == [("copy_of_input", "ws", 0)]
    # Always the same slice, or what is computed of a slice, is no copy.
    assert ask(loops("row", from_index="two"), joined) == [("stacked", None, 1)]
    assert ask(loops("out"), joined) == [("stacked", None, 1)]


def test_a_residual_in_host_memory() -> None:
    text = loops()
    where = "select offloaded from residuals"
    assert ask(text, where) == [(0,)]
    assert ask(text.replace("f32[4,8] ", "f32[4,8]{1,0:S(5)} "), where) == [(1,)]
    moved = text.replace(
        "part = f32[1,8] reshape(t)",
        'far = f32[8] custom-call(t), custom_call_target="MoveToHost"\n'
        "  part = f32[1,8] reshape(far)",
    )
    assert ask(moved, where) == [(1,)]
    assert ask(moved.replace("MoveToHost", "MoveToDevice"), where) == [(0,)]


# One computation writes two stacks and another reads both: before optimization it is like that.
SHARED = (
    loops()
    .replace("bwd {", "pick {\n  s = f32[4,8] parameter(0)\n  k = s32[] parameter(1)\n"
             "  zero = s32[] constant(0)\n"
             "  ROOT line = f32[1,8] dynamic-slice(s, k, zero), dynamic_slice_sizes={1,8}\n}\n"
             "bwd {")
    .replace("line = f32[1,8] dynamic-slice(stack, k, zero), dynamic_slice_sizes={1,8}",
             "line = f32[1,8] call(stack, k), to_apply=pick\n"
             "  other = f32[1,8] call(stack, zero), to_apply=pick")
)  # fmt: skip


def test_a_slice_in_a_computation_with_several_callers() -> None:
    assert ask(SHARED, WHAT) == [("stacked", *BUFFER)]
    assert ask(SHARED.replace("call(stack, k)", "call(stack, zero)"), WHAT) == [("ys", *BUFFER)]


BARRIER = """HloModule m
ENTRY main {
  x = f32[8] parameter(0)
  w = f32[8,8] parameter(1)
  h = f32[8] sine(x), metadata={op_name="jit(f)/jvp()/sin"}
  y = f32[8] dot(h, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/jvp()/dot_general"}
  g = f32[8] cosine(y), metadata={op_name="jit(f)/transpose(jvp())/cos"}
  t = (f32[8], f32[8,8], f32[8]) tuple(h, w, g)
  b = (f32[8], f32[8,8], f32[8]) opt-barrier(t)
  h2 = f32[8] get-tuple-element(b), index=0
  w2 = f32[8,8] get-tuple-element(b), index=1
  g2 = f32[8] get-tuple-element(b), index=2
  y2 = f32[8] dot(h2, w2), lhs_contracting_dims={0}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot_general"}
  ROOT d = f32[8] multiply(y2, g2), metadata={op_name="jit(f)/transpose(jvp())/checkpoint/mul"}
}
"""  # noqa: E501
OUTSIDE = "select kind, name, phase, tuple_index, bytes, bytes_per_iteration from residuals"


def test_a_barrier_holds_a_residual_a_weight_and_a_cotangent() -> None:
    direct = ("direct", "y", "fwd", None, 32, None)
    assert ask(BARRIER, OUTSIDE) == [("barrier", "h", "fwd", 0, 32, None), direct]
    # A barrier that goes to the forward keeps nothing for the backward.
    forward = BARRIER.replace("transpose(jvp())/checkpoint/rematted_computation/", "jvp()/")
    assert "barrier" not in [row[0] for row in ask(forward, OUTSIDE)]
    # Without names nobody knows what is backward.
    assert ask(BARRIER.replace('op_name="', 'op_type="'), OUTSIDE) == []


def test_a_forward_value_that_the_backward_computes_with() -> None:
    around = BARRIER.replace("opt-barrier(t)", "tuple(h, w, g)")
    assert ask(around, OUTSIDE) == [
        ("direct", "h", "fwd", None, 32, None),
        ("direct", "y", "fwd", None, 32, None),
    ]
    # A weight, in another form or not, and a part of one are no values of the forward.
    slices = around.replace("sine(x)", "copy(x)")
    assert [row[1] for row in ask(slices, OUTSIDE)] == ["y"]


def named(tmp_path: Path, text: str, *saved: dict[str, object], known: bool = True) -> object:
    path = tmp_path / "saved_residuals.json"
    path.write_text(json.dumps({"known": known, "how": "a test", "residuals": saved}))
    hlo = tmp_path / "m.hlo"
    hlo.write_text(text)
    program = load(hlo)
    program = Program(program.modules, side_files={path.name: path})
    return run_query([Facts(program)], "select saved_name from residuals").rows


def saved(name: str | None, **more: object) -> dict[str, object]:
    told: dict[str, object] = {"shape": [4, 8], "dtype": "float32", "kind": "name", "repeats": 1}
    return told | {"checkpoint_name": name} | more


def test_names_come_from_the_side_file_where_one_fits(tmp_path: Path) -> None:
    text = loops()
    assert named(tmp_path, text, saved("hidden")) == [("hidden",)]
    argument = saved(None, kind="argument")
    assert named(tmp_path, text, saved("hidden"), argument) == [("hidden",)]
    assert named(tmp_path, text, saved("hidden"), saved("hidden")) == [("hidden",)]
    for nothing in (
        [],
        [saved(None)],
        [saved("hidden"), saved(None)],
        [saved("hidden"), saved("other")],
        [saved("hidden", shape=[8, 4])],
        [saved("hidden", dtype="bfloat16")],
        [{"shape": 4}],
        [saved("hidden", repeats=float("inf"))],
    ):
        assert named(tmp_path, text, *nothing) == [(None,)]
    assert named(tmp_path, text, saved("hidden"), known=False) == [(None,)]
    # A stack that nothing in the backward reads was not saved, whatever its shape.
    assert named(tmp_path, loops(given="ws"), saved("hidden")) == [(None,)]
    # More rows of a shape than jax saved: which is it?
    eight = saved("hidden", shape=[8])
    assert named(tmp_path, BARRIER, eight) == [(None,), (None,)]
    twice = saved("hidden", shape=[8], repeats=2)
    assert named(tmp_path, BARRIER, twice) == [("hidden",), ("hidden",)]
    assert named(tmp_path, BARRIER, eight, eight) == [("hidden",), ("hidden",)]


def test_a_side_file_that_cannot_be_read_names_nothing(tmp_path: Path) -> None:
    hlo, side = tmp_path / "m.hlo", tmp_path / "saved_residuals.json"
    hlo.write_text(loops())
    program = load(hlo)
    for content in ("", "[]", "{", '{"known": true}', '{"known": true, "residuals": 1}'):
        side.write_text(content)
        facts = Facts(Program(program.modules, side_files={side.name: side}))
        assert run_query([facts], "select kind, saved_name from residuals").rows == [
            ("stacked", None)
        ]
        assert not facts.findings


# -- policies and offloads, from the side file ----------------------------------------------------


def found(
    tmp_path: Path, text: str, told: object, *, target: str | None = None
) -> list[tuple[str, str]]:
    """(rule, message) of a program that has `told` beside it."""
    hlo, side = tmp_path / "m.hlo", tmp_path / "saved_residuals.json"
    hlo.write_text(text)
    side.write_text(json.dumps(told))
    files = {side.name: side}
    if target is not None:
        files["provenance.json"] = tmp_path / "provenance.json"
        files["provenance.json"].write_text(json.dumps({"target": {"name": target}}))
    facts = Facts(Program(load(hlo).modules, side_files=files))
    facts.rows("residuals")
    return [(finding.rule, finding.message) for finding in facts.findings]


def region(**more: object) -> dict[str, object]:
    """What a mistyped name gives."""
    typed: dict[str, object] = {
        "function": "layer", "source": "model.py:5", "policy": "SaveOnlyTheseNames",
        "policy_names": ["hiden"], "names": {"hidden": "recomputed"}, "saves": False,
    }  # fmt: skip
    return typed | more


def under(*regions: object, names: tuple[str, ...] = ("hidden",)) -> dict[str, object]:
    return {"checkpoints_known": True, "checkpoint_names": names, "checkpoints": regions}


def test_a_policy_that_saves_nothing(tmp_path: Path) -> None:
    def said(*regions: object, names: tuple[str, ...] = ("hidden",)) -> list[str]:
        findings = found(tmp_path, loops(), under(*regions, names=names))
        assert {rule for rule, _ in findings} <= {"policy-saves-nothing"}
        return [message for _, message in findings]

    assert said(region()) == [
        "the policy SaveOnlyTheseNames of layer (model.py:5) saves nothing:"
        ' it asks for "hiden", and what is named "hidden" is computed again'
    ]
    assert said(region(policy="mine", policy_names=None)) == [
        "the policy mine of layer (model.py:5) saves nothing:"
        ' what is named "hidden" is computed again'
    ]
    # The name is gone from the function.
    assert said(region(names={}), names=("other",)) == [
        "the policy SaveOnlyTheseNames of layer (model.py:5) saves nothing:"
        ' it asks for "hiden", and no value of the program has such a name'
    ]
    assert len(said(region(), region(source="model.py:7"))) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"names": {"hidden": "saved"}},
        {"names": {"hidden": "offloaded"}},
        {"names": {"hidden": None}},  # it does not say
        {"saves": True},  # products, say
        {"saves": None},  # not known
        {"policy": None, "policy_names": None},
        {"policy": "nothing_saveable", "policy_names": None},
        {"policy_names": []},  # made with no name: so it was meant
        {"names": {}, "policy_names": None},
        {"names": {}, "policy_names": ["hidden"]},  # of another region
    ],
    ids=str,
)
def test_a_policy_that_saves_or_is_to_save_nothing(tmp_path: Path, more: dict[str, object]) -> None:
    assert found(tmp_path, loops(), under(region(**more))) == []


def test_one_policy_over_several_regions_need_not_save_in_each(tmp_path: Path) -> None:
    attention = region(policy_names=["context"], names={"context": "saved"}, saves=True)
    mlp = region(policy_names=["context"], names={"up": "recomputed"})
    assert found(tmp_path, loops(), under(attention, mlp)) == []
    other = region(policy_names=["contxt"], names={"up": "recomputed"})
    assert len(found(tmp_path, loops(), under(attention, other))) == 1


def test_regions_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    for told in ([], 1, {"checkpoints": 1}, under("layer"), under(region(names=1)), under({})):
        assert found(tmp_path, loops(), told) == []
    assert found(tmp_path, loops(), {"known": False, "residuals": []}) == []


def hosted(name: str | None = "hidden", **more: object) -> dict[str, object]:
    each = saved(name, offloaded=True, source="model.py:4") | more
    return {"known": True, "how": "a test", "residuals": [each]}


def scheduled(text: str) -> str:
    """It runs as it stands: only then an offload is done, or is not."""
    return text.replace("HloModule m", "HloModule m, is_scheduled=true", 1)


def test_an_offload_that_did_not_happen(tmp_path: Path) -> None:
    text = scheduled(loops())
    message = (
        '"hidden", f32[4,8] (model.py:4) is to be offloaded, but on {} nothing of that dtype and'
        " size is in host memory"
    )
    assert found(tmp_path, text, hosted(), target="tpu:v6e-1") == [
        ("offload-ignored", message.format("tpu:v6e-1"))
    ]
    assert found(tmp_path, text, hosted()) == [("offload-ignored", message.format("this platform"))]
    (finding,) = found(tmp_path, text, hosted(None, source=None), target="cpu")
    assert finding[1].startswith("f32[4,8] is to be offloaded, but on cpu nothing")
    # As jax handed it over it is no sign of anything.
    assert found(tmp_path, loops(), hosted()) == []
    assert found(tmp_path, text, hosted(offloaded=False)) == []
    assert found(tmp_path, text, hosted() | {"known": False}) == []


def test_an_offload_that_happened(tmp_path: Path) -> None:
    text = scheduled(loops())
    assert found(tmp_path, text.replace("f32[4,8] ", "f32[4,8]{1,0:S(5)} "), hosted()) == []
    # In a tuple, or reshaped, it is there as well.
    for shape in ("(f32[32]{0:S(5)}, u32[])", "f32[2,16]{1,0:S(5)}"):
        far = f'  far = {shape} custom-call(s), custom_call_target="Keep"\n  ROOT out ='
        held = text.replace("  ROOT out =", far)
        assert found(tmp_path, held, hosted()) == []
        assert len(found(tmp_path, held.replace("S(5)", "S(1)"), hosted())) == 1
        assert len(found(tmp_path, held, hosted(dtype="int32"))) == 1
        assert len(found(tmp_path, held, hosted(shape=[8, 8]))) == 1


def test_of_several_devices_one_holds_a_part_in_host_memory(tmp_path: Path) -> None:
    text = scheduled(loops()).replace("f32[4,8] ", "f32[4,8]{1,0:S(5)} ")
    parted = text.replace("is_scheduled=true", "is_scheduled=true, num_partitions=8", 1)
    whole = hosted(shape=[4, 64])
    assert found(tmp_path, parted, whole) == []
    assert len(found(tmp_path, text, whole)) == 1
    assert len(found(tmp_path, parted, hosted(shape=[4, 9]))) == 1


def test_the_table_under_rewrites() -> None:
    check_table(loops(), "residuals")
    check_table(loops("row"), "residuals")
    check_table(loops(given="ws", returned=True), "residuals")
    check_table(SHARED, "residuals")
    # Without names, what goes to the backward outside of loops is not known: SQL is not stripped.
    check_table(BARRIER, "select kind, shape, bytes, offloaded from residuals order by kind, bytes")
    check_table(loops(forward=FWD, backward=BWD), WHAT)


# -- published cases, fixtures and real dumps -----------------------------------------------------


@needs_shared
def test_what_the_cases_keep() -> None:
    (outputs,) = texts("cases/31-*.hlo")
    joined = (
        "select r.kind, r.tuple_index, r.shape, r.bytes, p.name, i.name from residuals r"
        " join instructions p on p.instr = r.producer"
        " left join instructions i on i.instr = r.input"
    )
    assert ask_file(outputs, joined) == [
        ("copy_of_input", 2, "bf16[4,32,32]", 8192, "w.1", "ws.3"),
        ("unread", 4, "bf16[4,8,32]", 2048, "d.1", None),
    ]
    kinds = [ask_file(path, "select kind from residuals") for path in texts("cases/33*.hlo")]
    assert kinds == [[("stacked",)] * 2, [("stacked",)]]
    (offload,) = texts("cases/17-*.hlo")
    moved = "select kind, name, offloaded from residuals"
    assert ask_file(offload, moved) == [("barrier", "cos.1", 1), ("barrier", "keep.1", 1)]


def test_the_page_shows_what_its_commands_print() -> None:
    blocks = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(blocks) == 3
    for block in blocks:
        with at_root():
            assert block["output"] == output_of(block["command"], block["lines"])


SCANNED = sorted(path.parent for path in REMAT.glob("*-scanned/*/saved_residuals.json"))


@pytest.mark.parametrize("folder", SCANNED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_stacked_residuals_are_those_jax_saved(folder: Path) -> None:
    told = json.loads((folder / "saved_residuals.json").read_text(encoding="utf-8"))
    expected = Counter(
        # XLA for the CPU leaves values that are to be offloaded where they are.
        (each["bytes"], each["offloaded"] and folder.name != "cpu")
        for each in told["residuals"]
        if each["kind"] != "argument"
    )
    facts = Facts(load(folder))
    for module in (0, 1):
        sql = f"select bytes, offloaded from residuals where kind = 'stacked' and module = {module}"
        assert Counter(run_query([facts], sql).rows) == expected
    assert not run_query([facts], "select 1 from residuals where kind in ('ys', 'unread')").rows


FOLDERS = sorted(path.parent for path in REMAT.glob("*/*/saved_residuals.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_findings_of_the_fixtures(folder: Path) -> None:
    case = folder.parent.name.removesuffix("-scanned")
    facts = Facts(load(folder))
    facts.rows("residuals")
    expected = []
    if case == "mistyped":
        expected = ["policy-saves-nothing"]
    elif case == "offload" and folder.name == "cpu":
        expected = ["offload-ignored"]
    assert [finding.rule for finding in facts.findings] == expected


def test_an_ignored_offload_shows_the_rows_of_its_shape() -> None:
    sql = (
        "select r.kind, r.shape, r.offloaded from findings f, json_each(f.evidence) e"
        " join residuals r on r.module = f.module and r.id = json_extract(e.value, '$[1]')"
        " where f.rule = 'offload-ignored'"
    )
    facts = Facts(load(REMAT / "offload-scanned" / "cpu"))
    assert run_query([facts], sql).rows == [("stacked", "bf16[4,64,128]", 0)] * 2


def test_a_value_saved_twice_is_stacked_twice() -> None:
    for target in ("cpu", "tpu-v6e-1", "cuda-h100", "rocm-gfx950"):
        folder = REMAT / "twice-scanned" / target
        told = json.loads((folder / "saved_residuals.json").read_text(encoding="utf-8"))
        kinds = [each["kind"] for each in told["residuals"]]
        assert kinds == ["name", "dot_general", "carry", "argument"]
        sql = "select count(*) from residuals where kind = 'stacked' and shape = 'bf16[4,64,128]'"
        assert run_query([Facts(load(folder, stage="after_optimizations"))], sql).rows == [(3,)]


UNROLLED = sorted(
    path.parent
    for path in REMAT.glob("*/*/saved_residuals.json")
    if not path.parent.parent.name.endswith(("-scanned", "-grad"))
)


@pytest.mark.parametrize("folder", UNROLLED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_values_of_an_unrolled_program_are_those_jax_saved(folder: Path) -> None:
    """Before optimization; afterwards a fusion has one name for forward and backward."""
    told = json.loads((folder / "saved_residuals.json").read_text(encoding="utf-8"))
    expected = Counter(
        (each["bytes"], each["offloaded"] and folder.name != "cpu")
        for each in told["residuals"]
        if each["kind"] not in ("argument", "squeeze")  # squeeze: the weight of a layer
    )
    kind = "direct" if folder.parent.name in ("none", "half") else "barrier"
    sql = f"select bytes, offloaded from residuals where kind = '{kind}' and module = 0"
    assert Counter(run_query([Facts(load(folder))], sql).rows) == expected


# Measured by hand: 5.71 GB, 940 MB, 67 MB. The first holds seven copies of weights.
DUMPS = [
    ("v6e_2x4.none.opt.hlo", 5_639_536_640, 67_108_864),
    ("v6e_2x4.minimal_with_context.opt.hlo", 939_524_096, None),
    ("v6e_2x4.full.opt.hlo", 67_108_864, None),
]


@needs_shared
@pytest.mark.parametrize(("name", "stacked", "copies"), DUMPS, ids=lambda value: str(value))
def test_what_a_policy_stacks_on_a_tpu(name: str, stacked: int, copies: int | None) -> None:
    (path,) = unpacked("dumps/tpu-maxtext.tar.xz").rglob(name)
    total = "select sum(bytes) from residuals where kind = "
    assert ask_file(path, f"{total}'stacked'") == [(stacked,)]
    assert ask_file(path, f"{total}'copy_of_input'") == [(copies,)]
