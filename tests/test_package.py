"""The package as a whole: layers, first lines, and what must not be imported where."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hlo_lens

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in ("hlo_lens", "passes/hlo_lens_passes")
    for path in (ROOT / folder).rglob("*.py")
)

# layer -> the other layers of ours that it may import when it is itself imported.
FRAME = {"hlo", "files", "dumps", "program"}
LAYERS = {
    "hlo": set(),
    "files": set(),
    "dumps": set(),
    "program": {"hlo", "files", "dumps"},
    "from_jax": {"hlo", "program"},
    "decode": {"hlo", "files"},
    "analysis": {"hlo", "program"},
    "facts": {"hlo", "program", "analysis"},
    "graph": {"hlo", "analysis"},
    "show": {"files", "hlo", "program", "analysis"},
    "present": {"facts"},
    "inspect": {"facts", "present"},
    "tree": {"facts", "hlo", "present"},
    "query": {"facts"},
    "check": FRAME | {"analysis", "facts", "present", "diff"},
    "figure": FRAME | {"analysis", "facts", "present", "show"},
    "export": FRAME | {"facts", "graph", "present", "figure"},
    "notebook": {"facts", "hlo", "present"},
    "aot": {"hlo", "files", "dumps", "program"},
    "ledger": set(),
    "testing": {"check"},
    "pytest_plugin": set(),
    "hlo_lens_passes": FRAME | {"analysis", "facts", "decode"},
}


def layer(path: Path) -> str:
    """The folder or module below hlo_lens that `path` belongs to."""
    return path.parts[1] if path.parts[0] == "passes" else Path(path.parts[1]).stem


def imports(path: Path) -> Iterator[str]:
    """The modules that `path` imports at its top, TYPE_CHECKING blocks left out."""
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layers_imported(path: Path) -> set[str]:
    found = set()
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "hlo_lens" and len(parts) > 1:
            found.add(parts[1])
        elif parts[0] == "hlo_lens_passes":
            found.add(parts[0])
    known = {layer(each) for each in SOURCES}
    return (found & known) - {layer(path), "_version", "__init__"}


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_a_module_says_what_it_is_for_in_its_first_line(path: Path) -> None:
    text = (ROOT / path).read_text()
    assert ast.get_docstring(ast.parse(text)), path
    assert text.startswith(('"""', 'r"""')), path


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if layer(path) in LAYERS], ids=str
)
def test_a_module_imports_only_the_layers_below(path: Path) -> None:
    assert layers_imported(path) <= LAYERS[layer(path)]


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_only_the_runner_knows_the_passes(path: Path) -> None:
    if layer(path) != "hlo_lens_passes":
        assert "hlo_lens_passes" not in layers_imported(path)


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_jax_is_imported_inside_functions_only(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & {"jax", "jaxlib"}


def test_the_package_runs_as_a_module() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "hlo_lens", "--version"], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == f"hlolens {hlo_lens.__version__}\n"


def test_both_packages_are_typed() -> None:
    assert (ROOT / "hlo_lens" / "py.typed").is_file()
    assert (ROOT / "passes" / "hlo_lens_passes" / "py.typed").is_file()
