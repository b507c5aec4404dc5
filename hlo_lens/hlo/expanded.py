"""The expanded view: a module as XLA's own parser builds it, sugar spelled out."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lens.hlo.module import Computation, Instruction, Module
from hlo_lens.hlo.opcodes import base_opcode, sugar

Row = tuple[str, tuple[int, ...]]

_RENAMED = {
    "exponential": "Exp",
    "exponential-minus-one": "Expm1",
    "log-plus-one": "Log1p",
    "cosine": "Cos",
    "sine": "Sin",
    "opt-barrier": "OptimizationBarrier",
    "not": "Not",
    "popcnt": "PopulationCount",
    "count-leading-zeros": "Clz",
    "is-finite": "IsFinite",
    "round-nearest-afz": "RoundNearestAfz",
    "topk": "TopK",
}
"""Opcodes whose name in XLA's enumeration is not their text in camel case."""


def enum_name(opcode: str) -> str:
    """`all-gather-start` as XLA's HloOpcode names it: `kAllGatherStart`."""
    renamed = _RENAMED.get(opcode)
    return "k" + (renamed or "".join(part.capitalize() for part in opcode.split("-")))


def expanded(module: Module) -> tuple[tuple[Row, ...], ...]:
    """Per computation the (opcode, operand positions), in the order XLA adds them."""
    found: list[tuple[Row, ...]] = []
    inline = {
        callee: None
        for computation in module.computations
        for groups in computation.rows.inline.values()
        for group in groups.values()
        for callee in group
    }
    for computation in module.computations:
        if computation.index not in inline:
            _expand(computation, found)
    return tuple(found)


def _expand(computation: Computation, found: list[tuple[Row, ...]]) -> None:
    """Append what the computation implies, in text order, and itself behind it.

    The single-instruction form stands in front of what it holds.
    """
    rows: list[Row] = []
    position: dict[int, int] = {}
    behind: list[Computation] = []
    for index in range(len(computation.rows.names)):
        for callee in _implied_callees(computation, index):
            if callee.implied or computation.implied or callee.index < computation.index:
                _expand(callee, found)
            else:
                behind.append(callee)
        for operand in computation.operand_indices(index):
            _place_implied(computation, operand, rows, position)
        if computation.implied:  # parameters of late-bound operands stand behind their user
            operands = computation.operand_indices(index)
        else:
            operands = tuple(position[o] for o in computation.operand_indices(index))
        position[index] = len(rows)
        rows.append((enum_name(base_opcode(computation.opcodes[index])), operands))
    found.append(tuple(rows))
    for callee in behind:
        _expand(callee, found)


def _implied_callees(computation: Computation, index: int) -> Iterator[Computation]:
    written = sugar(computation.opcodes[index])
    if written is not None and written[1] == "start":
        yield from Instruction(computation, index).called
        return
    for callees in computation.rows.inline.get(index, {}).values():
        yield from (computation.module.computations[i] for i in callees)


def _place_implied(
    computation: Computation, operand: int, rows: list[Row], position: dict[int, int]
) -> None:
    """Put the implied operand, and what it takes, in front of its first user."""
    chain = []
    while operand < 0 and operand not in position:
        chain.append(operand)
        operands = computation.rows.implied[~operand].operands
        if not operands:
            break
        operand = operands[0]
    for implied in reversed(chain):
        row = computation.rows.implied[~implied]
        position[implied] = len(rows)
        rows.append((enum_name(row.opcode), tuple(position[o] for o in row.operands)))
