"""What the names of operations say by themselves: async sugar, and which attributes call."""

from __future__ import annotations

OWN_ASYNC = frozenset(
    f"{operation}-{part}"
    for operation in ("all-gather", "all-reduce", "collective-permute", "copy", "send", "recv")
    for part in ("start", "done")
) | {"async-start", "async-update", "async-done"}
"""Starts and dones that are opcodes of their own; every other `-start` wraps an operation."""

CALLING_ATTRIBUTES = (
    "calls", "to_apply", "body", "condition", "branch_computations", "true_computation",
    "false_computation", "called_computations", "select", "scatter", "comparator",
)
"""Attributes whose value is one or more computations."""

NEVER_CALLS = frozenset(
    (
        "abs", "add", "and", "bitcast", "bitcast-convert", "broadcast", "compare", "concatenate",
        "constant", "convert", "convolution", "copy", "copy-done", "copy-start", "cosine", "divide",
        "dot", "dynamic-slice", "dynamic-update-slice", "exponential", "get-tuple-element", "iota",
        "log", "maximum", "minimum", "multiply", "negate", "or", "pad", "parameter", "power",
        "reshape", "rsqrt", "select", "sine", "slice", "sqrt", "subtract", "tanh", "transpose",
        "tuple",
    )
)  # fmt: skip
"""Common opcodes that never call a computation, so that their attributes need no look."""

_PARTS = ("start", "update", "done")


def sugar(opcode: str) -> tuple[str, str] | None:
    """`dynamic-slice-start` is ("dynamic-slice", "start"); None for an opcode of its own."""
    operation, dash, part = opcode.rpartition("-")
    if not dash or part not in _PARTS or not operation or opcode in OWN_ASYNC:
        return None
    return operation, part


def base_opcode(opcode: str) -> str:
    """The opcode that XLA gives the instruction: sugar becomes `async-start|update|done`."""
    written = sugar(opcode)
    return opcode if written is None else f"async-{written[1]}"
