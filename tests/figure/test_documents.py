"""The handed fixtures, drawn: each figure shows what the documents say of it, by name and shape.

The documents drew these by a script with the names typed in; here they come from the text.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from hlo_lens.figure import Cluster, Edge, Node, Panel, draw
from hlo_lens.figure.lanes import Lanes
from hlo_lens.program import load
from tests.shared import SHARED, needs_shared

pytestmark = needs_shared


def drawn(name: str, view: str, **more: object) -> Panel:
    """The view of a handed fixture."""
    assert SHARED is not None
    (panel,) = draw(load(SHARED / "gfx950" / name), view=view, **more).panels  # type: ignore[arg-type]
    assert isinstance(panel, Panel)
    return panel


def nodes(panel: Panel) -> dict[str, Node]:
    """The drawn instructions by name."""
    return {node.name: node for node in panel.nodes}


def shape(panel: Panel, name: str) -> str:
    """A drawn instruction's shape as the text has it, without its layout."""
    return re.sub(r"\{[^{}]*\}|/\*.*?\*/", "", nodes(panel)[name].instr.shape_text)


def edges(panel: Panel) -> dict[tuple[str, str], Edge]:
    """The drawn edges by the names of their ends."""
    by_id = {node.id: node.name for node in panel.nodes}
    return {(by_id[edge.source], by_id[edge.target]): edge for edge in panel.edges}


def is_direct(panel: Panel, source: str, target: str) -> bool:
    """Whether an operand of `target` is `source`, but for tuples."""
    return not edges(panel)[source, target].left_out


def framed(panel: Panel, label: str) -> list[set[str]]:
    """The names inside each frame whose label begins like this."""
    names = {node.id: node.name for node in panel.nodes}

    def inside(clusters: tuple[Cluster, ...]) -> list[set[str]]:
        found = []
        for one in clusters:
            if one.label and one.label[0].startswith(label):
                found.append({names[id] for id in one.all_nodes()})
            found += inside(one.clusters)
        return found

    return inside(panel.clusters)


def roles(panel: Panel) -> dict[str, str]:
    """Role → the instruction that has it, of roles that one has."""
    found: dict[str, list[str]] = {}
    for node in panel.nodes:
        for role in node.roles:
            found.setdefault(role, []).append(node.name)
    return {role: names[0] for role, names in found.items() if len(names) == 1}


def test_without_remat_a_kept_tanh_feeds_the_subtraction_at_once() -> None:
    panel = drawn("remat/none", "remat")
    assert is_direct(panel, "tanh.3", "sub.3")
    assert "kept for backward" in nodes(panel)["tanh.3"].roles
    assert not framed(panel, "checkpoint")
    assert all(node.phase != "remat" for node in panel.nodes)


def test_full_remat_goes_through_the_barrier_and_computes_again() -> None:
    panel = drawn("remat/full", "remat")
    assert shape(panel, "remat2.10") == "(bf16[64,128], bf16[128,128], bf16[64,128])"
    way = ["tanh.4", "remat2.10", "remat2.11", "dot_general.9", "tanh.6"]
    for source, target in pairwise(way):
        assert is_direct(panel, source, target), (source, target)
    assert nodes(panel)["remat2.11"].instr.opcode == "opt-barrier"
    for name in ("dot_general.9", "tanh.6"):
        assert nodes(panel)[name].phase == "remat"
        assert "checkpoint/rematted_computation" in (nodes(panel)[name].instr.op_name or "")
    first, _ = framed(panel, "checkpoint")
    assert first >= {"remat2.11", "dot_general.9", "tanh.6"}
    assert "remat2.10" not in first
    assert "tanh.4" in set().union(*framed(panel, "forward pass"))


def test_attention_of_xla_is_products_and_a_softmax_in_f32() -> None:
    panel = drawn("attention/xla", "attention")
    by_role = roles(panel)
    assert (by_role["Q·Kᵀ"], by_role["P·V"]) == ("dot_general.2", "dot_general.3")
    softmax = ["reduce_max.7", "exp.1", "reduce_sum.7", "div.7"]
    assert [by_role[role] for role in ("max", "exp", "sum", "div")] == softmax
    assert nodes(panel)[by_role["mask"]].instr.opcode == "select"
    rows, scores = "f32[1,1,8,128]", "f32[1,1,8,128,128]"
    assert [shape(panel, name) for name in softmax] == [rows, scores, rows, scores]
    assert shape(panel, by_role["mask"]) == scores
    way = ["dot_general.2", "mul.3", by_role["mask"], "reduce_max.7", "max.3", "sub.7"]
    assert set(pairwise([*way, *softmax[1:], "dot_general.3"])) <= set(edges(panel))
    for name in ("q.1", "k.1", "v.1"):
        assert shape(panel, name) == "bf16[1,128,8,64]"


