"""The tables of collectives as data: their columns, and how views show them."""

from __future__ import annotations

from typing import Final

from hlo_lens.facts import COMMON, Cell, Column, Lane, Measure, Summary, Table

KINDS: Final = (
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all",
    "collective-permute", "collective-broadcast", "send", "recv",
)  # fmt: skip
"""`hlo_lens.analysis.collectives.KINDS`, which a schema is not to wait for: a test compares."""
FORMS: Final = (
    "sync", "start-done", "async-wrapper", "sugar", "sparsecore-call", "fusion", "async-fusion",
    "windowed-loop",
)  # fmt: skip
MOVES: Final = ("parameter", "gradient", "activation", "constant")

_SPELLINGS: Final = (("sugar", "start-done (sugar)"),)
"""How the report names a form whose word only those know who print HLO."""

# What is known of one array: of a collective that moves several, where it is the same of all.
SHARED: Final = (
    Column(
        "moves",
        "enum",
        "structural",
        "parameter: an argument of the program, moved, cut, converted, carried by loops or stacked,"
        " or the new value of one; gradient: computed in the backward pass, and added to results of"
        " the program, not multiplied again; activation: computed otherwise; constant; NULL: not"
        " known",
        values=MOVES,
        needs_op_names=True,
    ),
    Column(
        "parameter",
        "text",
        "volatile",
        "argument of the program that it belongs to, by its path as jax writes it, else by its"
        " name; of a gradient the one that is updated with it; NULL where that cannot be told",
        needs_op_names=True,
    ),
    Column(
        "parameter_number",
        "int",
        "structural",
        "number of that parameter of the entry",
        needs_op_names=True,
    ),
    Column("source_instr", "ref", "volatile", "what computes the array, or the parameter it is of"),
    Column(
        "feeds",
        "ref",
        "volatile",
        "the first matmul or kernel that takes the result, through moves, converts, slices, fusions"
        " and collectives that move; NULL where other arithmetic is first",
    ),
    Column(
        "feeds_kind",
        "enum",
        "structural",
        "what that is; kernel: any other custom call that computes",
        values=("matmul", "kernel"),
    ),
    Column("feeds_operand", "int", "structural", "as which of its operands, from 0"),
    Column("feeds_name", "text", "volatile", "name of that instruction"),
    Column(
        "prefetched",
        "bool",
        "structural",
        "whether the iteration of a loop that fetches it does not use it but hands it to the next",
    ),
    Column("prefetch_carry", "int", "structural", "element of the loop's carry that holds it then"),
    Column(
        "peeled_of",
        "ref",
        "volatile",
        "of one in front of a loop that fetches for the first iteration: the one in the loop",
    ),
    Column(
        "gather_number",
        "int",
        "structural",
        "which all-gather of its source value this is, in the order of execution, from 1; peeled"
        " off a loop, that of the one in the loop",
    ),
    Column(
        "regather_for",
        "enum",
        "structural",
        "what a gather after the first is for: replay, of a checkpoint; backward, for a matmul of"
        " the backward pass itself, which takes a weight for the gradient of its input; NULL where"
        " neither a name nor what it feeds tells",
        values=("replay", "backward"),
        needs_op_names=True,
    ),
)

