"""The frame of the command line: help, version, options, config, exit codes, internal errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hlo_lens
from hlo_lens.cli import VERBS, common
from tests.conftest import Ran

Cli = Callable[..., Ran]

HLO = "ENTRY %main (p: f32[4]) -> f32[4] {\n  ROOT %p = f32[4]{0} parameter(0)\n}\n"


def python(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, *args], capture_output=True, text=True, timeout=60, **options
    )


def test_the_version(cli: Cli) -> None:
    assert cli("--version") == Ran(0, f"hlolens {hlo_lens.__version__}\n", "")
    assert cli("-q", "--version").out == cli("--version").out


def test_help_lists_every_verb_and_the_exit_codes(cli: Cli) -> None:
    for flag in ("-h", "--help"):
        ran = cli(flag)
        assert ran.code == 0
        for verb, text in VERBS.items():
            assert verb in ran.out
            assert text.split()[-1] in ran.out
        assert "the answer is no: not found" in ran.out


def test_no_verb_prints_the_help_and_fails(cli: Cli) -> None:
    ran = cli()
    assert ran.code == 2
    assert "Usage: hlolens" in ran.err + ran.out


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_and_takes_the_common_options(cli: Cli, verb: str) -> None:
    ran = cli(verb, "--help")
    assert ran.code == 0
    for option in ("--color", "-q", "-v", "-h"):
        assert option in ran.out


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(flag: str) -> None:
    script = (
        "import sys; from hlo_lens.__main__ import main; main([sys.argv[1]]);"
        "print(sorted({'networkx', 'jax', 'jaxlib', 'rich', 'numpy', 'graphviz'} & {*sys.modules}))"
    )
    assert python("-c", script, flag).stdout.splitlines()[-1] == "[]"


def test_importing_the_package_imports_nothing_else() -> None:
    script = (
        "import sys; before = {*sys.modules}; import hlo_lens;"
        "print(sorted({*sys.modules} - before))"
    )
    assert python("-c", script).stdout == "['hlo_lens', 'hlo_lens._version']\n"


def test_the_version_is_quick() -> None:
    """In processor time, which other processes of the machine do not stretch."""

    def seconds(*args: str) -> float:
        before = os.times()
        assert python(*args).returncode == 0
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])

    script = "import sys; from hlo_lens.__main__ import main; sys.exit(main())"
    runs = [(seconds("-c", "pass"), seconds("-c", script, "--version")) for _ in range(7)]
    nothing, version = map(min, zip(*runs, strict=True))
    assert version <= 3 * max(nothing, 0.01)  # the clock ticks in hundredths


def test_a_mistyped_verb_or_option_is_guessed(cli: Cli) -> None:
    verb = cli("insepct", "x.hlo")
    assert verb.code == 2
    assert "no verb 'insepct'; did you mean 'inspect'?" in verb.err
    option = cli("ls", "--modul", "x", ".")
    assert option.code == 2
    assert "--module" in option.err
    assert "hlolens ls -h" in option.err


def test_a_file_in_the_place_of_a_verb_is_told(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(HLO)
    assert f"hlolens inspect {path}" in cli(path).err


def test_a_missing_argument_shows_the_usage(cli: Cli) -> None:
    ran = cli("show")
    assert ran.code == 2
    assert "Missing argument 'FILE'" in ran.err
    assert "Usage: hlolens show" in ran.err


# --- config -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory below one that may hold a config; a dump lies in it."""
    inner = tmp_path / "project" / "inner"
    inner.mkdir(parents=True)
    (inner / "module_0001.jit_f.before_optimizations.txt").write_text(HLO)
    monkeypatch.chdir(inner)
    return inner


def test_defaults_come_from_the_nearest_config(cli: Cli, folder: Path) -> None:
    project = folder.parent / "pyproject.toml"
    project.write_text('[tool.other]\n[tool.hlolens.ls]\nformat = "json"\n')
    assert cli("ls", ".").out.startswith("[")
    assert not cli("ls", ".", "--format", "terminal").out.startswith("[")
    (folder / "pyproject.toml").write_text("[project]\nname = 'hlolens-user'\n")
    assert cli("ls", ".").out.startswith("["), "a pyproject.toml without a section says nothing"
    (folder / "hlolens.toml").write_text('color = "always"\n')
    assert cli("ls", ".").out.startswith("\x1b[1mmodule")
    assert not cli("--color", "never", "ls", ".").out.startswith("\x1b")
    assert not cli("ls", ".", "--color", "never").out.startswith("\x1b")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[lss]\nformat = 'json'\n", "no verb 'lss'; did you mean 'ls'?"),
        ("[ls]\nformt = 'json'\n", "[ls] has no option 'formt'; did you mean 'format'?"),
        ("colour = 'never'\n", "no common option 'colour'; did you mean 'color'?"),
        ("[tool.hlolens]\ncolor = 'never'\n", "[tool.hlolens] is for pyproject.toml"),
        ("[ls\n", "not TOML"),
        (f"a = {'[' * 100_000}", "nests too deep"),
        ("[inspect]\noutput = 5\n", "[inspect] output is a name, not 5"),
        ("[ls]\nformat = 'xml'\n", "'xml' is not one of 'terminal', 'json'. (set in the config"),
    ],
)
def test_a_config_with_a_mistake_is_refused(
    cli: Cli, folder: Path, text: str, sentence: str
) -> None:
    (folder / "hlolens.toml").write_text(text)
    ran = cli("inspect" if "[inspect]" in text else "ls", ".")
    assert ran.code == 2
    assert sentence in ran.err
    assert cli("--help").code == 0, "help is there to mend it"


