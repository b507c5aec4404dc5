"""Bad input: exit code 2 and a sentence on stderr that says what it is, never a traceback."""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

Cli = Callable[..., Ran]

GOOD = """HloModule m, is_scheduled=true

ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %add.1 = f32[4]{0} add(%p, %p)
}
"""

BYTES = {
    "empty": (b"", "the file is empty"),
    "only blanks": (b" \n\t\n", "the file is empty"),
    "an empty gzip file": (gzip.compress(b""), "an empty gzip file"),
    "gzip, cut in its header": (gzip.compress(GOOD.encode())[:6], "an empty gzip file"),
    "gzip, broken": (gzip.compress(GOOD.encode())[:-8] + b"12345678", "broken gzip data"),
    "binary": (bytes(range(256)) * 20, "a binary file"),
    "text with a NUL": (b"\0".join([GOOD.encode(), b""]), f"a NUL byte at offset {len(GOOD)}"),
    "latin-1": (
        GOOD.encode() + "// é\n".encode("latin-1"),
        f"not UTF-8: byte 0xe9 at offset {len(GOOD) + 3} (line 7)",
    ),
    "UTF-16": (GOOD.encode("utf-16"), "UTF-16 text"),
    "UTF-32": (GOOD.encode("utf-32"), "UTF-32 text"),
    "ELF": (b"\x7fELF\x02\x01\x01", "a compiled object (ELF)"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00", "zstd -d"),
    "MLIR bytecode": (b"ML\xefR\r", "MLIR bytecode"),
    "StableHLO": (b"module @jit_f {\n  func.func public @main() {\n", "MLIR (StableHLO) text"),
}


@pytest.mark.parametrize("what", BYTES)
def test_each_kind_says_what_it_is(cli: Cli, tmp_path: Path, what: str) -> None:
    data, sentence = BYTES[what]
    path = tmp_path / "input"
    path.write_bytes(data)
    ran = cli("show", path, "add.1")
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(f"hlolens: error: {path}: ")
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


def test_text_that_is_not_hlo_is_shown_with_a_caret(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "broken.hlo"
    path.write_text(GOOD.replace("%add.1 =", "%add.1"))
    ran = cli("show", path, "x")
    assert ran.code == 2
    first, line, caret = ran.err.splitlines()
    assert first.startswith(f"hlolens: error: {path}:5:15: expected ")
    assert ", found 'f32[4]{0} add(%p, %p)" in first
    assert line == "    ROOT %add.1 f32[4]{0} add(%p, %p)"
    assert caret == "  " + " " * 14 + "^"


def test_a_missing_file_is_missed_with_a_hint(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "step.hlo").write_text(GOOD)
    ran = cli("show", tmp_path / "stpe.hlo", "add.1")
    assert ran.code == 2
    assert "no such file or folder; did you mean" in ran.err
    assert "step.hlo" in ran.err


def test_a_folder_without_modules(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here\n")
    for verb in (("show", tmp_path, "x"), ("ls", tmp_path)):
        ran = cli(*verb)
        assert ran.code == 2
        assert "no HLO in this folder" in ran.err
        assert "--xla_dump_to" in ran.err


def test_a_folder_with_several_modules_asks_which(cli: Cli, tmp_path: Path) -> None:
    for number in (1, 5):
        name = f"module_000{number}.jit_f.before_optimizations.txt"
        (tmp_path / name).write_text(GOOD)
    ran = cli("show", tmp_path, "add.1")
    assert ran.code == 2
    assert "2 modules in this folder; choose one with --module:" in ran.err
    assert "  module_0005.jit_f" in ran.err
    assert cli("show", tmp_path, "add.1", "--module", "5").code == 0
    assert cli("show", tmp_path, "add.1", "--module", "jit_f").code == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_named_pipe_is_refused_and_not_waited_for(cli: Cli, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ran = cli("show", pipe, "x")
    assert ran.code == 2
    assert "a named pipe" in ran.err


@pytest.mark.skipif(os.name != "posix", reason="sockets have no paths on this system")
def test_sockets_and_devices_are_refused(cli: Cli, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert "a socket" in cli("show", tmp_path / "s", "x").err
    assert "a device" in cli("show", "/dev/zero", "x").err


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "secret.hlo"
    path.write_text(GOOD)
    path.chmod(0)
    ran = cli("show", path, "x")
    assert (ran.code, ran.err) == (2, f"hlolens: error: {path}: permission denied\n")


def test_what_the_system_refuses_is_told(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret.hlo"
    path.write_text(GOOD)

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    ran = cli("show", path, "x")
    assert (ran.code, ran.err) == (2, f"hlolens: error: {path}: permission denied\n")


def test_several_files_with_a_bad_one_show_the_rest(cli: Cli, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.hlo", tmp_path / "bad.hlo"
    good.write_text(GOOD)
    bad.write_text("")
    ran = cli("query", bad, good, "select name from modules", "--format", "json")
    assert ran.code == 2
    assert '["m"]' in ran.out.replace("\n", "").replace(" ", "")
    assert "bad.hlo: the file is empty" in ran.err


def test_standard_input(cli: Cli) -> None:
    assert cli("show", "-", "add.1", stdin=GOOD.encode()).code == 0
    assert cli("show", "-", "add.1", stdin=gzip.compress(GOOD.encode())).code == 0
    assert cli("show", "-", "add.1").err == "hlolens: error: <stdin>: nothing came in\n"
    bad = cli("show", "-", "x", stdin=b"not hlo")
    assert bad.err.startswith("hlolens: error: <stdin>:1:")
    twice = cli("query", "-", "-", "select 1", stdin=GOOD.encode())
    assert twice.code == 2
    assert "standard input can be read once" in twice.err


@pytest.mark.parametrize("suffix", ["hlo", "hlo.gz"])
def test_a_cut_file_is_read_to_the_cut(cli: Cli, tmp_path: Path, suffix: str) -> None:
    cut = GOOD[: GOOD.index("ROOT")]
    path = tmp_path / f"cut.{suffix}"
    data = cut.encode()
    path.write_bytes(gzip.compress(data)[:-9] if suffix == "hlo.gz" else data)
    ran = cli("query", path, "select truncated from modules", "--format", "csv")
    assert ran.code == 0
    assert ran.out.split() == ["truncated", "1"]


def test_a_byte_order_mark_and_other_line_ends_do_no_harm(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "windows.hlo"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert cli("show", path, "add.1").code == 0


def test_a_link_to_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "step.hlo").symlink_to("gone.hlo")
    ran = cli("show", tmp_path / "step.hlo", "x")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "step.hlo: a link to gone.hlo, which is not there" in ran.err


def test_a_program_behind_other_lines_is_pointed_at(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"step 1\nstep 2\n{GOOD}")
    ran = cli("show", path, "x")
    assert ran.code == 2
    assert "one starts on line 3, found 'step 1'" in ran.err


def test_control_characters_in_a_name_do_not_reach_the_terminal(cli: Cli, tmp_path: Path) -> None:
    ran = cli("show", tmp_path / "a\x1b[31mb.hlo", "x")
    assert ran.code == 2
    assert "\x1b" not in ran.err
    assert "a\\x1b[31mb.hlo: no such file" in ran.err


@pytest.mark.parametrize("number", ["²", "9" * 5000])
def test_numbers_that_are_none(cli: Cli, tmp_path: Path, number: str) -> None:
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text(GOOD)
    assert cli("show", tmp_path, f"#{number}").code == 1
    assert cli("show", tmp_path, "#0", "--module", number).code == 2
    assert cli("show", tmp_path, "#0", "--module", "01").code == 0
