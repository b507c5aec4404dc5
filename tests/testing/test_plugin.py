"""The pytest plugin, in pytest runs of its own: paths, targets, options, what failed, xdist."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.check.test_judging import LOOP

Run = Callable[..., pytest.RunResult]

LOADS = """
def test_it(hlolens):
    hlolens.assert_lowering("step.hlo").collectives().count(3)
"""
TARGETS = """
import pytest

@pytest.mark.hlolens_targets("cpu", "tpu:v6e-8", "cuda:h100")
def test_it(hlolens, hlolens_target):
    print("for", hlolens.target)
    assert hlolens.target == hlolens_target

def test_other():
    pass
"""
ALL_INSTALLED = """
import pytest

@pytest.fixture(autouse=True)
def _installed(monkeypatch):
    import hlo_lens.aot

    ready = hlo_lens.aot.Readiness(True)
    monkeypatch.setattr(hlo_lens.aot, "readiness", lambda target: ready)
"""
NONE_INSTALLED = ALL_INSTALLED.replace(
    "Readiness(True)", "Readiness(False, 'pip install everything')"
)


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """pytest on files of its own, where warnings are errors and unknown markers, too."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makefile(".hlo", step=LOOP)
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\naddopts = '--strict-markers -ra'\n")

    def run(*args: object, alone: bool = False) -> pytest.RunResult:
        how = pytester.runpytest_subprocess if alone else pytester.runpytest_inprocess
        # Without a cache in the folder, and without Hypothesis, which takes a second to import.
        return how("-W", "error", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *args)

    return run


# --- as a plugin --------------------------------------------------------------------------------


def test_pytest_starts_without_what_the_plugin_may_need_later() -> None:
    code = """
import sys, time
import pytest
known, begun = set(sys.modules), time.perf_counter()
import hlo_lens.pytest_plugin
print(round(1000 * (time.perf_counter() - begun)))
new = set(sys.modules) - known
print(*sorted({one.partition(".")[0] for one in new} - sys.stdlib_module_names))
print(*sorted(one for one in new if one.startswith("hlo_lens")))
"""
    times = []
    for _ in range(3):
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        milliseconds, packages, modules = out.splitlines()
        assert packages == "hlo_lens"
        assert modules == "hlo_lens hlo_lens._version hlo_lens.pytest_plugin"
        times.append(int(milliseconds))
    assert min(times) < 20


