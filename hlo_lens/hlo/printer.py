"""The printer: a module as text in XLA's long form, which reads back to the same module."""

from __future__ import annotations

import re

from hlo_lens.hlo import attributes as attrs
from hlo_lens.hlo.lexer import STRING
from hlo_lens.hlo.module import Computation, Instruction, Module


def module_text(module: Module) -> str:
    """The whole module: header, stack-frame tables, computations in their order."""
    header = "".join(f", {key}={value}" for key, value in module.header.items())
    parts = [f"HloModule {module.name}{header}\n"]
    if module.frames_text:
        parts.append(f"{module.frames_text}\n")
    parts += [computation_text(computation) for computation in module.computations]
    return "\n".join(parts)


def computation_text(computation: Computation) -> str:
    """One computation, `%name (p: shape) -> shape {` to `}` and its execution thread."""
    entry = "ENTRY " if computation is computation.module.entry else ""
    lines = [f"{entry}%{computation.name} {_signature(computation)}{{"]
    for number, row in enumerate(computation.rows.implied):
        if row.opcode == "parameter":
            parameter = Instruction(computation, ~number)
            lines.append(f"  %{row.name} = {row.shape} parameter({parameter.argument_text})")
    lines += [f"  {instruction.text}" for instruction in computation.instructions]
    thread = computation.execution_thread
    lines.append("}" if thread is None else f'}}, execution_thread="{thread}"')
    return "\n".join(lines) + "\n"


def _signature(computation: Computation) -> str:
    """`(p: shape) -> shape `, or nothing where a shape is left out."""
    shapes = [parameter.shape_text for parameter in computation.parameters]
    result = computation.root.shape_text
    if not result or not all(shapes):
        return ""
    names = [parameter.name for parameter in computation.parameters]
    listed = ", ".join(f"{name}: {shape}" for name, shape in zip(names, shapes, strict=True))
    return f"({listed}) -> {result} "


def instruction_text(instruction: Instruction) -> str:
    """One instruction on one line: `[ROOT ]%name = shape opcode(%operand, …), attributes`."""
    computation = instruction.computation
    root = "ROOT " if instruction.is_root else ""
    shape = f"{_one_line(instruction.shape_text)} " if instruction.shape_text else ""
    head = f"{root}%{instruction.name} = {shape}{instruction.opcode}"
    return f"{head}({_arguments(instruction)}){_tail(computation, instruction)}"


def _arguments(instruction: Instruction) -> str:
    if instruction.opcode in ("constant", "parameter"):
        return _one_line(instruction.argument_text)
    return ", ".join(_operand(operand) for operand in instruction.operands)


def _operand(operand: Instruction) -> str:
    """`%name`, or `%name#1#0` for elements that the text takes with `#`."""
    path = ""
    while operand.index < 0 and operand.opcode == "get-tuple-element":
        path = f"#{operand.tail.rpartition('=')[2]}{path}"
        operand = operand.operands[0]
    return f"%{operand.name}{path}"


def _tail(computation: Computation, instruction: Instruction) -> str:
    """The attributes; inline computations by their names, comments and line breaks dropped."""
    tail = instruction.tail
    inline = computation.rows.inline.get(instruction.index, {})
    if not inline and _BREAK_OR_COMMENT.search(tail) is None:
        return tail
    try:
        attributes = attrs.split_attributes(tail)
    except ValueError:  # a broken value, which was read because nobody asked for it
        return tail
    parts = []
    for key, value in attributes.items():
        names = [f"%{computation.module.computations[i].name}" for i in inline.get(key, ())]
        if names:
            value = f"{{{', '.join(names)}}}" if key.endswith("computations") else names[0]
        parts.append(f", {key}={_one_line(value)}")
    return "".join(parts)


_BREAK_OR_COMMENT = re.compile(r"[\r\n]|/[*/]")
_BREAK = re.compile(rf"{STRING.pattern}|\s*[\r\n]\s*", re.S)


def _one_line(text: str) -> str:
    """`text` on one line; a line break inside a string becomes an escape."""
    if "\n" not in text and "\r" not in text:
        return text
    return _BREAK.sub(_without_break, attrs.strip_comments(text)).strip()


def _without_break(found: re.Match[str]) -> str:
    piece = found.group()
    return piece.replace("\n", "\\n").replace("\r", "\\r") if piece[0] in "\"'" else " "
