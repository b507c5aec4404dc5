"""A pass of another package: installed it is like any other, broken it is a finding."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlo_lens.facts import Facts, discover_passes
from tests.facts.toys import TEXT, program

EXAMPLE = Path(__file__).parent / "hlo-lens-example-pass"


# -- installed ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package installed by pip."""
    target = tmp_path_factory.mktemp("site")
    offline = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--no-deps", *offline, "--target", str(target), str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and not offline:
        pytest.skip("hatchling is not installed and pip cannot fetch it")
    assert done.returncode == 0, done.stderr
    return target


def hlolens(site: Path, *arguments: str) -> str:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "hlo_lens", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        input=TEXT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_table_is_queried(installed: Path) -> None:
    sql = "SELECT name, number, bytes, executions FROM entry_parameters"
    answer = json.loads(hlolens(installed, "query", "-", sql, "--format", "json"))
    assert answer["rows"] == [["a", 0, 8, 1]]


def test_its_members_are_queried(installed: Path) -> None:
    sql = "SELECT role, instr FROM members WHERE \"table\" = 'entry_parameters'"
    answer = json.loads(hlolens(installed, "query", "-", sql, "--format", "json"))
    assert answer["rows"] == [["parameter", 0]]


def test_its_table_and_rule_are_described(installed: Path) -> None:
    assert "a parameter of an entry computation" in hlolens(installed, "schema", "entry_parameters")
    assert "The caller passes a value" in hlolens(installed, "rules", "unused-entry-parameter")


# -- broken ---------------------------------------------------------------------------------------


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path; what `install` puts there is discovered in this test only."""
    monkeypatch.syspath_prepend(tmp_path)
    discover_passes.cache_clear()
    yield tmp_path
    discover_passes.cache_clear()


def install(folder: Path, source: str, entry: str = "broken_plugin:PASS") -> None:
    """A package `broken_plugin` of that source, as an installer would leave it."""
    (folder / "broken_plugin.py").write_text(source)
    info = folder / "broken_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[hlo_lens.passes]\nbroken = {entry}\n")
    sys.modules.pop("broken_plugin", None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no such driver')", "RuntimeError: no such driver"),
        ("import sys; sys.exit(1)", "SystemExit: 1"),
        ("def", "SyntaxError"),
        ("import missing_package", "No module named 'missing_package'"),
        ("", "has no attribute 'PASS'"),
        ("PASS = object()", "is no pass: it lacks name, tables, requires, rules, run"),
        (
            "class PASS:\n name='x'; tables=None; requires=(); rules=(); run=print",
            "cannot be used: TypeError",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used(plugin: Path, source: str, message: str) -> None:
    install(plugin, source)
    facts = Facts(program())
    [finding] = [one for one in facts.findings if one.rule == "plugin-broken"]
    assert message in finding.message
    assert facts.program.modules[0].name == "toy"


def test_an_entry_point_to_nothing(plugin: Path) -> None:
    install(plugin, "", entry="nowhere:PASS")
    [finding] = [one for one in Facts(program()).findings if one.rule == "plugin-broken"]
    assert finding.message.startswith("pass broken cannot be loaded: ModuleNotFoundError")


def test_a_plugin_in_an_archive(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(plugin, "raise RuntimeError('no such driver')")
    archive = shutil.make_archive(str(plugin.parent / "packed"), "zip", plugin)
    shutil.rmtree(plugin)
    monkeypatch.syspath_prepend(archive)
    [finding] = [one for one in Facts(program()).findings if one.rule == "plugin-broken"]
    assert "RuntimeError: no such driver" in finding.message


def test_a_plugin_that_claims_a_built_in_table_is_left_out(plugin: Path) -> None:
    source = (
        "from hlo_lens.facts import MEMBERS, Table\n"
        "class PASS:\n"
        "    name = 'usurper'\n"
        "    tables = (Table('instructions', 'x', MEMBERS.columns),)\n"
        "    requires = rules = ()\n"
        "    def run(program, facts): raise AssertionError\n"
    )
    install(plugin, source)
    facts = Facts(program())
    [finding] = [one for one in facts.findings if one.rule == "plugin-broken"]
    assert "pass usurper is left out" in finding.message
    assert len(facts.rows("instructions")) == 3


def test_a_plugin_whose_run_crashes_empties_its_own_table_only(plugin: Path) -> None:
    source = (
        "from hlo_lens.facts import MEMBERS, Table\n"
        "class PASS:\n"
        "    name = 'crasher'\n"
        "    tables = (Table('crashes', 'x', MEMBERS.columns),)\n"
        "    requires = rules = ()\n"
        "    def run(program, facts): raise ValueError('cannot cope')\n"
    )
    install(plugin, source)
    facts = Facts(program())
    assert facts.rows("crashes") == []
    assert [one.message for one in facts.findings] == ["pass crasher: ValueError: cannot cope"]
    assert len(facts.rows("instructions")) == 3
