"""`hlolens show FILE NAME`: one instruction or computation, and how it is reached."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hlo_lens.cli.common import (
    INPUT,
    answer_is_no,
    choice_options,
    console,
    format_option,
    harmless,
    one_program,
    print_error,
    verb,
    write_json,
)
from hlo_lens.present.quantities import bytes_text, visible

if TYPE_CHECKING:
    from rich.console import Console

    from hlo_lens.hlo import Computation, Instruction
    from hlo_lens.hlo.frames import Frame
    from hlo_lens.program import Program
    from hlo_lens.show import ComputationFacts, InstructionFacts, Reach, Reference, Runs

# What is shown without --full.
_MOST_TEXT = 1500
_MOST_CONFIG_LINES = 24
_MOST_REFERENCES = 12
_MOST_SHAPE = 100
_CONFIG_WIDTH = 88
_CONFIG_LABEL = len("backend_config  ")


@verb()
@click.argument("file", metavar="FILE", type=INPUT)
@click.argument("name", metavar="[NAME]", required=False)
@choice_options
@click.option("--all", "everything", is_flag=True, help="Show every instruction of that name.")
@click.option("--full", is_flag=True, help="Shorten nothing: text, configs, operands, users.")
@click.option(
    "--canonical",
    is_flag=True,
    help="Print the canonical text that `hlolens check --filecheck` runs CHECK lines on: all of "
    "it, or the lines of NAME.",
)
@format_option("terminal", "json")
def command(
    file: str,
    name: str | None,
    module: str | None,
    stage: str | None,
    everything: bool,
    full: bool,
    canonical: bool,
    output_format: str,
) -> None:
    """Show the instruction or computation NAME: its text, what it uses and is used by, how it is
    reached from ENTRY, where in the source it comes from, how often it runs.

    NAME is an instruction's or computation's name, with or without %; computation/name where
    several computations have that name; or #id, as the tables count instructions.
    """
    if name is None and not canonical:
        raise click.UsageError("name an instruction or a computation, or ask for --canonical")
    if canonical and output_format != "terminal":
        raise click.UsageError("the canonical text has no other format")
    program = one_program(file, module=module, stage=stage)
    if name is None:
        _print_canonical(program, None, ())
        return
    instructions, computations = _find(program, name, everything)
    if not instructions and not computations:
        answer_is_no()
        return
    if canonical:
        _print_canonical(program, instructions, computations)
        return
    from hlo_lens.show import (
        ComputationFacts,
        computation_facts,
        instruction_facts,
    )

    found: list[ComputationFacts | InstructionFacts] = []
    found += [computation_facts(program, each) for each in computations]
    found += [instruction_facts(program, each) for each in instructions]
    if output_format == "json":
        write_json([asdict(each) for each in found])
        return
    screen = console()
    for position, each in enumerate(found):
        if position:
            screen.print()
        if isinstance(each, ComputationFacts):
            _print_computation(screen, each, full)
        else:
            _print_instruction(screen, each, full)


def _print_canonical(
    program: Program,
    instructions: Sequence[Instruction] | None,
    computations: Sequence[Computation],
) -> None:
    """The canonical lines of the module that runs; of these instructions and computations only,
    where any are given."""
    from hlo_lens.check.canonical import canonical_text

    lines = canonical_text(program.main).lines
    if instructions is not None:
        wanted = set(instructions)
        lines = [
            line for line in lines if line.instruction in wanted or line.computation in computations
        ]
        if not lines:
            print_error(
                "it is in no line of the canonical text: docs/filecheck.md says what is not"
            )
            answer_is_no()
    sys.stdout.writelines(f"{visible(line.text)}\n" for line in lines)


def _find(
    program: Program, name: str, everything: bool
) -> tuple[list[Instruction], list[Computation]]:
    """What `name` means in the main module; nothing where that is not clear, which is told."""
    from hlo_lens.show import find, names_of, suggestions

    instructions, computations = find(program.main, name)
    if len(instructions) > 1 and not everything:
        listed = "".join(f"\n  {each}" for each in names_of(instructions))
        print_error(
            f"{len(instructions)} instructions are named {name}; "
            f"name one, or show them --all:{listed}"
        )
        return [], []
    if not instructions and not computations:
        others = [
            stage
            for module, stage in zip(program.modules, program.stages, strict=True)
            if module is not program.main and any(find(module, name))
        ]
        close = suggestions(program.main, name)
        hint = f"; it is in {others[0]} (--stage {others[0]})" if others else ""
        if close and not others:
            hint = f"; did you mean {', '.join(close)}?"
        print_error(f"nothing is named {name} in {program.main.name}{hint}")
    return instructions, computations


# --- for the terminal --------------------------------------------------------------------------

Row = tuple[str, str]  # a label and a line beside it

_PHASE_FROM = {"own": "its op_name", "caller": "its callers", "dataflow": "its neighbours"}
_TRIPS = {
    "annotated": "as the text says",
    "inferred": "from the start, step and bound of its counter",
    "bounded": "at most",
    "unknown": "the text does not tell",
}


def _print_instruction(screen: Console, facts: InstructionFacts, full: bool) -> None:
    root = ", its root" if facts.is_root else ""
    where = f"  #{facts.id} in {facts.computation}{root}, line {facts.text_line}"
    _print_head(screen, facts.name, facts.opcode, where)
    screen.print(harmless(_text(facts, full)), soft_wrap=True)
    screen.print()
    width = min(_CONFIG_WIDTH, screen.width - _CONFIG_LABEL)
    _print_rows(screen, _instruction_rows(facts, full, width))


def _print_computation(screen: Console, facts: ComputationFacts, full: bool) -> None:
    entry = "ENTRY computation" if facts.is_entry else "computation"
    where = f"  {facts.instructions} instructions, line {facts.text_line}"
    _print_head(screen, facts.name, entry, where)
    _print_rows(screen, _computation_rows(facts, full))


def _instruction_rows(facts: InstructionFacts, full: bool, width: int) -> Iterator[Row]:
    yield "shape", _with_bytes(facts.shape, facts.bytes, full)
    yield from _references("operands", facts.operands, full)
    yield from _references("users", facts.users, full)
    yield from _references("runs after", facts.control_predecessors, full)
    for attribute, names in facts.called.items():
        yield attribute, ", ".join(names)
    yield from _reach(facts.reach, facts.name)
    yield "runs", _runs(facts.runs, facts.reach, facts.loop, facts.loop_depth)
    if facts.trips is not None:
        count = "?" if facts.trips.count is None else facts.trips.count
        yield "trip count", f"{count}, {_TRIPS[facts.trips.kind]}"
    if facts.phase is not None:
        yield "phase", f"{facts.phase}, from {_PHASE_FROM.get(facts.phase_from or '', '?')}"
    if facts.full_op_name is not None:
        yield "op_name", facts.full_op_name
    frames = [_frame(frame) for frame in facts.frames]
    for text in frames if full else told_once(frames):
        yield "source", text
    for line in _config_lines(facts.backend_config, full, width):
        yield "backend_config", line
    for problem in facts.problems:
        yield "unreadable", problem


def _frame(frame: Frame) -> str:
    column = f":{frame.column}" if frame.column else ""
    return f"{frame.file}:{frame.line}{column}  {frame.function}".rstrip()


def told_once(lines: Sequence[str]) -> Iterator[str]:
    """The lines; instead of a block that follows itself, that it does. JAX puts the callers of what
    it traces inside a call or loop below it, and again below that."""
    at = 0
    while at < len(lines):
        sizes = range(1, min(at, len(lines) - at) + 1)
        size = next((n for n in sizes if lines[at - n : at] == lines[at : at + n]), 0)
        if not size:
            yield lines[at]
            at += 1
            continue
        block, times = lines[at : at + size], 0
        while lines[at : at + size] == block:
            times, at = times + 1, at + size
        above = "the line above" if size == 1 else f"the {size} lines above"
        yield f"… {above} again" + (f", {times} times" if times > 1 else "")


def _computation_rows(facts: ComputationFacts, full: bool) -> Iterator[Row]:
    yield from _references("parameters", facts.parameters, full)
    yield from _references("root", (facts.root,), full)
    if facts.execution_thread is not None:
        yield "thread", facts.execution_thread
    yield from _reach(facts.reach, None)
    yield "runs", _runs(facts.runs, facts.reach, facts.loop, facts.loop_depth)
    yield "opcodes", ", ".join(f"{count} {opcode}" for opcode, count in facts.opcodes.items())


def _print_head(screen: Console, name: str, what: str, where: str) -> None:
    from rich.text import Text

    screen.print(Text.assemble((name, "bold"), "  ", (what, "cyan"), where))


def _print_rows(screen: Console, rows: Iterable[Row]) -> None:
    """Labels on the left, each once; on a terminal, long lines are wrapped beside them."""
    from rich.text import Text

    listed = list(rows)
    indent = max(len(label) for label, _ in listed) + 2
    width = max(40, screen.width - indent) if screen.is_terminal else sys.maxsize
    last = ""
    for label, line in listed:
        first = "" if label == last else label
        for part in textwrap.wrap(visible(line.expandtabs(4)), width):
            text = Text.assemble((f"{first:<{indent}}", "dim"), part)
            screen.print(text, overflow="ignore", no_wrap=True, crop=False)
            first = ""
        last = label


def _text(facts: InstructionFacts, full: bool) -> str:
    """The instruction's text; without --full its backend_config stands below, laid out."""
    if full:
        return facts.text
    text = facts.text
    if facts.config_text is not None:
        text = text.replace(facts.config_text, "{…}")
    if len(text) > _MOST_TEXT:
        text = f"{text[:_MOST_TEXT]}… ({len(text) - _MOST_TEXT} more characters; --full)"
    return text


