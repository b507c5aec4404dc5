"""The reader: one small text for each feature of the grammar."""

from __future__ import annotations

import pytest

from hlo_lens.hlo import parse
from tests.hlo.features import FEATURES, SUM, outline


@pytest.mark.parametrize("name", FEATURES)
def test_feature(name: str) -> None:
    feature = FEATURES[name]
    assert outline(parse(feature.text)) == feature.outline


def one(line: str, *, before: str = ""):
    """The last instruction of a computation that has parameter `p` and then `line`."""
    module = parse(
        f"HloModule m\n{SUM}ENTRY e {{\n  p = f32[4] parameter(0)\n{before}  {line}\n}}\n"
    )
    return module.entry.instructions[-1]


# -- module and header ----------------------------------------------------------------------------


def test_header_keeps_every_key_in_order() -> None:
    module = parse(FEATURES["unknown header keys"].text)
    assert dict(module.header) == {
        "some_future_key": "{a={b}, c}",
        "is_scheduled": "true",
        "other": "7",
    }
    assert module.is_scheduled
    assert module.name == "m"


def test_header_without_counts_says_so() -> None:
    module = parse("HloModule m\nENTRY e { ROOT x = f32[] constant(1) }")
    assert not module.is_scheduled
    assert module.num_partitions is None
    assert module.replica_count is None
    assert module.input_output_alias == ()


def test_header_aliases() -> None:
    module = parse(FEATURES["header with aliases and donors"].text)
    assert (module.replica_count, module.num_partitions) == (2, 4)
    assert [
        (each.output_index, each.parameter, each.parameter_index, each.kind)
        for each in module.input_output_alias
    ] == [((0,), 0, (), "may-alias"), ((1,), 1, (), "must-alias")]


def test_a_text_without_a_header_is_named_after_its_entry() -> None:
    assert parse(FEATURES["no header, with ENTRY"].text).name == "module_main"


def test_log_prefixes_are_noted() -> None:
    module = parse(FEATURES["log prefixes"].text)
    assert [repair.kind for repair in module.repairs] == ["log-prefix"]


def test_a_whole_text_has_no_repairs() -> None:
    for name, feature in FEATURES.items():
        if feature.xla and "ENTRY" in feature.text:
            assert parse(feature.text).repairs == (), name


def test_execution_thread() -> None:
    module = parse(FEATURES["execution thread"].text)
    assert module.computations["host"].execution_thread == "host"
    assert module.entry.execution_thread is None


def test_stack_frames_resolve_innermost_first() -> None:
    module = parse(FEATURES["stack-frame tables"].text)
    frames = module.frames.stack(2)
    assert [(each.file, each.function, each.line, each.column) for each in frames] == [
        ("dir with space/b.py", "Block.__call__", 20, 4),
        ("a.py", "main", 10, 2),
    ]
    assert module.entry.instructions["n"].source == "dir with space/b.py:20"


def test_a_frame_is_no_name() -> None:
    text = FEATURES["stack-frame tables"].text
    without = parse(text.replace('op_name="jit(f)/neg" ', "")).entry.instructions["n"]
    assert (without.op_name, without.source) == (None, "dir with space/b.py:20")
    escaped = parse(text.replace("jit(f)/neg", "a[\\'b\\']")).entry.instructions["n"]
    assert (escaped.op_name, escaped.source) == ("a['b']", "dir with space/b.py:20")


# -- looking things up ----------------------------------------------------------------------------


def test_comments_may_stand_in_brackets_and_tables() -> None:
    module = parse("""HloModule m
FileNames
1 // the first {
  "a.py"
2 /*}*/ "b.py"
ENTRY e {
  p = f32[2] parameter(0)
  ROOT r = f32[2] add(p, // not ")
    p), metadata={ // nor "}
      op_name="a"}, backend_config={u=http://x}, a=1
}
""")
    assert module.frames_text.count(".py") == 2
    assert [each.name for each in module.entry.root.operands] == ["p", "p"]
    assert module.entry.root.tail.endswith(", a=1")


@pytest.mark.parametrize("fast", [True, False])
def test_an_instruction_may_follow_a_brace_at_once(fast: bool) -> None:
    text = """HloModule m

ENTRY %e (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %b = f32[] broadcast(%p), dimensions={}%c = f32[] negate(%p)
  ROOT %r = f32[] add(%p, %p)
}
"""
    assert list(parse(text, fast=fast).entry.names) == ["p", "b", "c", "r"]


