"""The modules table: what each text is, how whole it is, and whose sizes it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import Cell, Column, PassResult, Rule, Summary, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

TABLE = Table(
    "modules",
    "a module: one HLO text",
    (
        Column("id", "int", "volatile", "number of the row in its program; `module` joins tables"),
        Column("module", "int", "identity", "position of the module among those loaded"),
        Column("name", "text", "volatile", "the name behind HloModule"),
        Column("file", "text", "volatile", "the file it was read from"),
        Column(
            "stage",
            "text",
            "volatile",
            "before_optimizations, after_spmd_partitioner, after_optimizations, the name XLA gave"
            " to one pass's dump, or unknown",
        ),
        Column(
            "platform",
            "enum",
            "structural",
            "what it is compiled for; NULL where the text does not show it",
            values=("cpu", "gpu", "tpu", "neuron"),
        ),
        Column(
            "platform_from", "text", "volatile", "what showed the platform, or what contradicts"
        ),
        Column("is_scheduled", "bool", "structural", "whether text order is execution order"),
        Column(
            "size_scope",
            "enum",
            "volatile",
            "whether shapes are of whole arrays or of one device's part of them; never add the two"
            " up. NULL where the text does not show it",
            values=("global", "device"),
        ),
        Column("size_scope_from", "text", "volatile", "what showed the scope of the sizes"),
        Column("num_partitions", "int", "structural", "SPMD partitions, where the header says"),
        Column("replica_count", "int", "structural", "replicas, where the header says"),
        Column("computations", "int", "volatile", "computations written"),
        Column("instructions", "int", "volatile", "instructions written"),
        Column("text_bytes", "bytes", "volatile", "size of the text in UTF-8"),
        Column("truncated", "bool", "structural", "whether the text stops in the middle"),
        Column("has_metadata", "bool", "volatile", "whether any instruction carries an op_name"),
        Column(
            "metadata_share", "float", "volatile", "share of the instructions that carry an op_name"
        ),
    ),
    summary=Summary(
        "modules",
        order=0,
        heads=(
            Cell("name"),
            Cell("file"),
            Cell("stage"),
            Cell("platform"),
            Cell("is_scheduled", words=("scheduled", "not scheduled")),
            Cell("truncated", words=("cut off", "")),
            Cell("partitions {num_partitions}"),
            Cell("replicas {replica_count}"),
            Cell("{size_scope} shapes"),
            Cell("computations {computations:,}"),
            Cell("instructions {instructions:,}"),
            Cell("text_bytes"),
            Cell("{metadata_share:.0%} of the instructions have an op_name"),
            Cell("has_metadata", words=("", "phases and sources cannot be told")),
        ),
    ),
)

RULES: Final = (
    Rule(
        "truncated",
        "warning",
        "The text stops in the middle.",
        "Everything up to the cut is read and shown. Counts and sums are of that part only: what"
        " comes behind it, often the entry computation, is missing.",
    ),
    Rule(
        "missing-computation",
        "warning",
        "An instruction calls a computation that the text does not define.",
        "What that computation does, and all it calls, is missing from every table.",
    ),
    Rule(
        "no-entry",
        "note",
        "No computation is marked ENTRY; the last one is taken, as XLA does.",
        "In a cut-off text the last computation may be any, and executions count from it.",
    ),
    Rule(
        "elided-operands",
        "warning",
        "A printer left operands out.",
        "A compact print such as `tuple(%a, ...(+12))` names some operands only. Edges to the"
        " others are missing.",
    ),
    Rule(
        "log-prefix",
        "note",
        "Lines began with a log prefix, which was taken off.",
        "The text was copied from a log. Line numbers count the lines as they are in the file.",
    ),
    Rule(
        "repaired",
        "note",
        "The text lacks something and was read around it.",
        "The message says what.",
    ),
    Rule(
        "no-metadata",
        "note",
        "No instruction carries metadata, so phases and sources cannot be told.",
        "`lowered.as_text('hlo')` drops metadata unless debug_info=True, and XLA's dumps hold it"
        " only with --xla_dump_hlo_as_long_text. Columns that need a name are NULL: that says"
        " nothing about the program. No remat label in such a text is no sign of no remat.",
    ),
)


class ModulesPass:
    """One row a module; a finding for everything the text lacks."""

    __slots__ = ()

    name: Final = "modules"
    tables: Final = (TABLE,)
    requires: Final = ()
    rules: Final = RULES

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._modules_run import run

        return run(program, facts)


PASS = ModulesPass()
