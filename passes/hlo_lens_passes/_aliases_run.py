"""Fills the aliases table: what the pass of `hlo_lens_passes.aliases` runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis import Value
from hlo_lens.dumps import AFTER
from hlo_lens.facts import Finding, Member, PassResult, Rule, common
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import parse_buffer_donor
from hlo_lens_passes._alias_flow import DefensiveCopies, Ways, copied_shapes, outermost, ways_to
from hlo_lens_passes._alias_updates import Update, updates
from hlo_lens_passes._host_moves import EntryArray, arguments, results
from hlo_lens_passes.aliases import COPIED, DROPPED, MISSED

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Module
    from hlo_lens.program import Program

LARGE: Final = 1 << 20
"""Bytes from which an argument is told in a note."""

_KINDS: Final = ("may-alias", "must-alias", "donor")
_HELP: Final[Mapping[str, str]] = {
    "argument": "read the old value before the new one is computed from it",
    "loop": "read nothing in an iteration that the same iteration overwrites",
    "output": "return for each argument what it becomes: another argument, a transpose or another"
    " layout of it is written elsewhere first",
}
"""What to do about a copy, by the word that findings are grouped by."""

_Place = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Donation:
    """A donated array: of which parameter, said how, and for which output. `gone`: it is only
    donated in a text before optimization."""

    place: _Place
    kind: str
    output: tuple[int, ...] | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a donation, and what says so. `alike`: one word for findings to group by."""

    verdict: str
    why: str
    alike: str = ""
    output: Instruction | None = None
    copies: tuple[Instruction, ...] = ()


def run(program: Program, facts: Facts) -> PassResult:
    """One row a donated array, with its members, and the findings."""
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings: list[Finding] = []
    for position, module in enumerate(program.modules):
        donated = donations(module)
        runs = program.stages[position] == AFTER or module.is_scheduled
        if runs and module is program.main:
            donated += _gone(program, donated)
        judge = _Judge(program.analysis(module), donated, runs)
        told: list[tuple[int, dict[str, object], Verdict]] = []
        for donation in sorted(donated, key=lambda one: one.place):
            verdict = judge.verdict(donation)
            row = _row(program, position, judge, donation, verdict)
            told.append((len(rows), row, verdict))
            members += _members(len(rows), position, row, verdict)
            rows.append(row)
        findings += _findings(position, told)
        if runs and not module.truncated:
            findings += _missed(position, updates(judge.analysis.graph, judge.free(), LARGE))
    return PassResult({"aliases": rows}, members, findings)


# ---------------------------------------------------------------------------- what is donated


def donations(module: Module) -> list[Donation]:
    """What the header donates: each array once for an output, and as a donor where it is paired
    with none. Raises ValueError where it cannot be read."""
    field = "input_output_alias"
    try:
        paired = module.input_output_alias
        field = "buffer_donor"
        donors = parse_buffer_donor(module.header.get(field, "{}"))
    except ValueError as problem:
        raise ValueError(f"{field} of the header of {module.name}: {problem}") from None
    found: dict[tuple[_Place, tuple[int, ...] | None], Donation] = {}
    for one in paired:
        place = one.parameter, one.parameter_index
        found.setdefault((place, one.output_index), Donation(place, one.kind, one.output_index))
    taken = {place for place, _ in found}
    for place in donors:
        if place not in taken:
            found.setdefault((place, None), Donation(place, "donor"))
    return list(found.values())


def _gone(program: Program, still: Sequence[Donation]) -> Iterator[Donation]:
    """What an earlier stage donates and the text that runs does not: by which array of the
    arguments it is, since XLA may make one tuple of all of them."""
    places = [_place(one) for one in arguments(program.main)]
    known = {one.place for one in still}
    for module in program.modules:
        if module is program.main or module.truncated:
            continue
        before = [_place(one) for one in arguments(module)]
        if len(before) != len(places):
            continue
        now = dict(zip(before, places, strict=True))
        for donation in donations(module):
            place = now.get(donation.place)
            if place is not None and place not in known:
                known.add(place)
                yield replace(donation, place=place, output=None, gone=True)


def _place(array: EntryArray) -> _Place:
    return array.value.instr.parameter_number or 0, array.value.path


# ---------------------------------------------------------------------------- verdicts


