"""What every test may use: the command line in-process, and capabilities that must not be skipped.

HLOLENS_REQUIRE names capabilities, comma separated: "shared" (the handed material), "jax",
"pandas", "polars". A test that is skipped for want of one of them then fails, so that CI cannot be
green by skipping.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hlo_lens.__main__ import main

pytest_plugins = ["pytester"]

# A test asks for what it needs of these; where the suite runs changes nothing that is printed.
for _name in list(os.environ):
    if _name.startswith("GITHUB_") or _name in ("CI", "BUILD_NUMBER", "FORCE_COLOR", "COLUMNS"):
        del os.environ[_name]

# How fast a loaded machine draws examples says nothing of the program.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# The marker of the tests that need a package which is not in the extra `test`.
MARKERS = {"jax": "jax", "pandas": "frames", "polars": "frames"}
CAPABILITIES = ("shared", *MARKERS)
REQUIRED = tuple(filter(None, os.environ.get("HLOLENS_REQUIRE", "").split(",")))


def pytest_configure(config: pytest.Config) -> None:
    if unknown := set(REQUIRED) - set(CAPABILITIES):
        raise pytest.UsageError(
            f"HLOLENS_REQUIRE names {', '.join(sorted(unknown))}; "
            f"there are: {', '.join(CAPABILITIES)}"
        )


@pytest.hookimpl(tryfirst=True)  # before `-m jax` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is skipped for want of a package; skip what is marked jax where there is none."""
    for item in items:
        reasons = [mark.kwargs.get("reason", "") for mark in item.iter_markers("skipif")]
        for package, marker in MARKERS.items():
            if any(package in reason for reason in reasons):
                item.add_marker(marker)
        if not any("jax" in reason for reason in reasons) and (
            find_spec("jax") is None and item.get_closest_marker("jax")
        ):
            item.add_marker(pytest.mark.skip(reason="jax is not installed"))


def missing_capability(reason: str) -> str | None:
    """The required capability for want of which a test was skipped, or None."""
    if "empty parameter set" in reason:  # parametrized over files that are not there
        return "shared" if "shared" in REQUIRED else None
    return next((name for name in REQUIRED if name in reason), None)


def _fail_required_skip(report: Any) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if missing_capability(reason) is not None:
        report.outcome = "failed"
        report.longrepr = f"HLOLENS_REQUIRE={','.join(REQUIRED)}, but skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    _fail_required_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    _fail_required_skip(report)
    return report


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of `hlolens`: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run `hlolens` in this process: `cli("show", path, "dot.1", stdin=b"...")`."""
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "FORCE_COLOR", "HLOLENS_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def run(*args: object, stdin: bytes = b"") -> Ran:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run
