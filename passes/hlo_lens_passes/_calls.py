"""Custom calls as several passes meet them: where they are written, and what they give."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import c_unescape
from hlo_lens.hlo.config import BackendConfig, parse_config

if TYPE_CHECKING:
    from hlo_lens.hlo import Computation
    from hlo_lens_passes._catalogue import Catalogue, Entry

OPCODES: Final = frozenset(("custom-call", "custom-call-start"))
# In a string of another attribute the quotes would be escaped.
_TARGET = re.compile(r"""custom_call_target\s*=\s*["']((?:[^"'\\]|\\.)*)["']""", re.DOTALL)


def custom_calls(computations: Iterable[Computation]) -> Iterator[Instruction]:
    """The custom calls written there: `custom-call`, and the start of `custom-call-start` sugar."""
    for computation in computations:
        if OPCODES.isdisjoint(computation.opcodes):
            continue
        for index, opcode in enumerate(computation.opcodes):
            if opcode in OPCODES:
                yield Instruction(computation, index)


def target_of(call: Instruction) -> str | None:
    """The custom_call_target, found without reading the other attributes: a kernel's body may be
    among them."""
    found = _TARGET.search(call.tail)
    return None if found is None else c_unescape(found[1])


def entry_of(call: Instruction, known: Catalogue) -> Entry:
    """What the catalogue says of the target; nothing is known where the text gives no target."""
    return known.target(target_of(call) or "")


def attributes_of(call: Instruction) -> Mapping[str, str]:
    """Raw text of each attribute; none where they cannot be read, which must not hide the call."""
    try:
        return call.attributes
    except ValueError:
        return {}


def config_of(attributes: Mapping[str, str]) -> BackendConfig | None:
    """The backend_config; None where there is none or it cannot be read."""
    text = attributes.get("backend_config")
    try:
        return None if text is None else parse_config(text)
    except ValueError:
        return None


def result_of(call: Instruction) -> Shape | None:
    """Shape of what the call gives, in an async start too; None where the text lacks it."""
    if call.opcode.endswith("-start"):
        called = call.called
        return shape_of(called[0].root) if called else None
    return shape_of(call)