class _Judge:
    """What became of the donations of one module."""

    def __init__(self, analysis: ModuleAnalysis, donated: Sequence[Donation], runs: bool) -> None:
        self.analysis = analysis
        self.runs = runs
        module = analysis.module
        # A text that is cut off in front of its ENTRY has none.
        whole = module.entry.is_entry or not module.truncated
        self.arguments = {_place(one): one for one in arguments(module)} if whole else {}
        self.results = {one.value.path: one for one in results(module)} if whole else {}
        self._donated = Counter(one.place for one in donated)
        self._taken = Counter(one.output for one in donated)
        self._copies = DefensiveCopies(analysis.graph)
        self._fitting: dict[tuple[int, int], tuple[int, ...]] = {}
        """The first output that has no donated memory, by its size and memory."""
        for path, one in self.results.items():
            if path not in self._taken and (size := _size(one)) is not None:
                self._fitting.setdefault((size, _space(one)), path)

    def free(self) -> tuple[list[EntryArray], list[EntryArray]]:
        """The arguments that are not donated, and the outputs that have no donated memory."""
        return (
            [one for place, one in self.arguments.items() if place not in self._donated],
            [one for path, one in self.results.items() if path not in self._taken],
        )

    def verdict(self, donation: Donation) -> Verdict:
        argument = self.arguments.get(donation.place)
        if self.analysis.module.truncated and donation.output is not None:
            return Verdict("unknown", "the text is cut off")
        if argument is None:
            return Verdict("unknown", "the entry has no such array")
        if not self.runs:
            why = "not the text that runs: XLA has yet to place copies and to pair donors"
            return Verdict("unknown", why)
        if donation.gone:
            why = "donated before optimization, and no longer in the text that runs"
            return Verdict("dropped", why, "gone")
        if donation.output is None:
            return self._left_over(argument)
        result = self.results.get(donation.output)
        if result is None:
            return Verdict("unknown", "the entry has no such output")
        why = self._impossible(donation, argument, result)
        return Verdict("unknown", why) if why else self._aliased(argument, result)

    def _impossible(self, donation: Donation, argument: EntryArray, result: EntryArray) -> str:
        """Why XLA cannot have made such a pair; "" where it can."""
        if donation.kind not in _KINDS:
            return f"the header says {donation.kind!r}, which is neither may-alias nor must-alias"
        if self._donated[donation.place] > 1:
            return "the header pairs it with several outputs, and it has room for one"
        if self._taken[donation.output] > 1:
            return f"the header pairs output {_index(result.value.path)} with several arguments"
        sizes = _size(argument), _size(result)
        # Without a layout the padding is not known.
        told = (argument.shape.layout is None) == (result.shape.layout is None)
        if told and None not in sizes and sizes[0] != sizes[1]:
            return f"it has {sizes[0]:,} bytes in memory and the output {sizes[1]:,}"
        return ""

    def _left_over(self, argument: EntryArray) -> Verdict:
        """Of a donor that XLA has paired with no output."""
        size = _size(argument)
        if size is None or any(argument.shape.dynamic):
            return Verdict("dropped", "its size is not fixed", "dynamic")
        fits = self._fitting.get((size, _space(argument)))
        if fits is not None:
            why = f"XLA gave it to no output, although output {_index(fits)} has its size"
            return Verdict("dropped", why, "fits")
        why = f"no output of {size:,} bytes is left for it"
        if _space(argument):
            why += f" in memory space {_space(argument)}"
        return Verdict("dropped", why, "size")

    def _aliased(self, argument: EntryArray, result: EntryArray) -> Verdict:
        graph = self.analysis.graph
        ways = ways_to(graph, result.value)
        gives = _gives(result)
        own = argument.value
        reached = any(_is(end, own) for end in ways.ends)
        if ways.copies:
            copies = tuple(dict.fromkeys(one.instr for one in ways.copies))
            return Verdict("copied", *self._copied(copies, argument, ways), gives, copies)
        if not ways.whole:
            return Verdict("unknown", "there are too many ways to follow", "", gives)
        copy = self._copies.of(own, ways.ends)
        if copy is not None:
            why = f"the program works on %{copy.name}, a copy of the argument"
            return Verdict("copied", why, "argument", gives, (copy,))
        others = [end for end in ways.ends if end.instr.opcode == "parameter" and not _is(end, own)]
        if others:
            why = f"the output is %{others[0].instr.name}, and no copy of it is seen"
            return Verdict("unknown", why, "", gives)
        why = _in_place(ways, reached)
        return Verdict("aliased" if why else "unknown", why or "nothing gives it", "", gives)

    def _copied(
        self, copies: Sequence[Instruction], argument: EntryArray, ways: Ways
    ) -> tuple[str, str]:
        """Why it is copied: the sentence, and the word for findings."""
        for copy in copies:
            loop = self.analysis.loop(copy.computation)
            if loop is not None:
                return f"%{copy.name} copies it in every iteration of %{loop.instr.name}", "loop"
        first, last = copies[-1], copies[0]
        if any(_is(Value(one), argument.value) for one in first.operands):
            return f"%{first.name} copies the argument, and the copy is updated", "argument"
        read, given = copied_shapes(last)
        other = next((one.instr for one in ways.ends if one.instr.opcode == "parameter"), None)
        where = "computed elsewhere" if other is None else f"%{other.name}, another argument"
        why = f"the output is {where}, and %{last.name} copies it there"
        if read is not None and given is not None and read.layout != given.layout:
            why += f", from layout {read.layout} to {given.layout}"
        return why, "output"


def _in_place(ways: Ways, reached: bool) -> str:
    """How the output comes there without a copy; "" where nothing is seen to give it."""
    if ways.updates:
        return f"updated in place by %{outermost(ways.updates[0]).name}"
    if reached and len(ways.ends) == 1:
        return "the argument itself is returned"
    ends = [one for one in ways.ends if one.instr.opcode != "parameter"]
    return f"%{outermost(ends[0]).name} writes the output there" if ends else ""


