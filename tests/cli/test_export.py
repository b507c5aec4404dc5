"""`hlolens export`: the format by suffix, the part that is chosen, and refusals in sentences."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import networkx as nx
import pytest

from tests.cli.test_hostile_text import ACTS, PAYLOADS
from tests.cli.test_hostile_text import TEXT as HOSTILE
from tests.conftest import Ran
from tests.export.panels import TEXT
from tests.export.test_model_explorer import check

Cli = Callable[..., Ran]

DEMO = Path(__file__).resolve().parents[2] / "fixtures" / "demo" / "fsdp_train_step.opt.hlo"


@pytest.fixture
def step(tmp_path: Path) -> str:
    path = tmp_path / "step.hlo"
    path.write_text(TEXT)
    return str(path)


def names(graphml: str) -> set[str]:
    graph = nx.read_graphml(io.BytesIO(graphml.encode()))
    return {name for _, name in graph.nodes(data="name")}


# -- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["sqlite", "sqlite3", "db", "DB"])
def test_a_database_of_several_files(cli: Cli, step: str, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    ran = cli("export", step, str(DEMO), "-o", str(path))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT module, name FROM modules ORDER BY module").fetchall()
        programs = database.execute("SELECT name FROM programs").fetchall()
    assert found == [(0, "step"), (1, "jit_train_step")]
    assert programs == [("step",), ("jit_train_step",)]


def test_graphml_of_the_rows_of_a_table(cli: Cli, step: str, tmp_path: Path) -> None:
    path = tmp_path / "out.graphml"
    rows = ("--table", "collectives", "--radius", "0")
    assert cli("export", step, *rows, "-o", str(path)).code == 0
    assert names(path.read_text()) == {"all"}


def test_graphml_around_a_name_on_standard_output(cli: Cli, step: str) -> None:
    ran = cli("export", step, "--around", "row", "--radius", "1", "--format", "graphml")
    assert ran.code == 0
    assert {"row", "all"} <= names(ran.out)


@pytest.mark.parametrize("suffix", ["dot", "gv"])
def test_dot_is_that_of_figure(cli: Cli, step: str, tmp_path: Path, suffix: str) -> None:
    choice = ("--around", "all", "--radius", "1")
    path = tmp_path / f"out.{suffix}"
    assert cli("export", step, *choice, "-o", str(path)).code == 0
    assert path.read_text() == cli("figure", step, *choice, "--format", "dot").out


def test_model_explorer_of_a_selection_of_several_files(cli: Cli, step: str) -> None:
    ran = cli("export", step, step, "--around", "all", "--format", "model-explorer")
    written = json.loads(ran.out)
    check(written)
    assert written["label"] == "step"
    assert len(written["graphs"]) == 2
    labels = {node["label"] for node in written["graphs"][0]["nodes"]}
    assert "all-reduce" in labels


def test_model_explorer_of_a_whole_module(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert cli("export", str(DEMO), "--all", "-o", str(path)).code == 0
    written = json.loads(path.read_text())
    check(written)
    counted = cli("query", str(DEMO), "SELECT count(*) AS n FROM instructions", "--format", "json")
    assert json.loads(counted.out)["rows"] == [[len(written["graphs"][0]["nodes"])]]


def test_the_named_format_wins_over_the_suffix(cli: Cli, step: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    choice = ("--table", "collectives", "--format", "graphml")
    assert cli("export", step, *choice, "-o", str(path)).code == 0
    assert path.read_text().startswith("<?xml")


@pytest.mark.parametrize("form", ["graphml", "dot", "model-explorer"])
def test_the_same_call_gives_the_same_text(cli: Cli, form: str) -> None:
    call = ("export", str(DEMO), "--table", "collectives", "--format", form)
    assert cli(*call).out == cli(*call).out != ""


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "--format says what to write: sqlite, graphml, dot, model-explorer"),
        (["-o", "-"], "--format says what to write"),
        (["-o", "x.txt"], "x.txt: the suffix says no format; there are .sqlite (sqlite)"),
        (["-o", "x"], "x: the suffix says no format"),
        (["--format", "sqlite"], "a SQLite file is no text; name it with -o"),
        (["--format", "sqlite", "-o", "-"], "a SQLite file is no text; name it with -o"),
        (["--view", "remat", "-o", "x.db"], "a SQLite file holds every table"),
        (["--all", "-o", "x.graphml"], "--all is for --format model-explorer"),
        (["--all", "--around", "y", "-o", "x.json"], "--all is the whole module"),
        (["-o", "no/x.db"], "no/x.db: no such file or folder"),
        (["--table", "nope", "-o", "x.json"], "nope"),
        (["--around", "nope", "-o", "x.graphml"], "nope"),
    ],
)
def test_what_cannot_be_written_is_said(
    cli: Cli,
    step: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli("export", step, *options)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["step.hlo"]


def test_a_folder_is_no_database(cli: Cli, step: str, tmp_path: Path) -> None:
    ran = cli("export", step, "--format", "sqlite", "-o", str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert "a database is a file of its own" in ran.err


def test_graphml_takes_one_file(cli: Cli, step: str) -> None:
    ran = cli("export", step, step, "--table", "collectives", "--format", "graphml")
    assert (ran.code, ran.out) == (2, "")
    assert "a GraphML file holds one graph; give one FILE" in ran.err


def test_a_large_module_is_refused_with_the_way_to_have_it(cli: Cli) -> None:
    ran = cli("export", str(DEMO), "--format", "model-explorer")
    assert (ran.code, ran.out) == (2, "")
    assert "too many" in ran.err
    assert "Model Explorer takes the whole module with --all" in ran.err


def test_nothing_of_what_was_asked_for_is_the_answer_no(
    cli: Cli, step: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    ran = cli("export", step, "--table", "custom_calls", "-o", str(path))
    assert ran.code == 1
    assert "custom_calls" in ran.err
    assert not path.exists()


def test_a_file_that_cannot_be_read_leaves_the_others(cli: Cli, step: str, tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    ran = cli("export", str(tmp_path / "nope.hlo"), step, "-o", str(path))
    assert ran.code == 2
    assert "nope.hlo: no such file or folder" in ran.err
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT name FROM modules").fetchall() == [("step",)]


# -- text of a file does not act ------------------------------------------------------------------


@pytest.mark.parametrize("form", ["graphml", "dot", "model-explorer", "whole", "sqlite"])
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_hostile_text_stays_text(cli: Cli, tmp_path: Path, form: str, payload: str) -> None:
    path, out = tmp_path / "hostile.hlo", tmp_path / "out"
    path.write_text(HOSTILE.replace("@", payload.replace('"', '\\"')))
    choice = ["--all"] if form == "whole" else ["--around", "q", "--around", "r"]
    name = "model-explorer" if form == "whole" else form
    if form == "sqlite":
        assert cli("export", str(path), "--format", name, "-o", str(out)).code == 0
        with closing(sqlite3.connect(out)) as database:
            ((count,),) = database.execute("SELECT count(*) FROM instructions").fetchall()
        assert count > 0
        return
    ran = cli("export", str(path), *choice, "--format", name)
    assert ran.code == 0, ran.err
    assert not ACTS.search(ran.out)
    if form == "graphml":
        assert {"q", "r"} <= names(ran.out)
    elif form != "dot":
        check(json.loads(ran.out))
