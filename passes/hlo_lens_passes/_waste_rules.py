"""The rules on communication that need not be: what each kind shows, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hlo_lens.facts import Rule

RULES: Final[Mapping[str, Rule]] = {
    "accumulate_only": Rule(
        "collective-accumulated",
        "warning",
        "A loop only adds what a reduction gives to an element of its carry.",
        "Sums may be taken in any order: the loop can add up what is not reduced yet, and one"
        " reduction behind it gives the same, so that each step sends it once and not once an"
        " iteration. XLA does so itself (while-loop-all-reduce-code-motion) where it sees through"
        " what is between the reduction and the add; `blocked_by` names what is there. Behind the"
        " loop a reduce-scatter needs the whole sum in memory, which may be the reason for having"
        " it inside: then this is a note.",
    ),
    "hoistable": Rule(
        "collective-hoistable",
        "warning",
        "A collective in a loop gets the same operand in every iteration.",
        "Nothing that it is computed from changes in the loop, so each iteration sends the same"
        " bytes. XLA moves what is invariant out of a loop only where that makes nothing larger,"
        " and so leaves gathers in it. In front of the loop its result is kept while the loop runs:"
        " with weights that is a trade of memory for communication, mostly a good one where the"
        " loop is over microbatches. What is in a branch is not looked at.",
        needs_op_names=True,
    ),
    "duplicate": Rule(
        "collective-duplicated",
        "warning",
        "Two collectives of the same attributes have the same operand.",
        "In one iteration, or outside of loops, an earlier collective gives the same value in the"
        " same dtype; its result could be used again. Barriers keep the two apart, or a copy that"
        " the compiler sees no sense in merging. Where the forward has one and the backward has it"
        " again, a checkpoint wants it so: that is a row of the table and no finding. In different"
        " loops it is none: see regather_of in collectives.",
    ),
    "only_sliced": Rule(
        "all-reduce-only-sliced",
        "warning",
        "Each device uses only its own part of what an all-reduce or a kernel gives it.",
        "The only uses of the result are slices whose place is computed from partition-id or"
        " replica-id. A reduce-scatter gives each device just that part and sends half as much:"
        " the partitioner wrote an all-reduce, and no pass made it a reduce-scatter. Of a kernel:"
        " it runs on gathered operands, and each device throws away what the others use, too.",
    ),
    "gathered_then_sliced": Rule(
        "gathered-then-sliced",
        "warning",
        "Each device uses only its own part of what it gathers.",
        "The only uses of the result are slices whose place is computed from partition-id or"
        " replica-id: the array changes from one sharding to another by way of the whole array"
        " (the partitioner warns of involuntary full rematerialization). An all-to-all or a"
        " permute would send less.",
    ),
    "chained": Rule(
        "collectives-chained",
        "warning",
        "A collective takes what another one over the same groups gives.",
        "Behind an all-gather or all-reduce every device of a group has the same array; another"
        " collective over the same group moves copies of it, or adds them up. A reduce-scatter"
        " with an all-gather behind it amounts to one all-reduce; that may be on purpose, so it is"
        " a note.",
    ),
    "wide_wire": Rule(
        "wide-on-the-wire",
        "warning",
        "A collective sends a wider dtype than is needed.",
        "What it gets is converted up right in front of it, or all that takes the result converts"
        " it down. The convert could be on the other side. Where the narrow value is scaled in"
        " between (quantized weights), the scale has to travel as well; where the collective"
        " reduces, the sum would be taken in the narrow dtype, which rounds more: notes.",
        needs_op_names=True,
    ),
    "only_stacked": Rule(
        "collective-only-stacked",
        "note",
        "What a collective gives is only written into what a loop stacks.",
        "No iteration uses it, and nothing hides it. One collective of the whole stack, behind the"
        " loop, sends as many bytes, but starts once. No row for a reduce-scatter, whose operands"
        " would have to be kept whole, and for what overlaps with compute.",
    ),
    "left_out": Rule(
        "collective-left-out",
        "note",
        "A reduction is not combined with others that are alike.",
        "Another one of the same groups and shape is combined with others or has left the loop."
        " This one is cut at the device's own place, since its parameter is sharded in another way,"
        " or is of another dtype, and stays by itself: replicated like the others, or reduced in"
        " their dtype, it would join them. A heuristic: arrays of one shape are taken for"
        " parameters of one kind.",
    ),
    "dtype_fallback": Rule(
        "offload-dtype-fallback",
        "note",
        "A collective runs synchronously on the TensorCore, it seems for its dtype.",
        "The compiler had made it asynchronous and took that back (async_collective_name), and in"
        " the same module the SparseCore runs collectives of other dtypes, but none of this one."
        " A heuristic: the text does not say why.",
        needs_op_names=True,
    ),
}
"""Kind -> its rule; what saves bytes comes first."""

HELP: Final[Mapping[str, str]] = {
    "accumulate_only": "add up in the loop what is not reduced, and reduce the sum behind it; take"
    " away what blocks that",
    "hoistable": "gather or reduce it in front of the loop, and hand it in",
    "duplicate": "use the first result twice, or constrain it where it is made",
    "only_sliced": "give the result the sharding of its slices where it is computed",
    "gathered_then_sliced": "let producer and consumer agree on a sharding, or change it in steps"
    " that an all-to-all can do",
    "chained": "look at the shardings on both sides of the first one",
    "wide_wire": "convert to the narrow dtype in front of the collective, and back behind it",
    "only_stacked": "return from the loop what is not reduced or gathered yet",
    "left_out": "give the parameter the sharding of the others, or reduce it in their dtype",
    "dtype_fallback": "send it in a dtype that the SparseCore takes",
}
"""Kind -> what to do."""