def test_attention_of_transformer_engine_is_one_call_with_its_results() -> None:
    panel = drawn("attention/te", "attention")
    call = roles(panel)["attention kernel"]
    assert nodes(panel)[call].instr.custom_call_target == "te_fused_attn_forward_ffi"
    assert shape(panel, call) == "(bf16[1,128,8,64], f32[1,8,128,1], u32[2,4], u8[1])"
    for number, name in enumerate(("q.1", "k.1", "v.1")):
        assert edges(panel)[name, call].operand == number
    assert not {"dot", "exponential", "reduce"} & {node.instr.opcode for node in panel.nodes}


def test_dense_masked_experts_have_an_output_for_every_token() -> None:
    panel = drawn("moe/dense-masked", "moe")
    assert shape(panel, "dot_general.2") == "bf16[64,4,128]"
    assert nodes(panel)["dot_general.2"].roles == ("expert product",)
    assert is_direct(panel, "tokens.1", "dot_general.2")


def test_fixed_capacity_dispatches_multiplies_and_combines() -> None:
    panel = drawn("moe/fixed-capacity", "moe")
    way = ["dot_general.3", "dot_general.4", "dot_general.5"]
    assert [nodes(panel)[name].roles for name in way] == [
        ("dispatch",), ("expert product",), ("combine",),
    ]  # fmt: skip
    assert shape(panel, "dot_general.3") == "bf16[4,16,128]"
    assert is_direct(panel, *way[:2])
    assert is_direct(panel, *way[1:])


def test_a_padded_ragged_dot_masks_multiplies_all_groups_and_sums_them() -> None:
    panel = drawn("moe/ragged-padded", "ragged", radius=2)
    by_role = roles(panel)
    mask, dot, total = (
        by_role[role] for role in ("masks rows of other groups", "dense product", "sums the groups")
    )
    (masking,) = framed(panel, "%loop_transpose_fusion ")
    assert mask in masking
    assert framed(panel, "%gemm_fusion_dot.2 ") == [{dot}]
    assert shape(panel, dot) == "f32[8,64,128]"
    assert framed(panel, "%loop_reduce_fusion ") == [{total}]
    assert {(mask, dot), (dot, total)} <= set(edges(panel))
    assert shape(panel, "group_sizes.1") == "s32[4]"


def test_a_grouped_ragged_dot_is_one_call_with_its_group_sizes_and_workspace() -> None:
    panel = drawn("moe/ragged-grouped", "ragged")
    call = roles(panel)["grouped GEMM"]
    assert nodes(panel)[call].instr.custom_call_target == "__cublas$lt$groupedMatmul"
    assert shape(panel, call) == "(f16[64,128], s8[784])"
    assert {source: edge.operand for (source, _), edge in edges(panel).items()} == {
        "tokens.1": 0, "experts.1": 1, "group_sizes.1": 2,
    }  # fmt: skip
    assert shape(panel, "group_sizes.1") == "s32[4]"


def test_a_sharded_weight_is_gathered_for_its_dot() -> None:
    panel = drawn("sharding/fsdp", "collectives")
    assert nodes(panel)["all-gather"].family == "communication"
    assert is_direct(panel, "all-gather", "dot")
    assert "first use" in nodes(panel)["dot"].roles
    assert is_direct(panel, "param.1", "all-gather")


@pytest.mark.parametrize(("name", "kind"), [("off", "synchronous"), ("on", "hidden")])
def test_latency_hiding_puts_a_product_between_start_and_done(name: str, kind: str) -> None:
    assert SHARED is not None
    (panel,) = draw(load(SHARED / "gfx950" / "lhs" / name), view="overlap").panels
    assert isinstance(panel, Lanes)
    (bar,) = panel.bars
    assert bar.kind == kind
    between = panel.steps[bar.first + 1 : bar.last]
    assert [step.heavy for step in between] == ([1] if kind == "hidden" else [])


def test_figures_of_the_documents_are_the_same_bytes_each_time() -> None:
    assert SHARED is not None
    folders = [SHARED / "gfx950" / "remat" / name for name in ("none", "full")]
    first, second = (
        draw([load(folder) for folder in folders], view="remat").dot() for _ in range(2)
    )
    assert first == second
