"""What is told of how a text was made."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import pytest

from hlo_lens.aot import parse_argument, parse_target
from hlo_lens.aot.job import Outcome, environment
from hlo_lens.aot.provenance import provenance
from hlo_lens.aot.request import Request
from hlo_lens.cli.compile import command

REQUEST = Request(
    parse_target("rocm:gfx950-8"),
    reference="model:step",
    builds=False,
    options={"layers": 4, "policy": "full", "scan": True},
    arguments=[parse_argument("bf16[64,128]@fsdp,None"), parse_argument("f32[8]@(fsdp,tensor)")],
    mesh={"fsdp": 4, "tensor": 2},
    flags={"xla_gpu_enable_triton_gemm": False},
    all_passes=True,
    allow_stub_runtime=True,
    imports=["/somewhere"],
)
DONE = Outcome(
    error=None,
    where=None,
    step="compiling",
    seconds=2.0,
    results={
        "device": {"kind": "MI350X", "stand_ins": ["libamdhip64.so.7"], "spec": {"sha256": "0"}},
        "mesh": {"axes": {"fsdp": 4, "tensor": 2}, "devices": 8},
        "cost_analysis": {},
    },
    log="",
)


def told(request: Request = REQUEST, outcome: Outcome = DONE) -> dict[str, Any]:
    return provenance(request, "model:step", outcome, {"after_optimizations.txt": "abc"})


def test_a_request_travels() -> None:
    assert Request.from_json(REQUEST.to_json()) == REQUEST


def test_what_was_not_as_on_the_device() -> None:
    gpu = told()
    assert (gpu["autotuned"], gpu["stand_ins"]) == (False, ["libamdhip64.so.7"])
    assert gpu["flags"] == ["--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false"]
    assert gpu["device_spec"] == {"sha256": "0"}
    assert gpu["mesh"] == {"fsdp": 4, "tensor": 2}
    assert (gpu["complete"], gpu["executable"], gpu["error"]) == (True, True, None)
    assert gpu["side_files"] == ["mesh.json"]
    tpu = told(replace(REQUEST, target=parse_target("tpu:v6e-8")))
    assert (tpu["autotuned"], tpu["flags"]) == (None, ["--xla_gpu_enable_triton_gemm=false"])
    failed = told(outcome=replace(DONE, error="INTERNAL: no"))
    assert (failed["executable"], failed["error"]) == (False, "INTERNAL: no")


def test_no_path_and_no_date() -> None:
    assert "/somewhere" not in str(told())
    assert not {key for key in told() if "date" in key or "time" in key}


def test_the_command_does_the_same() -> None:
    program, verb, *words = shlex.split(told()["command"])
    assert (program, verb) == ("hlolens", "compile")
    with click.Context(command) as context:
        command.parse_args(context, [*words, "-o", "out"])
        given = context.params
    assert given["function"] == "model:step"
    assert given["target"] == "rocm:gfx950-8"
    assert given["mesh"] == ("fsdp=4,tensor=2",)
    assert given["arguments"] == ("bf16[64,128]@fsdp,None", "f32[8]@(fsdp,tensor)")
    assert given["options"] == ("layers=4", "policy=full", "scan=true")
    assert given["flags"] == ("--xla_gpu_enable_triton_gemm=false",)
    assert given["all_passes"]
    assert given["allow_stub_runtime"]
    assert told(replace(REQUEST, reference=None))["command"] is None


def test_settings_of_jax_are_told_and_flags_from_elsewhere_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: Sequence[tuple[str, str]] = (
        ("JAX_ENABLE_X64", "1"), ("JAX_PLATFORMS", "tpu"), ("XLA_FLAGS", "--xla_x"),
    )  # fmt: skip
    for name, value in settings:
        monkeypatch.setenv(name, value)
    assert told()["environment"]["JAX_ENABLE_X64"] == "1"
    assert "JAX_PLATFORMS" not in told()["environment"]
    env = environment(replace(REQUEST, target=parse_target("cpu:8")))
    assert env["JAX_ENABLE_X64"] == "1"
    assert env["JAX_PLATFORMS"] == "cpu"
    assert env["JAX_NUM_CPU_DEVICES"] == "8"
    assert "XLA_FLAGS" not in env
