"""Custom calls that hand a computation of the program to another core: what that computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hlo_lens.analysis.collectives import kind_of, shape_of
from hlo_lens.hlo import Computation, Instruction

OP: Final = "call"
"""What the catalogue says that such a target computes."""

_MOVES: Final = ("scatter", "gather")
_CORES: Final = {"sparsecore": "SparseCore"}


def handed_on(call: Instruction) -> Computation | None:
    """The computation that the call runs; None where the text names none, or several."""
    if call.opcode.endswith("-start"):  # the call itself is the operation in it
        inner = call.called[0].root if call.called else None
    else:
        inner = call
    found = () if inner is None else inner.called
    return found[0] if len(found) == 1 and found[0].opcodes else None


def of_computation(computation: Computation, core: str) -> dict[str, object]:
    """The columns that the computation tells and the call does not, whose operands follow when
    they are there (`custom-call-update`). `core`: the thread or family, in the text's words."""
    what = _what(opcodes_in((computation,)))
    takes = [shape_of(one) for one in computation.parameters]
    gives = shape_of(computation.root)
    return {
        "op": "collective" if kind_of(what) else what,
        "called": f"{what} on {_CORES.get(core, core)}",
        "operand_layouts": None if None in takes else [str(shape) for shape in takes],
        "result_layouts": None if gives is None else [str(leaf) for leaf in gives.leaves()],
    }


def _what(opcodes: Sequence[str]) -> str:
    """The collective in it, else a scatter or gather; `call` where it is something else."""
    kinds = (kind for opcode in opcodes if (kind := kind_of(opcode)))
    return next(kinds, None) or next((one for one in _MOVES if one in opcodes), OP)


def opcodes_in(computations: Sequence[Computation]) -> list[str]:
    """The opcodes of these computations and of all that they call, each once."""
    return list(dict.fromkeys(_opcodes(computations)))


def _opcodes(computations: Sequence[Computation]) -> Iterator[str]:
    waiting, seen = list(computations), set[Computation]()
    while waiting:
        computation = waiting.pop()
        if computation in seen:
            continue
        seen.add(computation)
        yield from computation.opcodes
        for index in range(len(computation.opcodes)):
            waiting += Instruction(computation, index).called
