"""`hlolens.compile` in tests: one compile for one question, where its text is, and what fails."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.jax,
    pytest.mark.skipif(find_spec("cloudpickle") is None, reason="cloudpickle is not installed"),
]

ONE_COMPILE = """
import jax.numpy as jnp
import pytest

def square(x):
    return x @ x

@pytest.mark.parametrize("number", range(4))
@pytest.mark.hlolens_targets("cpu")
def test_it(hlolens, number):
    program = hlolens.compile(square, jnp.ones((64, 64)))
    hlolens.assert_lowering(program).matmuls().count(1)
    (row,) = hlolens.assert_lowering(program).matmuls().rows()
    assert row["source"] == "test_one.py:5"
"""
EACH_ITS_OWN = """
import functools
import jax
import jax.numpy as jnp

TIMES = 1
X = jax.ShapeDtypeStruct((64, 64), jnp.float32)

@jax.jit
def power(x):
    for _ in range(TIMES):
        x = x @ x
    return x

def dots(hlolens, fn, x=X, **options):
    options.setdefault("target", "cpu")
    program = hlolens.compile(fn, x, **options)
    return len(hlolens.assert_lowering(program).matmuls().rows())

def test_what_the_function_holds(hlolens, monkeypatch):
    assert dots(hlolens, power) == 1
    monkeypatch.setitem(globals(), "TIMES", 2)
    assert dots(hlolens, power) == 2
    assert dots(hlolens, lambda x: power(x) @ x) == 3

def test_what_is_asked(hlolens, monkeypatch):
    first = hlolens.compile(power, X, target="cpu")
    assert hlolens.compile(power, X, target="cpu") is first
    others = [
        hlolens.compile(power, jax.ShapeDtypeStruct((32, 32), jnp.float32), target="cpu"),
        hlolens.compile(power, X, target="cpu:2"),
        hlolens.compile(power, X, target="cpu", all_passes=True),
    ]
    monkeypatch.setenv("ANY_VARIABLE", "1")
    others.append(hlolens.compile(power, X, target="cpu"))
    assert len({id(one) for one in [first, *others]}) == 5

def test_what_jax_is_told(hlolens):
    with jax.default_matmul_precision("highest"):
        program = hlolens.compile(power, X, target="cpu")
    assert "operand_precision={highest,highest}" in program.main.text
    assert "operand_precision" not in hlolens.compile(power, X, target="cpu").main.text
"""
FAILS = """
import jax.numpy as jnp

def wrong(x):
    return x @ x

def test_it(hlolens):
    hlolens.compile(wrong, jnp.ones((64, 63)), target="cpu")
"""
REAL_TARGETS = """
import jax.numpy as jnp
import pytest

@pytest.mark.hlolens_targets("cpu", "tpu:v6e-1", "cuda:h100", "rocm:gfx950")
def test_it(hlolens):
    def both(x):
        return (x @ x) @ x

    program = hlolens.compile(both, jnp.ones((64, 64), jnp.bfloat16))
    platform = {"cpu": "cpu", "tpu": "tpu"}.get(hlolens.target.partition(":")[0], "gpu")
    hlolens.assert_lowering(program).matmuls().count(2).modules(platform=platform).count(1)
"""


@pytest.fixture
def kept(pytester: pytest.Pytester) -> Path:
    return pytester.path / "kept"


def run(pytester: pytest.Pytester, kept: Path, *args: str) -> pytest.RunResult:
    quiet = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    return pytester.runpytest_subprocess("--basetemp", kept, "-ra", *quiet, *args)


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_one_compile_serves_all_tests_in_all_processes(
    pytester: pytest.Pytester, kept: Path, mode: str
) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(test_one=ONE_COMPILE)
    run(pytester, kept, "-n", "2", f"--import-mode={mode}").assert_outcomes(passed=4)
    (folder,) = (kept / "hlolens").iterdir()
    assert folder.name.startswith("square-cpu-")
    assert (folder / "after_optimizations.txt").is_file()


def test_what_differs_is_compiled_for_itself(pytester: pytest.Pytester, kept: Path) -> None:
    pytester.makepyfile(EACH_ITS_OWN)
    run(pytester, kept).assert_outcomes(passed=3)


def test_a_question_is_all_that_the_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax.numpy as jnp

    from hlo_lens.pytest_plugin import _key

    x = jnp.ones((8, 8))

    def key(x: object = x, times: int = 1, **options: object) -> str:
        return _key(lambda x: x * times, (x,), options)

    first = key(mesh={"a": 2, "b": 4})
    assert key(jnp.zeros((8, 8)), mesh={"a": 2, "b": 4}) == first  # values are not sent
    assert key(mesh={"b": 4, "a": 2}) != first
    assert key(jnp.ones((8, 4)), mesh={"a": 2, "b": 4}) != first
    assert key(times=2, mesh={"a": 2, "b": 4}) != first
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    assert key(mesh={"a": 2, "b": 4}) == first
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    assert key(mesh={"a": 2, "b": 4}) != first


def test_a_compile_that_fails_is_a_failure_in_a_sentence(
    pytester: pytest.Pytester, kept: Path
) -> None:
    pytester.makepyfile(test_fails=FAILS)
    result = run(pytester, kept)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*hlolens.compile(wrong, *",
            "E *CompileError: test_fails:wrong on cpu, tracing: test_fails.py:4: TypeError: *",
            "test_fails.py:7: CompileError",
            "*what the compiler printed*",
        ]
    )
    result.stdout.no_fnmatch_line("*hlo_lens/pytest_plugin.py*")


def test_each_target_that_is_installed_is_compiled_for(
    pytester: pytest.Pytester, kept: Path
) -> None:
    from hlo_lens.aot import parse_target, readiness

    names = ("cpu", "tpu:v6e-1", "cuda:h100", "rocm:gfx950")
    states = [readiness(parse_target(name)) for name in names]
    ready = sum(state.ready and not state.needs_stub_runtime for state in states)
    pytester.makepyfile(REAL_TARGETS)
    run(pytester, kept).assert_outcomes(passed=ready, skipped=len(names) - ready)
