"""Kernel bodies: found in a config, read with jaxlib, and told by size and hash without it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlo_lens.decode import kernels, mlir
from hlo_lens.decode.kernels import Body, body_of, name_in, operations
from hlo_lens.hlo import parse
from hlo_lens.hlo.config import parse_config

ATTENTION = Path(__file__).resolve().parents[2] / "fixtures/hlo/attention"

MLIR = """\
module @mine {
  func.func @mine(%arg0: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %0 = memref.load %arg0[%c0] : memref<8xf32>
    %1 = arith.addf %0, %0 : f32
    memref.store %1, %arg0[%c0] : memref<8xf32>
    func.return
  }
}
"""
OPERATIONS = {
    "arith.addf": 1,
    "arith.constant": 1,
    "func.func": 1,
    "func.return": 1,
    "memref.load": 1,
    "memref.store": 1,
}


def forget() -> None:
    for cached in (body_of, kernels._of_bytes, kernels._text_of, kernels._generic):
        cached.cache_clear()


@pytest.fixture
def without_jaxlib(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kernels, "_context", lambda: None)
    forget()
    yield
    forget()


def mosaic(body: str) -> Body:
    found = body_of(parse_config(json.dumps({"custom_call_config": {"body": body}})))
    assert found is not None
    return found


def bodies(case: str) -> dict[str, Body]:
    """The bodies of a fixture, by instruction."""
    text = (ATTENTION / case / "after_optimizations.txt").read_text()
    found = {
        instruction.name: body_of(config)
        for computation in parse(text).computations
        for instruction in computation.instructions
        if instruction.opcode == "custom-call" and (config := instruction.backend_config)
    }
    return {name: body for name, body in found.items() if body is not None}


# -- text


def test_the_text_of_a_kernel_needs_no_jaxlib(without_jaxlib: None) -> None:
    body = mosaic(MLIR)
    assert (body.form, body.size, name_in(body)) == ("mlir", len(MLIR), "mine")
    assert operations(body) == OPERATIONS


@pytest.mark.jax
def test_jaxlib_counts_the_same_in_its_text() -> None:
    forget()
    body = mosaic(MLIR)
    assert body.text is not None
    assert '"arith.addf"(' in body.text
    assert (operations(body), name_in(body)) == (OPERATIONS, "mine")


@pytest.mark.parametrize("with_jaxlib", [False, pytest.param(True, marks=pytest.mark.jax)])
def test_where_a_kernel_was_written_is_not_in_its_hash(
    with_jaxlib: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_jaxlib:
        monkeypatch.setattr(kernels, "_context", lambda: None)
    forget()
    moved = MLIR.replace(": f32\n", ': f32 loc("k.py":3:4)\n', 1)
    other = MLIR.replace("addf", "mulf")
    assert moved != MLIR
    assert mosaic(moved).digest == mosaic(MLIR).digest
    assert mosaic(other).digest != mosaic(MLIR).digest
    forget()


def test_triton_and_mosaic_gpu_carry_theirs_under_other_names() -> None:
    escaped = MLIR.replace("\n", "\\0A")
    for key in ("ir", "module"):
        found = body_of(parse_config(f'{{{key} = "{escaped}", num_warps = 4 : i32}}'))
        assert found is not None
        assert operations(found) == OPERATIONS


@pytest.mark.parametrize(
    "config",
    ['{"ir":"no kernel"}', '{"module":7}', '{"custom_call_config":{"body":""}}', "words", "{}"],
)
def test_what_is_no_kernel_is_none(config: str) -> None:
    assert body_of(parse_config(config)) is None


# -- bytes


def test_what_nobody_reads_is_its_size_and_the_hash_of_its_bytes() -> None:
    body = mosaic("<mosaic_body>")
    assert (body.form, body.size, operations(body), name_in(body)) == ("bytes", 13, None, None)
    assert body.digest == hashlib.sha256(b"<mosaic_body>").hexdigest()[:16]


def test_bytecode_without_jaxlib_is_its_bytes(without_jaxlib: None) -> None:
    (body,) = bodies("splash/tpu-v6e-1").values()
    assert (body.form, body.size, operations(body)) == ("bytes", 8275, None)
    (body,) = bodies("triton/cuda-h100").values()
    assert (body.form, operations(body)) == ("bytes", None)


@pytest.mark.jax
def test_the_matrix_products_of_splash_attention() -> None:
    forget()
    found = bodies("splash-train/tpu-v6e-1")
    products = {
        name_in(body): (operations(body) or {}).get("tpu.matmul") for body in found.values()
    }
    assert products == {
        "splash_mha_fwd_residuals": 2,  # S = Q K', O = P V
        "splash_mha_dq_no_residuals": 3,  # S again, dP = dO V', dQ = dS K
        "splash_mha_dkv_no_residuals": 4,  # S and dP again, dV = P' dO, dK = dS' Q
    }
    assert all(body.form == "mlir" for body in found.values())


@pytest.mark.jax
def test_the_matrix_products_of_the_triton_kernels() -> None:
    forget()
    for case in ("triton-train/cuda-h100", "triton-train-gfx950/rocm-gfx950"):
        found = [operations(body) or {} for body in bodies(case).values()]
        # Forward; the row sums of O dO; dK and dV (4 products), then dQ (3), in one kernel.
        assert [one.get("tt.dot", 0) for one in found] == [2, 0, 7]


@pytest.mark.jax
def test_bytecode_that_is_damaged_ends_nothing() -> None:
    forget()
    whole = next(
        kernels._bytes(found)
        for found in kernels._BODY.finditer(
            (ATTENTION / "triton/cuda-h100/after_optimizations.txt").read_text()
        )
    )
    reader = mlir.Reader()  # its own: one whose child has died too often reads no more
    try:
        assert reader.generic(whole) is not None
        assert reader.generic(whole[: len(whole) // 2]) is None
        for at in range(40, len(whole), 401):
            reader.generic(whole[:at] + b"\xff\x00\xff" + whole[at + 3 :])
    finally:
        reader.close()


# -- the process that reads


@pytest.mark.jax
def test_a_reader_that_dies_is_started_again() -> None:
    reader = mlir.Reader()
    try:
        assert reader.generic(MLIR) is not None
        assert reader._child is not None
        reader._child.kill()
        reader._child.wait()
        assert reader.generic(MLIR) is None
        assert reader.generic(MLIR) is not None
    finally:
        reader.close()


def test_a_reader_that_cannot_run_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    reader = mlir.Reader()
    assert [reader.generic(MLIR) for _ in range(6)] == [None] * 6


def test_no_kernel_no_reader() -> None:
    """Neither the module nor a config without a body starts or imports anything."""
    code = (
        "import sys; from hlo_lens.decode import kernels; from hlo_lens.hlo.config import"
        " parse_config; assert kernels.body_of(parse_config('{\"a\":1}')) is None;"
        " from hlo_lens.decode.mlir import reader;"
        " assert 'jaxlib' not in sys.modules and not reader.cache_info().currsize"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
