"""A walk over the text of its own, to check the edges of figures against: what feeds what."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hlo_lens.figure import Edge, Panel
from hlo_lens.hlo import Computation, Instruction, Module


class Feeds:
    """Of each instruction, those that feed it: operands, and over calls what is handed in or out.

    Which element of a tuple goes where is looked at where one is made and taken apart again
    (`wrong_steps`), not across calls.
    """

    def __init__(self, module: Module) -> None:
        self.before: dict[Instruction, set[Instruction]] = {}
        for computation in module.computations:
            for instr in computation.instructions:
                self.before.setdefault(instr, set()).update(map(written, instr.operands))
        for computation in module.computations:
            for instr in computation.instructions:
                self._add_call(instr)

    def _add_call(self, instr: Instruction) -> None:
        for position, (attribute, callee) in enumerate(_callees(instr)):
            if attribute != "condition":
                self.before[instr].add(callee.root)
            for parameter in callee.parameters:
                number = parameter.parameter_number or 0
                if instr.opcode == "while":
                    number = 0
                    self.before[parameter] |= {body.root for body in instr.called_by["body"]}
                if instr.opcode == "conditional":
                    number = 1 + position
                operands = instr.operands
                if number < len(operands):
                    self.before.setdefault(parameter, set()).add(written(operands[number]))

    def reaches(self, source: Instruction, target: Instruction, seams: set[Instruction]) -> bool:
        """Whether `source` feeds `target` at once, or by way of `seams` only."""
        waiting, seen = [target], {target}
        for instr in waiting:
            for before in self.before.get(instr, ()):
                if before == source:
                    return True
                if before in seams and before not in seen:
                    seen.add(before)
                    waiting.append(before)
        return False


def written(instr: Instruction) -> Instruction:
    """The instruction of which `x#1` takes an element."""
    while instr.implied and instr.operands:
        instr = instr.operands[0]
    return instr


def _callees(instr: Instruction) -> Iterator[tuple[str, Computation]]:
    """What is called, in order; of `call-start(x), to_apply=f` the f inside the wrapper."""
    for attribute, callees in instr.called_by.items():
        for callee in callees:
            if callee.implied:
                yield from ((attribute, inner) for inner in callee.root.called)
            else:
                yield attribute, callee


def seams(module: Module) -> set[Instruction]:
    """Calls, and the parameters of what they call: where a path goes in and out of a frame."""
    found = set()
    for computation in module.computations:
        for instr in computation.instructions:
            if instr.called:
                found.add(instr)
                for _, callee in _callees(instr):
                    found.update(callee.parameters)
    return found


def wrong_steps(
    panel: Panel, edge: Edge, feeds: Feeds, through: set[Instruction]
) -> Iterator[tuple[Instruction, ...]]:
    """The steps along an edge, over those that are not drawn, that the text does not have."""
    by_id = {node.id: node.instr for node in panel.nodes}
    way = [by_id[edge.source], *edge.through, by_id[edge.target]]
    for source, target in pairwise(way):
        if not feeds.reaches(source, target, through):
            yield source, target
    for (source, made), (_, target) in pairwise(pairwise(way)):
        if made.opcode == "tuple" and target.opcode == "get-tuple-element":
            # Where no call lies between, the element is the operand of that number.
            operand = written(made.operands[int(target.attribute("index") or "")])
            within = made in map(written, target.operands)
            if within and operand != source and not (
                operand in through and feeds.reaches(source, operand, through)
            ):  # fmt: skip
                yield source, made, target