def test_lookup_by_name_with_and_without_percent() -> None:
    module = parse(FEATURES["long form"].text)
    assert module.computations["main"] is module.computations["%main"]
    assert module.computations.get("nowhere") is None
    assert "%main" in module.computations
    assert "nowhere" not in module.computations
    entry = module.entry
    assert entry.instructions["n"] == entry.instructions["%n"] == entry.instructions[1]
    assert entry.instructions.get("%z") is None
    assert "n" in entry.instructions
    assert "%z" not in entry.instructions
    with pytest.raises(KeyError):
        module.computations["nowhere"]
    with pytest.raises(KeyError):
        entry.instructions["z"]


def test_ids_run_over_the_module_in_text_order() -> None:
    module = parse(FEATURES["reduce"].text)
    assert module.instruction_count == 6
    every = [each for computation in module.computations for each in computation.instructions]
    assert [each.id for each in every] == list(range(6))
    assert [module.instruction(number) for number in range(6)] == every
    assert module.entry.first_id == 3


def test_users_and_flat_columns() -> None:
    entry = parse(FEATURES["async collectives with opcodes of their own"].text).entry
    assert [each.name for each in entry.instructions["p"].users] == ["g", "r", "c", "k"]
    assert entry.opcodes[1] == "all-gather-start"
    assert entry.shape_texts[1] == "(f32[2], f32[4])"
    assert entry.tails[1] == ", replica_groups={{0,1}}, dimensions={0}"
    assert entry.operand_indices(9) == (2, 4, 6, 8)
    assert entry.user_indices(0) == (1, 3, 5, 7)


def test_implied_elements_are_reachable_and_no_rows() -> None:
    entry = parse(FEATURES["tuple elements by #"].text).entry
    assert len(entry.instructions) == 2
    first, second = entry.instructions["a"].operands
    assert (first.implied, first.opcode, first.tuple_index) == (True, "get-tuple-element", 0)
    assert second.tuple_index == 1
    assert second.operands[0].implied
    assert second.operands[0].operands == (entry.instructions["p"],)
    assert str(second.shape) == "f32[2]"
    assert all(index < 0 for index in entry.operand_indices(1))
    assert first.computation is entry


def test_sugar_implies_a_computation_that_is_no_row() -> None:
    module = parse(FEATURES["async sugar with two operands"].text)
    assert [each.name for each in module.computations] == ["e"]
    start = module.entry.instructions["s"]
    (callee,) = start.called
    assert callee.implied
    assert start.base_opcode == "async-start"
    assert module.entry.instructions["d"].base_opcode == "async-done"
    assert callee.root.opcode == "add"
    assert [each.opcode for each in callee.root.operands] == ["parameter", "parameter"]
    assert str(callee.root.shape) == "f32[2]"


def test_root_and_parameters() -> None:
    entry = parse(
        "ENTRY e { b = f32[2] parameter(1)\n a = f32[] parameter(0)\n ROOT c = f32[] copy(a)\n"
        " d = f32[2] copy(b) }"
    ).entry
    assert entry.root.name == "c"
    assert [each.name for each in entry.parameters] == ["a", "b"]
    assert entry.instructions["b"].parameter_number == 1


def test_cursors_are_equal_by_position() -> None:
    entry = parse(FEATURES["long form"].text).entry
    assert entry.instructions[0] == entry.instructions["p"]
    assert len({entry.instructions[0], entry.instructions["p"], entry.instructions["n"]}) == 2


def test_text_and_line_of_an_instruction() -> None:
    entry = parse(FEATURES["an instruction over several lines"].text).entry
    assert entry.instructions["n"].text_line == 6
    assert entry.instructions["n"].text == 'ROOT %n = f32[] negate(%p), metadata={ op_name="x" }'
    assert entry.text_line == 1


def test_reprs_stay_small() -> None:
    module = parse("ENTRY e { ROOT x = f32[4000] constant({" + ", ".join("1" * 4000) + "}) }")
    for each in (module, module.entry, module.entry.root):
        assert len(repr(each)) < 200