def _with_bytes(shape: str, size: int | None, full: bool) -> str:
    shown = shape if full or len(shape) <= _MOST_SHAPE else f"{shape[:_MOST_SHAPE]}…"
    return f"{shown}  {bytes_text(size)}"


def _references(label: str, references: Sequence[Reference], full: bool) -> Iterator[Row]:
    shown = references if full else references[:_MOST_REFERENCES]
    wide = max((len(each.name) for each in shown), default=0)
    wide_opcode = max((len(each.opcode) for each in shown), default=0)
    for each in shown:
        shape = _with_bytes(each.shape, each.bytes, full)
        yield label, f"{each.name:<{wide}}  {each.opcode:<{wide_opcode}}  {shape}"
    if len(shown) < len(references):
        yield label, f"… and {len(references) - len(shown)} more (--full)"


def _reach(reach: Reach, name: str | None) -> Iterator[Row]:
    """`main → while.3 (body) → fusion.2`; a computation's path ends with its last caller."""
    if reach.is_entry:
        yield "reached", "is ENTRY" if name is None else f"{reach.entry} → {name}"
    elif not reach.paths:
        yield "reached", "not from ENTRY"
    for path in reach.paths:
        steps = [f"{caller} ({kind})" for caller, kind in path]
        yield "reached", " → ".join([reach.entry, *steps, *([] if name is None else [name])])
    if reach.more:
        yield "reached", f"… and {reach.more} more call paths"


