"""Convolutions that are dots, as TPU text writes them, and the ragged ones among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.conv_dots import ConvDot, conv_as_dot
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import parse_dim_labels, parse_int, parse_window, whole_number
from hlo_lens.hlo.config import BackendConfig
from hlo_lens_passes._calls import attributes_of, config_of, result_of
from hlo_lens_passes._matmul_dims import Matmul, written
from hlo_lens_passes._matmul_fusions import fusions_around

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph

# Modes in which the loops of an operation skip what a mask leaves out, as TPU configs name them.
_SKIPS: Final = frozenset(
    ("ITERATION_SKIPPER_MODE_EARLY_EXIT", "ITERATION_SKIPPER_MODE_GROUP_STARTS")
)
_SAYS_RAGGED: Final = ("is_ragged_dot", "iteration_skipper_mode")


def read_convolution(conv: Instruction, graph: CallGraph) -> Matmul | None:
    """The row of a convolution; None where it is no dot."""
    operands = conv.operands[:2]
    attributes = attributes_of(conv)
    dot = as_dot([shape_of(one) for one in operands], result_of(conv), attributes)
    if dot is None:
        return None
    config = ragged_config(graph, conv)
    groups = None if config is None else ragged_groups(config, dot)
    batch = dot.batch if groups is None else dot.batch // groups
    # Where it is not known which of the batch dimensions are groups, neither is the work.
    known = config is None or groups is not None
    columns: dict[str, object] = {
        "form": "convolution",
        **written(conv, operands, attributes),
        "batch": batch if known else None,
        "m": dot.lhs,
        "n": dot.rhs,
        "k": dot.contracted,
        "groups": groups,
        "flops": 2 * batch * dot.lhs * dot.rhs * dot.contracted if known else None,
        "ragged": config is not None,
        "dims": {name: attributes.get(name) for name in ("dim_labels", "window")},
    }
    return Matmul(columns, operands)


def as_dot(
    operands: Sequence[Shape | None], result: Shape | None, attributes: Mapping[str, str]
) -> ConvDot | None:
    """The dot a convolution is; None where it is none or the text does not say."""
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


# ---------------------------------------------------------------------------------- ragged ones


def ragged_config(graph: CallGraph, conv: Instruction) -> BackendConfig | None:
    """The config, of the convolution or of a fusion around it, that makes it a native ragged dot.

    `convolution_algorithm_config.is_ragged_dot` says so; so does a mask that the loops of the
    operation follow (`mask_aggregator_config`), skipping what belongs to another group: a dense
    convolution has neither, though it may have the same shapes and window.
    """
    for instruction in (conv, *fusions_around(graph, conv)):
        if not any(word in instruction.tail for word in _SAYS_RAGGED):
            continue
        config = config_of(attributes_of(instruction))
        if config is not None and _is_ragged(config):
            return config
    return None


def _is_ragged(config: BackendConfig) -> bool:
    if config.get("convolution_algorithm_config", "is_ragged_dot"):
        return True
    masked = config.get("mask_aggregator_config", "mask_dim_to_iteration_index")
    return bool(masked) and config.get("mask_aggregator_config", "iteration_skipper_mode") in _SKIPS


def ragged_groups(config: BackendConfig, dot: ConvDot) -> int | None:
    """How many groups a native ragged convolution has: as its config says, else its one batch
    dimension, as which the TPU compiler writes them; None where there are several."""
    said = whole_number(str(config.get("convolution_algorithm_config", "num_groups_in_ragged_dot")))
    if said:
        return said if dot.batch % said == 0 else None
    return dot.batch if len(dot.batches) < 2 else None
