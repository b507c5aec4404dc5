"""What asking which tables there are may cost: schemas are read, implementations are not."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from hlo_lens_passes import _collective_tables

from hlo_lens.analysis.collectives import KINDS
from hlo_lens.facts import ENTRY_POINT_GROUP, discover_passes

# Private modules that hold schemas and rules, as data.
SCHEMAS = ("_table", "_tables", "_rules")


def imported_by(code: str) -> set[str]:
    """The modules a new interpreter has after `code`."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return set(ran.stdout.split())


def test_passes_are_discovered_without_what_they_run() -> None:
    found = imported_by(
        "from hlo_lens.facts import discover_passes\ndiscover_passes(installed=False)"
    )
    passes = {type(one).__module__ for one in discover_passes(installed=False).passes}
    assert passes <= found
    private = {name for name in found if name.startswith("hlo_lens_passes._")}
    assert [name for name in private if not name.endswith(SCHEMAS)] == []
    assert [name for name in found if name.startswith(("hlo_lens.analysis", "hlo_lens.hlo"))] == []


def test_packages_are_looked_into_only_where_one_has_a_pass() -> None:
    if entry_points(group=ENTRY_POINT_GROUP):
        pytest.skip("a package with a pass is installed here")
    found = imported_by("from hlo_lens.facts import discover_passes\ndiscover_passes()")
    assert "importlib.metadata" not in found - imported_by("")


def test_a_program_without_collectives_and_calls_does_not_wait_for_what_describes_them() -> None:
    found = imported_by(
        "from hlo_lens import parse\n"
        "from hlo_lens.facts import Facts\n"
        "from hlo_lens.program import Program\n"
        "text = 'HloModule m\\nENTRY e {\\n  ROOT a = f32[] parameter(0)\\n}\\n'\n"
        "facts = Facts(Program([parse(text)]))\n"
        "assert facts.rows('collectives') == facts.rows('custom_calls') == []\n"
        "assert not facts.findings"
    )
    assert not found & {
        "hlo_lens.decode.kernels",
        "hlo_lens_passes._collectives_run",
        "hlo_lens_passes._custom_calls_run",
    }


def test_the_schema_names_every_collective_the_analysis_knows() -> None:
    assert _collective_tables.KINDS == KINDS