@pytest.mark.parametrize("text", ["[tool]\nhlolens = 5\n", "tool = 5 # hlolens\n"])
def test_a_pyproject_with_a_mistake(cli: Cli, folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)
    ran = cli("ls", ".")
    assert ran.code == (2 if "[tool]" in text else 0)
    assert "internal" not in ran.err


def test_a_working_directory_that_is_gone(cli: Cli, folder: Path) -> None:
    path = folder / "module_0001.jit_f.before_optimizations.txt"
    kept = path.rename(folder.parent / "step.hlo")
    folder.rmdir()
    assert cli("inspect", kept).code == 0


# --- output -----------------------------------------------------------------------------------


def test_color_only_where_it_is_wanted(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[" not in cli("ls", ".").out
    assert "\x1b[36m" in cli("ls", ".", "--color", "always").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" not in cli("ls", ".", "--color", "never").out


def test_quiet_leaves_only_errors(cli: Cli, folder: Path) -> None:
    assert cli("ls", ".", "--module", "nope").err
    ran = cli("-q", "ls", ".", "--module", "nope")
    assert (ran.code, ran.err) == (1, "")
    assert cli("-q", "ls", "nope").err


def test_a_reader_that_stops_early_is_no_error(folder: Path) -> None:
    script = (
        f"{sys.executable} -m hlo_lens ls . --all --format json | head -c 1 >/dev/null;"
        "echo ${PIPESTATUS[0]}"
    )
    for number in range(2, 800):
        name = f"module_0001.jit_f.{number:04}.p.after_x.before_y.txt"
        (folder / name).write_text(HLO)
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert ran.stderr == ""
    assert ran.stdout == "0\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(cli: Cli, shell: str) -> None:
    ran = cli("completion", shell)
    assert ran.code == 0
    assert "_HLOLENS_COMPLETE" in ran.out


def test_completion_knows_verbs_and_options(folder: Path) -> None:
    def complete(words: str) -> str:
        environment = os.environ | {
            "_HLOLENS_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        return python("-m", "hlo_lens", env=environment).stdout

    assert complete("hlolens in").split() == ["plain,inspect"]
    assert "plain,--format" in complete("hlolens ls --f")
    assert complete("hlolens show mod") == "file,mod\n", "the shell completes file names"
    assert complete("hlolens inspect --table loo") == "plain,loops\n"
    assert complete("hlolens schema loo") == "plain,loops\n"
    assert complete("hlolens rules trunc") == "plain,truncated\n"


def test_an_internal_error_is_one_sentence(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*args: object, **options: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("hlo_lens.cli.ls.modules_in", crash)
    ran = cli("ls", ".")
    assert ran.code == 2
    assert ran.err.startswith("hlolens: error: internal error, a bug in hlolens: ZeroDivision")
    assert "HLOLENS_DEBUG=1" in ran.err
    assert ran.err.count("\n") == 1
    assert "Traceback" in cli("-v", "ls", ".").err


def test_an_interrupt_ends_quietly(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hlo_lens.cli.ls.modules_in", interrupt)
    assert cli("ls", ".").code == 130


def test_an_output_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text("before")

    def fail_halfway() -> None:
        with common.open_output(str(target)) as stream:
            stream.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert target.read_text() == "before"
    with common.open_output(str(target)) as stream:
        stream.write("whole")
    assert [each.name for each in tmp_path.iterdir()] == ["report.txt"]
    assert target.read_text() == "whole"


@pytest.mark.parametrize("verb", ["schema", "rules", "--help"])
def test_a_pipe_that_is_closed_at_once_is_no_error(verb: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m hlo_lens {verb} 2> {tmp_path}/err"
    script = f"{command} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, (tmp_path / "err").read_text()) == ("0\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("verb", ["--version", "--help", "schema"])
def test_a_full_disk_is_told(verb: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hlo_lens", verb],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "hlolens: error: no space left on device\n")


def test_closed_streams_are_no_crash() -> None:
    for closed in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        done = subprocess.run(
            f"{sys.executable} -m hlo_lens rules {closed}",
            shell=True, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), closed


def test_completion_that_no_shell_asks_for() -> None:
    environment = {**os.environ, "_HLOLENS_COMPLETE": "bash_complete"}
    environment.pop("COMP_WORDS", None)
    done = python("-m", "hlo_lens", env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")
