"""Compiles, each in a process of its own: on the CPU, and for accelerators that are not here."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import hlo_lens
from hlo_lens.aot import CompileError, FunctionError, compile, compile_reference
from hlo_lens.aot.packages import plugin_library, readiness
from hlo_lens.aot.targets import parse_target
from tests.aot import models
from tests.conftest import Ran
from tests.shared import SHARED

Cli = Callable[..., Ran]

REFERENCE = "tests.aot.models"


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


needs_tpu = pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed")
needs_cuda = pytest.mark.skipif(
    plugin_library("cuda") is None, reason="the PJRT plugin for CUDA is not installed"
)
needs_rocm = pytest.mark.skipif(
    plugin_library("rocm") is None, reason="the PJRT plugin for ROCm is not installed"
)


@pytest.mark.jax
def test_a_folder_that_is_a_program(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = cli("compile", f"{REFERENCE}:step", "--target", "cpu:8", "--mesh", "fsdp=8", "-o", out,
              "--set", "layers=3", "--all-passes")  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{out}: before_optimizations (")
    program = hlo_lens.load(out)
    assert program.stages == (
        "before_optimizations", "after_spmd_partitioner", "after_optimizations"
    )  # fmt: skip
    assert program.main.num_partitions == 8
    assert {"saved_residuals.json", "mesh.json"} <= set(program.side_files)
    frames = {frame.file for i in program.main.entry.instructions for frame in _frames(i)}
    assert "tests/aot/models.py" in frames
    assert not any("hlo_lens" in file or "runpy" in file for file in frames)
    assert len(list(out.glob("0*.txt"))) > 10
    provenance = read(out, "provenance")
    assert provenance["function"] == f"{REFERENCE}:step"
    assert provenance["mesh"] == {"fsdp": 8}
    assert provenance["executable"]
    assert read(out, "memory_analysis")["argument_size_in_bytes"] > 0
    assert read(out, "cost_analysis")["flops"] > 0
    (hidden,) = (r for r in read(out, "saved_residuals")["residuals"] if r["checkpoint_name"])
    assert (hidden["checkpoint_name"], hidden["stacked"]) == ("hidden", 3)
    assert hidden["source"].startswith("tests/aot/models.py:")
    (region,) = read(out, "saved_residuals")["checkpoints"]
    assert (region["count"], region["names"], region["saves"]) == (3, {"hidden": "saved"}, True)
    assert region["source"].startswith("tests/aot/models.py:")
    everything = "".join(path.read_text() for path in out.iterdir())
    assert str(Path.cwd()) not in everything
    assert sys.prefix not in everything


def _frames(instruction: Any) -> tuple[Any, ...]:
    metadata = instruction.metadata
    if metadata is None or metadata.stack_frame_id is None:
        return ()
    return tuple(instruction.computation.module.frames.stack(metadata.stack_frame_id))


@pytest.mark.jax
def test_again_it_is_the_same(tmp_path: Path) -> None:
    steps: list[str] = []
    for name in ("one", "two"):
        compile_reference(
            f"{REFERENCE}:product",
            target="cpu:2",
            arguments=["f32[8,4]@x,None", "f32[4,8]"],
            mesh="x=2",
            out=tmp_path / name,
            progress=steps.append,
        )
    first, second = (
        {path.name: path.read_text() for path in (tmp_path / name).iterdir()}
        for name in ("one", "two")
    )
    assert first == second
    assert steps == 2 * ["starting jax", "building the function", "tracing", "compiling"]
    assert "--arg 'f32[8,4]@x,None' --arg 'f32[4,8]'" in first["provenance.json"]


@pytest.mark.jax
def test_a_function_of_this_process() -> None:
    import jax
    import jax.numpy as jnp

    mesh = jax.sharding.AbstractMesh((2,), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    a = jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=rows)
    program = compile(models.product, a, jnp.ones((4, 8)), target="cpu:2")
    assert program.main.num_partitions == 2
    shapes = [str(each.shape) for each in program.main.entry.parameters]
    assert sorted(shapes) == ["f32[4,4]{1,0}", "f32[4,8]{1,0}"]
    assert read(program.side_files["mesh.json"].parent, "mesh")["axes"] == {"x": 2}


@pytest.mark.jax
@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="cloudpickle is not installed")
def test_a_jitted_closure_keeps_what_jit_was_told() -> None:
    import jax
    import jax.numpy as jnp

    factor = 3.0
    f = jax.jit(lambda x, n: x * factor + n, donate_argnums=0, static_argnums=1)
    program = compile(f, jnp.ones((4,)), 5, target="cpu")
    assert len(program.main.entry.parameters) == 1
    assert program.main.input_output_alias


@pytest.mark.jax
@pytest.mark.skipif(find_spec("cloudpickle") is None, reason="cloudpickle is not installed")
def test_a_function_under_a_checkpoint_of_a_cell_is_sent() -> None:
    import jax
    import jax.numpy as jnp

    layer = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    program = compile(jax.grad(lambda x: layer(x).sum()), jnp.ones((4,)), target="cpu")
    assert len(program.table("remat")) == 2  # before optimization, and what is left of it


@pytest.mark.jax
def test_what_cannot_be_sent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(FunctionError, match=r"takes cloudpickle.*hlo-lens\[aot\]"):
        compile(lambda: None, target="cpu")


@pytest.mark.jax
def test_failures_in_sentences(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = cli("compile", f"{REFERENCE}:wrong_shapes", "--target", "cpu", "-o", out)
    assert (ran.code, ran.out) == (2, "")
    where = f"hlolens: error: {REFERENCE}:wrong_shapes on cpu, tracing: tests/aot/models.py:"
    assert ran.err.startswith(where)
    assert ran.err.count("\n") == 1
    assert "dot_general" in read(out, "provenance")["error"]
    assert list(out.glob("*.txt")) == []


@pytest.mark.jax
def test_what_lacks_only_a_library_is_complete(cli: Cli, tmp_path: Path) -> None:
    ran = cli("compile", f"{REFERENCE}:calls_a_library", "--target", "cpu", "-o", tmp_path / "out")
    assert ran.code == 0
    assert "the HLO is complete, but no executable came of it: NOT_FOUND" in ran.err
    provenance = read(tmp_path / "out", "provenance")
    assert (provenance["complete"], provenance["executable"]) == (True, False)


@pytest.mark.jax
def test_a_compile_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"not done after 0\.05 seconds, while starting"):
        compile_reference(f"{REFERENCE}:step", target="cpu", out=tmp_path, timeout=0.05)
    assert read(tmp_path, "provenance")["complete"] is False


# --- accelerators that are not here ------------------------------------------------------------


def skeleton(module: Any) -> Counter[tuple[str, str, str | None]]:
    """What there is of a module, whatever it is called: opcode, shape, custom-call target."""
    return Counter(
        (i.opcode, i.shape_text, i.custom_call_target)
        for computation in module.computations
        for i in computation.instructions
    )


def same_as_shared(program: hlo_lens.Program, name: str) -> None:
    if SHARED is None:
        pytest.skip("the shared material is not beside this checkout")
    if readiness(parse_target("cpu")).ready and _jax_release() == "0.11.0":
        for stage in ("before_optimizations", "after_optimizations"):
            text = (SHARED / "dumps" / "gpu-aot" / f"{name}.{stage}.txt").read_text()
            assert skeleton(program.stage(stage)) == skeleton(hlo_lens.parse(text))


def _jax_release() -> str:
    from importlib.metadata import version

    return version("jaxlib")


@needs_tpu
def test_tpu(tmp_path: Path) -> None:
    program = compile_reference(
        f"{REFERENCE}:fsdp", target="tpu:v6e-8", mesh={"d": 8}, out=tmp_path
    )
    assert program.stages[1] == "after_spmd_partitioner"
    opcodes = {i.opcode for c in program.main.computations for i in c.instructions}
    assert "convolution" in opcodes  # a TPU's dot
    assert opcodes & {"all-gather", "all-gather-start", "async-start"}
    assert "T(8,128)" in program.main.text
    assert read(tmp_path, "provenance")["target"]["device_kind"] == "TPU v6 lite"


@needs_cuda
def test_cuda(tmp_path: Path) -> None:
    program = compile_reference(
        f"{REFERENCE}:fsdp", target="cuda:h100-8", mesh={"d": 8}, out=tmp_path
    )
    same_as_shared(program, "cuda_h100_fullspec.fsdp")
    assert read(tmp_path, "provenance")["autotuned"] is False


@needs_rocm
@pytest.mark.parametrize("grouped", [True, False])
def test_rocm(tmp_path: Path, grouped: bool) -> None:
    program = compile_reference(
        f"{REFERENCE}:grouped",
        target="rocm:gfx950",
        flags={"xla_gpu_experimental_use_ragged_dot_grouped_gemm": grouped},
        out=tmp_path,
        allow_stub_runtime=True,
    )
    targets = {i.custom_call_target for i in program.main.entry.instructions}
    assert ("__cublas$lt$groupedMatmul" in targets) == grouped
    same_as_shared(program, f"rocm_gfx950.ragged_grouped_{str(grouped).lower()}")


@needs_rocm
def test_rocm_without_its_libraries_is_asked_for(tmp_path: Path) -> None:
    if readiness(parse_target("rocm:gfx950")).note is None:
        pytest.skip("ROCm is installed here")
    with pytest.raises(CompileError, match="--allow-stub-runtime builds stand-ins"):
        compile_reference(f"{REFERENCE}:grouped", target="rocm:gfx950", out=tmp_path)
    assert read(tmp_path, "provenance")["stand_ins"] == []