def test_a_run_that_does_not_use_it_imports_nothing_more(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("""
        import sys

        def test_it():
            assert "hlo_lens.pytest_plugin" in sys.modules
            heavy = {"click", "rich", "networkx", "jax", "numpy", "hlo_lens.program"}
            assert not heavy & set(sys.modules)
    """)
    run(alone=True).assert_outcomes(passed=1)


def test_the_packages_may_be_imported_before_pytest_starts(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    code = """
import sys
import hlo_lens.program, hlo_lens_passes
import pytest
sys.exit(pytest.main(["-W", "error", "-p", "no:cacheprovider"]))
"""
    pytester.run(sys.executable, "-c", code).assert_outcomes(passed=1)


def test_it_can_be_turned_off(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LOADS)
    result = run("-p", "no:hlolens", alone=True)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'hlolens' not found*"])


def test_it_says_what_it_brings(run: Run) -> None:
    run("--markers").stdout.fnmatch_lines(["@pytest.mark.hlolens_targets(target, ...): *"])
    run("--help").stdout.fnmatch_lines(
        ["expected lowerings (hlo_lens):", "*--hlolens-target=TARGET", "*--hlolens-require-targets"]
    )
    run("--fixtures").stdout.fnmatch_lines(["hlolens -- *"])


@pytest.mark.parametrize("mode", ["prepend", "append", "importlib"])
def test_it_works_in_every_import_mode(run: Run, pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(LOADS)
    run(f"--import-mode={mode}", alone=True).assert_outcomes(passed=1)


# --- paths --------------------------------------------------------------------------------------


def test_a_path_is_relative_to_the_file_of_the_test_then_to_the_rootdir(
    run: Run, pytester: pytest.Pytester
) -> None:
    folder = pytester.mkdir("tests")
    elsewhere = pytester.mkdir("elsewhere")
    (folder / "test_it.py").write_text(
        LOADS
        + """
def test_all(hlolens):
    program = hlolens.load("step.hlo")
    hlolens.assert_lowering(program).expect("gate.toml").unchanged_from("step.hlo")
"""
    )
    (folder / "gate.toml").write_text("[[expect]]\ntable = 'loops'\ncount = 1\n")
    run().assert_outcomes(passed=2)
    pytester.chdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        (elsewhere / "step.hlo").write_text("HloModule another\n")  # where pytest runs: no matter
        run("--rootdir", pytester.path, folder).assert_outcomes(passed=2)
    (folder / "step.hlo").write_text("HloModule another\n")  # the nearest
    run().assert_outcomes(failed=2)


def test_an_empty_path_is_not_the_folder_of_the_test(run: Run, pytester: pytest.Pytester) -> None:
    """As of a variable of the environment that is not set."""
    pytester.makepyfile("def test_it(hlolens): hlolens.assert_lowering('').loops().count('>= 0')")
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*an empty path names no file*")


def test_a_file_that_is_not_there_is_looked_for_beside_the_test(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("def test_it(hlolens): hlolens.load('none.hlo')")
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E *No such file or directory: '{pytester.path}/none.hlo'"])


# --- what failed ---------------------------------------------------------------------------------


def test_a_failure_shows_the_test_and_the_report_alone(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(hlolens):
            hlolens.assert_lowering("step.hlo").collectives(phase="bwd").count(0)
    """)
    result = run()
    result.stdout.fnmatch_lines(
        [
            ">*count(0)",
            "E *LoweringError: collectives where phase = 'bwd': count == 0; found: 2",
            "E *step  step.hlo",
            "E *r1  line 15  *",
            'E *hlolens query step.hlo "SELECT *',
            "test_*.py:2: LoweringError",
            "*HLO (hlolens inspect PATH says more)*",
            "step: step.hlo",
        ]
    )
    result.stdout.no_fnmatch_line("*hlo_lens/*.py*")


@pytest.mark.parametrize("fixture", ["hlolens", "tmp_path", ""])
def test_hlo_that_is_in_no_file_is_kept(run: Run, pytester: pytest.Pytester, fixture: str) -> None:
    pytester.makepyfile(f"""
        from pathlib import Path
        from hlo_lens.testing import assert_lowering

        TEXT = Path(r"{pytester.path}", "step.hlo").read_text()

        def test_it({fixture}):
            assert_lowering(TEXT).collectives().count(0)

        def test_fine({fixture}):
            assert_lowering(TEXT).collectives().count(3)
    """)
    result = run("--basetemp", pytester.path / "kept")
    result.assert_outcomes(failed=1, passed=1)
    (text,) = (pytester.path / "kept").rglob("*.txt")
    assert (text.name, text.read_text()) == ("after_optimizations.txt", LOOP)
    query = f'hlolens query {text} "SELECT name, * FROM collectives"'
    result.stdout.fnmatch_lines([f"step: {text.parent}", query])
    result.stdout.no_fnmatch_line("*FILE*")


def test_hlo_that_cannot_be_kept_is_no_other_failure(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from pathlib import Path

        def test_it(hlolens, tmp_path):
            text = Path("step.hlo").read_text()
            tmp_path.rmdir()
            tmp_path.touch()
            hlolens.assert_lowering(text).collectives().count(0)
    """)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *LoweringError: *", "step: not kept: * Not a directory: *"])


def test_of_any_failure_the_programs_of_the_test_are_told(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("""
        def test_it(hlolens):
            rows = hlolens.assert_lowering("step.hlo").collectives().rows()
            hlolens.save(hlolens.load("step.hlo"))
            assert len(rows) == 4
    """)
    result = run("--basetemp", pytester.path / "kept")
    result.stdout.fnmatch_lines(["E *assert 3 == 4", "step: step.hlo"])
    assert [path.name for path in (pytester.path / "kept").rglob("step/*")] == [
        "after_optimizations.txt"
    ]


def test_a_test_that_states_nothing_is_warned_of(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(hlolens):
            hlolens.assert_lowering("step.hlo").collectives("all-gather")
    """)
    result = run("-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*.py:2: LoweringWarning: nothing is stated of *"])
    assert run().ret == 1  # where warnings are errors


def test_a_test_that_fails_before_it_states_anything_is_told_of_once(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("""
        import gc
        import pytest

        def test_fails(hlolens):
            begun = hlolens.assert_lowering("step.hlo").collectives()
            assert 1 == 2
            begun.count(3)

        def test_skips(hlolens):
            begun = hlolens.assert_lowering("step.hlo").collectives()
            pytest.skip("no reason")
            begun.count(3)

        def test_other():
            gc.collect()
    """)
    result = run(alone=True)
    result.assert_outcomes(failed=1, skipped=1, passed=1)
    for lines in (result.stdout, result.stderr):
        lines.no_fnmatch_line("*nothing is stated*")


# --- targets ------------------------------------------------------------------------------------


def test_a_test_runs_once_for_each_target(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TARGETS)
    pytester.makeconftest(ALL_INSTALLED)
    result = run("-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        [
            "*::test_it?cpu? PASSED*",
            "*::test_it?tpu:v6e-8? PASSED*",
            "*::test_it?cuda:h100? PASSED*",
            "*::test_other PASSED*",
        ]
    )


def test_what_is_not_installed_is_skipped_and_says_what_to_install(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(TARGETS)
    pytester.makeconftest(NONE_INSTALLED)
    result = run()
    result.assert_outcomes(passed=1, skipped=3)
    needs = "needs packages that are not installed: pip install everything"
    result.stdout.fnmatch_lines([f"SKIPPED * test_*.py:*: cuda:h100 {needs}"])
    strict = run("--hlolens-require-targets")
    strict.assert_outcomes(passed=1, errors=3)
    strict.stdout.fnmatch_lines([f"--hlolens-require-targets: cuda:h100 {needs}"])


def test_a_target_in_the_call_is_skipped_at_the_line_of_the_test(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("""
        def test_it(hlolens):
            hlolens.compile(abs, target="cpu")
    """)
    pytester.makeconftest(NONE_INSTALLED)
    result = run()
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED ?1? test_*.py:2: cpu needs packages *"])
    run("--hlolens-require-targets").assert_outcomes(failed=1)


def test_rocm_without_its_libraries_is_skipped_unless_they_are_stood_in_for(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("stubs", [False, True])
        def test_it(hlolens, stubs, monkeypatch):
            monkeypatch.setattr("hlo_lens.pytest_plugin._compiled_once", lambda *_: 1 / 0)
            hlolens.compile(abs, target="rocm:gfx950", allow_stub_runtime=stubs)
    """)
    note = "'ROCm is not installed: give --allow-stub-runtime'"
    pytester.makeconftest(
        ALL_INSTALLED.replace(
            "Readiness(True)", f"Readiness(True, None, {note}, needs_stub_runtime=True)"
        )
    )
    result = run()
    result.assert_outcomes(skipped=1, failed=1)
    result.stdout.fnmatch_lines(["SKIPPED *ROCm is not installed: give allow_stub_runtime=True"])


@pytest.mark.parametrize(
    ("chosen", "passed", "deselected"),
    [
        (["cpu"], 2, 2),
        (["cpu", "cuda:*"], 3, 1),
        (["*"], 4, 0),
        (["rocm:gfx950"], 1, 3),
    ],
)
def test_targets_can_be_chosen(
    run: Run, pytester: pytest.Pytester, chosen: list[str], passed: int, deselected: int
) -> None:
    pytester.makepyfile(TARGETS)
    pytester.makeconftest(ALL_INSTALLED)
    options = [word for one in chosen for word in ("--hlolens-target", one)]
    result = run(*options)
    result.assert_outcomes(passed=passed, deselected=deselected)


def test_a_choice_that_chooses_nothing_is_no_success_where_targets_are_required(
    run: Run, pytester: pytest.Pytester
) -> None:
    test = pytester.makepyfile(TARGETS)
    pytester.makeconftest(ALL_INSTALLED)
    options = ("--hlolens-target", "rocm:*", "--hlolens-require-targets")
    told = "--hlolens-target rocm:[*]: no test is for it; targets of tests are: "
    for how in ((), ("-n", "1")):
        result = run(*options, *how, alone=bool(how))
        result.assert_outcomes(errors=3, passed=1)
        result.stdout.fnmatch_lines([f"{told}cpu, cuda:h100, tpu:v6e-8"])
    test.write_text("def test_it(): pass")
    result = run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {told}none"])
    result = run(*options, "-n", "2", alone=True)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines([f"ERROR: {told}none"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        ("", ["--hlolens-target", "cuda:h10"], "*--hlolens-target: no target 'cuda:h10'; *"),
        (
            "import pytest\n@pytest.mark.hlolens_targets('cuda:h10')\ndef test_it(hlolens): 0",
            [],
            "*::test_it: no target 'cuda:h10'; *",
        ),
        (
            "import pytest\n@pytest.mark.hlolens_targets\ndef test_it(hlolens): 0",
            [],
            '*::test_it: write hlolens_targets("cpu", "cuda:h100")',
        ),
        (
            "import pytest\n@pytest.mark.hlolens_targets(['cpu'])\ndef test_it(hlolens): 0",
            [],
            "*::test_it: a target is a text such as 'cpu', not ?'cpu'?",
        ),
        (
            "import pytest\n@pytest.mark.hlolens_targets('cpu')\ndef test_it(): 0",
            [],
            "*::test_it is for targets, but has no parameter hlolens",
        ),
        ("def test_it(hlolens): hlolens.compile(abs)", [], "*for which target?*"),
    ],
)
def test_what_is_asked_wrongly_is_said(
    run: Run, pytester: pytest.Pytester, source: str, options: list[str], told: str
) -> None:
    pytester.makepyfile(source)
    result = run(*options)
    assert result.ret not in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
    lines = [*result.outlines, *result.errlines]
    pytest.LineMatcher(lines).fnmatch_lines([told])
    assert "INTERNALERROR" not in "\n".join(lines)


def test_the_marker_of_a_module_is_for_the_tests_with_the_fixture(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("""
        import pytest

        pytestmark = pytest.mark.hlolens_targets("cpu", "cpu:8")

        class TestThem:
            def test_both(self, hlolens): pass

            @pytest.mark.hlolens_targets("cpu:2")
            def test_one(self, hlolens): assert hlolens.target == "cpu:2"

            @pytest.mark.parametrize("x", [1, 2])
            def test_others(self, x): pass
    """)
    pytester.makeconftest(ALL_INSTALLED)
    run().assert_outcomes(passed=5)


def test_a_target_that_is_none_is_told_by_the_line_of_the_test(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile("def test_it(hlolens):\n    hlolens.compile(abs, target='cuda:h10')")
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *TargetError: no target 'cuda:h10'; *", "*.py:2: TargetError"])
    result.stdout.no_fnmatch_line("*hlo_lens/*.py*")


def test_it_is_the_same_under_xdist(run: Run, pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(test_one=TARGETS, test_two=LOADS, test_three=LOADS.replace("3", "4"))
    pytester.makeconftest(ALL_INSTALLED)
    result = run("-n", "2", "--hlolens-target", "c*", alone=True)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["E *LoweringError: collectives: count == 4; found: 3"])


# --- help for the tests --------------------------------------------------------------------------


def test_the_plugin_is_that_of_this_checkout() -> None:
    from importlib.metadata import entry_points

    import hlo_lens.pytest_plugin

    (point,) = (one for one in entry_points(group="pytest11") if one.name == "hlolens")
    assert point.load() is hlo_lens.pytest_plugin
    assert Path(hlo_lens.pytest_plugin.__file__).is_file()