COLLECTIVES = Table(
    "collectives",
    "a logical collective: one operation in any spelling, or the loop or chain of fusions that"
    " amounts to one",
    (
        *COMMON,
        Column("kind", "enum", "structural", "the operation that the text writes", values=KINDS),
        Column(
            "logical_kind",
            "enum",
            "identity",
            "what it amounts to: the all-gather or reduce-scatter of a windowed einsum loop, the"
            " reduce-scatter of a fused all-reduce and slice; else as kind",
            values=KINDS,
        ),
        Column(
            "form",
            "enum",
            "volatile",
            "how the text spells it: start-done is an operation with opcodes of its own for start"
            " and done, sugar is OP-start and OP-done for an async-start and async-done around OP",
            values=FORMS,
        ),
        Column(
            "static_ops",
            "int",
            "volatile",
            "collective operations of the text that make up the row (a start and its done are one)",
        ),
        Column(
            "is_sync",
            "bool",
            "structural",
            "whether the start's backend_config makes it synchronous; NULL where it has no such"
            " field, and for what has no start",
        ),
        Column(
            "dtype",
            "text",
            "structural",
            "dtype on the wire; several by commas",
            dtypes=True,
        ),
        Column(
            "operand_shape",
            "text",
            "identity",
            "what one device gives, without layouts; of a windowed loop what one permute moves",
        ),
        Column("operand_bytes", "bytes", "measure", "what one device gives, per execution"),
        Column("result_bytes", "bytes", "measure", "what one device gets, per execution"),
        Column(
            "wire_bytes",
            "bytes",
            "measure",
            "what one device sends per execution, in a ring; of a windowed loop all its permutes."
            " NULL where group size, trip count or send sizes are not known",
        ),
        Column("wire_bytes_max", "bytes", "measure", "upper bound of wire_bytes; NULL: no bound"),
        Column(
            "logical_wire_bytes",
            "bytes",
            "measure",
            "what a ring sends for the logical kind; less than wire_bytes where a windowed loop"
            " sends shards that nobody needs",
        ),
        Column(
            "algorithm",
            "enum",
            "volatile",
            "the algorithm that wire_bytes assumes",
            values=("ring",),
        ),
        Column(
            "group_size",
            "int",
            "structural",
            "devices of the largest group as XLA reads it; of a permute, devices its pairs connect",
            unit="devices",
        ),
        Column("groups", "int", "structural", "groups that are listed, 1 for everybody"),
        Column("uneven_groups", "bool", "structural", "whether groups differ in size"),
        Column(
            "axes",
            "json",
            "volatile",
            "mesh axes of a group, as the mesh form, a mesh of the header or the mesh.json of the"
            " compile names them; NULL where none does",
        ),
        Column("axis_sizes", "json", "volatile", "devices along each of these axes, in order"),
        Column(
            "axes_from",
            "enum",
            "volatile",
            "what names them; text: the groups themselves, or equal ones of another collective;"
            " perhaps by names that XLA made up",
            values=("text", "header", "side_file"),
        ),
        Column(
            "intra_host",
            "bool",
            "structural",
            "whether every group stays within a host; only where the provenance.json of the compile"
            " says how many devices a host has",
        ),
        Column("channel_id", "int", "volatile", "channel_id of the operation"),
        Column(
            "core",
            "enum",
            "structural",
            "which core of a TPU runs it; NULL elsewhere",
            values=("tensorcore", "sparsecore"),
        ),
        Column(
            "compute_between",
            "int",
            "measure",
            "instructions between start and done that compute, in a scheduled text; 0 for one that"
            " is synchronous; of a windowed loop the least of its permutes",
            unit="instructions",
        ),
        Column(
            "heavy_between",
            "int",
            "measure",
            "those of them that hold a core for long: matmuls, kernels, reduce, sort, scatter,"
            " gather, while",
            unit="instructions",
        ),
        Column(
            "overlapped",
            "bool",
            "structural",
            "compute_between > 0 and not is_sync; NULL where the text is not scheduled",
            needs_configs=True,
        ),
        Column(
            "issued_before_use",
            "int",
            "measure",
            "compute instructions from the start to the first real use of the result; NULL where"
            " the computation does not use it, and for a gather that a loop uses up",
            unit="instructions",
        ),
        Column(
            "landed_before_use",
            "int",
            "measure",
            "compute instructions from the done to that use",
            unit="instructions",
        ),
        Column(
            "in_backward_loop",
            "bool",
            "structural",
            "whether a loop around it runs in the backward pass: its while is bwd or remat, or it"
            " holds backward matmuls and no forward ones; NULL where no name tells",
            needs_op_names=True,
        ),
        Column(
            "in_microbatch_loop",
            "bool",
            "structural",
            "whether a loop around it holds forward and backward matmuls, so that it runs once a"
            " microbatch (or step); NULL where no name tells",
            needs_op_names=True,
        ),
        Column(
            "under_checkpoint",
            "bool",
            "structural",
            "whether it replays for a checkpoint: its own remat label, or it sits in the backward"
            " pass and feeds what has one; NULL where no name tells",
            needs_op_names=True,
        ),
        Column(
            "regather_of",
            "ref",
            "volatile",
            "the first all-gather of the same source value, of several values of the first that"
            " has one; NULL for the first",
        ),
        Column(
            "is_regather",
            "bool",
            "structural",
            "whether an earlier all-gather has the same source value, of several values any; NULL"
            " for other kinds",
        ),
        *SHARED,
        Column(
            "scope",
            "text",
            "volatile",
            "named_scope path in its op_name, without what tells phases, loops and checkpoints, and"
            " without the operation; empty: in no scope; NULL: no name",
            needs_op_names=True,
        ),
        Column(
            "arrays",
            "int",
            "structural",
            "arrays it moves, each a row of collective_values; columns that are of one array are"
            " NULL where they differ between several",
        ),
        Column(
            "spmd_generated",
            "bool",
            "structural",
            "whether the SPMD partitioner made it; NULL where the text does not say",
        ),
        Column("start", "ref", "volatile", "the start, where it is asynchronous"),
        Column("done", "ref", "volatile", "the done, where it is asynchronous and in sight"),
    ),
    summary=Summary(
        "collectives",
        order=20,
        about="what one device sends, in a ring",
        none="no collectives",
        by=(
            Cell("loop"),
            Cell("phase"),
            Cell("logical_kind", "operation"),
            Cell("form", "written as", names=_SPELLINGS),
            Cell("dtype"),
        ),
        measures=(
            Measure("count", "rows"),
            Measure("runs", "executions"),
            Measure("overlap", "true", "overlapped"),
            Measure("sent per run", "once", "wire_bytes", "wire_bytes_max"),
            Measure("sent per step", "per_step", "wire_bytes", "wire_bytes_max"),
        ),
        held=("logical_kind", "phase", "loop_depth", "dtype", "group_size", "is_regather"),
        unknown=(Cell("logical_kind"),),
        lane=Lane(
            "communication",
            line=(
                Cell("logical_kind"),
                Cell("form", names=_SPELLINGS),
                Cell("operand_shape"),
                Cell("is_sync", words=("synchronous", "")),
                Cell("overlapped", words=("overlapped", "exposed")),
            ),
            details=(
                Cell("groups {groups}×{group_size}"),
                Cell("axes"),
                Cell("channel {channel_id}"),
                Cell("core"),
                Cell("moves"),
                Cell("parameter"),
                Cell("feeds {feeds_name}"),
            ),
            total=Measure("sends", "per_step", "wire_bytes", "wire_bytes_max"),
        ),
    ),
)

VALUES = Table(
    "collective_values",
    "an array that a logical collective moves; most rows of one with several arrays are told apart"
    " only here",
    (
        *COMMON,
        Column("collective", "int", "volatile", "id of the row in collectives"),
        Column("number", "int", "volatile", "which of its arrays, from 0"),
        Column("logical_kind", "enum", "identity", "what the collective amounts to", values=KINDS),
        Column("operand_shape", "text", "identity", "what one device gives of it"),
        Column("operand_bytes", "bytes", "measure", "what one device gives of it, per execution"),
        Column(
            "wire_bytes",
            "bytes",
            "measure",
            "its part of what one device sends per execution, as in collectives",
        ),
        *SHARED,
    ),
)
