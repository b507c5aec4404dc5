"""What a compile leaves in its folder, made from what XLA dumped."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import hlo_lens
from hlo_lens.aot.folder import clear, collect, write_json
from hlo_lens.aot.provenance import MADE_BY
from hlo_lens.aot.scrub import Roots

ROOTS = Roots.of("/project")
STAGES = ["before_optimizations", "after_spmd_partitioner", "after_optimizations"]


def text(scheduled: bool = False) -> str:
    header = "HloModule jit_f, is_scheduled=true" if scheduled else "HloModule jit_f"
    frames = 'FileNames\n1 "/project/model.py"\n'
    return f"{header}\n\n{frames}\n\nENTRY e {{\n  ROOT p = f32[4] parameter(0)\n}}\n"


def dump(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / f"module_0001.jit_f.{name}"
        path.write_text(text("after_optimizations.txt" in name) if name[-4:] == ".txt" else "x")
    return folder


GPU = (
    "0001.spmd-partitioner.after_shardy-xla.before_spmd-partitioning.txt",
    "0002.spmd-partitioner.after_spmd-partitioning.before_call-inliner.txt",
    "after_spmd_partitioner.txt",
    "before_optimizations.txt",
    "config.pbtxt",
    "debug_options",
    "gpu_target_config.pbtxt",
    "sm_9.0a_gpu_after_optimizations-buffer-assignment.txt",
    "sm_9.0a_gpu_after_optimizations-memory-usage-report.txt",
    "sm_9.0a_gpu_after_optimizations.txt",
    "thunk_sequence.txt",
    "3.ptx",
)
TPU = (
    "cl_9.0001.xla-partitioner.after_tpu-spmd-partitioning.before_x.txt",
    "cl_9.after_codegen.txt",
    "cl_9.after_optimizations.txt",
    "cl_9.after_optimizations_after_buffer_assignment.txt",
    "cl_9.before_optimizations.txt",
    "cl_9.hlo_module_config.txt",
)


@pytest.mark.parametrize("names", [GPU, TPU], ids=["gpu", "tpu"])
def test_a_dump_becomes_a_program(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "dump").mkdir()
    digests = collect(dump(tmp_path / "dump", *names), tmp_path, ROOTS, devices=8, all_passes=False)
    program = hlo_lens.load(tmp_path, module=tmp_path.name)
    assert program.stages == tuple(STAGES)
    assert program.main.is_scheduled
    assert set(digests) == {path.name for path in tmp_path.glob("*.txt")}
    assert "/project" not in "".join(module.text for module in program.modules)
    for name, digest in digests.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    assert (tmp_path / "after_optimizations-buffer-assignment.txt").is_file() == (names is GPU)


def test_one_device_has_nothing_to_partition(tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    digests = collect(dump(tmp_path / "dump", *GPU), tmp_path, ROOTS, devices=1, all_passes=False)
    assert "after_spmd_partitioner.txt" not in digests
    assert "before_optimizations.txt" in digests


def test_all_passes(tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    digests = collect(dump(tmp_path / "dump", *GPU), tmp_path, ROOTS, devices=8, all_passes=True)
    assert [name for name in digests if name[:4].isdigit()] == list(GPU[:2])


def test_an_earlier_compile_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    for name in ("before_optimizations.txt", "mesh.json", "mine.txt"):
        (tmp_path / name).write_text("x")
    write_json(tmp_path / "provenance.json", {"made_by": "another tool", "files": {"mine.txt": ""}})
    clear(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4
    told = {
        "made_by": MADE_BY,
        "files": {"before_optimizations.txt": "", "../elsewhere.txt": ""},
        "side_files": ["mesh.json"],
    }
    write_json(tmp_path / "provenance.json", told)
    assert json.loads((tmp_path / "provenance.json").read_text()) == told
    clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
