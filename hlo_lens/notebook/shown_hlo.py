"""How modules and instructions show themselves in a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from hlo_lens.notebook import html
from hlo_lens.notebook.html import MOST_ROWS, never_raising
from hlo_lens.present.quantities import bytes_text, count_text

if TYPE_CHECKING:
    from hlo_lens.hlo import Instruction, Module

_MOST_NAMES = 8
_MOST_OPCODES = 12


@never_raising
def module_html(module: Module) -> str:
    """A module's name, file, sizes, and its entry's opcodes."""
    about = [
        "scheduled" if module.is_scheduled else "not scheduled",
        f"{count_text(len(module.computations))} computations",
        f"{count_text(module.instruction_count)} instructions",
        bytes_text(len(module.text.encode(errors="surrogatepass"))),
    ]
    for word, number in (
        ("partitions", module.num_partitions),
        ("replicas", module.replica_count),
    ):
        about += [f"{word} {number}"] if number is not None else []
    entry = module.entry
    opcodes = Counter(entry.opcodes)
    listed = ", ".join(f"{name} {count_text(n)}" for name, n in opcodes.most_common(_MOST_OPCODES))
    more = len(opcodes) - _MOST_OPCODES
    lines = [
        ("entry", html.code(f"%{entry.name}")),
        ("parameters", html.text(count_text(opcodes["parameter"]))),
        ("result", html.text(entry.root.shape_text)),
        ("instructions", html.text(f"{count_text(entry.size)}: {listed}", 400)),
    ]
    if more > 0:
        lines.append(("", html.dim(f"and {more} more opcodes")))
    lines += [(repair.kind, html.text(repair.message, 300)) for repair in module.repairs[:3]]
    return html.outer(html.head(module.name, module.filename, about), html.pairs(lines))


@never_raising
def instruction_html(instruction: Instruction) -> str:
    """What an instruction is, its neighbours, and where it comes from."""
    attributes = _attributes(instruction)
    beside = f"in %{instruction.computation.name}, line {instruction.text_line} of the text"
    lines = [
        ("opcode", html.text(instruction.opcode)),
        ("shape", html.text(instruction.shape_text, 300)),
        ("operands", names_text(instruction.operands)),
        ("users", names_text(instruction.users) + (" (root)" if instruction.is_root else "")),
        ("op_name", html.text(instruction.op_name or "", 300)),
        ("source", html.text(instruction.source or "", 300)),
    ]
    if instruction.opcode in ("constant", "parameter"):
        lines.append(("value", html.text(instruction.argument_text)))
    lines += [(name, html.text(value)) for name, value in islice(attributes, MOST_ROWS)]
    return html.outer(
        html.head(f"%{instruction.name}", beside, ()),
        html.pairs((word, text) for word, text in lines if text),
    )


def _attributes(instruction: Instruction) -> Iterator[tuple[str, str]]:
    try:
        found = dict(instruction.attributes)
    except ValueError:  # not as HLO writes them
        found = {"attributes": instruction.tail}
    return ((name, value) for name, value in found.items() if name != "metadata")


def names_text(instructions: Sequence[Instruction]) -> str:
    names = ", ".join(f"%{one.name}" for one in instructions[:_MOST_NAMES])
    more = len(instructions) - _MOST_NAMES
    return html.text(names, 600) + (html.dim(f" and {count_text(more)} more") if more > 0 else "")
