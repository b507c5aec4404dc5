"""Custom calls as several passes meet them: where they are written, and what they give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.hlo import Instruction, Shape

if TYPE_CHECKING:
    from hlo_lens.hlo import Computation
    from hlo_lens_passes._catalogue import Catalogue, Entry

OPCODES: Final = frozenset(("custom-call", "custom-call-start"))


def custom_calls(computations: Iterable[Computation]) -> Iterator[Instruction]:
    """The custom calls written there: `custom-call`, and the start of `custom-call-start` sugar."""
    for computation in computations:
        if OPCODES.isdisjoint(computation.opcodes):
            continue
        for index, opcode in enumerate(computation.opcodes):
            if opcode in OPCODES:
                yield Instruction(computation, index)


def entry_of(call: Instruction, known: Catalogue) -> Entry:
    """What the catalogue says of the target; nothing is known where the text gives no target."""
    return known.target(call.custom_call_target or "")


def result_of(call: Instruction) -> Shape | None:
    """Shape of what the call gives, in an async start too; None where the text lacks it."""
    if call.opcode.endswith("-start"):
        called = call.called
        return shape_of(called[0].root) if called else None
    return shape_of(call)
