"""The offload table: what moves between device and host, what lies in host memory, and whether the
transfers overlap with compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Rule, Summary, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

_KINDS: Final = ("annotation", "move", "copy", "parameter", "result")
_VALUES: Final = ("residual", "parameter", "result", "activation", "gradient")

TABLE = Table(
    "offload",
    "a move of a value between device and host, or an argument or result in host memory",
    (
        *COMMON,
        Column(
            "kind",
            "enum",
            "identity",
            "annotation: annotate_device_placement, as jax writes it; move: MoveToHost or"
            " MoveToDevice, as XLA has it then; copy: an operation that takes from one memory and"
            " gives in the other, in any spelling; parameter, result: an array of the entry that"
            " lies in host memory",
            values=_KINDS,
        ),
        Column(
            "direction",
            "enum",
            "structural",
            "where it moves; NULL for parameter and result",
            values=("to_host", "to_device"),
        ),
        Column(
            "value",
            "enum",
            "structural",
            "what is moved: residual: it has a row in residuals; parameter: an argument, such as"
            " weights and optimizer state; result: the entry returns it from host memory;"
            " activation, gradient: computed in forward or remat, or in backward, and none of"
            " these; NULL where no name tells",
            values=_VALUES,
            needs_op_names=True,
        ),
        Column("shape", "text", "structural", "dtype and dimensions of what one run moves"),
        Column("bytes", "bytes", "measure", "size of that"),
        Column("moved_bytes", "bytes", "measure", "what one run moves: 0 of what only lies there"),
        Column(
            "from_memory",
            "text",
            "structural",
            "memory it is taken from: device, host, vmem for S(1) of a TPU, else S(n)",
        ),
        Column("to_memory", "text", "structural", "memory it is given in"),
        Column(
            "position",
            "int",
            "structural",
            "of parameter and result: which of the arrays of the arguments, or of the results, from"
            " 0",
        ),
        Column(
            "matched",
            "ref",
            "volatile",
            "the first counterpart of the same value: of a move the one the other way, else the"
            " argument it comes from or the root that returns it; of these, the move",
        ),
        Column("is_matched", "bool", "structural", "whether there is one"),
        Column(
            "residual",
            "int",
            "volatile",
            "id of the value's row in residuals",
            needs_op_names=True,
        ),
        Column("pair", "ref", "volatile", "the row of async_pairs that it is, by its instr"),
        Column(
            "is_sync",
            "bool",
            "structural",
            "of a copy: whether its start's backend_config makes it synchronous, or a schedule has"
            " it without start and done; NULL where a start has no such field",
        ),
        Column(
            "compute_between",
            "int",
            "measure",
            "instructions between start and done that compute, as in async_pairs",
            unit="instructions",
        ),
        Column(
            "heavy_between",
            "int",
            "measure",
            "those of them that hold a core for long, as in async_pairs",
            unit="instructions",
        ),
        Column(
            "overlapped",
            "bool",
            "structural",
            "whether a copy has compute beside it, as in async_pairs; not one that is not started;"
            " NULL where the text is not scheduled",
            needs_configs=True,
        ),
    ),
    summary=Summary(
        "host memory",
        order=18,
        about="bytes of what one run moves, or of what lies there",
        by=(
            Cell("kind"),
            Cell("{from_memory}→{to_memory}", "memory", merged=True),
            Cell("value", "what"),
            Cell("loop"),
            Cell("phase"),
        ),
        measures=(
            Measure("values", "rows"),
            Measure("runs", "executions"),
            Measure("matched", "true", "is_matched"),
            Measure("overlap", "true", "overlapped"),
            Measure("bytes", "once", "bytes"),
            Measure("moved per step", "per_step", "moved_bytes"),
        ),
        unknown=(Cell("kind"),),
    ),
)

UNMATCHED: Final = Rule(
    "offload-unmatched",
    "warning",
    "A value is moved to the host and never back.",
    "annotate_device_placement or MoveToHost moves a value to the host, no move back takes it, no"
    " computation on the host does, and the entry does not return it in host memory. Where it is"
    " returned, but in device memory, XLA stops with error E1200 (host offload output mismatch):"
    " give the output a sharding of memory kind pinned_host, or move the value back.",
)
EXPOSED: Final = Rule(
    "offload-exposed",
    "note",
    "A copy between host and device has no compute beside it.",
    "Either it is synchronous, or nothing that computes stands between its start and its done in"
    " the schedule: the device waits for the host link. One finding is of the copies of a loop that"
    " go the same way, with their bytes for a step; its evidence are their rows.",
)


class OffloadPass:
    """One row a logical move, however many instructions spell it.

    Members: `move` (the instruction, of a pair `start`, `update`, `done` instead), `operation` (the
    slice, update or copy in a fusion or wrapper), `repeat` (further placements of the same value).
    """

    __slots__ = ()

    name: Final = "offload"
    tables: Final = (TABLE,)
    requires: Final = ("async_pairs", "residuals")
    rules: Final = (UNMATCHED, EXPOSED)

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._offload_run import run

        return run(program, facts)


PASS = OffloadPass()
