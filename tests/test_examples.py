"""The notebooks of `examples/`: tidy as committed, and what they show is what they still give.

`make notebooks` executes them in place. Outputs are compared where the packages are those that they
were made with; with others a notebook runs, and its own assertions hold.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Where these are others, the compiler names and places things anew; pandas' tables are its own.
MADE_WITH = {"jax": "0.11.0", "jaxlib": "0.11.0", "libtpu": "0.0.44", "pandas": "3."}
PLUGIN = {"jax-rocm7-plugin": "0.11.0.post1"}
MOST_BYTES = 300_000
TIMEOUT = 900  # seconds that a cell may take
# Absolute paths, addresses, escapes of a terminal: what differs from machine to machine.
_OF_A_MACHINE = re.compile(
    r"(?<![\w./<])/(?:home|root|tmp|usr|opt|work|Users|var|private)/|\b0x[0-9a-f]{6,}\b|\x1b\["
    r"|ipykernel_\d"
)

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(notebook: dict[str, Any], kind: str = "code") -> list[dict[str, Any]]:
    """The cells of a kind, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def read(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_the_three_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "is_it_really_grouped_gemm",
        "where_did_my_remat_go",
        "which_collectives_run_in_my_backward",
    ]


@by_name
def test_a_notebook_is_what_nbformat_says(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbformat.validate(read(path))


@by_name
def test_its_cells_were_run_in_order_and_without_an_error(path: Path) -> None:
    notebook = read(path)
    counts = [cell["execution_count"] for cell in cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    kinds = {output["output_type"] for cell in cells(notebook) for output in cell["outputs"]}
    assert kinds == {"execute_result"}  # no error, nothing printed: no warning either
    assert 10 <= len(notebook["cells"]) <= 20


@by_name
def test_nothing_in_it_is_of_a_machine_or_of_a_run(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < MOST_BYTES
    notebook = read(path)
    assert notebook["metadata"] == METADATA
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    assert all(re.fullmatch(r"[a-z0-9]+", cell["id"]) for cell in notebook["cells"])
    written = "\n".join(texts(notebook))
    assert [found[0] for found in _OF_A_MACHINE.finditer(written)] == []


@by_name
def test_it_asks_claims_and_draws(path: Path) -> None:
    """What each is there to show; the claims are checked whenever it is run."""
    notebook = read(path)
    code = "\n".join("".join(cell["source"]) for cell in cells(notebook))
    for used in ("hlo_lens.aot.compile(", ".table(", ".where(", ".query(", "figure.save("):
        assert used in code
    assert re.search(r"^assert ", code, re.MULTILINE)
    assert figures(notebook)


@pytest.mark.jax
@by_name
def test_what_it_shows_is_what_it_gives(path: Path, tmp_path: Path) -> None:
    needed(path)
    again = execute(path, tmp_path)
    if not made_with(path):
        return  # it ran, and what it asserts holds
    committed = read(path)
    assert list(texts(again)) == list(texts(committed)), "`make notebooks` executes them in place"
    assert figures(again) == figures(committed)
    assert again["metadata"] == committed["metadata"]


def texts(notebook: dict[str, Any]) -> Iterator[str]:
    """Every output as text and as HTML."""
    for cell in cells(notebook):
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            yield from ("".join(data[kind]) for kind in ("text/plain", "text/html") if kind in data)


def figures(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What each figure says that it shows; where things are in it is its layout engine's matter."""
    found = []
    for cell in cells(notebook):
        for output in cell["outputs"]:
            svg = "".join(output.get("data", {}).get("image/svg+xml", ""))
            if said := re.search(r"<metadata[^>]*>(.*?)</metadata>", svg, re.DOTALL):
                found.append(json.loads(said[1])["panels"])
    return found


def needed(path: Path) -> None:
    """Skip where something is missing that the notebook takes."""
    for package in ("nbclient", "ipykernel", "pandas", "polars"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    code = path.read_text(encoding="utf-8")
    if "rocm:" in code and find_spec("jax_rocm7_plugin") is None:
        pytest.skip("XLA for ROCm is not installed")
    if "rocm:" in code and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("there is no C compiler for stand-ins of ROCm")
    if "tpu:" in code and find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed")


def made_with(path: Path) -> bool:
    """Whether what is installed is what the committed outputs were made with."""
    rocm = "rocm:" in path.read_text(encoding="utf-8")
    wanted = {name: text for name, text in MADE_WITH.items() if not (rocm and name == "libtpu")}
    wanted |= PLUGIN if rocm else {}
    try:
        return all(version(name).startswith(text) for name, text in wanted.items())
    except PackageNotFoundError:
        return False


def execute(path: Path, folder: Path) -> dict[str, Any]:
    """The notebook after it was run in `folder`, with nothing in it that tells of the run."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=TIMEOUT,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    for cell in notebook.cells:
        cell.metadata = {}
    notebook.metadata = METADATA
    executed = json.loads(nbformat.writes(notebook))
    assert isinstance(executed, dict)
    return executed


if __name__ == "__main__":
    import tempfile

    for one in map(Path, sys.argv[1:] or NOTEBOOKS):
        with tempfile.TemporaryDirectory() as scratch:
            done = execute(one, Path(scratch))
        one.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(one.name)
    sys.exit()