def _is(end: Value, argument: Value) -> bool:
    return end.instr == argument.instr and end.path == argument.path


def _gives(result: EntryArray) -> Instruction:
    """What gives the output: an operand of the root, where that is a tuple."""
    at = result.value.instr
    for index in result.value.path:
        # A state has hundreds of outputs: of the root's operands only one is looked at.
        operands = at.computation.operand_indices(at.index) if at.opcode == "tuple" else ()
        if index >= len(operands):
            break
        at = Instruction(at.computation, operands[index])
    return at


def _size(array: EntryArray) -> int | None:
    return array.shape.padded_bytes


def _space(array: EntryArray) -> int:
    return array.shape.memory_space or 0


# ---------------------------------------------------------------------------- columns


def _row(
    program: Program, position: int, judge: _Judge, donation: Donation, verdict: Verdict
) -> dict[str, object]:
    argument = judge.arguments.get(donation.place)
    number, path = donation.place
    row: dict[str, object] = {"module": position}
    if argument is not None:
        instr, shape = argument.value.instr, argument.shape
        row = common(program, position, instr)
        row |= {"shape": shape.without_layout, "bytes": shape.bytes, "op_name": instr.op_name}
    return row | {
        "parameter": number,
        "parameter_index": _index(path),
        "output_index": None if donation.output is None else _index(donation.output),
        "kind": donation.kind if donation.kind in _KINDS else None,
        "verdict": verdict.verdict,
        "why": verdict.why,
    }


def _index(path: tuple[int, ...]) -> str:
    return f"{{{','.join(map(str, path))}}}"


def _members(
    row: int, module: int, columns: Mapping[str, object], verdict: Verdict
) -> Iterator[Member]:
    if isinstance(instr := columns.get("instr"), int):
        yield Member("aliases", row, "parameter", module, instr)
    if verdict.output is not None:
        yield Member("aliases", row, "output", module, verdict.output.id)
    for copy in verdict.copies:
        yield Member("aliases", row, "copy", module, copy.id)


# ---------------------------------------------------------------------------- findings


def _findings(
    module: int, told: Iterable[tuple[int, dict[str, object], Verdict]]
) -> Iterator[Finding]:
    """One finding for the donations of which the same is said: a state has hundreds of arrays."""
    groups: dict[tuple[Rule, str], list[tuple[int, dict[str, object], Verdict]]] = {}
    for one in told:
        _, row, verdict = one
        size = row.get("bytes")
        if verdict.verdict == "dropped":
            groups.setdefault((DROPPED, verdict.alike), []).append(one)
        elif verdict.verdict == "copied" and isinstance(size, int) and size >= LARGE:
            groups.setdefault((COPIED, verdict.alike), []).append(one)
    for (rule, word), alike in groups.items():
        alike.sort(key=lambda one: -_bytes(one[1]))
        _, row, verdict = alike[0]
        who = _who(_name(row["name"], row["op_name"]), [_bytes(row) for _, row, _ in alike])
        what = "donated in vain" if rule is DROPPED else "copied"
        why = verdict.why if len(alike) == 1 else f"of the first, {verdict.why}"
        instr = row["instr"]
        yield Finding(
            rule.id,
            rule.level,
            f"{who} {'is' if len(alike) == 1 else 'are'} {what}: {why}",
            module,
            instr if isinstance(instr, int) else None,
            tuple(("aliases", number) for number, _, _ in alike),
            _HELP.get(word, "return an array of its shape and dtype, or do not donate it"),
        )


def _missed(module: int, found: Sequence[Update]) -> Iterator[Finding]:
    if not found:
        return
    found = sorted(found, key=lambda one: -(one.argument.shape.bytes or 0))
    first, one = found[0], len(found) == 1
    instr = first.argument.value.instr
    who = _who(_name(instr.name, instr.op_name), [one.argument.shape.bytes or 0 for one in found])
    yield Finding(
        MISSED.id,
        MISSED.level,
        f"{who} {'is' if one else 'are'} not donated, and an output of the same shape is made of"
        f" {'it' if one else 'each: of the first'} by %{first.by.name}, output"
        f" {_index(first.result.value.path)}",
        module,
        instr.id,
        tuple(("instructions", one.argument.value.instr.id) for one in found),
        "donate what the caller does not use again: donate_argnums of jax.jit",
    )


def _who(first: str, sizes: Sequence[int]) -> str:
    more = len(sizes) - 1
    others = f" and {more} more argument{'s' if more > 1 else ''}" if more else ""
    return f"{first}{others}, {sum(sizes):,} bytes,"


def _name(name: object, op_name: object) -> str:
    return f"%{name} ({op_name})" if op_name else f"%{name}"


def _bytes(row: Mapping[str, object]) -> int:
    size = row.get("bytes")
    return size if isinstance(size, int) else 0
