"""The moe table: programs of many layers, and those that are damaged."""

from __future__ import annotations

import cProfile
import pstats

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.findings import PASS_FAILED
from hlo_lens.hlo import parse
from hlo_lens.program import Program
from tests.passes.asking import ask, findings

REGIONS = """less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
plus {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b)
}
"""
WEIGHTS = {
    "wr": "f32[8,3]", "gate": "f32[3,8,5]", "up": "f32[3,8,5]", "down": "f32[3,5,8]",
    "wq": "f32[8,8]", "wo": "f32[8,8]",
}  # fmt: skip
# Of each layer: a product beside the experts, a router, and what it chooses.
START = """
  q@ = f32[6,8] dot(x@, wq@), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a@ = f32[6,8] tanh(q@)
  o@ = f32[6,8] dot(a@, wo@), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  in@ = f32[6,8] add(x@, o@)
  scores@ = f32[6,3] dot(in@, wr@), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  top@ = (f32[6,2], s32[6,2]) topk(scores@), k=2, largest=true
  gates@ = f32[6,2] get-tuple-element(top@), index=0
  chosen@ = s32[6,2] get-tuple-element(top@), index=1
"""
RAGGED = (
    START
    + """
  flat@ = s32[12] reshape(chosen@)
  order@ = (s32[12], s32[12]) sort(flat@, places), dimensions={0}, to_apply=less
  by@ = s32[12] get-tuple-element(order@), index=1
  token@ = s32[12] divide(by@, twos)
  rows@ = f32[12,8] gather(in@, token@), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
  at@ = s32[12,1] reshape(flat@)
  sizes@ = s32[3] scatter(none, at@, ones), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=plus
  g@ = f32[12,5] ragged-dot(rows@, gate@, sizes@), lhs_contracting_dims={1},
    rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
  u@ = f32[12,5] ragged-dot(rows@, up@, sizes@), lhs_contracting_dims={1},
    rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
  s@ = f32[12,5] logistic(g@)
  h@ = f32[12,5] multiply(s@, u@)
  d@ = f32[12,8] ragged-dot(h@, down@, sizes@), lhs_contracting_dims={1},
    rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
  back@ = f32[12,8] gather(d@, by@), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
  each@ = f32[6,2,8] reshape(back@)
  y@ = f32[6,8] dot(each@, gates@), lhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
"""
)
DENSE = (
    START
    + """
  both@ = s32[6,2,3] broadcast(chosen@), dimensions={0,1}
  hit@ = pred[6,2,3] compare(all, both@), direction=EQ
  hot@ = f32[6,2,3] convert(hit@)
  mask@ = f32[6,3] dot(hot@, gates@), lhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  g@ = f32[6,3,5] dot(in@, gate@), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  u@ = f32[6,3,5] dot(in@, up@), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  s@ = f32[6,3,5] logistic(g@)
  h@ = f32[6,3,5] multiply(s@, u@)
  d@ = f32[3,6,8] dot(h@, down@), lhs_batch_dims={1}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  y@ = f32[6,8] dot(d@, mask@), lhs_batch_dims={1}, lhs_contracting_dims={0},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
"""
)
CONSTANTS = """
  places = s32[12] iota(), iota_dimension=0
  all = s32[6,2,3] iota(), iota_dimension=2
  two = s32[] constant(2)
  twos = s32[12] broadcast(two), dimensions={}
  zero = s32[] constant(0)
  none = s32[3] broadcast(zero), dimensions={}
  one = s32[] constant(1)
  ones = s32[12] broadcast(one), dimensions={}
"""


def unrolled(layer: str, count: int) -> str:
    """`count` layers one after the other, each added to what the ones before it gave."""
    lines = [CONSTANTS, "  x0 = f32[6,8] parameter(0)\n"]
    parameter = 0
    for at in range(count):
        for name, shape in WEIGHTS.items():
            parameter += 1
            lines.append(f"  {name}{at} = {shape} parameter({parameter})\n")
        lines.append(layer.replace("@", f"{at}"))
        root = "ROOT " if at == count - 1 else ""
        lines.append(f"  {root}x{at + 1} = f32[6,8] add(in{at}, y{at})\n")
    return f"HloModule m\n{REGIONS}ENTRY main {{{''.join(lines)}}}\n"


NINES = f"broadcast(chosen0), dimensions={{{'9' * 5000}}}"
LAYERS = {"ragged": (RAGGED, 12), "dense_masked": (DENSE, 6)}


@pytest.mark.parametrize("path", LAYERS)
def test_layers_that_add_up_are_apart(path: str) -> None:
    layer, rows = LAYERS[path]
    found = ask(unrolled(layer, 3), "select path, experts, top_k, gated, gemm_flops from moe")
    assert found == [(path, 3, 2, 1, 3 * 2 * 8 * 5 * rows * (1 if path == "ragged" else 3))] * 3
    roles = """select count(*) from members where "table" = 'moe' and role = 'combine'"""
    assert ask(unrolled(layer, 3), roles) == [(3,)]


@pytest.mark.parametrize("path", LAYERS)
def test_work_grows_as_the_layers(path: str) -> None:
    few, many = (_calls(unrolled(LAYERS[path][0], count)) for count in (16, 64))
    assert many < 5.5 * few


def _calls(text: str) -> int:
    """How many functions are called to find the blocks."""
    facts = Facts(Program([parse(text)]))
    for table in ("matmuls", "ragged_dots", "collectives"):
        facts.records(table)
    profile = cProfile.Profile()
    profile.enable()
    facts.records("moe")
    profile.disable()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "damaged"),
    [
        ("broadcast(chosen0), dimensions={0,1}", "broadcast(chosen0), dimensions={-999,1}"),
        ("broadcast(chosen0), dimensions={0,1}", NINES),
        ("f32[6,8] dot(a0,", "(f32[6,8],{0}) dot(a0,"),
        ("rhs_contracting_dims={1}\n  s0", "rhs_contracting_dims={-1}\n  s0"),
        ("dot(in0, gate0)", "dot(in0)"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_does_not_fail(text: str, damaged: str) -> None:
    whole = unrolled(DENSE, 1)
    assert text in whole
    found = findings(whole.replace(text, damaged), "moe")
    assert [one for one in found if one[0] == PASS_FAILED.id] == []
