"""What splash attention of jax takes as its mask: blocks of one, or positions for a function in it.

In front of Q it takes integers: data_next and block_mask, which blocks are run, and mask_next where
blocks of the mask come as data. Behind V: ids of segments for queries and keys, where the name of
the kernel has `segmented`; then partial_mask_blocks [blocks, queries, keys], for blocks that are
neither full nor empty, or q_sequence, the positions that a function in the kernel compares with
those of the keys
(jax/experimental/pallas/ops/tpu/splash_attention/splash_attention_kernel.py). Kernels of tokamax
have these names too, and in front of Q other integers, which are no [heads, blocks, blocks].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of

if TYPE_CHECKING:
    from hlo_lens.hlo import Instruction, Shape

_FLOATS: Final = ("bf", "f")
_INTEGERS: Final = ("pred", "s", "u")
# How many integers stand in front of Q: without blocks of a mask, and with them.
_WITHOUT: Final = (0, 2)
_WITH: Final = 3
DATA: Final = "its mask is data"
IN_KERNEL: Final = "its mask is made in the kernel"
NO_ARRAY: Final = "which blocks it runs is data"


def splash_mask(call: Instruction, name: str) -> tuple[tuple[str, ...], str]:
    """What a kernel takes as its mask, and why the text does not tell whether that is causal."""
    shapes = [shape_of(operand) for operand in call.operands]
    arrays = [one for one in shapes if one is not None]
    floats = [at for at, one in enumerate(arrays) if one.dtype.startswith(_FLOATS)]
    if len(arrays) < len(shapes) or len(floats) < 3:
        return (), DATA
    first = floats[0]
    behind = [one for one in arrays[floats[2] :] if one.dtype.startswith(_INTEGERS)]
    segments = 2 * ("segmented" in name)
    rest = behind[segments:]
    told = ("segment ids are part of its mask",) if segments and len(behind) >= segments else ()
    blocks = all(one.rank >= 3 for one in arrays[:first])
    if first not in (*_WITHOUT, _WITH) or not blocks or len(behind) < segments or len(rest) > 1:
        return told, DATA
    if first == _WITH:
        taken = (f"takes blocks of its mask as data, {one.without_layout}" for one in rest)
        return (*told, *taken), DATA
    if rest:
        return (*told, _positions(rest[0])), IN_KERNEL
    return (*told, "takes no array of its mask"), NO_ARRAY


def _positions(shape: Shape) -> str:
    return f"makes its mask of positions, taken as q_sequence {shape.without_layout}"
