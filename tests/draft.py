"""A module that can be edited and written again: the ground that `mutate` works on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_lens.hlo import Computation, Instruction, Module, parse
from hlo_lens.hlo.opcodes import CALLING_ATTRIBUTES

_BRACED = ("branch_computations", "called_computations", "control-predecessors")


@dataclass(slots=True)
class Line:
    """An instruction. `operands` are names, `x#1` among them; None: `argument` is kept as it is.

    Values of attributes are raw text, or a list of names (called computations, predecessors).
    """

    name: str
    shape: str
    opcode: str
    operands: list[str] | None = None
    argument: str = ""
    attributes: dict[str, str | list[str]] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Instructions that must stand in front of this one."""
        predecessors = self.attributes.get("control-predecessors", [])
        assert isinstance(predecessors, list)
        return [name.partition("#")[0] for name in self.operands or ()] + predecessors

    def calls(self) -> list[str]:
        lists = (self.attributes.get(key, []) for key in CALLING_ATTRIBUTES)
        return [name for names in lists if isinstance(names, list) for name in names]


@dataclass(slots=True)
class Block:
    """A computation."""

    name: str
    lines: list[Line]
    root: str
    thread: str | None = None

    def line(self, name: str) -> Line:
        return next(line for line in self.lines if line.name == name)

    def users(self, name: str) -> list[Line]:
        return [line for line in self.lines if name in line.names()]

    def fresh(self, stem: str) -> str:
        taken = {line.name for line in self.lines}
        numbered = (f"{stem}.{number}" for number in range(1, len(taken) + 2))
        return stem if stem not in taken else next(each for each in numbered if each not in taken)


@dataclass(frozen=True, slots=True)
class Style:
    """Spellings of one and the same Draft."""

    percent: bool = True
    operand_shapes: bool = False
    comments: bool = False
    spread: bool = False


@dataclass(slots=True)
class Draft:
    """A module that can be edited and written."""

    name: str
    header: dict[str, str]
    frames: str
    blocks: list[Block]
    entry: str
    style: Style = Style()

    @staticmethod
    def of(text: str) -> Draft:
        module = parse(text)
        names = _unique_names(module)
        blocks = [_block(computation, names) for computation in module.computations]
        header = dict(module.header)
        return Draft(module.name, header, module.frames_text, blocks, names[module.entry.index])

    @property
    def lines(self) -> Iterator[Line]:
        return (line for block in self.blocks for line in block.lines)

    def block(self, name: str) -> Block:
        return next(block for block in self.blocks if block.name == name)

    def fresh(self, stem: str) -> str:
        taken = {block.name for block in self.blocks}
        numbered = (f"{stem}.{number}" for number in range(1, len(taken) + 2))
        return stem if stem not in taken else next(each for each in numbered if each not in taken)

    def callers(self, name: str) -> list[Line]:
        return [line for line in self.lines if name in line.calls()]

    def text(self) -> str:
        header = "".join(f", {key}={value}" for key, value in self.header.items())
        frames = f"\n{self.frames}\n" if self.frames else ""
        blocks = "\n".join(self._block_text(block) for block in self.blocks)
        return f"HloModule {self.name}{header}\n{frames}\n{blocks}"

    def _block_text(self, block: Block) -> str:
        entry = "ENTRY " if block.name == self.entry else ""
        shapes = {line.name: line.shape for line in block.lines}
        lines = "".join(
            f"  {'ROOT ' if line.name == block.root else ''}{self._line_text(line, shapes)}\n"
            for line in block.lines
        )
        thread = "" if block.thread is None else f', execution_thread="{block.thread}"'
        return f"{entry}{self._name(block.name)} {{\n{lines}}}{thread}\n"

    def _line_text(self, line: Line, shapes: Mapping[str, str]) -> str:
        comment = "/* , = ( */ " if self.style.comments else ""
        spread = "\n\t" if self.style.spread else ""
        shape = f"{line.shape} " if line.shape else ""
        argument = line.argument
        if line.operands is not None:
            argument = f", {spread}".join(
                self._operand(name, shapes, index) for index, name in enumerate(line.operands)
            )
        attributes = "".join(
            f", {comment}{spread}{key}={self._value(key, value)}"
            for key, value in line.attributes.items()
        )
        end = " // ) }" if self.style.comments else ""
        return (
            f"{self._name(line.name)} = {comment}{shape}{line.opcode}({argument}){attributes}{end}"
        )

    def _operand(self, name: str, shapes: Mapping[str, str], index: int) -> str:
        shape = shapes.get(name, "")
        mark = f"/*index={index}*/" if self.style.comments and index else ""
        shown = f"{shape} " if self.style.operand_shapes and shape else ""
        return f"{mark}{shown}{self._name(name)}"

    def _value(self, key: str, value: str | list[str]) -> str:
        if isinstance(value, str):
            return value
        names = ", ".join(self._name(name) for name in value)
        return f"{{{names}}}" if key in _BRACED else names

    def _name(self, name: str) -> str:
        return f"%{name}" if self.style.percent else name


def _unique_names(module: Module) -> list[str]:
    """A name for each computation, in order; the text may use one twice."""
    names: list[str] = []
    for computation in module.computations:
        name, number = computation.name, 0
        while name in names:
            number += 1
            name = f"{computation.name}.again.{number}"
        names.append(name)
    return names


def _block(computation: Computation, names: Sequence[str]) -> Block:
    lines = [_line(instruction, names) for instruction in computation.instructions]
    thread = computation.execution_thread
    return Block(names[computation.index], lines, computation.root.name, thread)


def _line(instruction: Instruction, names: Sequence[str]) -> Line:
    attributes: dict[str, str | list[str]] = dict(instruction.attributes)
    for key, callees in instruction.called_by.items():
        if key in attributes and not any(callee.implied for callee in callees):
            attributes[key] = [names[callee.index] for callee in callees]
    for callee in (callee for callee in instruction.called if callee.implied):
        for key, inner in callee.root.called_by.items():  # `call-start(x), to_apply=f`
            attributes[key] = [names[each.index] for each in inner]
    if "control-predecessors" in attributes:
        attributes["control-predecessors"] = [p.name for p in instruction.control_predecessors]
    operands = None
    if instruction.opcode not in ("parameter", "constant"):
        operands = [_operand_name(operand) for operand in instruction.operands]
    argument = instruction.argument_text
    shape = instruction.shape_text
    return Line(instruction.name, shape, instruction.opcode, operands, argument, attributes)


def _operand_name(operand: Instruction) -> str:
    if operand.implied and operand.operands:
        return f"{_operand_name(operand.operands[0])}#{operand.tuple_index}"
    return operand.name
