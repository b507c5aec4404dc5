"""Whose, what for and how many bytes, on real texts: layers read by hand, and what FSDP must send.

The lists were read off the texts: each gather followed back to the argument of which it takes a
slice, each sum forward to the result that replaces one.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import load
from tests import shared

LLAMA = Path("fixtures/hlo/llama")
DEVICES = 8

ROWS = (
    "select v.name, v.loop_name, v.logical_kind, v.moves, {short}, v.regather_for, v.feeds_name,"
    " v.feeds_operand from collective_values v where {which} order by v.collective, v.number"
)
TOTALS = (
    "select {short}, sum(v.executions * (v.gather_number = 1)),"
    " sum(v.executions * (v.regather_for is 'replay')),"
    " sum(v.executions * (v.regather_for is 'backward')),"
    " sum(v.executions * (v.moves = 'gradient' and v.logical_kind = 'reduce-scatter')),"
    " sum(v.executions * (v.moves = 'gradient' and v.logical_kind = 'all-reduce')),"
    " sum(v.executions * {bytes}) from collective_values v join collectives c"
    " on (c.module, c.id) = (v.module, v.collective)"
    " where v.parameter like {like} and v.loop is not null group by v.parameter"
)


def dump(name: str) -> Path:
    return shared.unpacked("dumps/tpu-maxtext.tar.xz") / "dumps_vis" / f"{name}.opt.hlo"


def ask(path: Path, sql: str) -> list[tuple[object, ...]]:
    stage = "after_optimizations" if path.is_dir() else None
    return run_query([Facts(load(path, stage=stage))], sql).rows


def listed(text: str) -> list[tuple[object, ...]]:
    """The lines of a table written by hand; `-` is NULL, a number a number."""
    words = {"AG": "all-gather", "RS": "reduce-scatter", "AR": "all-reduce", "-": None}
    return [
        tuple(int(cell) if cell.isdigit() else words.get(cell, cell) for cell in line.split())
        for line in text.splitlines()
        if line.strip()
    ]


# ---------------------------------------------------------------------------- one layer, by hand

# A gather is a loop of permutes and partial products in v6e's collective matmul; two of the
# backward loop are none. w2 is not replayed: nothing of the backward needs its product.
V6E_FULL = """
while.158      while.140  AG  parameter  wv  -         convolution.226  1
while.159      while.140  AG  parameter  wq  -         convolution.228  1
while.160      while.140  AG  parameter  wk  -         convolution.230  1
while.161      while.140  AG  parameter  wo  -         convolution.233  0
while.162      while.140  AG  parameter  w1  -         convolution.234  1
while.163      while.140  AG  parameter  w0  -         convolution.236  1
while.164      while.140  AG  parameter  w2  -         convolution.239  0
while.143      while.132  AG  parameter  wq  replay    convolution.242  1
while.144      while.132  AG  parameter  wk  replay    convolution.244  1
while.146      while.132  AG  parameter  w2  backward  convolution.248  0
all-gather.31  while.132  AG  parameter  w0  replay    convolution.221  1
all-gather.30  while.132  AG  parameter  w1  replay    convolution.222  1
while.142      while.132  AG  parameter  wv  replay    convolution.240  1
while.145      while.132  AG  parameter  wo  replay    convolution.247  0
while.153      while.132  RS  gradient   w2  -         -                -
while.155      while.132  RS  gradient   wo  -         -                -
while.147      while.132  AG  parameter  wo  backward  convolution.250  1
while.149      while.132  AG  parameter  wv  backward  convolution.255  0
while.151      while.132  RS  gradient   w0  -         -                -
while.152      while.132  RS  gradient   w1  -         -                -
while.157      while.132  RS  gradient   wv  -         -                -
while.148      while.132  AG  parameter  wq  backward  convolution.253  0
while.150      while.132  AG  parameter  wk  backward  convolution.257  0
all-reduce.13  while.132  AR  gradient   g1  -         -                -
all-reduce.13  while.132  AR  gradient   g2  -         -                -
while.156      while.132  RS  gradient   wq  -         -                -
while.154      while.132  RS  gradient   wk  -         -                -
"""
# Without collective matmul. Every label of the backward loop says rematted_computation, also those
# of the five gathers that feed matmuls of the backward itself.
SMALL_FULL = """
all-gather.75  while.45  AG  parameter  wv  -         convolution.20.clone.4  1
all-gather.73  while.45  AG  parameter  wq  -         convolution.113         1
all-gather.74  while.45  AG  parameter  wk  -         convolution.112         1
all-gather.76  while.45  AG  parameter  wo  -         convolution.34.clone.3  1
all-gather.78  while.45  AG  parameter  w0  -         convolution.114         1
all-gather.79  while.45  AG  parameter  w1  -         convolution.25.clone.8  1
all-gather.77  while.45  AG  parameter  w2  -         convolution.115         1
all-gather.71  while.44  AG  parameter  wv  backward  convolution.111         1
all-gather.64  while.44  AG  parameter  wv  replay    convolution.98          1
all-gather.70  while.44  AG  parameter  wq  backward  convolution.58.clone.3  1
all-gather.63  while.44  AG  parameter  wq  replay    convolution.97          1
all-gather.72  while.44  AG  parameter  wk  backward  convolution.110         1
all-gather.62  while.44  AG  parameter  wk  replay    convolution.96          1
all-gather.69  while.44  AG  parameter  wo  backward  convolution.102         1
all-gather.65  while.44  AG  parameter  wo  replay    convolution.59.clone.3  1
all-gather.68  while.44  AG  parameter  w0  replay    convolution.42.clone.3  1
all-gather.66  while.44  AG  parameter  w1  replay    convolution.100         1
all-gather.67  while.44  AG  parameter  w2  backward  convolution.99          0
all-reduce.28  while.44  AR  gradient   w2  -         -                       -
all-reduce.28  while.44  AR  gradient   wo  -         -                       -
fusion.476     while.44  RS  gradient   w0  -         -                       -
fusion.476     while.44  RS  gradient   w1  -         -                       -
fusion.476     while.44  RS  gradient   wk  -         -                       -
fusion.480     while.44  RS  gradient   wq  -         -                       -
fusion.480     while.44  RS  gradient   wv  -         -                       -
"""
SHORT = "substr(v.parameter, 11, 2)"  # state[0]['wq']


@shared.needs_shared
@pytest.mark.parametrize(
    ("name", "by_hand"), [("v6e_2x4.full", V6E_FULL), ("s.full.nowe", SMALL_FULL)]
)
def test_every_collective_of_a_layer(name: str, by_hand: str) -> None:
    sql = ROWS.format(short=SHORT, which="v.loop is not null")
    assert ask(dump(name), sql) == listed(by_hand)


# MaxText's Qwen3 with experts, the backward loop: both gathers of query and key carry one label and
# one shape; what they are multiplied with tells which is the replay.
QWEN = """
all-gather.110  while.54  AG  parameter  moe_block/gate/kernel        replay    convolution.91               0
all-gather.108  while.54  AG  parameter  self_attention/out/kernel    replay    convolution.50.clone.3       1
all-gather.105  while.54  AG  parameter  self_attention/query/kernel  replay    convolution.90               0
all-gather.104  while.54  AG  parameter  self_attention/query/kernel  backward  convolution.97               1
all-gather.113  while.54  AG  parameter  self_attention/key/kernel    backward  convolution.96               1
all-gather.106  while.54  AG  parameter  self_attention/key/kernel    replay    convolution.89               0
all-gather.114  while.54  AG  parameter  self_attention/value/kernel  backward  convolution.56.clone.3       1
all-gather.107  while.54  AG  parameter  self_attention/value/kernel  replay    convolution.88               1
all-gather.111  while.54  AG  parameter  moe_block/wi_0               replay    convolution-base-dilated.37  1
all-gather.109  while.54  AG  parameter  moe_block/wi_1               replay    convolution-base-dilated.38  1
all-gather.112  while.54  AG  parameter  moe_block/wo                 backward  convolution-base-dilated.36  1
fusion.605      while.54  RS  gradient   moe_block/wi_0               -         -                            -
fusion.605      while.54  RS  gradient   moe_block/wi_1               -         -                            -
fusion.605      while.54  RS  gradient   self_attention/key/kernel    -         -                            -
fusion.605      while.54  RS  gradient   self_attention/out/kernel    -         -                            -
fusion.605      while.54  RS  gradient   self_attention/query/kernel  -         -                            -
fusion.605      while.54  RS  gradient   self_attention/value/kernel  -         -                            -
all-reduce.69   while.54  AR  gradient   moe_block/gate/kernel        -         -                            -
all-reduce.69   while.54  AR  gradient   moe_block/wo                 -         -                            -
"""  # noqa: E501
# Layer 7 of 32, unrolled: no loop. The norms' scales are gathered by a sum of what each device pads
# with zeros. The down projection is not replayed.
UNROLLED = """
all-reduce.2649  -  AR  parameter  post_self_attention_layer_norm/scale  -         -                         -
all-reduce.2649  -  AR  parameter  pre_self_attention_layer_norm/scale   -         -                         -
all-gather.147   -  AG  parameter  self_attention/out/kernel             -         convolution.1491.clone.1  1
all-gather.145   -  AG  parameter  self_attention/value/kernel           -         convolution.1445          1
all-gather.143   -  AG  parameter  self_attention/key/kernel             -         convolution.1446          1
all-gather.141   -  AG  parameter  self_attention/query/kernel           -         convolution.1447          1
all-gather.153   -  AG  parameter  mlp/wo/kernel                         -         convolution.1973.clone.1  1
all-gather.151   -  AG  parameter  mlp/wi_1/kernel                       -         convolution.54.clone.10   1
all-gather.149   -  AG  parameter  mlp/wi_0/kernel                       -         convolution.2012          1
all-reduce.2624  -  AR  parameter  post_self_attention_layer_norm/scale  -         -                         -
all-reduce.2624  -  AR  parameter  pre_self_attention_layer_norm/scale   -         -                         -
all-gather.905   -  AG  parameter  self_attention/out/kernel             replay    convolution.1589.clone.1  1
all-gather.904   -  AG  parameter  self_attention/value/kernel           replay    convolution.1176          1
all-gather.903   -  AG  parameter  self_attention/key/kernel             replay    convolution.1177          1
all-gather.902   -  AG  parameter  self_attention/query/kernel           replay    convolution.1178          1
all-gather.909   -  AG  parameter  mlp/wi_1/kernel                       replay    convolution.2210          1
all-gather.906   -  AG  parameter  mlp/wi_0/kernel                       replay    convolution.2211          1
all-gather.908   -  AG  parameter  mlp/wo/kernel                         backward  convolution.2208          1
fusion.5069      -  RS  gradient   mlp/wi_0/kernel                       -         -                         -
fusion.5069      -  RS  gradient   mlp/wi_1/kernel                       -         -                         -
fusion.5069      -  RS  gradient   mlp/wo/kernel                         -         -                         -
fusion.5069      -  RS  gradient   self_attention/key/kernel             -         -                         -
fusion.5069      -  RS  gradient   self_attention/out/kernel             -         -                         -
fusion.5069      -  RS  gradient   self_attention/query/kernel           -         -                         -
fusion.5069      -  RS  gradient   self_attention/value/kernel           -         -                         -
all-reduce.2616  -  AR  gradient   post_self_attention_layer_norm/scale  -         -                         -
all-reduce.2616  -  AR  gradient   pre_self_attention_layer_norm/scale   -         -                         -
"""  # noqa: E501


BETWEEN, BEHIND = "']['", "'].value"


def below(place: str) -> str:
    """`mlp/wo/kernel` of `state['model']['decoder'][place]['mlp']['wo']['kernel'].value`."""
    start = len(f"state['model']['decoder']['{place}']['") + 1
    short = f"substr(v.parameter, {start})"
    return f"replace(replace({short}, {quoted(BETWEEN)}, '/'), {quoted(BEHIND)}, '')"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@shared.needs_shared
@pytest.mark.parametrize(
    ("name", "place", "which", "by_hand"),
    [
        ("qwen3moe.raggeddot.full", "layers", "v.loop_name = 'while.54'", QWEN),
        ("llama2-7b.unroll32.full", "layers_7", "v.parameter like '%''layers_7''%'", UNROLLED),
    ],
)
def test_every_collective_of_a_layer_of_maxtext(
    name: str, place: str, which: str, by_hand: str
) -> None:
    found = ask(dump(name), ROWS.format(short=below(place), which=which))
    assert sorted(found, key=str) == sorted(listed(by_hand), key=str)


@shared.needs_shared
@pytest.mark.parametrize("compiler", ["cuda_h100_fullspec", "rocm_gfx950"])
def test_two_layers_on_a_gpu(compiler: str) -> None:
    (path,) = shared.texts(f"dumps/gpu-aot/{compiler}.fsdp.after_optimizations.txt")
    sql = (
        "select logical_kind, moves, parameter, feeds_operand, wire_bytes from collective_values"
        " order by 1, 2, 3, 4"
    )
    # XLA moves activations where it can: for the gradient of ws[0] it exchanges the batch for the
    # width (all-to-all) and gathers what is multiplied, instead of a sum over the devices.
    assert sorted(ask(path, sql), key=str) == sorted(
        [
            ("all-gather", "parameter", "ws[0]", 0, 917504),
            ("all-gather", "parameter", "ws[1]", 0, 917504),
            ("all-gather", "activation", None, 0, 458752),
            ("all-gather", "activation", None, 1, 458752),
            ("all-reduce", "activation", None, None, 7),
            ("all-to-all", "activation", None, None, 57344),
            ("all-to-all", "activation", None, None, 57344),
            ("all-to-all", "parameter", "x", 0, 57344),
            ("reduce-scatter", "gradient", None, None, 917504),  # both weights have its shape
        ],
        key=str,
    )


# ---------------------------------------------------------------------------- bytes of a step


def must_send(path: Path, dtype_of_sums: int, row: tuple[object, ...], like: str) -> int:
    """What a device sends for one parameter: of each gather, and each scattered sum, what the other
    devices have of it; twice that for a sum that is not scattered. Weights are gathered in bf16."""
    text = path / "after_optimizations.txt" if path.is_dir() else path
    entry = parse(text.read_text(encoding="utf-8")).entry
    short, forward, replay, backward, scattered, summed, _ = row
    (own,) = [
        one
        for one in entry.instructions
        if one.opcode == "parameter" and (one.op_name or "") == like.replace("%", str(short))
    ]
    elements = prod(size or 0 for size in own.shape.dimensions)
    gathers = sum(int(str(count or 0)) for count in (forward, replay, backward))
    layers = max(int(str(forward or 0)), 1)
    sums = int(str(scattered or 0)) + 2 * int(str(summed or 0))
    return (DEVICES - 1) * elements * (2 * gathers + dtype_of_sums * sums) // layers


# For each: parameter, gathers of a step in forward, replay and backward, scattered sums, whole
# sums. A weight of a scanned model is gathered once an iteration.
STEPS = {
    # Only the loops of permutes send more than a ring would: see below.
    "v6e_2x4.full": ("state[0]['%']", "c.logical_wire_bytes", 2, """
        w0  4  4  0  4  0
        w1  4  4  0  4  0
        w2  4  0  4  4  0
        wk  4  4  4  4  0
        wo  4  4  4  4  0
        wq  4  4  4  4  0
        wv  4  4  4  4  0
    """),
    "v6e_2x4.none": ("state[0]['%']", "c.logical_wire_bytes", 2, """
        w0  4  0  4  4  0
        w1  4  0  4  4  0
        w2  4  0  4  4  0
        wk  4  0  4  4  0
        wo  4  0  4  4  0
        wq  4  0  4  4  0
        wv  4  0  4  4  0
    """),
    # The gradients of w2 and wo are summed whole and then cut: twice the bytes of the others.
    "s.full.nowe": ("state[0]['%']", "v.wire_bytes", 2, """
        w0  4  4  0  4  0
        w1  4  4  0  4  0
        w2  4  0  4  0  4
        wk  4  4  4  4  0
        wo  4  4  4  0  4
        wq  4  4  4  4  0
        wv  4  4  4  4  0
    """),
    # Two layers an iteration, 21 iterations; gathered by the sparse cores.
    "gemma2-9b.full.tpu7x": ("state['model']['decoder']['layers']['%']['kernel'].value",
                             "v.wire_bytes", 2, """
        mlp_global']['wi_0              21  21   0  21  0
        mlp_global']['wi_1              21  21   0  21  0
        mlp_global']['wo                21  21   0  21  0
        mlp_local']['wi_0               21  21  21  21  0
        mlp_local']['wi_1               21  21  21  21  0
        mlp_local']['wo                 21  21  21  21  0
        self_attention_global']['key    21  21  21  21  0
        self_attention_global']['out    21  21   0  21  0
        self_attention_global']['query  21  21  21  21  0
        self_attention_global']['value  21  21  21  21  0
        self_attention_local']['key     21  21  21  21  0
        self_attention_local']['out     21  21  21  21  0
        self_attention_local']['query   21  21  21  21  0
        self_attention_local']['value   21  21  21  21  0
    """),
    # The experts' down projection and the router are summed whole.
    "qwen3moe.raggeddot.full": ("state['model']['decoder']['layers']['moe_block']['%'].value",
                                "v.wire_bytes", 2, """
        gate']['kernel  8  8  0  0  8
        wi_0            8  8  0  8  0
        wi_1            8  8  0  8  0
        wo              8  0  8  0  8
    """),
    "full-published": ("state[0]['layers']['%']", "v.wire_bytes", 2, """
        down   32   0  32  32  0
        gate   32  32   0  32  0
        key    32  32   0  32  0
        out    32  32   0  32  0
        query  32  32   0  32  0
        up     32  32   0  32  0
        value  32  32   0  32  0
    """),
    "none-published": ("state[0]['layers']['%']", "v.wire_bytes", 2, """
        down   32   0  32  32  0
        gate   32   0  32  32  0
        key    32   0  32  32  0
        out    32   0  32  32  0
        query  32   0  32  32  0
        up     32   0  32  32  0
        value  32   0  32  32  0
    """),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_sends_what_fsdp_must(name: str) -> None:
    if name.endswith("-published"):
        path = LLAMA / name / "rocm-gfx950-8"
    elif shared.SHARED is None:
        pytest.skip("the shared material is not beside this checkout")
    else:
        path = dump(name)
    like, sent, dtype_of_sums, by_hand = STEPS[name]
    start = like.index("%") + 1
    short = f"substr(v.parameter, {start}, length(v.parameter) - {len(like) - 1})"
    found = ask(path, TOTALS.format(short=short, bytes=sent, like=quoted(like)))
    weights = [row for row in found if row[1]]
    counts = [tuple(count or 0 for count in row[:6]) for row in weights]
    assert counts == listed(by_hand)
    for row in weights:
        assert row[6] == pytest.approx(must_send(path, dtype_of_sums, row, like), rel=0.01), row[0]


@shared.needs_shared
def test_a_loop_of_permutes_sends_nine_shards_for_seven() -> None:
    # Two permutes are peeled off, and the last two of the loop bring what nobody multiplies.
    sql = (
        "select distinct wire_bytes * 7 = logical_wire_bytes * 9 from collectives"
        " where form = 'windowed-loop' and logical_kind = 'all-gather'"
    )
    assert ask(dump("v6e_2x4.full"), sql) == [(1,)]


def test_the_head_is_gathered_twice_in_one_operation() -> None:
    # Once for the product, once for the gradient of its input: two arrays of one all-gather.
    sql = (
        "select number, gather_number, regather_for, feeds_operand from collective_values"
        " where parameter = 'state[0][''head'']' and moves = 'parameter'"
    )
    path = LLAMA / "full-published" / "rocm-gfx950-8"
    assert ask(path, sql) == [(1, 1, None, 1), (2, 2, "backward", 0)]
