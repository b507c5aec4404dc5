"""Roles and projections of ragged dots: which product of an expert each is, by dataflow."""

from __future__ import annotations

import re

from tests.mutate import check_table
from tests.passes.asking import ask
from tests.passes.test_ragged_dots import DGRAD, FORWARD, WGRAD


def ragged(name: str, lhs: str, rhs: str, out: str, dims: str, phase: str = "jvp()") -> str:
    return (
        f"  {name} = bf16{out} ragged-dot({lhs}, {rhs}, sizes), {dims},"
        f' metadata={{op_name="jit(f)/{phase}/ragged_dot_general"}}\n'
    )


BACK = "transpose(jvp())"


def block(activation: str, fused: bool = False, backward: str = "") -> str:
    """A gated block; all widths are 16, so that sizes tell nothing."""
    if fused:
        first = ragged("both", "x", "wide", "[64,32]", FORWARD)
        first += "  gate = bf16[64,16] slice(both), slice={[0:64], [0:16]}\n"
        first += "  up = bf16[64,16] slice(both), slice={[0:64], [16:32]}\n"
    else:
        first = ragged("gate", "x", "wg", "[64,16]", FORWARD)
        first += ragged("up", "x", "wu", "[64,16]", FORWARD)
    return f"""\
HloModule m
ENTRY main {{
  x = bf16[64,16] parameter(0)
  wg = bf16[4,16,16] parameter(1)
  wu = bf16[4,16,16] parameter(2)
  wd = bf16[4,16,16] parameter(3)
  sizes = s32[4] parameter(4)
  wide = bf16[4,16,32] parameter(5)
  dy = bf16[64,16] parameter(6)
{first}{activation}{ragged("down", "h", "wd", "[64,16]", FORWARD)}{backward}\
  ROOT all = () tuple()
}}
"""


SILU = """\
  l = bf16[64,16] logistic(gate)
  s = bf16[64,16] multiply(gate, l)
  h = bf16[64,16] multiply(s, up)
"""
GRADIENTS = (
    ragged("dh", "dy", "wd", "[64,16]", DGRAD, BACK)
    + "  dup = bf16[64,16] multiply(dh, s)\n  dgate = bf16[64,16] multiply(dh, up)\n"
    + ragged("dxu", "dup", "wu", "[64,16]", DGRAD, BACK)
    + ragged("dxg", "dgate", "wg", "[64,16]", DGRAD, BACK)
    + ragged("dwd", "h", "dy", "[4,16,16]", WGRAD, BACK)
    + ragged("dwu", "x", "dup", "[4,16,16]", WGRAD, BACK)
    + ragged("dwg", "x", "dgate", "[4,16,16]", WGRAD, BACK)
)


def roles(text: str) -> dict[object, list[object]]:
    """(class, role, projection) by name."""
    found = ask(text, "select name, class, role, projection from ragged_dots")
    return {name: rest for name, *rest in found}


def test_a_gated_block_has_nine() -> None:
    text = block(SILU, backward=GRADIENTS)
    assert roles(text) == {
        "gate": ["fwd", "wi", "gate"],
        "up": ["fwd", "wi", "up"],
        "down": ["fwd", "wo", "down"],
        "dh": ["dgrad", "wo", "down"],
        "dxu": ["dgrad", "wi", "up"],
        "dxg": ["dgrad", "wi", "gate"],
        "dwd": ["wgrad", "wo", "down"],
        "dwu": ["wgrad", "wi", "up"],
        "dwg": ["wgrad", "wi", "gate"],
    }
    check_table(text, "select class, role, projection from ragged_dots order by 1, 2, 3")


def test_the_gate_goes_through_the_nonlinearity() -> None:
    swapped = SILU.replace("gate", "G").replace("up", "gate").replace("G", "up")
    assert roles(block(swapped))["up"] == ["fwd", "wi", "gate"]
    relu = """\
  z = bf16[] constant(0)
  zs = bf16[64,16] broadcast(z), dimensions={}
  s = bf16[64,16] maximum(gate, zs)
  h = bf16[64,16] multiply(s, up)
"""
    assert roles(block(relu))["gate"] == ["fwd", "wi", "gate"]
    # Limits on both, as gpt-oss sets them, leave the sigmoid to decide.
    limited = SILU.replace("multiply(s, up)", "multiply(s, most)").replace(
        "logistic(gate)", "logistic(least)"
    )
    limited = (
        "  c = bf16[] constant(7)\n  cs = bf16[64,16] broadcast(c), dimensions={}\n"
        "  least = bf16[64,16] minimum(gate, cs)\n  most = bf16[64,16] minimum(up, cs)\n" + limited
    )
    assert roles(block(limited))["gate"] == ["fwd", "wi", "gate"]
    assert roles(block(limited))["up"] == ["fwd", "wi", "up"]


