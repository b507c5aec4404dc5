"""What `jax.config` says here, it says in the process that compiles."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.jax


def test_they_are_what_holds_in_this_thread_as_json() -> None:
    import jax

    from hlo_lens.aot.settings import settings

    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        said = settings()
    assert said["jax_enable_x64"] is True
    assert said["jax_numpy_dtype_promotion"] == "strict"
    assert settings()["jax_enable_x64"] is False
    assert json.loads(json.dumps(said)) == said


def test_where_devices_and_caches_are_is_of_the_process() -> None:
    from hlo_lens.aot.settings import settings

    said = settings()
    for name in ("jax_platforms", "jax_num_cpu_devices", "jax_compilation_cache_dir"):
        assert name not in said


def test_each_can_be_told_again_and_what_differs_is_told() -> None:
    import jax

    from hlo_lens.aot.settings import settings, take

    here = settings()
    for name, value in here.items():
        jax.config.update(name, value)
    assert settings() == here
    assert take(here) == {}
    try:
        assert take({**here, "jax_enable_x64": True}) == {"jax_enable_x64": True}
        assert settings()["jax_enable_x64"] is True
    finally:
        jax.config.update("jax_enable_x64", False)


def test_what_the_environment_says_otherwise_is_not_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    from hlo_lens.aot.settings import SettingError, settings, take

    here = settings()
    monkeypatch.setenv("JAX_ENABLE_X64", "0")
    assert take(here) == {}
    with pytest.raises(SettingError, match="is True, but JAX_ENABLE_X64=0 in the environment"):
        take({**here, "jax_enable_x64": True})


def test_one_that_this_jax_lacks_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    from hlo_lens.aot.settings import take

    assert take({"jax_of_tomorrow": 3}) == {}
    assert "no jax_of_tomorrow here" in capsys.readouterr().err


def test_a_program_for_x64_is_compiled_with_it() -> None:
    pytest.importorskip("cloudpickle")
    import jax
    import jax.numpy as jnp

    from hlo_lens.aot import CompileError, compile

    def square(x: jax.Array) -> jax.Array:
        return (x @ x) * jnp.arange(4.0)

    x = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    plain = compile(square, x, target="cpu")
    assert "config" not in json.loads(plain.side_files["provenance.json"].read_text())
    with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
        wide = compile(square, x, target="cpu")
        patch.setenv("JAX_ENABLE_X64", "0")
        with pytest.raises(CompileError, match="which is meant"):
            compile(square, x, target="cpu")
    for program, dtype in ((plain, "f32"), (wide, "f64")):
        root = program.main.entry.root
        assert root.shape.dtype == dtype
    made = json.loads(wide.side_files["provenance.json"].read_text())
    assert made["config"] == {"jax_enable_x64": True}
