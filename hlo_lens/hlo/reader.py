"""parse: HLO text in, Module out; the fast path where it holds, the full scanner elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_lens.hlo.errors import HloParseError
from hlo_lens.hlo.fast import CHUNK, Chunk, read_chunk
from hlo_lens.hlo.lexer import skip_space
from hlo_lens.hlo.module import Computation, Module
from hlo_lens.hlo.rows import Repair
from hlo_lens.hlo.scanner import (
    ScannedComputation,
    Scanner,
    starts_computation,
    starts_instruction,
)

_LOG_PREFIX = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w./-]+:\d+\] ?", re.M)
_CLOSE = re.compile(r"\n\}(?:, execution_thread=[^\n]*)?(?: // [^\n]*)?(?:\n+|\Z)")


def parse(text: str, *, filename: str | None = None, fast: bool = True) -> Module:
    """Read one HLO module.

    Args:
      text: HLO text of any version, before or after optimization, whole or cut off.
      filename: for error messages and reports.
      fast: False sends everything through the full scanner (the result is the same).

    Raises:
      HloParseError: with line, column, what was expected and what was found.
    """
    try:
        return _parse(text, filename, fast)
    except HloParseError as error:
        if error.filename is None and filename is not None:
            error.filename = filename
            error.args = (error._sentence(),)
        raise


def _parse(text: str, filename: str | None, fast: bool) -> Module:
    repairs: list[Repair] = []
    text = text.removeprefix("\ufeff")
    pos = skip_space(text, 0)
    if _LOG_PREFIX.match(text, pos):
        text = _LOG_PREFIX.sub("", text)
        repairs.append(Repair("log-prefix", "log prefixes in front of lines were taken off", 1))
        pos = skip_space(text, 0)
    if pos >= len(text):
        raise HloParseError(text, pos, "HLO text", filename=filename)
    interned: dict[str, str] = {}
    scanner = Scanner(text, interned, filename=filename)
    name = ""
    header: dict[str, str] = {}
    has_header = re.compile(r"HloModule\b").match(text, pos) is not None
    if has_header:
        name, header, pos = scanner.header(pos)
    frames_start = pos
    pos = scanner.frames(pos)
    module = Module(text, name, header, text[frames_start:pos].strip(), filename=filename)
    computations: list[Computation] = []
    if fast and has_header:
        pos = _fast_computations(module, scanner, skip_space(text, pos), computations)
    scanner.first_computation = len(computations)
    _scan_rest(scanner, pos, has_header or bool(computations))
    computations += [_as_computation(module, scanned) for scanned in scanner.computations]
    if not computations:
        raise HloParseError(text, len(text), "a computation", filename=filename)
    repairs += scanner.repairs
    _check_entry(computations, text, filename, repairs, has_header)
    module._fill(computations, repairs)
    if not name:
        module.name = f"module_{module.entry.name}"
    return module


def _scan_rest(scanner: Scanner, pos: int, has_header: bool) -> None:
    text = scanner.text
    pos = skip_space(text, pos)
    if pos < len(text) and not has_header and not starts_computation(text, pos):
        if not starts_instruction(text, pos):
            raise scanner.error(pos, _a_program(text))
        pos = skip_space(text, scanner.single_instruction(pos))
        if pos < len(text):
            raise scanner.error(pos, "the end of the text behind a single instruction")
        return
    scanner.all_computations(pos)


def _a_program(text: str) -> str:
    """What was expected where no program starts, and where one does: text may be part of a log."""
    expected = "HLO text ('HloModule', a computation or an instruction)"
    below = re.search(r"^HloModule\s+[\w.-]+\s*[,\n]", text, re.M | re.A)
    if below is None:
        return expected
    return f"{expected}; one starts on line {text.count(chr(10), 0, below.start()) + 1}"


def _fast_computations(
    module: Module, scanner: Scanner, pos: int, computations: list[Computation]
) -> int:
    """Read computations while they are in printed form; the offset of the first that is not."""
    text = module.text
    alone_until = pos
    while pos < len(text):
        end = _behind_close(text, pos if pos < alone_until else pos + CHUNK)
        chunk = read_chunk(text, pos, end, scanner.interned)
        if chunk is None and pos >= alone_until:
            # Some computation of the chunk is in another form: take them one by one.
            alone_until = end
            continue
        if chunk is not None:
            computations += _of_chunk(module, chunk)
            pos = skip_space(text, end)
            continue
        scanned = _scanned_alone(scanner, pos, len(computations))
        if scanned is None:
            break
        computations.append(_as_computation(module, scanned[0]))
        pos = skip_space(text, scanned[1])
        if pos < end:
            break  # no line of its own closes it: this text is not in printed form at all
    return pos


def _of_chunk(module: Module, chunk: Chunk) -> Iterator[Computation]:
    for (start, stop), (name, is_entry, thread) in zip(chunk.spans, chunk.headers, strict=True):
        yield Computation(
            module, name, chunk, stop - start, first_row=start, is_entry=is_entry,
            execution_thread=thread,
        )


def _behind_close(text: str, pos: int) -> int:
    """The offset behind the first line at or after `pos` that closes a computation."""
    close = _CLOSE.search(text, pos)
    return len(text) if close is None else close.end()


def _scanned_alone(scanner: Scanner, pos: int, first: int) -> tuple[ScannedComputation, int] | None:
    """One computation by the full scanner; None where it brings inline ones or repairs."""
    scanner.first_computation = first
    behind = scanner.computation(pos)
    scanned = scanner.computations.pop() if scanner.computations else None
    if scanned is None or scanner.computations or scanner.repairs:
        scanner.forget()
        return None
    return scanned, behind


def _as_computation(module: Module, scanned: ScannedComputation) -> Computation:
    return Computation(
        module, scanned.name, scanned.rows, len(scanned.rows.names),
        is_entry=scanned.is_entry, execution_thread=scanned.execution_thread,
        text_line=scanned.line,
    )


def _check_entry(
    computations: list[Computation], text: str, filename: str | None, repairs: list[Repair],
    has_header: bool,
) -> None:
    entries = [computation for computation in computations if computation.is_entry]
    if len(entries) > 1:
        offset = sum(len(line) + 1 for line in text.split("\n")[: entries[1].text_line - 1])
        raise HloParseError(
            text, offset, "one ENTRY computation", found="a second ENTRY", filename=filename
        )
    if not entries and (has_header or len(computations) > 1):
        last = computations[-1]
        repairs.append(
            Repair(
                "no-entry",
                f"no computation is marked ENTRY; the last one, %{last.name}, is taken for it",
                last.text_line,
            )
        )
