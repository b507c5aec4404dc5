"""MODULE:FUNCTION, and functions that build what is compiled."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from hlo_lens.aot import FunctionError
from hlo_lens.aot.reference import build, check_reference, needs_mesh, resolve
from tests.aot import models


def test_a_reference() -> None:
    assert check_reference("nets.llama:Model.step") == ("nets.llama", "Model.step")
    assert resolve("tests.aot.models:product") is models.product
    assert resolve("tests.aot.models:product.__call__") is not None


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("model", "write MODULE:FUNCTION"),
        ("model.py:f", "no module 'model'"),
        ("model:", "write MODULE:FUNCTION"),
        ("nets/model:f", "write MODULE:FUNCTION"),
        ("tests.aot.nothing:f", "no module 'tests.aot.nothing' here"),
        ("tests.aot.models:nothing", "module 'tests.aot.models' has no 'nothing'"),
        ("tests.aot.models:no_function", "is a int, no function"),
    ],
)
def test_no_reference(reference: str, told: str) -> None:
    with pytest.raises(FunctionError) as caught:
        resolve(reference)
    assert told in caught.value.render()


def test_what_a_module_wants_itself_is_not_taken_for_the_module(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wanting.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        resolve("wanting:f")


def test_the_parameter_that_takes_the_mesh() -> None:
    def plain() -> None: ...
    def named(size: int = 1, mesh: Any = None) -> None: ...
    def first(devices: Any, *, size: int = 1) -> None: ...
    def two(policy: str, mesh: Any) -> None: ...

    assert needs_mesh(plain, {}) is None
    assert needs_mesh(named, {}) == "mesh"
    assert needs_mesh(named, {"mesh": 1}) is None
    assert needs_mesh(first, {"size": 2}) == "devices"
    assert needs_mesh(two, {}) == "mesh"
    assert needs_mesh(functools.partial(first, size=3), {}) == "devices"
    with pytest.raises(FunctionError, match=r"two_needed wants a, b;.*--arg"):
        needs_mesh(models.two_needed, {})
    with pytest.raises(FunctionError, match="plain takes no size; it takes nothing"):
        needs_mesh(plain, {"size": 2})


def test_what_is_built() -> None:
    def with_mesh(mesh: Any, size: int = 1) -> Any:
        return models.product, [mesh, size]

    def only_by_name(*, devices: Any) -> Any:
        return models.product, (devices,)

    assert build(with_mesh, "the mesh", {"size": 3}) == (models.product, ("the mesh", 3))
    assert build(only_by_name, "the mesh", {}) == (models.product, ("the mesh",))
    assert build(lambda devices: (models.product, (devices,)), 8, {}) == (models.product, (8,))
    with pytest.raises(FunctionError, match=r"returned no \(function, \(argument, \.\.\.\)\)"):
        build(lambda: models.product, "the mesh", {})
