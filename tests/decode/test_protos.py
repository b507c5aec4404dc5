"""Serialized modules: told from text by their bytes, printed by jaxlib or a sentence without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import hlo_lens
from hlo_lens.decode import protos
from hlo_lens.files import InputError
from tests.conftest import Ran

HLO = """HloModule jit_f, is_scheduled=true

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %tanh.1 = f32[8]{0} tanh(%x), metadata={op_name="jit(f)/tanh"}
}
"""


def field(number: int, value: bytes) -> bytes:
    """A length-delimited field of a protobuf message; values under 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


MODULE = field(1, b"jit_f") + field(2, b"main") + field(3, field(1, b"main")) + b"\x28\x07"


def test_a_module_is_found_in_what_wraps_it() -> None:
    assert protos.module_bytes(MODULE) == MODULE
    hlo_proto = field(1, MODULE) + field(3, b"\x08\x01")
    assert protos.module_bytes(hlo_proto) == MODULE
    snapshot = field(1, hlo_proto)
    assert protos.module_bytes(snapshot) == MODULE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HloModule m\n",
        b"\nHloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n",
        MODULE[:-1],
        MODULE + b"\x00",
        field(2, b"main"),
        b"\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        field(1, b"\x00\x01\x02"),
    ],
)
def test_other_bytes_are_no_module(data: bytes) -> None:
    assert not protos.is_serialized_module(data)


def test_without_jaxlib_it_says_what_is_needed(
    cli: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protos, "_HOMES", ())
    path = tmp_path / "module_0001.jit_f.before_optimizations.hlo.pb"
    path.write_bytes(MODULE)
    ran = cli("show", path, "x")
    assert ran.code == 2
    assert ran.err == (
        f"hlolens: error: {path}: this is a serialized HLO module; "
        "reading it needs jaxlib: pip install 'hlo-lens[jax]'\n"
    )


@pytest.fixture
def serialized() -> bytes:
    """HLO, serialized by jaxlib."""
    from jaxlib import _hlo

    data: bytes = _hlo.hlo_module_from_text(HLO).as_serialized_hlo_module_proto()
    return data


@pytest.mark.jax
@pytest.mark.parametrize("wrapped", [False, True])
def test_with_jaxlib_it_is_read(tmp_path: Path, serialized: bytes, wrapped: bool) -> None:
    data = serialized
    if wrapped:
        size = len(data)
        assert 128 <= size < 1 << 14
        data = bytes([10, size & 127 | 128, size >> 7]) + data
    path = tmp_path / "module_0001.jit_f.cpu_after_optimizations.hlo.pb"
    path.write_bytes(data)
    program = hlo_lens.load(tmp_path)
    assert program.name == "jit_f"
    assert program.stages == ("after_optimizations",)
    assert program.main.is_scheduled
    assert program.main.entry.root.op_name == "jit(f)/tanh"


@pytest.mark.jax
def test_bytes_that_jaxlib_refuses_are_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "x.hlo.pb"
    path.write_bytes(MODULE)
    with pytest.raises(InputError, match="jaxlib cannot read this serialized module"):
        hlo_lens.load(path)
