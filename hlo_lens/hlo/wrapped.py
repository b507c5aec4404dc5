"""The computation that async sugar implies: what `OP-start(a, b), …` wraps."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_lens.hlo.called import called_names
from hlo_lens.hlo.module import Computation, Instruction
from hlo_lens.hlo.rows import Rows
from hlo_lens.hlo.shape import parse_shape


def wrapped_computation(start: Instruction, operation: str) -> Computation:
    """The computation that `OP-start(a, b), …` implies: a parameter an operand, then OP.

    Operands that updates bind later are parameters behind OP, as XLA adds them.
    """
    owner = start.computation
    inline = owner.rows.inline.get(start.index, {})
    bound, late = start.operands, _late_operands(start)
    if operation in ("call", "fusion"):  # others apply theirs to elements
        late += _unbound_parameters(start, inline)[len(bound) + len(late) :]
    at = len(bound)
    names = [f"param_{i}" for i in range(at + len(late))]
    operands = [i if i < at else i + 1 for i in range(len(names))]
    columns = [
        (name, "parameter", operand.shape_text, str(i), "")
        for i, (name, operand) in enumerate(zip(names, (*bound, *late), strict=True))
    ]
    arguments = ", ".join(f"%{name}" for name in names)
    columns.insert(
        at, (operation, operation, _wrapped_shape(start.shape_text), arguments, start.tail)
    )
    taken, opcodes, shapes, texts, tails = zip(*columns, strict=True)
    rows = Rows(
        names=taken, opcodes=opcodes, shapes=shapes, arguments=texts, tails=tails,
        operands=tuple(operands),
        bounds=[0] * (at + 1) + [len(operands)] * (len(late) + 1),
        root=at,
        implied=[],
        inline={at: inline},
    )
    name = f"{start.name}.wrapped"
    return Computation(
        owner.module, name, rows, len(taken), text_line=start.text_line, host=start
    )


def _late_operands(start: Instruction) -> list[Instruction]:
    """Operands that the updates behind an async start add to it."""
    found: list[Instruction] = []
    link: Instruction | None = start
    while link is not None:
        link = next((user for user in link.users if user.opcode.endswith("-update")), None)
        if link is not None:
            found += link.operands[1:]
    return found


def _unbound_parameters(
    start: Instruction, inline: Mapping[str, tuple[int, ...]]
) -> list[Instruction]:
    """Parameters of the computation that the wrapped operation calls, if it calls one."""
    computations = start.computation.module.computations
    for callees in inline.values():
        return list(computations[callees[0]].parameters)
    for attribute, names in called_names(start.tail).items():
        callee = computations.get(names[0])
        if attribute in ("calls", "to_apply") and callee is not None:
            return list(callee.parameters)
    return []


def _wrapped_shape(shape_text: str) -> str:
    """The result in an async-start tuple `((operands…), result, context…)`."""
    try:
        shape = parse_shape(shape_text)
    except ValueError:
        return ""
    return str(shape.elements[1]) if shape.is_tuple and len(shape.elements) > 1 else shape_text
