"""Remat on real texts: the published gfx950 pair, the project's fixtures, MaxText on TPU."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import AFTER, BEFORE, Program, load
from tests.passes.asking import ask_file
from tests.shared import SHARED, needs_shared, unpacked

REMAT = Path(__file__).parents[2] / "fixtures" / "hlo" / "remat"
CASES = sorted(REMAT.glob("*/*/saved_residuals.json"))

Rows = list[tuple[object, ...]]


@cache
def facts(folder: Path) -> Facts:
    """The facts of a fixture, both stages."""
    return Facts(load(folder))


def asked(folder: Path, sql: str) -> Rows:
    return run_query([facts(folder)], sql).rows


def findings(folder: Path) -> set[tuple[str, int | None]]:
    facts(folder).rows("remat")
    return {(one.rule, one.module) for one in facts(folder).findings}


def name_of(file: Path) -> str:
    return "/".join(file.parts[-3:-1])


# -- the published pair ---------------------------------------------------------------------------


@needs_shared
def test_gfx950_none_keeps_and_full_replays() -> None:
    assert SHARED is not None
    none, full = (
        SHARED / "gfx950" / "remat" / policy / "before_optimizations.txt"
        for policy in ("none", "full")
    )
    taken = """select u.name from edges e join instructions p on p.id = e.producer
               join instructions u on u.id = e.user where p.name = '{}' order by u.id"""
    assert ("sub.3",) in ask_file(none, taken.format("tanh.3"))
    assert ask_file(none, "select count(*) from remat") == [(0,)]

    chain = ["remat2.10", "remat2.11", "dot_general.9", "tanh.6"]
    for producer, consumer in pairwise(chain):
        assert (consumer,) in ask_file(full, taken.format(producer))
    assert ask_file(full, "select name, verdict, twin_name from remat_ops order by instr") == [
        ("dot_general.9", "replayed", "dot_general.8"),
        ("tanh.6", "replayed", "tanh.5"),
        ("sub.2", "linearization", None),
        ("dot_general.12", "replayed", "dot_general.7"),
        ("tanh.7", "replayed", "tanh.4"),
        ("sub.3", "linearization", None),
    ]
    regions = """select verdict, matmuls, flops, recompute_factor, b.name from remat r
                 join instructions b on b.id = r.barrier"""
    assert ask_file(full, regions) == [
        ("recomputed", 1, 2097152, 0.5, "remat2.11"),
        ("recomputed", 1, 2097152, 0.5, "remat2.16"),
    ]


# -- fixtures: what is saved is not replayed ------------------------------------------------------


@pytest.mark.parametrize("file", CASES, ids=name_of)
def test_what_a_policy_saves_is_not_replayed(file: Path) -> None:
    """The product is saved by its name or as a dot; else it is replayed, or it was undone."""
    saved = [one["kind"] for one in json.loads(file.read_text())["residuals"]]
    product_saved = "name" in saved or "dot_general" in saved
    checkpointed = "none" not in file.parts[-3].removesuffix("-grad").removesuffix("-scanned")
    checkpointed = checkpointed or "meant" in file.parts[-3]
    sql = "select module, sum(matmuls), max(undone) from remat group by module"
    counts = {module: (matmuls, undone) for module, matmuls, undone in asked(file.parent, sql)}
    if not checkpointed:
        assert counts == {}
    elif product_saved:
        assert counts[0][0] == counts[1][0] == 0
    else:
        (before, _), (after, undone) = counts[0], counts[1]
        assert before > 0
        assert before == after + undone
        assert undone == 0 or "cpu" in file.parts[-2]


@pytest.mark.parametrize(
    "file", [file for file in CASES if "scanned" in file.parts[-3]], ids=name_of
)
def test_a_region_reads_what_the_policy_saves(file: Path) -> None:
    told = json.loads(file.read_text())["residuals"]
    saved = sum(one["bytes"] for one in told if one["stacked"] and one["kind"] != "argument")
    rows = asked(
        file.parent, "select distinct module, saved_bytes from remat where barrier is null"
    )
    assert all(row[1] == saved for row in rows)
    assert bool(rows) != file.parts[-3].startswith("none-scanned")


@pytest.mark.parametrize("target", ["cpu", "tpu-v6e-1", "cuda-h100", "rocm-gfx950"])
@pytest.mark.parametrize(
    ("policy", "verdict", "replayed"),
    [
        ("full", "recomputed", {"dot", "tanh"}),
        ("mistyped", "recomputed", {"dot", "tanh"}),
        ("none-meant", "recomputed", {"dot", "tanh"}),
        ("named", "linearization", {"tanh"}),
        ("dots-saveable", "linearization", {"tanh"}),
        ("offload", "linearization", {"tanh"}),
    ],
)
def test_verdicts_of_the_scanned_policies(
    policy: str, verdict: str, replayed: set[str], target: str
) -> None:
    folder = REMAT / f"{policy}-scanned" / target
    assert asked(folder, "select module, verdict from remat") == [(0, verdict), (1, verdict)]
    # What is replayed in a fusion of its own is a copy there.
    names = """select distinct module,
               case opcode when 'convolution' then 'dot' else opcode end from remat_ops
               where verdict in ('replayed', 'fusion-duplicated')
               and opcode in ('dot', 'convolution', 'tanh')"""
    assert set(asked(folder, names)) == {(stage, op) for stage in (0, 1) for op in replayed}
    factor = 1.0 if "dot" in replayed else 0.0
    assert set(asked(folder, "select recompute_factor from remat")) == {(factor,)}


@pytest.mark.parametrize("target", ["cpu", "tpu-v6e-1", "cuda-h100", "rocm-gfx950"])
def test_only_the_mistyped_name_and_the_value_saved_twice_are_found(target: str) -> None:
    def rules(case: str) -> set[str]:
        known = {"policy-saves-nothing", "residual-saved-twice"}
        return {rule for rule, _ in findings(REMAT / case / target)} & known

    assert rules("mistyped-scanned") == rules("mistyped") == {"policy-saves-nothing"}
    assert rules("twice-scanned") == {"residual-saved-twice"}
    for case in ("full", "named", "none", "none-meant", "dots-saveable", "nested"):
        assert rules(f"{case}-scanned") == set()


def test_the_gradient_alone_needs_no_forward_of_the_last_layer() -> None:
    rows = asked(REMAT / "full-grad" / "cpu", "select module, verdict from remat order by verdict")
    assert rows == [(0, "recomputed"), (0, "sole"), (1, "undone")]


def test_the_cpu_undoes_unrolled_checkpoints() -> None:
    sql = "select verdict, matmuls, undone from remat where module = 1"
    assert asked(REMAT / "full-grad" / "cpu", sql) == [("undone", 0, 1)]
    assert asked(REMAT / "half" / "cpu", sql) == [("undone", 0, 1)]
    # One of the two products of the forward is fused with its sum before the barriers go.
    assert asked(REMAT / "full" / "cpu", sql) == [("recomputed", 1, 1)]
    for case in ("full-grad", "half", "full"):
        assert ("remat-undone", 1) in findings(REMAT / case / "cpu")
    for target in ("tpu-v6e-1", "cuda-h100", "rocm-gfx950"):
        assert asked(REMAT / "full" / target, sql) == [("recomputed", 2, 0)]
        assert ("remat-undone", 1) not in findings(REMAT / "full" / target)


@pytest.mark.parametrize("target", ["tpu-v6e-1", "cuda-h100", "rocm-gfx950"])
def test_a_checkpoint_in_a_checkpoint(target: str) -> None:
    sql = "select depth, sum(matmuls) from remat where module = 1 group by depth order by depth"
    assert asked(REMAT / "nested-scanned" / target, sql) == [(1, 1), (2, 2)]


# -- MaxText on TPU -------------------------------------------------------------------------------


def dump(name: str) -> Path:
    (path,) = unpacked("dumps/tpu-maxtext.tar.xz").rglob(name)
    return path


@needs_shared
@pytest.mark.parametrize(
    ("name", "regions", "stacked"),
    [
        ("v6e_2x4.none.opt.hlo", [], 5_639_536_640),
        ("v6e_2x4.minimal_with_context.opt.hlo", [("recomputed", 1, 939_524_096)], 939_524_096),
        ("v6e_2x4.full.opt.hlo", [("recomputed", 8, 67_108_864)], 67_108_864),
        ("s.full.nowe.before.hlo", [("recomputed", 8, 134_217_728)], 134_217_728),
        ("s.full.nowe.opt.hlo", [("recomputed", 8, 16_777_216)], 16_777_216),
    ],
)
def test_maxtext_policies(name: str, regions: Rows, stacked: int) -> None:
    file = dump(name)
    assert ask_file(file, "select verdict, matmuls, saved_bytes from remat") == regions
    total = "select sum(bytes) from residuals where kind = 'stacked'"
    assert ask_file(file, total) == [(stacked,)]


@needs_shared
def test_products_that_lost_their_names_are_replayed() -> None:
    """A layer of qwen3 replays query, key, value, output, router and three ragged products, and
    its kernel. After optimization, two of the eight have no op_name."""
    texts = [dump(f"qwen3moe.raggeddot.full.{stage}.hlo") for stage in ("before", "opt")]
    both = Facts(Program([parse(text.read_text()) for text in texts], [BEFORE, AFTER]))
    sql = "select matmuls, kernels, undone from remat order by module"
    assert run_query([both], sql).rows == [(8, 1, 0), (8, 1, 0)]


@needs_shared
@pytest.mark.parametrize("name", ["v6e_2x4.full.opt.hlo", "s.full.nowe.opt.hlo"])
def test_the_down_projection_and_the_head_are_not_replayed(name: str) -> None:
    """Lines of the program: 41 query, key, value; 43 scores; 45 and 47 their products; 51 gate and
    up, 52 down, 69 the head."""
    twins = """(select instr from members where "table" = 'remat' and role = 'twin')"""
    sql = f"""select distinct source from matmuls where phase = 'fwd' and instr {{}} {twins}"""
    replayed = {str(row[0]).rpartition(":")[2] for row in ask_file(dump(name), sql.format("in"))}
    others = {str(row[0]).rpartition(":")[2] for row in ask_file(dump(name), sql.format("not in"))}
    assert replayed == {"41", "43", "45", "47", "51"}
    assert others - replayed == {"52", "69"}


@needs_shared
@pytest.mark.parametrize("name", ["v6e_2x4.full.opt.hlo", "gemma2-9b.full.tpu7x.opt.hlo"])
def test_collectives_are_counted_as_their_table_has_them(name: str) -> None:
    sql = "select count(*) from collectives where phase = 'remat'"
    assert ask_file(dump(name), "select sum(collectives) from remat") == ask_file(dump(name), sql)


@needs_shared
def test_32_unrolled_layers() -> None:
    """A layer: six products, the attention kernel, seven gathers, and two norm scales that are
    gathered by one all-reduce. The down projection is not replayed."""
    row = ask_file(
        dump("llama2-7b.unroll32.full.opt.hlo"),
        "select verdict, matmuls, kernels, collectives from remat",
    )
    assert row == [("recomputed", 6 * 32, 32, 8 * 32)]


# -- the llama fixtures: what a policy keeps ------------------------------------------------------

LLAMA = REMAT.parent / "llama"


@pytest.mark.parametrize(
    ("case", "rows"),
    [
        # The named policy replays the scores alone; full, all but the down projection.
        ("none-published", []),
        ("minimal-with-context-published", [("recomputed", 1, 0.07)]),
        ("full-published", [("recomputed", 8, 0.81)]),
        ("full-accumulated", [("recomputed", 5, 0.79)]),
        ("full-tensor", [("recomputed", 5, 0.79)]),
    ],
)
def test_llama_policies(case: str, rows: Rows) -> None:
    folder = LLAMA / case / "rocm-gfx950-8"
    assert asked(folder, "select verdict, matmuls, round(recompute_factor, 2) from remat") == rows
    told = json.loads((folder / "saved_residuals.json").read_text())["residuals"]
    stacked = {one["kind"] for one in told if one["stacked"] and one["kind"] != "argument"}
    assert (stacked == {"carry"}) == case.startswith("full")
    assert ("name" in stacked) == (not case.startswith("full"))