# -- attributes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("channel_id=7, index=3", {"channel_id": "7", "index": "3"}),
        ("epsilon=1e-05, is_stable=true", {"epsilon": "1e-05", "is_stable": "true"}),
        ("dimensions={0,1}, slice={[0:4], [1:8:2]}", None),
        ("custom_call_target=\"a, b={}\", x='}, y='", None),
        ("source_target_pairs={{0,1},{1,0}}, dim_labels=b01f_01io->b01f", None),
        ("window={size=3x3 pad=0_1x-1_0}, padding=0_0_0x-1_2_1", None),
        ("replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true", None),
        ("replica_groups=mesh['a'=2,'b'=4] {'b':(1)2}, channel_id=1", None),
        ("replica_groups=mesh['a'=2], device_ids=([2]T(0)) {'a'}, channel_id=1", None),
        ('sharding={{replicated}, /*index=5*/ {devices=[2,1]<=[2] metadata={op_name="}"}}}', None),
        ("output_to_operand_aliasing={{}: (0, {}), {1}: (2, {0})}", None),
        ("operand_layout_constraints={f32[2]{0}, (s32[], f32[1,2]{1,0:T(2,128)})}", None),
        ("literal=s32[2]{0} {1, 2}, outfeed_shape=(f32[2]{0}, s32[])", None),
        ('backend_config={"a":"}","b":[1,{"c":2}]}, metadata={op_name="x"}', None),
        ("backend_config={grid_x = 1 : i32, a = array<i64: 1, 0>, d = dense<[0, 1]>}", None),
        ("backend_config={broadcast_dimensions=[0,1]}, k=1", None),
        ('frontend_attributes={a="x",_x-y.z={b={}}}, statistics={stat-1=33,s=4.5}', None),
        ('origin={({"v1" {0}}, {"v2"})}, result_accuracy={tolerance={atol=1,rtol=2}}', None),
        ("api_version=API_VERSION_TYPED_FFI, algorithm=dot_bf16_bf16_f32_x3", None),
        ("direction=EQ, type=TOTALORDER, kind=kLoop, fft_type=RFFT", None),
        ("new_thing=(a, [b, c]), other=x_1-2.3", None),
        ('domain={kind="sharding", entry={replicated}, exit={maximal device=0}}', None),
        ("control-predecessors={%p}", None),
    ],
)
def test_attributes_are_kept_raw_and_in_order(
    attributes: str, expected: dict[str, str] | None
) -> None:
    found = one(f"ROOT r = f32[4] whatever(p), {attributes}").attributes
    if expected is not None:
        assert dict(found) == expected
    assert ", ".join(f"{key}={value}" for key, value in found.items()) == attributes


def test_attribute_values_by_kind() -> None:
    found = one(
        "ROOT r = f32[4] whatever(p), channel_id=7, dimensions={0,1}, is_stable=true, empty={}"
    )
    assert found.channel_id == found.int_attribute("channel_id") == 7
    assert found.ints_attribute("dimensions") == (0, 1)
    assert found.ints_attribute("empty") == ()
    assert found.bool_attribute("is_stable") is True
    assert found.bool_attribute("largest") is None
    assert found.int_attribute("nothing") is None


def test_metadata() -> None:
    found = one(
        'ROOT r = f32[4] negate(p), metadata={op_type="neg" op_name="jit(f)/\\"x\\"/\\303\\251"'
        ' source_file="/a b.py" source_line=12 deduplicated_name="d"}'
    )
    assert found.op_name == found.metadata.op_name == 'jit(f)/"x"/é'
    assert found.metadata.op_type == "neg"
    assert found.source == "/a b.py:12"
    assert found.metadata.deduplicated_name == "d"
    assert found.computation.module.has_metadata


def test_no_metadata_is_none() -> None:
    found = one("ROOT r = f32[4] negate(p)")
    assert found.op_name is None
    assert found.metadata is None
    assert found.backend_config is None
    assert found.sharding is None
    assert found.replica_groups is None
    assert found.source is None
    assert not found.computation.module.has_metadata


