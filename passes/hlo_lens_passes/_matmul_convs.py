"""Convolutions that are dots, as TPU text writes them, and the ragged ones among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.conv_dots import Kind, conv_as_dot
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import parse_dim_labels, parse_int, parse_window
from hlo_lens_passes._calls import attributes_of, config_of, result_of
from hlo_lens_passes._matmul_dims import Matmul, written
from hlo_lens_passes._matmul_fusions import fusions_around

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph


def read_convolution(conv: Instruction, graph: CallGraph) -> Matmul | None:
    operands = conv.operands[:2]
    attributes = attributes_of(conv)
    sizes = conv_sizes([shape_of(one) for one in operands], result_of(conv), attributes)
    if sizes is None:
        return None
    ragged = any(map(says_ragged, (conv, *fusions_around(graph, conv))))
    columns: dict[str, object] = {
        "form": "convolution",
        **written(conv, operands, attributes),
        "batch": sizes["batch"],
        "m": sizes["lhs"],
        "n": sizes["rhs"],
        "k": sizes["contracted"],
        "flops": None if ragged else 2 * prod(sizes.values()),
        "ragged": ragged,
        "dims": {name: attributes.get(name) for name in ("dim_labels", "window")},
    }
    return Matmul(columns, operands)


def conv_sizes(
    operands: Sequence[Shape | None], result: Shape | None, attributes: Mapping[str, str]
) -> Mapping[Kind, int] | None:
    """Sizes of the dot a convolution is; None where it is none or the text does not say."""
    lhs, rhs = operands if len(operands) == 2 else (None, None)
    labels, window = attributes.get("dim_labels"), attributes.get("window")
    if lhs is None or rhs is None or result is None or labels is None:
        return None
    try:
        return conv_as_dot(
            (lhs, rhs, result),
            parse_dim_labels(labels),
            None if window is None else parse_window(window),
            feature_groups=parse_int(attributes.get("feature_group_count", "1")),
            batch_groups=parse_int(attributes.get("batch_group_count", "1")),
        )
    except ValueError:
        return None


def says_ragged(instruction: Instruction) -> bool:
    """Whether the TPU compiler's config calls the operation a ragged dot."""
    if "is_ragged_dot" not in instruction.tail:
        return False
    config = config_of(attributes_of(instruction))
    return config is not None and bool(config.get("convolution_algorithm_config", "is_ragged_dot"))
