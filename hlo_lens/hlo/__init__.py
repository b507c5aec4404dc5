"""HLO text: read it, walk it, print it."""

from hlo_lens.hlo.errors import HloParseError
from hlo_lens.hlo.module import Computation, Instruction, Module
from hlo_lens.hlo.reader import parse
from hlo_lens.hlo.rows import Repair
from hlo_lens.hlo.shape import Shape, parse_shape

__all__ = [
    "Computation", "HloParseError", "Instruction", "Module", "Repair", "Shape", "parse",
    "parse_shape",
]