@pytest.mark.parametrize(
    ("config", "kind", "path", "value"),
    [
        ('{"a":{"b":[1,"}"]}}', "json", ("a", "b"), [1, "}"]),
        ('"{\\"a\\": 2}"', "json", ("a",), 2),
        ('{grid_x = 1 : i32, name = "fa"}', "mlir", ("grid_x",), 1),
        ("{broadcast_dimensions=[0,1]}", "mlir", ("broadcast_dimensions",), [0, 1]),
    ],
)
def test_backend_config(config: str, kind: str, path: tuple[str, ...], value: object) -> None:
    found = one(f'ROOT r = f32[4] custom-call(p), custom_call_target="t", backend_config={config}')
    assert found.backend_config.kind == kind
    assert found.backend_config.get(*path) == value


def test_custom_call_target_with_quotes() -> None:
    assert one('ROOT r = f32[4] custom-call(p), custom_call_target="a\\"b"').custom_call_target == (
        'a"b'
    )
    assert one("ROOT r = f32[4] custom-call(p), custom_call_target='a\"b'").custom_call_target == (
        'a"b'
    )


@pytest.mark.parametrize(
    ("groups", "form", "expected"),
    [
        ("{}", "list", ()),
        ("{{0,1},{2,3}}", "list", ((0, 1), (2, 3))),
        ("[2,2]<=[4]", "iota", ((0, 1), (2, 3))),
        ("[2,4]<=[4,2]T(1,0)", "iota", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['a'=2,'b'=2] {'a'}", "mesh", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'b'}", "mesh", ((0, 1), (2, 3))),
    ],
)
def test_replica_groups(groups: str, form: str, expected: tuple[tuple[int, ...], ...]) -> None:
    found = one(f"ROOT r = f32[4] all-reduce(p), replica_groups={groups}, to_apply=sum")
    assert (found.replica_groups.form, found.replica_groups.groups) == (form, expected)


def test_called_by_keeps_the_attribute_names() -> None:
    entry = parse(FEATURES["while"].text).entry
    assert {
        key: [each.name for each in value]
        for key, value in entry.instructions["w"].called_by.items()
    } == {
        "condition": ["cond"],
        "body": ["body"],
    }
    assert [each.name for each in entry.instructions["w"].called] == ["cond", "body"]


def test_control_predecessors() -> None:
    entry = parse(FEATURES["control predecessors"].text).entry
    assert entry.instructions["b"].control_predecessors == (
        entry.instructions["a"],
        entry.instructions["p"],
    )
    assert entry.instructions["b"].operands == (entry.instructions["p"],)


# -- constants and shapes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "literal", "scalar"),
    [
        ("f32[]", "-1.5e-3", -0.0015),
        ("pred[]", "true", True),
        ("pred[]", "0", False),
        ("s32[]", "-42", -42),
        ("u64[]", "18446744073709551615", 2**64 - 1),
        ("f32[]", "-inf", float("-inf")),
        ("c64[]", "(1, -2)", complex(1, -2)),
    ],
)
def test_scalar_literals(shape: str, literal: str, scalar: object) -> None:
    found = one(f"ROOT c = {shape} constant({literal})").literal
    assert found.scalar == scalar
    assert not found.elided


def test_array_literals() -> None:
    found = one("ROOT c = s32[2,2] constant({ /*i0=0*/ { 1 2 }, /*i0=1*/ { 3, 4 } })").literal
    assert list(found.values()) == [1, 2, 3, 4]
    assert found.scalar is None


def test_elided_literals_are_not_made() -> None:
    found = one("ROOT c = f32[1000000000] constant({...})").literal
    assert found.elided
    assert found.scalar is None


def test_shapes() -> None:
    entry = parse(FEATURES["layouts with tiles and memory spaces"].text).entry
    assert entry.instructions["a"].shape.memory_space == 1
    assert entry.instructions["a"].shape.bytes == 8 * 128 * 2
    assert entry.instructions["c"].shape.bytes == 5
    tuple_shape = parse(FEATURES["tuple-shaped operands"].text).entry.instructions["p"].shape
    assert [leaf.dtype for leaf in tuple_shape.leaves()] == ["f32", "s32", "pred"]


def test_a_shape_left_out_is_inferred_or_empty() -> None:
    """No text, no shape: what isn't written isn't invented."""
    entry = parse(FEATURES["shape left out"].text).entry
    assert entry.instructions["n"].shape_text == ""
