"""Dump folders: what file names say, the modules and stages there are, choosing among them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hlo_lens.dumps import FileName, choose, choose_stage, read_name, scan, side_files_of

BEFORE, PARTITIONED, AFTER = "before_optimizations", "after_spmd_partitioner", "after_optimizations"
SCHEDULED = "HloModule m, is_scheduled=true\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        # As XLA writes them.
        ("module_0001.jit_step.before_optimizations.txt", ("module_0001.jit_step", BEFORE)),
        (
            "module_0001.jit_step.sm_9.0_gpu_after_optimizations.txt",
            ("module_0001.jit_step", AFTER, "sm_9.0_gpu"),
        ),
        (
            "module_0012.jit_f.gfx90a_gpu_after_optimizations.hlo.pb",
            ("module_0012.jit_f", AFTER, "gfx90a_gpu"),
        ),
        (
            "module_0001.jit_f.cpu_after_optimizations.hlo_module.pb",
            ("module_0001.jit_f", AFTER, "cpu"),
        ),
        (
            "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt",
            ("module_0001.jit_f", AFTER, "cpu", "buffer-assignment"),
        ),
        (
            "module_0001.jit_f.cpu_after_optimizations-memory-usage-report.txt",
            ("module_0001.jit_f", AFTER, "cpu", "memory-usage-report"),
        ),
        (
            "module_0001.jit_f.0003.simplify.after_algsimp.before_dce.txt",
            ("module_0001.jit_f", "0003.simplify.after_algsimp.before_dce"),
        ),
        (
            "module_0001.jit_f.0013.spmd-partitioner.after_spmd-partitioning.before_dce.txt",
            ("module_0001.jit_f", PARTITIONED),
        ),
        (
            "module_0000.jit_f.cl_1.0001.xla-partitioner.after_tpu-spmd-partitioning.before_x.txt",
            ("module_0000.jit_f.cl_1", PARTITIONED),
        ),
        ("module_0007.pjit__wrapped.step.before_optimizations.txt.gz",
         ("module_0007.pjit__wrapped.step", BEFORE)),
        # As people and other tools write them.
        ("before_optimizations.txt", ("", BEFORE)),
        ("gfx950_gpu_after_optimizations.txt", ("", AFTER, "gfx950_gpu")),
        ("after_spmd_partitioner.txt", ("", PARTITIONED)),
        ("mlp.full.opt.hlo", ("mlp.full", AFTER)),
        ("mlp.full.before.hlo", ("mlp.full", BEFORE)),
        ("jit_step_after_optimizations.txt", ("jit_step", AFTER)),
        ("train.hlo", ("train", "unknown")),
        # "opt" is a stage only behind a point or a dash.
        ("adopt.hlo", ("adopt", "unknown")),
        ("adam_opt.hlo", ("adam_opt", "unknown")),
    ],
)  # fmt: skip
def test_what_a_name_says(name: str, says: tuple[str, ...]) -> None:
    assert read_name(name) == FileName(*says)


@pytest.mark.parametrize("name", ["notes.md", "module_0001.jit_f.debug_options", "x.mlir"])
def test_other_files_are_no_hlo(name: str) -> None:
    assert read_name(name) is None


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    for name in (
        "module_0001.jit_step.before_optimizations.txt",
        "module_0001.jit_step.0002.simplify.after_dce.before_cse.txt",
        "module_0001.jit_step.sm_9.0_gpu_after_optimizations.txt",
        "module_0001.jit_step.sm_9.0_gpu_after_optimizations-buffer-assignment.txt",
        "module_0001.jit_step.thunk_sequence.txt",
        "module_0001.jit_step.debug_options",
        "module_0005.jit_init.before_optimizations.txt",
        "module_0009.jit_step.before_optimizations.txt",
        "remat/none/before_optimizations.txt",
        "remat/none/provenance.json",
        ".cache/module_0001.jit_x.before_optimizations.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


def test_modules_and_stages_in_the_order_of_the_compile(dump: Path) -> None:
    modules = scan(dump)
    assert [(m.key, m.name, m.number) for m in modules] == [
        ("module_0001.jit_step", "jit_step", 1),
        ("module_0005.jit_init", "jit_init", 5),
        ("module_0009.jit_step", "jit_step", 9),
        ("remat/none", "none", None),
    ]
    step = modules[0]
    assert [f.stage for f in step.stages] == [BEFORE, "0002.simplify.after_dce.before_cse", AFTER]
    assert [f.stage for f in step.main_stages()] == [BEFORE, AFTER]
    assert step.stages[2].platform == "sm_9.0_gpu"
    assert set(step.side_files) == {"buffer-assignment"}
    assert set(modules[3].side_files) == {"provenance.json"}


def test_a_bare_stage_in_the_folder_itself_is_named_after_the_folder(dump: Path) -> None:
    assert [module.key for module in scan(dump / "remat" / "none")] == ["none"]


def test_text_is_taken_before_a_proto_of_the_same_stage(tmp_path: Path) -> None:
    for suffix in ("hlo.pb", "txt"):
        (tmp_path / f"module_0001.jit_f.before_optimizations.{suffix}").write_text("x")
    (file,) = scan(tmp_path)[0].stages
    assert file.path.suffix == ".txt"


def test_names_that_say_nothing_are_looked_into(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text(SCHEDULED)
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(SCHEDULED.encode()))
    (tmp_path / "early.hlo").write_text(SCHEDULED.replace(", is_scheduled=true", ""))
    (tmp_path / "README.txt").write_text("About these dumps.\n")
    assert {m.key: m.stages[0].stage for m in scan(tmp_path)} == {
        "early": "unknown", "packed": AFTER, "plain": AFTER,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ("module_0005.jit_init", [5]),
        ("jit_init", [5]),
        ("5", [5]),
        ("0005", [5]),
        ("jit_step", [1, 9]),
        ("*init", [5]),
        ("module_000[19].*", [1, 9]),
        ("ini", [5]),
        ("nothing", []),
    ],
)
def test_choosing_modules(dump: Path, wanted: str, numbers: list[int]) -> None:
    assert [module.number for module in choose(scan(dump), wanted)] == numbers


@pytest.mark.parametrize(
    ("wanted", "stages"),
    [
        (AFTER, [AFTER]),
        ("opt", [AFTER]),
        ("before", [BEFORE]),
        ("spmd", []),  # not the pass "0002.spmd…": an alias means its stage
        ("0002", ["0002.x.after_spmd.before_y"]),
        ("optimizations", [BEFORE, AFTER]),
    ],
)
def test_choosing_stages(wanted: str, stages: list[str]) -> None:
    there = [BEFORE, "0002.x.after_spmd.before_y", AFTER]
    assert list(choose_stage(there, wanted)) == stages


def test_side_files_beside_one_file(dump: Path) -> None:
    found = side_files_of(dump / "module_0001.jit_step.sm_9.0_gpu_after_optimizations.txt")
    assert set(found) == {"buffer-assignment"}
    assert side_files_of(dump / "module_0005.jit_init.before_optimizations.txt") == {}
    beside = side_files_of(dump / "remat" / "none" / "before_optimizations.txt")
    assert set(beside) == {"provenance.json"}
