"""What is there to compile with, and the pip line for what is not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from hlo_lens.aot import packages, parse_target
from hlo_lens.aot.packages import Readiness, readiness

Installed = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Pretend that these packages, at these versions, are all that is installed."""

    def pretend(
        versions: dict[str, str],
        *,
        requires: Iterable[str] = (),
        library: str | None = None,
        ptxas: bool = True,
        loads: bool = True,
    ) -> None:
        path = Path(f"jax_plugins/{library}") if library else None
        monkeypatch.setattr(packages, "_version", versions.get)
        monkeypatch.setattr(packages, "_requirements", lambda _: iter(requires))
        monkeypatch.setattr(packages, "plugin_library", lambda _: path)
        monkeypatch.setattr(packages, "_has_ptxas", lambda: ptxas)
        monkeypatch.setattr(packages, "_loads", lambda _: loads)

    return pretend


JAX = {"jax": "0.11.0", "jaxlib": "0.11.0"}
CUDA = {"jax-cuda13-plugin": "0.11.0", "jax-cuda13-pjrt": "0.11.0"}
ROCM = {"jax-rocm7-plugin": "0.11.0.post1", "jax-rocm7-pjrt": "0.11.0.post1"}
WANTS = ["numpy>=2", 'libtpu==0.0.44.*; extra == "tpu"']


def asked(name: str) -> Readiness:
    return readiness(parse_target(name))


def test_pins_follow_the_installed_jaxlib(installed: Installed) -> None:
    installed(JAX, requires=WANTS)
    assert asked("cpu:8") == Readiness(True)
    assert asked("tpu:v6e-8").install == "pip install 'libtpu==0.0.44.*'"
    assert asked("cuda:h100").install == (
        "pip install jax-cuda13-plugin==0.11.0 jax-cuda13-pjrt==0.11.0 nvidia-cuda-nvcc nvidia-nvvm"
    )
    # ROCm's are released again as 0.11.0.post1, which ==0.11.0 would not take.
    assert asked("rocm:gfx950").install == (
        "pip install 'jax-rocm7-plugin==0.11.0.*' 'jax-rocm7-pjrt==0.11.0.*'"
    )


def test_without_jax_everything_is_pinned_to_a_release_that_works(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed({})
    for python, release in (((3, 13), "0.11.0"), ((3, 12), "0.11.0"), ((3, 11), "0.10.2")):
        monkeypatch.setattr(sys, "version_info", python)
        assert asked("cpu") == Readiness(False, f"pip install jax=={release}")
        assert asked("tpu:v6e-8").install == f"pip install 'jax[tpu]=={release}'"
        assert asked("cuda:h100").install == (
            f"pip install jax=={release} jax-cuda13-plugin=={release} jax-cuda13-pjrt=={release} "
            "nvidia-cuda-nvcc nvidia-nvvm"
        )


def test_everything_there(installed: Installed) -> None:
    installed(JAX | {"libtpu": "0.0.44.1"}, requires=WANTS)
    assert asked("tpu:v6e-8") == Readiness(True)
    installed(JAX | CUDA, library="xla_cuda13/xla_cuda_plugin.so")
    assert asked("cuda:h100") == Readiness(True)
    installed(JAX | ROCM, library="xla_rocm7/xla_rocm_plugin.so")
    assert asked("rocm:gfx950") == Readiness(True)


def test_a_plugin_of_another_release_is_none(installed: Installed) -> None:
    installed(JAX | {"jax-rocm7-plugin": "0.12.0"}, library="xla_rocm7/xla_rocm_plugin.so")
    assert asked("rocm:gfx950").install is not None
    assert not asked("rocm:gfx950").ready
    # 0.11.0 begins 0.11.01, but is another release.
    installed(JAX | {"jax-cuda13-plugin": "0.11.01"}, library="xla_cuda13/xla_cuda_plugin.so")
    assert not asked("cuda:h100").ready


def test_ready_but_not_all_there(installed: Installed) -> None:
    installed(JAX | {"libtpu": "0.0.52"}, requires=WANTS)
    told = asked("tpu:v6e-8")
    assert (told.ready, told.install) == (True, "pip install 'libtpu==0.0.44.*'")
    assert told.note == "libtpu 0.0.52 is not the one that jax 0.11.0 was released with"
    installed(JAX | CUDA, library="xla_cuda13/xla_cuda_plugin.so", ptxas=False)
    told = asked("cuda:h100")
    assert (told.ready, told.install) == (True, "pip install nvidia-cuda-nvcc nvidia-nvvm")
    assert "no ptxas" in str(told.note)
    installed(JAX | ROCM, library="xla_rocm7/xla_rocm_plugin.so", loads=False)
    told = asked("rocm:gfx950")
    assert (told.ready, told.install) == (True, None)
    assert "--allow-stub-runtime" in str(told.note)


def test_versions_of_what_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = JAX | CUDA | ROCM | {"libtpu": "0.0.44", "nvidia-nvvm": "13.0"}
    monkeypatch.setattr(packages, "_version", everything.get)
    assert packages.installed_versions("cpu") == JAX
    assert packages.installed_versions("tpu") == JAX | {"libtpu": "0.0.44"}
    assert packages.installed_versions("cuda") == JAX | CUDA | {"nvidia-nvvm": "13.0"}
    assert packages.installed_versions("rocm") == JAX | ROCM
