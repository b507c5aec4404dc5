"""Programs: what `load` takes, the stages and their order, the main module, cached analyses."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import hlo_lens
from hlo_lens.files import InputError
from hlo_lens.hlo import Module, parse
from hlo_lens.program import AFTER, BEFORE, PARTITIONED, UNKNOWN, Program, guess_stage, load
from tests.shared import needs_shared, texts

HLO = "HloModule {name}{header}\n\nENTRY e {{\n  ROOT p = f32[4] parameter(0)\n}}\n"


def text(name: str = "m", header: str = "") -> str:
    return HLO.format(name=name, header=header)


SCHEDULED = ", is_scheduled=true"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Three stages and a pass of one module, with side files."""
    for stage, header in (
        ("before_optimizations", ""),
        ("0013.spmd.after_spmd-partitioning.before_dce", ", num_partitions=2"),
        ("0020.simplify.after_dce.before_cse", ""),
        ("sm_9.0_gpu_after_optimizations", SCHEDULED),
    ):
        (tmp_path / f"module_0001.jit_f.{stage}.txt").write_text(text("jit_f", header))
    name = "module_0001.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt"
    (tmp_path / name).write_text("BufferAssignment:\n")
    (tmp_path / "provenance.json").write_text("{}")
    return tmp_path


def test_a_dump_folder_is_one_program(dump: Path) -> None:
    program = load(dump)
    assert program.name == "jit_f"
    assert program.stages == (BEFORE, PARTITIONED, AFTER)
    assert program.main is program.modules[2]
    assert program.main.is_scheduled
    assert program.stage(PARTITIONED) is program.modules[1]
    assert program.stage("nothing") is None
    assert [program.index(module) for module in program.modules] == [0, 1, 2]
    assert set(program.side_files) == {"buffer-assignment", "provenance.json"}
    assert repr(program) == (
        "<Program 'jit_f': before_optimizations, after_spmd_partitioner, after_optimizations>"
    )


def test_one_stage_of_a_folder(dump: Path) -> None:
    assert load(dump, stage="opt").stages == (AFTER,)
    assert load(dump, stage="0020").stages == ("0020.simplify.after_dce.before_cse",)
    with pytest.raises(InputError, match="no stage 'nothing' here; choose --stage from"):
        load(dump, stage="nothing")
    with pytest.raises(InputError, match="several stages 'optimizations' here"):
        load(dump, stage="optimizations")


def test_one_file(dump: Path) -> None:
    program = load(dump / "module_0001.jit_f.before_optimizations.txt")
    assert program.stages == (BEFORE,)
    assert set(program.side_files) == {"buffer-assignment", "provenance.json"}
    assert load(str(dump / "module_0001.jit_f.before_optimizations.txt"), module="jit_f")
    with pytest.raises(InputError, match="holds the module 'jit_f', not 'jit_g'"):
        load(dump / "module_0001.jit_f.before_optimizations.txt", module="jit_g")


def test_the_stage_of_a_lone_text(tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(text())
    assert load(path).stages == (UNKNOWN,)
    assert load(path, stage="before").stages == (BEFORE,)
    path.write_text(text(header=SCHEDULED))
    assert load(path).stages == (AFTER,)
    assert guess_stage(parse(text())) == UNKNOWN


def test_gzip_is_told_by_its_bytes(tmp_path: Path) -> None:
    data = text("zipped").encode()
    path = tmp_path / "step.hlo"
    path.write_bytes(gzip.compress(data[:20]) + gzip.compress(data[20:]))
    assert load(path).name == "zipped"
    (tmp_path / "step.gz").write_bytes(data)
    assert load(tmp_path / "step.gz").name == "zipped"


def test_a_cut_gzip_file_gives_what_it_holds(tmp_path: Path) -> None:
    lines = "".join(f"  p.{i} = f32[{i * i % 97}] parameter({i})\n" for i in range(999))
    path = tmp_path / "step.hlo.gz"
    path.write_bytes(gzip.compress(f"HloModule m\n\nENTRY e {{\n{lines}}}\n".encode())[:-60])
    program = load(path)
    assert [repair.kind for repair in program.main.repairs] == ["truncated"]
    assert 900 < program.main.instruction_count < 999


def test_missing_files_raise_what_open_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.hlo")


def test_bad_text_raises_the_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text("ENTRY e {\n  ROOT p = f32[4] parameter(0) ]\n}\n")
    with pytest.raises(hlo_lens.HloParseError, match=rf"^{path}:2:\d+: expected .*, found "):
        load(path)


def modules(*headers: str) -> list[Module]:
    return [parse(text(header=header)) for header in headers]


def test_the_main_module_is_the_most_optimized_stage() -> None:
    one, two, three = modules("", "", "")
    assert Program([one, two], [AFTER, BEFORE]).main is one
    assert Program([one, two], [BEFORE, "0003.p.after_x"]).main is two
    assert Program([one, two, three], ["0003.p", PARTITIONED, BEFORE]).main is two


def test_a_program_needs_modules_and_a_stage_each() -> None:
    with pytest.raises(ValueError, match="at least one module"):
        Program([])
    with pytest.raises(ValueError, match="1 modules, but 2 stages"):
        Program(modules(""), [BEFORE, AFTER])
    with pytest.raises(ValueError, match="is not part of"):
        Program(modules("")).index(parse(text()))


def test_the_analysis_of_a_module_is_made_once() -> None:
    program = Program(modules("", SCHEDULED))
    first = program.analysis(program.modules[0])
    assert program.analysis(program.modules[0]) is first
    assert program.analysis(program.modules[1]) is not first


def test_the_package_exports() -> None:
    assert hlo_lens.load is load
    assert hlo_lens.parse is parse
    assert set(hlo_lens.__all__) <= set(dir(hlo_lens))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hlo_lens.nothing  # noqa: B018


@needs_shared
def test_every_shared_folder_lists_and_loads() -> None:
    (folder,) = texts("gfx950")
    from hlo_lens.dumps import scan

    found = {module.key: load(folder, module=module.key) for module in scan(folder)}
    assert len(found) == 18
    assert found["remat/none"].stages == (BEFORE,)
    assert set(found["remat/none"].side_files) == {"provenance.json"}
    assert found["sharding/tp"].stages == (PARTITIONED,)
    assert found["lhs/on"].stages == (AFTER,)