def test_of_two_alike_neither_is_the_gate() -> None:
    product = "  h = bf16[64,16] multiply(gate, up)\n"
    assert roles(block(product))["gate"] == ["fwd", "wi", None]
    both = "  a = bf16[64,16] tanh(gate)\n  b = bf16[64,16] tanh(up)\n"
    both += "  h = bf16[64,16] multiply(a, b)\n"
    assert roles(block(both))["up"] == ["fwd", "wi", None]


def test_one_whose_result_is_split_in_two_is_fused() -> None:
    gradient = (
        "  dboth = bf16[64,32] concatenate(dy, dy), dimensions={1}\n"
        + ragged("dx", "dboth", "wide", "[64,16]", DGRAD, BACK)
        + ragged("dw", "x", "dboth", "[4,16,32]", WGRAD, BACK)
    )
    found = roles(block(SILU, fused=True, backward=gradient))
    assert found["both"] == ["fwd", "wi", "fused"]
    assert found["dx"] == ["dgrad", "wi", "fused"]
    assert found["dw"] == ["wgrad", "wi", "fused"]


def test_one_without_a_gate_has_no_projection() -> None:
    plain = "  h = bf16[64,16] tanh(gate)\n"
    text = block(plain)
    assert roles(text)["gate"] == ["fwd", "wi", None]
    assert roles(text)["down"] == ["fwd", "wo", "down"]
    assert roles(text)["up"] == ["fwd", None, None]  # nobody takes it


def test_rows_that_are_gathered_in_between_are_of_the_next_layer() -> None:
    gathered = """\
  order = s32[64] parameter(7)
  moved = bf16[64,16] gather(gate, order), offset_dims={1}, collapsed_slice_dims={0}, \
start_index_map={0}, index_vector_dim=1, slice_sizes={1,16}
  h = bf16[64,16] multiply(moved, moved)
"""
    found = roles(block(gathered))
    assert found["down"] == ["fwd", None, None]
    assert found["gate"] == ["fwd", None, None]


def test_what_takes_a_second_is_a_first_again() -> None:
    more = (
        "  y = bf16[64,16] add(x, down)\n"
        + ragged("next", "y", "wg", "[64,16]", FORWARD)
        + "  t = bf16[64,16] tanh(next)\n"
        + ragged("last", "t", "wd", "[64,16]", FORWARD)
    )
    found = roles(block(SILU, backward=more))
    assert [found[one][1] for one in ("gate", "down", "next", "last")] == ["wi", "wo", "wi", "wo"]


# ---------------------------------------------------------------------------------- directions

FLIPPED = {FORWARD: DGRAD, DGRAD: FORWARD}
TURNED = "by its numbers a data gradient, but in the forward: its weights are stored [G,N,K]"


def flipped(text: str) -> str:
    """The same of weights that are stored with in and out exchanged."""
    lines = []
    for line in text.splitlines():
        for dims, other in FLIPPED.items():
            if f"sizes), {dims}" in line:
                line = line.replace(dims, other)
                break
        lines.append(line)
    return "\n".join(lines) + "\n"


def without_names(text: str) -> str:
    return re.sub(r", metadata=\{[^}]*\}", "", text)


def loss(text: str) -> str:
    """Cotangents that are computed from what the last product gives."""
    given = "  dy = bf16[64,16] parameter(6)\n"
    assert given in text
    text = text.replace(given, "")
    start = text.index("  dh = ")
    return text[:start] + "  dy = bf16[64,16] subtract(down, x)\n" + text[start:]


def directions(text: str) -> dict[object, list[object]]:
    """(class, direction, role, projection) by name."""
    found = ask(text, "select name, class, direction, role, projection from ragged_dots")
    return {name: rest for name, *rest in found}


NINE = {
    "gate": ["fwd", "wi", "gate"], "up": ["fwd", "wi", "up"], "down": ["fwd", "wo", "down"],
    "dh": ["dgrad", "wo", "down"], "dxu": ["dgrad", "wi", "up"], "dxg": ["dgrad", "wi", "gate"],
    "dwd": ["wgrad", "wo", "down"], "dwu": ["wgrad", "wi", "up"], "dwg": ["wgrad", "wi", "gate"],
}  # fmt: skip


def test_weights_stored_the_other_way_turn_the_class_round_but_not_the_direction() -> None:
    text = flipped(block(SILU, backward=GRADIENTS))
    found = directions(text)
    assert {name: rest[1:] for name, rest in found.items()} == NINE
    assert {name: rest[0] for name, rest in found.items()} == {
        name: {"fwd": "dgrad", "dgrad": "fwd"}.get(direction, direction)
        for name, (direction, *_) in NINE.items()
    }
    sql = "select count(*) from ragged_dots where evidence like '%[G,N,K]%'"
    assert ask(text, sql) == [(6,)]
    assert ask(text, f"select count(*) from ragged_dots where evidence like '%{TURNED}%'") == [(3,)]
    check_table(text, "select class, direction, role, projection from ragged_dots order by 1,2,3,4")


