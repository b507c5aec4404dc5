"""The aliases table: which arguments are donated, and whether an output takes the place of each.

The header of a module says it: `input_output_alias` pairs an output with the argument whose memory
it is written to, `buffer_donor` leaves the choice to XLA, which takes an output of the same size in
the same memory that nobody else has (`OptimizeInputOutputBufferAlias`). What jax cannot use at all
it leaves out of the text, with the warning "Some donated buffers were not usable".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Rule, Summary, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

TABLE = Table(
    "aliases",
    "an array of the arguments that is donated: its memory may hold an output",
    (
        *COMMON,
        Column("parameter", "int", "identity", "number of the entry's parameter"),
        Column(
            "parameter_index",
            "text",
            "identity",
            "which array of that parameter, as in the header: {} is all of it, {2} the third of a"
            " tuple",
        ),
        Column(
            "output_index",
            "text",
            "structural",
            "the output that has its memory, in the same form; NULL where the header pairs it with"
            " none",
        ),
        Column(
            "kind",
            "enum",
            "structural",
            "may-alias, must-alias: the header pairs it with an output; donor: it says that XLA may"
            " take it for any. Of one that is only donated before optimization, what is said there."
            " NULL: the header has another word",
            values=("may-alias", "must-alias", "donor"),
        ),
        Column("shape", "text", "structural", "dtype and dimensions of the array"),
        Column("bytes", "bytes", "measure", "its size"),
        Column(
            "verdict",
            "enum",
            "structural",
            "aliased: an output is written in its place; copied: an output is, but the program"
            " copies the whole value on the way, so that it is in memory twice; dropped: no output"
            " has its memory; unknown: the text does not tell, as before optimization",
            values=("aliased", "copied", "dropped", "unknown"),
        ),
        Column("why", "text", "volatile", "what in the text says so"),
        Column("op_name", "text", "volatile", "what jax calls the argument", needs_op_names=True),
    ),
    summary=Summary(
        "donated",
        order=19,
        about="arguments whose memory may hold an output",
        by=(Cell("verdict"),),
        measures=(Measure("arguments", "rows"), Measure("bytes", "once", "bytes")),
        unknown=(Cell("verdict"),),
    ),
)

DROPPED: Final = Rule(
    "donation-dropped",
    "warning",
    "An argument is donated, and no output has its memory.",
    "The text that runs still has it under buffer_donor, or the text before optimization donates it"
    " and the text that runs does not. XLA gives a donated argument to an output of the same number"
    " of bytes in the same memory, each output to one argument. jax frees the argument all the"
    " same, after the step: at the peak its memory is not saved. Return an array of that shape and"
    " dtype, such as the updated state, or do not donate the argument. What jax itself finds no use"
    " for is not in the text: watch for its warning 'Some donated buffers were not usable'.",
)
COPIED: Final = Rule(
    "donation-copied",
    "note",
    "A donated argument of a megabyte or more is copied on the way to the output in its place.",
    "The output is written to the argument's memory, as the header says, but a copy of the whole"
    " value stands on the way: of the argument, because something still reads it when the output is"
    " written; of what a loop carries, because an iteration reads what it overwrites; or of the"
    " output, because it is computed elsewhere. For that time it is in memory twice, and in a loop"
    " it is copied in every iteration. Use the old value before the new one is computed, and return"
    " an output in the layout and at the place of the argument. What only moves to another memory,"
    " such as VMEM, does not count.",
)
MISSED: Final = Rule(
    "donation-missed",
    "note",
    "An output is made of an argument of a megabyte or more, which is not donated.",
    "An output that has no donated memory is made of the argument element by element, or by writing"
    " slices into it, and has its shape, dtype and layout: argument and output are in memory at the"
    " same time. Whether the caller uses the argument again, the text cannot say. Where it does"
    " not, as with the parameters and the optimizer state of a training step, or a cache, donate"
    " it: donate_argnums or donate_argnames of jax.jit.",
)


class AliasesPass:
    """One row a donated array, in text order of the parameters.

    Members: `parameter`, `output` (what gives the output), `copy` (of the whole value, on the way).
    """

    __slots__ = ()

    name: Final = "aliases"
    tables: Final = (TABLE,)
    requires: Final = ()
    rules: Final = (DROPPED, COPIED, MISSED)

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._aliases_run import run

        return run(program, facts)


PASS = AliasesPass()
