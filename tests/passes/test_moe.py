"""The moe table: expert blocks by structure, and what looks like one and is none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.draft import Draft
from tests.mutate import FROM_METADATA, check_table, respell_async
from tests.passes.asking import ask, ask_file, findings

FIXTURES = Path(__file__).parents[2] / "fixtures" / "hlo"
MOE = FIXTURES / "moe"

PATH = "select path, experts, capacity, tokens, top_k, drops, gated, gemm_flops from moe"
ROLES = """select m.role, i.name from members m join instructions i on i.id = m.instr
           where m."table" = 'moe' order by m.role, i.name"""


def said(text: str) -> list[tuple[str, str]]:
    """(rule, message) of what this pass has to say."""
    return [one for one in findings(text, "moe") if one[0].startswith("moe-")]


SUM = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""

# -- every token through every expert -------------------------------------------------------------

DENSE = """HloModule m
ENTRY main {
  x = f32[6,8] parameter(0)
  w = f32[3,8,5] parameter(1)
  routing = f32[6,3] parameter(2)
  every = f32[6,3,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT y = f32[6,5] dot(every, routing), lhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
}
"""
# The weights as one matrix, and the combine as back ends write it.
DENSE_SUMMED = f"""HloModule m
{SUM}
ENTRY main {{
  x = f32[6,8] parameter(0)
  w = f32[3,8,5] parameter(1)
  routing = f32[6,3] parameter(2)
  t = f32[8,3,5] transpose(w), dimensions={{1,0,2}}
  matrix = f32[8,15] reshape(t)
  every = f32[6,15] dot(x, matrix), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  parts = f32[6,3,5] reshape(every)
  scale = f32[6,3,5] broadcast(routing), dimensions={{0,1}}
  scaled = f32[6,3,5] multiply(parts, scale)
  zero = f32[] constant(0)
  ROOT y = f32[6,5] reduce(scaled, zero), dimensions={{1}}, to_apply=sum
}}
"""


@pytest.mark.parametrize("text", [DENSE, DENSE_SUMMED], ids=["dots", "sum"])
def test_a_sum_over_experts_by_token_weights_is_dense_masked(text: str) -> None:
    # 2·6·8·15: each of 6 tokens through each of 3 experts.
    assert check_table(text, PATH) == [("dense_masked", 3, None, 6, None, 0, None, 1440)]
    roles = {role for role, _ in ask(text, ROLES)}
    assert roles == {"product", "combine"}
    assert [rule for rule, _ in said(text)] == ["moe-dense-masked"]
    check_table(text, "moe", from_metadata=FROM_METADATA)


def test_weights_in_place_of_routing_are_a_projection() -> None:
    # The output projection of attention: heads and features summed with a matrix.
    heads = """HloModule m
ENTRY main {
  x = f32[6,8] parameter(0)
  w = f32[3,8,5] parameter(1)
  out = f32[3,5,8] parameter(2)
  heads = f32[6,3,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT y = f32[6,8] dot(heads, out), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
}
"""
    assert ask(heads, "select count(*) from moe") == [(0,)]
    # One weight a head, the same for all tokens.
    mixed = DENSE.replace("routing = f32[6,3]", "routing = f32[3]").replace(
        """dot(every, routing), lhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_batch_dims={0}, rhs_contracting_dims={1}""",
        "dot(every, routing), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
    assert "rhs_contracting_dims={0}" in mixed
    assert ask(mixed, "select count(*) from moe") == [(0,)]


def test_a_gate_of_heads_that_is_no_choice_is_none() -> None:
    # A sigmoid for each token and head: nothing chooses, nothing adds up to one.
    gated = DENSE.replace(
        "routing = f32[6,3] parameter(2)",
        """g = f32[8,3] parameter(2)
  logits = f32[6,3] dot(x, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  routing = f32[6,3] logistic(logits)""",
    )
    assert ask(gated, "select count(*) from moe") == [(0,)]


def test_values_of_attention_are_no_experts() -> None:
    # Batched products of data with data, and a sum over positions by weights of each position.
    attention = """HloModule m
ENTRY main {
  q = f32[3,6,5] parameter(0)
  k = f32[3,6,5] parameter(1)
  v = f32[3,6,5] parameter(2)
  s = f32[3,6,6] dot(q, k), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={2}
  ROOT y = f32[3,6,5] dot(s, v), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}
}
"""
    assert ask(attention, "select count(*) from moe") == [(0,)]
    batched = """HloModule m
ENTRY main {
  x = f32[3,6,8] parameter(0)
  w = f32[3,8,5] parameter(1)
  ROOT y = f32[3,6,5] dot(x, w), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}
}
"""
    assert ask(batched, "select count(*) from moe") == [(0,)]


# -- a fixed number of slots ----------------------------------------------------------------------

CAPACITY = """HloModule m
ENTRY main {
  x = f32[12,8] parameter(0)
  w = f32[3,8,5] parameter(1)
  places = f32[12,3,4] parameter(2)
  rows = f32[8,3,4] dot(x, places), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  slots = f32[3,4,8] transpose(rows), dimensions={1,2,0}
  done = f32[3,4,5] dot(slots, w), lhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  ROOT y = f32[5,12] dot(done, places), lhs_contracting_dims={0,1}, rhs_contracting_dims={1,2}
}
"""


def test_dispatch_products_and_combine_are_fixed_capacity() -> None:
    assert check_table(CAPACITY, PATH) == [("fixed_capacity", 3, 4, 12, None, 1, None, 960)]
    check_table(CAPACITY, "moe", from_metadata=FROM_METADATA)
    assert ask(CAPACITY, ROLES) == [
        ("combine", "y"), ("dispatch", "rows"), ("product", "done"),
    ]  # fmt: skip
    # What both read and write: 12·8 + 12·12 + 8·12 and 12·5 + 12·12 + 5·12 floats.
    assert ask(CAPACITY, "select routing_ops, routing_bytes from moe") == [(2, 4 * (336 + 264))]
    (found,) = said(CAPACITY)
    assert found[0] == "moe-drops-tokens"
    assert "3 experts of 4 slots for 12 tokens" in found[1]


def test_slots_for_all_tokens_drop_none() -> None:
    roomy = CAPACITY.replace("12", "4")
    assert ask(roomy, "select capacity, tokens, drops from moe") == [(4, 4, 0)]
    assert said(roomy) == []


def test_two_masks_of_different_origin_are_two_layers() -> None:
    apart = CAPACITY.replace("ROOT", "other = f32[12,3,4] parameter(3)\n  ROOT").replace(
        "dot(done, places)", "dot(done, other)"
    )
    assert ask(apart, "select count(*) from moe") == [(0,)]


BATCHED = """HloModule m
ENTRY main {
  x = f32[2,12,8] parameter(0)
  w = f32[3,8,5] parameter(1)
  places = f32[2,12,3,4] parameter(2)
  rows = f32[2,8,3,4] dot(x, places), lhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  slots = f32[3,2,4,8] transpose(rows), dimensions={2,0,3,1}
  done = f32[3,2,4,5] dot(slots, w), lhs_batch_dims={0}, lhs_contracting_dims={3},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  ROOT y = f32[2,5,12] dot(done, places), lhs_batch_dims={1}, lhs_contracting_dims={0,2},
    rhs_batch_dims={0}, rhs_contracting_dims={2,3}
}
"""


def test_slots_of_each_batch() -> None:
    # As MaxText writes it (BSM,BSEC->EBCM): 4 slots an expert for the 12 tokens of each batch.
    assert check_table(BATCHED, PATH) == [("fixed_capacity", 3, 4, 24, None, 1, None, 1920)]
    assert "3 experts of 4 slots for 12 tokens" in said(BATCHED)[0][1]
    roomy = BATCHED.replace(",4", ",12").replace("[2,12,3,12]", "[2,12,3,12]")
    assert ask(roomy, "select capacity, tokens, drops from moe") == [(12, 24, 0)]


SELECTED = """HloModule m
larger {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  first = pred[] compare(a, b), direction=GE
  v = f32[] select(first, a, b)
  k = s32[] select(first, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k)
}
ENTRY main {
  x = f32[12,8] parameter(0)
  wr = f32[8,3] parameter(1)
  w = f32[3,8,5] parameter(2)
  seat = s32[12] parameter(3)
  scores = f32[12,3] dot(x, wr), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  places = s32[12,3] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  zero = s32[] constant(0)
  best = (f32[12], s32[12]) reduce(scores, places, low, zero), dimensions={1}, to_apply=larger
  chosen = s32[12] get-tuple-element(best), index=1
  four = s32[] constant(4)
  fours = s32[12] broadcast(four), dimensions={}
  base = s32[12] multiply(chosen, fours)
  slot = s32[12] add(base, seat)
  none = f32[] constant(0)
  empty = f32[12,8] broadcast(none), dimensions={}
  at = s32[12,1] reshape(slot)
  filled = f32[12,8] scatter(empty, at, x), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=take
  slots = f32[3,4,8] reshape(filled)
  done = f32[3,4,5] dot(slots, w), lhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  flat = f32[12,5] reshape(done)
  ROOT y = f32[12,5] gather(flat, slot), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}
}
take {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
"""


def test_rows_put_into_slots_by_index() -> None:
    # The router is a maximum with its place: one expert a token.
    assert check_table(SELECTED, PATH) == [("fixed_capacity", 3, 4, 12, 1, 1, None, 960)]
    assert ask(SELECTED, ROLES) == [
        ("gather", "y"), ("product", "done"), ("router", "scores"), ("scatter", "filled"),
        ("top_k", "best"),
    ]  # fmt: skip
    assert "(capacity factor 1)" in said(SELECTED)[0][1]
    # Three of six experts are on this device.
    local = SELECTED.replace("wr = f32[8,3]", "wr = f32[8,6]")
    local = local.replace("scores = f32[12,3]", "scores = f32[12,6]")
    local = local.replace("places = s32[12,3]", "places = s32[12,6]")
    assert ask(local, "select experts, local_experts from moe") == [(6, 3)]
    # Slots that the program is given are nobody's choice.
    given = SELECTED.replace("add(base, seat)", "add(seat, seat)")
    assert ask(given, "select count(*) from moe") == [(0,)]


def test_attention_to_chosen_keys_is_none() -> None:
    # As many positions are chosen from as there are heads: only that queries are no weights tells.
    sparse = SELECTED.replace("w = f32[3,8,5] parameter(2)", "wq = f32[8,3,8,5] parameter(2)")
    sparse = sparse.replace(
        "  done =",
        """  seed = f32[8] parameter(4)
  w = f32[3,8,5] dot(seed, wq), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  done =""",
    )
    assert ask(sparse, "select count(*) from matmuls where batch = 3") == [(1,)]
    assert ask(sparse, "select count(*) from moe") == [(0,)]


EXCHANGED = """HloModule m, replica_count=1, num_partitions=3
ENTRY main {
  x = f32[12,8] parameter(0)
  wr = f32[8,3] parameter(1)
  w = f32[8,5] parameter(2)
  seats = f32[12,4] parameter(3)
  scores = f32[12,3] dot(x, wr), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  top = (f32[12,1], s32[12,1]) topk(scores), k=1, largest=true
  chosen = s32[12,1] get-tuple-element(top), index=1
  flat = s32[12] reshape(chosen)
  all = s32[12,3] iota(), iota_dimension=1
  each = s32[12,3] broadcast(flat), dimensions={0}
  hit = pred[12,3] compare(all, each), direction=EQ
  hot = f32[12,3] convert(hit)
  one = f32[12,3,4] broadcast(hot), dimensions={0,1}
  two = f32[12,3,4] broadcast(seats), dimensions={0,2}
  places = f32[12,3,4] multiply(one, two)
  rows = f32[3,4,8] dot(places, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  there = f32[3,4,8] all-to-all(rows), channel_id=1, replica_groups={{0,1,2}}, dimensions={0},
    use_global_device_ids=true
  mine = f32[12,8] reshape(there)
  done = f32[12,5] dot(mine, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  parts = f32[3,4,5] reshape(done)
  back = f32[3,4,5] all-to-all(parts), channel_id=2, replica_groups={{0,1,2}}, dimensions={0},
    use_global_device_ids=true
  ROOT y = f32[12,5] dot(places, back), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
}
"""


def test_slots_that_travel_to_one_expert_a_device() -> None:
    assert check_table(EXCHANGED, PATH) == [("fixed_capacity", 3, 4, 12, 1, 1, None, 960)]
    assert ask(EXCHANGED, ROLES) == [
        ("all_to_all", "back"), ("all_to_all", "there"), ("combine", "y"), ("dispatch", "rows"),
        ("product", "done"), ("router", "scores"), ("top_k", "top"),
    ]  # fmt: skip
    # Two thirds of 3·4·8 floats leave, and of 3·4·5.
    assert ask(EXCHANGED, "select all_to_all_bytes from moe") == [(2 * 4 * (96 + 60) // 3,)]


def test_the_absorbed_projections_of_latent_attention_are_none() -> None:
    # A product a head between two others, all with weights: a projection in, one a head, and out.
    latent = """HloModule m
ENTRY main {
  x = f32[12,8] parameter(0)
  wq = f32[8,3,4] parameter(1)
  up = f32[3,4,5] parameter(2)
  out = f32[3,5,8] parameter(3)
  q = f32[12,3,4] dot(x, wq), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  heads = f32[3,12,5] dot(q, up), lhs_batch_dims={1}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  ROOT y = f32[12,8] dot(heads, out), lhs_contracting_dims={0,2}, rhs_contracting_dims={0,1}
}
"""
    assert ask(latent, "select count(*) from moe") == [(0,)]


def test_an_embedding_of_one_hot_rows_is_none() -> None:
    embedded = """HloModule m
ENTRY main {
  ids = s32[12] parameter(0)
  table = f32[16,8] parameter(1)
  all = s32[12,16] iota(), iota_dimension=1
  each = s32[12,16] broadcast(ids), dimensions={0}
  hit = pred[12,16] compare(all, each), direction=EQ
  hot = f32[12,16] convert(hit)
  x = f32[12,8] dot(hot, table), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT logits = f32[12,16] dot(x, table), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""
    assert ask(embedded, "select count(*) from moe") == [(0,)]


# -- routers --------------------------------------------------------------------------------------

ROUTED = """HloModule m
ENTRY main {
  x = f32[6,8] parameter(0)
  wr = f32[8,3] parameter(1)
  up = f32[3,8,5] parameter(2)
  down = f32[3,5,8] parameter(3)
  scores = f32[6,3] dot(x, wr), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  top = (f32[6,2], s32[6,2]) topk(scores), k=2, largest=true
  gates = f32[6,2] get-tuple-element(top), index=0
  chosen = s32[6,2] get-tuple-element(top), index=1
  all = s32[6,2,3] iota(), iota_dimension=2
  each = s32[6,2,3] broadcast(chosen), dimensions={0,1}
  hit = pred[6,2,3] compare(all, each), direction=EQ
  hot = f32[6,2,3] convert(hit)
  mask = f32[6,3] dot(hot, gates), lhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  wide = f32[6,3,5] dot(x, up), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  h = f32[6,3,5] tanh(wide)
  every = f32[3,6,8] dot(h, down), lhs_batch_dims={1}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  ROOT y = f32[6,8] dot(every, mask), lhs_batch_dims={1}, lhs_contracting_dims={0},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
}
"""


def test_a_router_tells_experts_tokens_and_top_k() -> None:
    # Two products of 2·6·15·8.
    assert check_table(ROUTED, PATH) == [("dense_masked", 3, None, 6, 2, 0, 0, 2880)]
    check_table(ROUTED, "moe", from_metadata=FROM_METADATA)
    assert ask(ROUTED, ROLES) == [
        ("combine", "y"), ("down", "every"), ("router", "scores"), ("top_k", "top"),
        ("up", "wide"),
    ]  # fmt: skip
    assert ask(ROUTED, "select routing_ops, routing_bytes, shared_experts, evidence from moe") == [
        (1, 4 * (18 + 12 + 12), 0, '["top-k of scores","combine sums over 3 experts"]')
    ]
    assert said(ROUTED) == [
        (
            "moe-dense-masked",
            "wide: every token goes through all 3 experts for a choice of 2: 1.5 times the FLOP"
            " it asks for",
        )
    ]


SORTED = ROUTED.replace(
    "top = (f32[6,2], s32[6,2]) topk(scores), k=2, largest=true\n"
    "  gates = f32[6,2] get-tuple-element(top), index=0\n"
    "  chosen = s32[6,2] get-tuple-element(top), index=1\n",
    """places = s32[6,3] iota(), iota_dimension=1
  top = (f32[6,3], s32[6,3]) sort(scores, places), dimensions={1}, to_apply=larger
  first = f32[6,3] get-tuple-element(top), index=0
  which = s32[6,3] get-tuple-element(top), index=1
  gates = f32[6,2] slice(first), slice={[0:6],[0:2]}
  chosen = s32[6,2] slice(which), slice={[0:6],[0:2]}
""",
).replace(
    "ENTRY",
    """larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}
ENTRY""",
)


def test_a_sort_of_which_the_first_are_taken_is_a_router() -> None:
    assert check_table(SORTED, PATH) == [("dense_masked", 3, None, 6, 2, 0, 0, 2880)]
    whole = SORTED.replace("slice={[0:6],[0:2]}", "slice={[0:6],[0:3]}")
    whole = whole.replace("f32[6,2]", "f32[6,3]").replace("s32[6,2", "s32[6,3")
    whole = whole.replace("pred[6,2", "pred[6,3").replace("hot = f32[6,2,3]", "hot = f32[6,3,3]")
    # Who takes all of a sorted list chooses nothing.
    assert ask(whole, "select count(*) from moe") == [(0,)]


def test_a_choice_of_the_next_token_is_no_router() -> None:
    sampling = """HloModule m
ENTRY main {
  x = f32[6,8] parameter(0)
  table = f32[8,16] parameter(1)
  logits = f32[6,16] dot(x, table), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT top = (f32[6,2], s32[6,2]) topk(logits), k=2, largest=true
}
"""
    assert ask(sampling, "select count(*) from moe") == [(0,)]


def test_a_shared_expert_is_counted_by_its_width() -> None:
    shared = ROUTED.replace(
        "ROOT y = f32[6,8] dot(every",
        """sg = f32[8,10] parameter(4)
  su = f32[8,10] parameter(5)
  sd = f32[10,8] parameter(6)
  a = f32[6,10] dot(x, sg), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[6,10] dot(x, su), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[6,10] logistic(a)
  ab = f32[6,10] multiply(s, b)
  d = f32[6,8] dot(ab, sd), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  routed = f32[6,8] dot(every""",
    ).replace("rhs_contracting_dims={1}\n}", "rhs_contracting_dims={1}\n  ROOT y = X\n}")
    shared = shared.replace("ROOT y = X", "ROOT y = f32[6,8] add(routed, d)")
    assert check_table(shared, "select path, shared_experts from moe") == [("dense_masked", 2)]
    names = "select i.name from members m join instructions i on i.id = m.instr where role = ?"
    assert ask(shared, names.replace("?", "'shared'") + " order by 1") == [("a",), ("b",), ("d",)]
    # The same beside it, but not added to what the experts give.
    apart = shared.replace("add(routed, d)", "multiply(routed, d)")
    assert ask(apart, "select shared_experts from moe") == [(0,)]
    # Wide as 1.2 experts: how many that is, is not known.
    odd = shared.replace("[8,10]", "[8,6]").replace("[10,8]", "[6,8]").replace("[6,10]", "[6,6]")
    assert ask(odd, "select shared_experts from moe") == [(None,)]


def test_one_token_has_no_axis() -> None:
    decoded = ROUTED
    for many, one in (("[6,", "[1,"), (",6,8]", ",1,8]")):
        decoded = decoded.replace(many, one)
    assert ask(decoded, PATH) == [("dense_masked", 3, None, 1, 2, 0, 0, 480)]


# -- ragged ---------------------------------------------------------------------------------------

RAGGED = """HloModule m
ENTRY main {
  x = f32[6,8] parameter(0)
  wr = f32[8,3] parameter(1)
  gate = f32[3,8,5] parameter(2)
  up = f32[3,8,5] parameter(3)
  down = f32[3,5,8] parameter(4)
  scores = f32[6,3] dot(x, wr), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  top = (f32[6,2], s32[6,2]) topk(scores), k=2, largest=true
  chosen = s32[6,2] get-tuple-element(top), index=1
  flat = s32[12] reshape(chosen)
  places = s32[12] iota(), iota_dimension=0
  order = (s32[12], s32[12]) sort(flat, places), dimensions={0}, to_apply=less
  by = s32[12] get-tuple-element(order), index=1
  two = s32[] constant(2)
  twos = s32[12] broadcast(two), dimensions={}
  token = s32[12] divide(by, twos)
  rows = f32[12,8] gather(x, token), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
  zero = s32[] constant(0)
  none = s32[3] broadcast(zero), dimensions={}
  one = s32[] constant(1)
  ones = s32[12] broadcast(one), dimensions={}
  at = s32[12,1] reshape(flat)
  sizes = s32[3] scatter(none, at, ones), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=plus
  g = f32[12,5] ragged-dot(rows, gate, sizes), lhs_contracting_dims={1}, rhs_contracting_dims={1},
    lhs_ragged_dims={0}, rhs_group_dims={0}
  u = f32[12,5] ragged-dot(rows, up, sizes), lhs_contracting_dims={1}, rhs_contracting_dims={1},
    lhs_ragged_dims={0}, rhs_group_dims={0}
  s = f32[12,5] logistic(g)
  h = f32[12,5] multiply(s, u)
  ROOT d = f32[12,8] ragged-dot(h, down, sizes), lhs_contracting_dims={1},
    rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
}
less {
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


def test_ragged_products_of_one_router_are_a_block() -> None:
    # Three products of 2·12·8·5.
    assert check_table(RAGGED, PATH) == [("ragged", 3, None, 6, 2, 0, 1, 2880)]
    assert ask(RAGGED, ROLES) == [
        ("down", "d"), ("gate", "g"), ("gather", "rows"), ("router", "scores"),
        ("scatter", "sizes"), ("sort", "order"), ("top_k", "top"), ("up", "u"),
    ]  # fmt: skip
    # top-k 18+12+12 numbers; sort 2·(12+12); gather 12 indices and 2·96; scatter 12 and 2·12.
    assert ask(RAGGED, "select routing_ops, routing_bytes, all_to_all_bytes from moe") == [
        (4, 4 * (42 + 48 + 204 + 36), 0)
    ]
    assert said(RAGGED) == []


def test_what_another_choice_moves_is_not_counted() -> None:
    # Rows of an embedding, by what the program is given.
    more = RAGGED.replace(
        "  x = f32[6,8] parameter(0)\n",
        """  ids = s32[6] parameter(0)
  table = f32[16,8] parameter(5)
  x = f32[6,8] gather(table, ids), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
""",
    )
    assert ask(more, "select routing_ops from moe") == [(4,)]


# -- balance --------------------------------------------------------------------------------------


def test_balance_is_an_estimate_by_the_device_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOLENS_SPEC", "v6e")
    # 1,320 bytes at 1.638 TB/s are more than 2,880 FLOP at 918 TFLOP/s.
    assert ask(RAGGED, "select balance from moe") == [("routing",)]
    ((evidence,),) = ask(RAGGED, "select evidence from moe")
    assert (
        "estimate for v6e: routing 0.000806 us at 1.638 TB/s (Google Cloud, TPU v6e: HBM bandwidth"
        " a chip), compute 3.14e-06 us at 918 TFLOP/s (Google Cloud, TPU v6e: peak compute a chip"
        " (bf16))"
    ) in str(evidence)
    assert [rule for rule, _ in said(RAGGED)] == ["moe-routing-heavy"]
    assert ask(DENSE, "select balance from moe") == [("compute",)]
    monkeypatch.delenv("HLOLENS_SPEC")
    assert ask(RAGGED, "select balance from moe") == [(None,)]


def own_spec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, peaks: str, fast: str = "") -> None:
    """A user's spec is asked for."""
    file = tmp_path / "own.toml"
    file.write_text(f'[[device]]\nname = "own"\n{peaks}\n[device.fast]\n{fast}\n')
    monkeypatch.setenv("HLOLENS_SPEC", str(file))


def test_a_users_spec_tells_the_peaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # 1,320 bytes and 2,880 FLOP: a second each where both are as many a second.
    own_spec(monkeypatch, tmp_path, "memory_bandwidth = 1320\npeak_flops = 2879")
    assert ask(RAGGED, "select balance from moe") == [("compute",)]
    own_spec(monkeypatch, tmp_path, "memory_bandwidth = 1320\npeak_flops = 2881")
    assert ask(RAGGED, "select balance from moe") == [("routing",)]
    told = 'memory_bandwidth = {value = 1.32e12, source = "a stopwatch"}\npeak_flops = 2.88e14'
    own_spec(monkeypatch, tmp_path, told)
    ((evidence,),) = ask(RAGGED, "select evidence from moe")
    # Who says so is told where the spec tells it.
    assert (
        "estimate for own: routing 0.001 us at 1.32 TB/s (a stopwatch), compute 1e-05 us at"
        ' 288 TFLOP/s"'
    ) in str(evidence)


def test_what_is_sent_counts_as_routing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # 416 bytes leave over two links of 1 GB/s: 0.208 us. Nothing else takes as long.
    peaks = "memory_bandwidth = 1e13\npeak_flops = 1e10"
    own_spec(monkeypatch, tmp_path, peaks, "link_bandwidth = 1e9\nlinks = 2")
    assert ask(EXCHANGED, "select balance from moe") == [("routing",)]
    ((evidence,),) = ask(EXCHANGED, "select evidence from moe")
    assert " + 0.208 us sent at 2 GB/s, compute 0.096 us at 10 GFLOP/s" in str(evidence)
    # Nothing is estimated where the links are not known.
    own_spec(monkeypatch, tmp_path, peaks)
    assert ask(EXCHANGED, "select balance from moe") == [(None,)]
    assert ask(RAGGED, "select balance from moe") == [("compute",)]


@pytest.mark.parametrize("peaks", ["", "memory_bandwidth = 1e12", "peak_flops = 1e14"])
def test_a_spec_without_peaks_estimates_nothing(
    peaks: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_spec(monkeypatch, tmp_path, peaks, "link_bandwidth = 1e9")
    assert ask(RAGGED, "select balance from moe") == [(None,)]


# -- committed fixtures ---------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["before", "after"])
@pytest.mark.parametrize("target", ["cpu", "cuda-h100", "rocm-gfx950", "tpu-v6e-1"])
def test_products_alone_are_told_on_every_target(target: str, stage: str) -> None:
    dense = MOE / "dense-masked" / target / f"{stage}_optimizations.txt"
    # [64,4,128]: every token an output for every expert; 2·64·128·512.
    assert ask_file(dense, PATH) == [("dense_masked", 4, None, 64, None, 0, None, 8388608)]
    capacity = MOE / "fixed-capacity" / target / f"{stage}_optimizations.txt"
    # [4,16,128]: 16 slots an expert; 2·4·16·128·128.
    assert ask_file(capacity, PATH) == [("fixed_capacity", 4, 16, 64, None, 1, None, 2097152)]


def test_what_is_no_expert_on_any_target() -> None:
    for folder in ("attention", "plain"):
        for path in sorted((FIXTURES / folder).glob("*/*/*_optimizations.txt")):
            assert ask_file(path, "select path from moe") == [], path


@pytest.mark.parametrize(
    ("case", "capacity", "forward"),
    # Gate, up and down: each 2·rows·128·256, of 64·4 rows, and of 4·40.
    [
        ("dense-layer", None, 3 * 2 * 256 * 128 * 256),
        ("capacity-layer", 40, 3 * 2 * 160 * 128 * 256),
    ],
)
@pytest.mark.parametrize("stage", ["before", "after"])
def test_layers_on_the_cpu(case: str, capacity: int | None, forward: int, stage: str) -> None:
    path = MOE / case / "cpu" / f"{stage}_optimizations.txt"
    rows = ask_file(path, "select phase, experts, capacity, top_k, gated, gemm_flops from moe")
    assert rows == [
        ("fwd", 4, capacity, 2, 1, forward),
        ("bwd", 4, capacity, 2, 1, 2 * forward),
    ]


def test_projections_that_a_gpu_joins_are_one_product() -> None:
    # XLA makes one product of router, gate and up: 4 + 2·4·256 columns.
    path = MOE / "dense-layer" / "rocm-gfx950" / "after_optimizations.txt"
    joined = 2 * 64 * 128 * (4 + 2 * 4 * 256)
    down = 2 * 4 * 64 * 256 * 128
    assert ask_file(path, "select gemm_flops, gated from moe where phase = 'fwd'") == [
        (joined + down, 1)
    ]
    roles = """select m.role from members m join instructions i on i.id = m.instr
               where i.name = 'dot.18' and m."table" = 'moe' order by 1"""
    assert ask_file(path, roles) == [("fused",), ("router",)]


def test_bytes_of_a_capacity_layer_add_up() -> None:
    path = MOE / "capacity-layer" / "cpu" / "before_optimizations.txt"
    top_k = 4 * (64 * 4 + 2 * 64 * 2)
    places = 4 * (2 * 128 * 4)
    slots, seats, rows = 64 * 4 * 40, 64 * 2 * 4 * 40, 4 * 40 * 128
    mask = 2 * (seats + 64 * 2 + slots)
    moved = 2 * 2 * (64 * 128 + slots + rows)
    assert ask_file(path, "select routing_ops, routing_bytes from moe where phase = 'fwd'") == [
        (5, top_k + places + mask + moved)
    ]


@pytest.mark.parametrize(
    ("target", "stage"),
    [(target, stage) for target in ("cpu", "cuda-h100", "rocm-gfx950", "tpu-v6e-1")
     for stage in ("before", "after")],
)  # fmt: skip
def test_a_ragged_layer_is_one_block(target: str, stage: str) -> None:
    path = MOE / "ragged-layer" / target / f"{stage}_optimizations.txt"
    rows = ask_file(path, "select phase, path, experts, tokens, top_k, shared_experts from moe")
    assert rows == [(phase, "ragged", 4, 64, 2, 0) for phase in ("fwd", "bwd")]


def test_shared_experts_of_a_layer() -> None:
    # 512 wide, experts 256; on the GPU their gate and up are one product with the router.
    for stage in ("before", "after"):
        path = MOE / "ragged-layer-shared" / "rocm-gfx950" / f"{stage}_optimizations.txt"
        assert ask_file(path, "select distinct shared_experts from moe") == [(2,)]


@pytest.mark.parametrize("target", ["cuda-h100-8", "rocm-gfx950-8", "tpu-v6e-8"])
def test_rows_that_travel_to_their_experts(target: str) -> None:
    path = MOE / "expert-parallel" / target / "after_optimizations.txt"
    sql = "select path, experts, local_experts, tokens, top_k, drops, gemm_flops from moe"
    # One expert a device; all 8·64 rows that may come: 3·2·512·128·256.
    assert ask_file(path, sql) == [("ragged", 8, 1, 64, 1, None, 100663296)]
    # 64 rows leave and up to 512 come back, of 128 bf16; TPU pads them to 256.
    ((sent,),) = ask_file(path, "select all_to_all_bytes from moe")
    padding = 2 if target.startswith("tpu") else 1
    assert sent == padding * (64 + 512) * 128 * 2


def test_layers_that_are_unrolled_are_apart() -> None:
    path = MOE / "ragged-unrolled-f16" / "rocm-gfx950" / "after_optimizations.txt"
    each = 2 * 2 * 384 * 640 * 256
    rows = ask_file(path, "select phase, gemm_flops from moe order by phase desc")
    assert rows == [("fwd", each)] * 2 + [("bwd", 2 * each)] * 2


def test_an_exchange_moves_the_same_however_its_start_is_spelled() -> None:
    path = MOE / "expert-parallel" / "cuda-h100-8" / "after_optimizations.txt"
    draft = Draft.of(path.read_text())
    assert respell_async(draft, random.Random(0))
    assert "ragged-all-to-all-start" in draft.text()
    sql = "select routing_ops, routing_bytes from moe"
    assert ask(draft.text(), sql) == ask(path.read_text(), sql)