def test_nothing_is_turned_round_in_weights_stored_as_usual() -> None:
    text = block(SILU, backward=GRADIENTS)
    for each in (text, without_names(text), without_names(loss(text))):
        found = directions(each)
        assert {name: rest[1:] for name, rest in found.items()} == NINE
        assert all(kind == direction for kind, direction, *_ in found.values())
        assert ask(each, "select count(*) from ragged_dots where evidence like '%stored%'") == [
            (0,)
        ]


def test_without_names_gradients_are_what_depends_on_the_forward() -> None:
    text = without_names(loss(flipped(block(SILU, backward=GRADIENTS))))
    assert {name: rest[1:] for name, rest in directions(text).items()} == NINE
    check_table(text, "select class, direction, role, projection from ragged_dots order by 1,2,3,4")


def test_without_names_and_with_cotangents_from_outside() -> None:
    """Nothing of the second product's gradient depends on it; but only gradients take that."""
    text = without_names(flipped(block(SILU, backward=GRADIENTS)))
    assert {name: rest[1:] for name, rest in directions(text).items()} == NINE
    check_table(text, "select class, direction, role, projection from ragged_dots order by 1,2,3,4")


def test_weights_may_be_stored_in_both_ways() -> None:
    """gate and up [G,N,K], down [G,K,N]: both of [experts, hidden, width]."""
    lines = block(SILU, backward=GRADIENTS).splitlines()
    text = (
        "\n".join(flipped(x).strip("\n") if "wg," in x or "wu," in x else x for x in lines) + "\n"
    )
    for each in (text, without_names(text), without_names(loss(text))):
        found = directions(each)
        assert {name: rest[1:] for name, rest in found.items()} == NINE
        turned = {name for name, (kind, direction, *_) in found.items() if kind != direction}
        assert turned == {"gate", "up", "dxg", "dxu"}


def test_rows_without_a_gradient_are_told_by_the_weights_gradient() -> None:
    """No gradient of x: the weights of gate and up are contracted in one way only."""
    text = without_names(loss(flipped(block(SILU, backward=GRADIENTS))))
    kept = [line for line in text.splitlines() if not re.match(r"  dx[ug] =", line)]
    wanted = {name: rest for name, rest in NINE.items() if name not in ("dxu", "dxg")}
    # Whose cotangents these are, no gradient of rows tells.
    wanted |= {name: ["wgrad", "wi", None] for name in ("dwu", "dwg")}
    found = directions("\n".join(kept) + "\n")
    assert {name: rest[1:] for name, rest in found.items()} == wanted


def test_a_forward_alone_is_one_where_firsts_feed_a_second() -> None:
    text = without_names(flipped(block(SILU)))
    assert directions(text) == {
        "gate": ["dgrad", "fwd", "wi", "gate"],
        "up": ["dgrad", "fwd", "wi", "up"],
        "down": ["dgrad", "fwd", "wo", "down"],
    }


def test_data_gradients_alone_are_not_taken_for_a_forward() -> None:
    text = without_names(block(SILU, backward=GRADIENTS))
    start = text.index("  dh = ")
    backward = text[start:]
    alone = (
        text[: text.index("  gate = ")]
        + "  s = bf16[64,16] parameter(7)\n  up = bf16[64,16] parameter(8)\n"
        + "".join(f"{line}\n" for line in backward.splitlines() if not line.startswith("  dw"))
    )
    found = directions(alone)
    assert found == {name: ["dgrad", None, None, None] for name in ("dh", "dxu", "dxg")}


def test_of_a_lone_product_only_a_forward_is_taken_at_its_word() -> None:
    lone = block("  h = bf16[64,16] add(x, x)\n")
    lone = without_names("\n".join(x for x in lone.splitlines() if "(x, w" not in x) + "\n")
    assert directions(lone) == {"down": ["fwd", "fwd", None, None]}
    assert directions(flipped(lone)) == {"down": ["dgrad", None, None, None]}


def test_what_is_replayed_in_the_backward_is_forward_again() -> None:
    """A custom gradient that computes the first products again: backward by name, but with the
    weights of the forward, contracted as there."""
    again = ragged("gate2", "x", "wg", "[64,16]", FORWARD, BACK)
    text = block(SILU, backward=again + GRADIENTS)
    assert directions(text)["gate2"] == ["fwd", "fwd", "wi", "gate"]
    assert directions(flipped(text))["gate2"] == ["dgrad", "fwd", "wi", "gate"]


def test_cotangents_put_together_without_a_gradient_of_rows_have_those_of_the_rows() -> None:
    """What shares its rows with a fused one is a first, and fused; alone it would be gate or up."""
    both = "  dboth = bf16[64,32] concatenate(dy, s), dimensions={1}\n"
    both += ragged("dw", "x", "dboth", "[4,16,32]", WGRAD, BACK)
    assert roles(block(SILU, fused=True, backward=both))["dw"] == ["wgrad", "wi", "fused"]
    one = ragged("dw", "x", "dy", "[4,16,16]", WGRAD, BACK)
    assert roles(block(SILU, backward=one))["dw"] == ["wgrad", "wi", None]