def _runs(runs: Runs, reach: Reach, loop: str | None, depth: int | None) -> str:
    if not reach.is_entry and not reach.paths:
        return "never"
    within = f"; in loop {loop}" if loop is not None else ""
    if depth is not None and depth > 1:
        within += f", {depth} loops deep"
    if runs.executions is not None:
        return f"{runs.executions} {'time' if runs.executions == 1 else 'times'}{within}"
    if any(kind == "apply" for path in reach.paths for _, kind in path):
        return f"once an element that it is applied to{within}"
    if runs.executions_max is not None:
        return f"{runs.executions_min or 0} to {runs.executions_max} times{within}"
    if runs.executions_min is not None:
        return f"at least {runs.executions_min} times; trip count {runs.trips_kind}{within}"
    return f"not known{within}"


def _config_lines(config: Any, full: bool, width: int) -> list[str]:
    if config is None:
        return []
    if isinstance(config, str):
        text = config if full or len(config) <= _MOST_TEXT else f"{config[:_MOST_TEXT]}… (--full)"
        return text.splitlines()
    shown = _laid_out(config if full else _shortened(config), width).splitlines()
    if not full and len(shown) > _MOST_CONFIG_LINES:
        more = len(shown) - _MOST_CONFIG_LINES
        shown = [*shown[:_MOST_CONFIG_LINES], f"… and {more} more lines (--full)"]
    return shown


def _laid_out(value: Any, width: int, indent: str = "") -> str:
    """JSON on one line where it fits, else a line an entry, so that a config reads in a glance."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= width or not isinstance(value, (dict, list)):
        return flat
    inner = indent + "  "
    if isinstance(value, list):
        entries = [_laid_out(each, width, inner) for each in value]
    else:
        entries = [
            f"{json.dumps(key, ensure_ascii=False)}: {_laid_out(each, width, inner)}"
            for key, each in value.items()
        ]
    opened, closed = "[]" if isinstance(value, list) else "{}"
    body = f",\n{inner}".join(entries)
    return f"{opened}\n{inner}{body}\n{indent}{closed}"


def _shortened(value: Any) -> Any:
    """`value` with long texts in it (kernel bodies) cut."""
    if isinstance(value, str) and len(value) > 2 * _MOST_SHAPE:
        return f"{value[:_MOST_SHAPE]}… ({len(value)} characters; --full)"
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return value
