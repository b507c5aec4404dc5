"""The checkpointing table: what a module keeps for the backward, computes again, and takes at most.

The sums of residuals and remat in one row, and the memory that the compiler reports beside them:
what a checkpoint policy trades, for one program; two rows compare two policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import Column, PassResult, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

SIDE_FILE: Final = "memory_analysis.json"

_NOT_SEEN: Final = (
    "NULL: the text is cut off, or nothing is seen of what it keeps where saved_exact is false"
)
_OF_POLICIES: Final = (
    "NULL: the text is cut off, or has no op_names and nothing is told by structure"
)

TABLE = Table(
    "checkpointing",
    "a module: what it keeps for the backward, computes again, and takes of memory",
    (
        Column("id", "int", "volatile", "number of the row in its program; `module` joins tables"),
        Column("module", "int", "identity", "position of the module among those loaded"),
        # What a comparison shows first.
        Column(
            "saved_bytes",
            "bytes",
            "measure",
            "what the forward keeps for the backward on the device: residuals that are stacked,"
            f" barrier or direct, and not made in a replay, each once; {_NOT_SEEN}",
        ),
        Column(
            "replayed_flops",
            "flops",
            "measure",
            "of the replayed matmuls, in one execution of the entry; NULL: a count is not known",
        ),
        Column(
            "peak_bytes",
            "bytes",
            "measure",
            f"most memory of a device in use at once, as the compiler models it: of {SIDE_FILE},"
            " for the module after optimization alone",
        ),
        Column("saved_values", "int", "measure", "how many these are"),
        Column(
            "saved_from",
            "text",
            "structural",
            "the kinds of residuals that saved_bytes counts, joined by +; or nothing",
        ),
        Column(
            "stacked_bytes", "bytes", "measure", "the part of saved_bytes that loops have stacked"
        ),
        Column(
            "saved_exact",
            "bool",
            "structural",
            "whether saved_bytes is of all values, as the program has them. Not after optimization"
            " unless loops stack all (direct ones are results of fusions there), not where"
            " functions called outside of loops keep some, not without op_names. stacked_bytes is"
            " exact either way",
        ),
        Column(
            "offloaded_bytes", "bytes", "measure", "what is kept in host memory, not in saved_bytes"
        ),
        Column(
            "copied_input_bytes",
            "bytes",
            "measure",
            "arrays that a forward loop stacks again slice by slice, not in saved_bytes",
        ),
        Column(
            "regions",
            "int",
            "measure",
            "regions of checkpoints, not of the compiler's own rematerialization",
        ),
        Column(
            "replayed_operations",
            "int",
            "measure",
            f"instructions of these that compute again what the forward does; {_OF_POLICIES}",
        ),
        Column("replayed_matmuls", "int", "measure", "matmuls replayed, as written"),
        Column(
            "replayed_kernels",
            "int",
            "measure",
            "custom calls of kernels replayed, and convolutions that are no matmuls",
        ),
        Column("replayed_collectives", "int", "measure", "collectives replayed"),
        Column(
            "duplicated_operations",
            "int",
            "measure",
            "cheap instructions of these that stand in a fusion as copies of what is computed"
            " anyway; in replayed_operations they are not",
        ),
        Column(
            "undone_operations",
            "int",
            "measure",
            "matmuls, kernels and collectives replayed before optimization and not after it;"
            " NULL: not both stages are there",
        ),
        Column(
            "forward_flops",
            "flops",
            "measure",
            "of all matmuls of the forward, in one execution of the entry; NULL: a count is not"
            " known, or a phase",
        ),
        Column("recompute_factor", "float", "measure", "replayed_flops ÷ forward_flops"),
        Column(
            "peak_from",
            "enum",
            "structural",
            f"what of {SIDE_FILE} gives the peak. peak_memory: peak_memory_in_bytes; allocations:"
            " arguments + outputs + temporaries − aliased, as XLA for the CPU reports a peak"
            " without temporaries, and where there is none",
            values=("peak_memory", "allocations"),
        ),
        Column("temp_bytes", "bytes", "measure", f"temporaries of a device, of {SIDE_FILE}"),
    ),
    needs_op_names=True,
)


class CheckpointingPass:
    """One row a module, in order."""

    __slots__ = ()

    name: Final = "checkpointing"
    tables: Final = (TABLE,)
    requires: Final = (
        "call_sites", "matmuls", "modules", "remat", "remat_ops", "residuals",
    )  # fmt: skip
    rules: Final = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._checkpointing_run import run

        return run(program, facts)


PASS = CheckpointingPass()
