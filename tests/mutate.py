"""Rewrites of HLO text: harmless ones must leave a table as it is, harmful ones must show in it.

    check_table(text, "select kind, group_size from collectives")
    check_table(text, "loops", skip={"rename"})

Each rewrite takes a Draft (an editable copy of a module) and a random source, changes the Draft in
place, and answers whether it changed anything. `harmless` and `harmful` give the texts.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from hlo_lens.hlo import parse, parse_shape
from hlo_lens.hlo.opcodes import OWN_ASYNC, sugar
from hlo_lens.hlo.replica_groups import parse_replica_groups
from tests.draft import Block, Draft, Line

# -- harmless rewrites ----------------------------------------------------------------------------

Rewrite = Callable[[Draft, random.Random], bool]

# Parts of names that are evidence by definition stay: XLA's own remat mark, windowed einsums.
_EVIDENCE = re.compile(r"\.remat\d*|windowed_dot_general")


def rename(draft: Draft, r: random.Random) -> bool:
    """New names for all instructions and computations."""
    blocks = {block.name: _new_name("c", n, block.name) for n, block in enumerate(draft.blocks)}
    for block in draft.blocks:
        names = {line.name: _new_name("v", n, line.name) for n, line in enumerate(block.lines)}
        for line in block.lines:
            line.name = names[line.name]
            if line.operands is not None:
                line.operands = [_renamed(operand, names) for operand in line.operands]
            for key, value in line.attributes.items():
                if isinstance(value, list):
                    known = names if key == "control-predecessors" else blocks
                    line.attributes[key] = [known[name] for name in value]
        block.root = names[block.root]
        block.name = blocks[block.name]
    draft.entry = blocks[draft.entry]
    return True


def _new_name(stem: str, number: int, name: str) -> str:
    return "-".join((f"{stem}.{number * 7 + 3}", *_EVIDENCE.findall(name))).replace("-.", ".")


def _renamed(operand: str, names: Mapping[str, str]) -> str:
    name, mark, path = operand.partition("#")
    return names[name] + mark + path


def renumber_channels(draft: Draft, r: random.Random) -> bool:
    """Other channel ids, equal ones still equal."""
    lines = [line for line in draft.lines if "channel_id" in line.attributes]
    for line in lines:
        line.attributes["channel_id"] = str(int(str(line.attributes["channel_id"])) * 3 + 100)
    return bool(lines)


_FRAME = re.compile(r"^(\d+) (\{file_location_id=\d+ parent_frame_id=)(\d+)(.*)$", re.M)
_FRAME_ID = re.compile(r"stack_frame_id=(\d+)")


def renumber_frames(draft: Draft, r: random.Random) -> bool:
    """Stack frames in reverse order, under new ids."""
    head, mark, table = draft.frames.partition("StackFrames\n")
    frames = _FRAME.findall(table)
    if len(frames) < 2:
        return False

    def moved(number: int) -> int:
        return len(frames) + 1 - number

    lines = [
        # The table prints the parent's id plus one; a frame without a parent has 1.
        (moved(int(n)), f"{middle}{moved(int(up) - 1) + 1 if up != '1' else 1}{end}")
        for n, middle, up, end in frames
    ]
    draft.frames = head + mark + "\n".join(f"{n} {rest}" for n, rest in sorted(lines))
    for line in draft.lines:
        metadata = str(line.attributes.get("metadata", ""))
        if found := _FRAME_ID.search(metadata):
            new = f"stack_frame_id={moved(int(found[1]))}"
            line.attributes["metadata"] = metadata.replace(found[0], new)
    return True


def strip_metadata(draft: Draft, r: random.Random) -> bool:
    """No metadata and no stack frames: structure must speak for itself."""
    changed = [line.attributes.pop("metadata", None) for line in draft.lines]
    draft.frames = ""
    return any(changed)


def reorder(draft: Draft, r: random.Random) -> bool:
    """Another order of definition, where the text is not a schedule."""
    if draft.header.get("is_scheduled") == "true":
        return False
    before = [[line.name for line in block.lines] for block in draft.blocks]
    for block in draft.blocks:
        block.lines = _shuffled(block.lines, lambda line: line.name, Line.names, r)
    return before != [[line.name for line in block.lines] for block in draft.blocks]


def reorder_computations(draft: Draft, r: random.Random) -> bool:
    """Computations in another order, called ones still first."""
    before = [block.name for block in draft.blocks]

    def needs(block: Block) -> list[str]:
        return [name for line in block.lines for name in line.calls()]

    draft.blocks = _shuffled(draft.blocks, lambda block: block.name, needs, r)
    return before != [block.name for block in draft.blocks]


T = TypeVar("T")


def _shuffled(
    items: Sequence[T], name: Callable[[T], str], needs: Callable[[T], list[str]], r: random.Random
) -> list[T]:
    """A random order in which everything stands behind what it needs."""
    waiting = list(items)
    done: set[str] = set()
    order: list[T] = []
    known = {name(item) for item in items}
    while waiting:
        ready = [item for item in waiting if done.issuperset(known.intersection(needs(item)))]
        chosen = r.choice(ready)
        waiting.remove(chosen)
        order.append(chosen)
        done.add(name(chosen))
    return order


_OWN_STARTS = {"all-gather-start", "all-reduce-start", "collective-permute-start"}
# What XLA keeps on the start line as well as on the operation inside.
_ON_BOTH = ("metadata", "backend_config", "frontend_attributes")


def respell_async(draft: Draft, r: random.Random) -> bool:
    """Every start, update and done in another spelling.

    `all-gather-start` becomes `async-start` around an all-gather and the other way round;
    `slice-start` becomes `async-start` around a slice and the other way round.
    """
    changed = False
    for block in list(draft.blocks):
        for start in list(block.lines):
            chain = _async_chain(block, start)
            if start.opcode in _OWN_STARTS or (sugar(start.opcode) or ("", ""))[1] == "start":
                changed |= _wrap(draft, block, start, chain)
            elif start.opcode == "async-start":
                changed |= _unwrap(draft, block, start, chain)
    return changed


def _async_chain(block: Block, start: Line) -> list[Line]:
    """The updates and dones that follow `start`."""
    chain, names = [], {start.name}
    for line in block.lines:
        if line.opcode.endswith(("-update", "-done")) and names.intersection(line.operands or ()):
            chain.append(line)
            names.add(line.name)
    return chain


def _wrap(draft: Draft, block: Block, start: Line, chain: Sequence[Line]) -> bool:
    """`OP-start` as `async-start` that calls a computation holding OP."""
    operation = start.opcode.removesuffix("-start")
    own = start.opcode in _OWN_STARTS
    shapes = [block.line(name).shape for name in start.operands or () if "#" not in name]
    parsed = parse_shape(start.shape)
    if len(shapes) != len(start.operands or ()) or not all(shapes):
        return False
    if operation == "all-reduce":
        result, context = start.shape, ""
    elif len(parsed.elements) < 2 or (not own and len(parsed.elements[0].elements) != len(shapes)):
        return False  # operands that come with an update
    else:
        result = str(parsed.elements[1])
        context = "".join(f", {element}" for element in parsed.elements[2:])
    inner = dict(start.attributes)
    inner.pop("control-predecessors", None)
    thread = inner.pop("async_execution_thread", None)
    lines = [Line(f"p.{n}", shape, "parameter", None, str(n)) for n, shape in enumerate(shapes)]
    lines.append(Line("wrapped", result, operation, [line.name for line in lines], "", inner))
    callee = draft.fresh(f"wrapped_{start.name}")
    named_thread = None if thread is None else str(thread).strip('"')
    draft.blocks.insert(draft.blocks.index(block), Block(callee, lines, "wrapped", named_thread))
    kept = (*_ON_BOTH, "control-predecessors", "async_execution_thread")
    start.attributes = {k: v for k, v in start.attributes.items() if k in kept}
    start.attributes["calls"] = [callee]
    start.opcode = "async-start"
    start.shape = f"(({', '.join(shapes)}), {result}{context})"
    for line in chain:
        line.opcode = f"async-{line.opcode.rpartition('-')[2]}"
    return True


def _unwrap(draft: Draft, block: Block, start: Line, chain: Sequence[Line]) -> bool:
    """`async-start` whose computation holds one operation as the start of that operation."""
    (callee,) = start.calls() or [""]
    callers = draft.callers(callee)
    if any(line is not start and line not in chain for line in callers):
        return False
    body = draft.block(callee)
    *parameters, inner = body.lines
    ordered = sorted(parameters, key=lambda line: line.argument)
    if inner.name != body.root or inner.operands != [line.name for line in ordered]:
        return False
    shape = start.shape
    if f"{inner.opcode}-start" in OWN_ASYNC:
        updates = any(line.opcode == "async-update" for line in chain)
        if f"{inner.opcode}-start" not in _OWN_STARTS or updates or body.thread is not None:
            return False
        shape = _own_start_shape(inner, ordered, start)
    merged = {**inner.attributes, **start.attributes}
    merged.pop("calls")
    start.attributes, start.shape = merged, shape
    for line in (start, *chain):
        line.attributes.pop("calls", None)
        line.opcode = f"{inner.opcode}-{line.opcode.rpartition('-')[2]}"
    if "calls" in inner.attributes:
        start.attributes["calls"] = inner.attributes["calls"]
    draft.blocks.remove(body)
    return True


def _own_start_shape(inner: Line, parameters: Sequence[Line], start: Line) -> str:
    if inner.opcode == "all-reduce":
        return inner.shape
    shapes = ", ".join(line.shape for line in parameters)
    context = parse_shape(start.shape).elements[2:] if "permute" in inner.opcode else ()
    parts = [f"({shapes})" if len(parameters) > 1 else shapes, inner.shape, *map(str, context)]
    return f"({', '.join(parts)})"


def elements_by_mark(draft: Draft, r: random.Random) -> bool:
    """`get-tuple-element` spelled `x#1` where it is used."""
    changed = False
    for block in draft.blocks:
        for line in list(block.lines):
            users = block.users(line.name)
            if line.opcode != "get-tuple-element" or line.name == block.root or not users:
                continue
            if any("control-predecessors" in each.attributes for each in (line, *users)):
                continue
            assert line.operands is not None
            element = f"{line.operands[0]}#{line.attributes['index']}"
            for user in users:
                user.operands = [
                    element + operand.removeprefix(line.name)
                    if operand.partition("#")[0] == line.name
                    else operand
                    for operand in user.operands or ()
                ]
            block.lines.remove(line)
            changed = True
    return changed


def elements_by_instruction(draft: Draft, r: random.Random) -> bool:
    """`x#1` spelled as an instruction of its own."""
    changed = False
    for block in draft.blocks:
        for line in list(block.lines):
            for position, operand in enumerate(line.operands or ()):
                name, *path = operand.split("#")
                for index in path:
                    name = _element_line(block, line, name, int(index))
                    changed = True
                if line.operands is not None:
                    line.operands[position] = name
    return changed


def _element_line(block: Block, user: Line, source: str, index: int) -> str:
    shape = str(parse_shape(block.line(source).shape).elements[index])
    name = block.fresh(f"element.{index}")
    line = Line(name, shape, "get-tuple-element", [source], "", {"index": str(index)})
    block.lines.insert(block.lines.index(user), line)
    return name


def groups_as_lists(draft: Draft, r: random.Random) -> bool:
    """Replica groups `{{0,1},{2,3}}`."""
    return _respell_groups(draft, _list_form)


def groups_as_iotas(draft: Draft, r: random.Random) -> bool:
    """Replica groups `[2,2]<=[4]`, where they are regular."""
    return _respell_groups(draft, _iota_form)


def groups_as_meshes(draft: Draft, r: random.Random) -> bool:
    """Replica groups `mesh['x'=2,'y'=2] {'y'}`, where they are regular."""
    return _respell_groups(draft, _mesh_form)


Groups = tuple[tuple[int, ...], ...]


def _respell_groups(draft: Draft, form: Callable[[Groups], str | None]) -> bool:
    changed = False
    for line in draft.lines:
        old = line.attributes.get("replica_groups")
        groups = parse_replica_groups(old).groups if isinstance(old, str) else ()
        new = form(groups) if groups else None
        if new is not None and new != old:
            line.attributes["replica_groups"] = new
            changed = True
    return changed


def _list_form(groups: Groups) -> str:
    return f"{{{','.join('{' + ','.join(map(str, group)) + '}' for group in groups)}}}"


def _regular(groups: Groups) -> str | None:
    """How the groups cut 0, 1, 2, …: "runs" of neighbours, "strides", or None."""
    flat = [number for group in groups for number in group]
    if flat == list(range(len(flat))):
        return "runs"
    columns = [number for column in zip(*groups, strict=False) for number in column]
    return "strides" if columns == list(range(len(flat))) else None


def _iota_form(groups: Groups) -> str | None:
    count, size = len(groups), len(groups[0])
    forms = {
        "runs": f"[{count},{size}]<=[{count * size}]",
        "strides": f"[{count},{size}]<=[{size},{count}]T(1,0)",
    }
    return forms.get(_regular(groups) or "")


def _mesh_form(groups: Groups) -> str | None:
    count, size = len(groups), len(groups[0])
    forms = {
        "runs": f"mesh['x'={count},'y'={size}] {{'y'}}",
        "strides": f"mesh['x'={size},'y'={count}] {{'x'}}",
    }
    return forms.get(_regular(groups) or "")


def _styled(**changes: bool) -> Rewrite:
    def restyle(draft: Draft, r: random.Random) -> bool:
        draft.style = replace(draft.style, **changes)
        return True

    return restyle


HARMLESS: Mapping[str, Rewrite] = {
    "rename": rename,
    "renumber-channels": renumber_channels,
    "renumber-frames": renumber_frames,
    "strip-metadata": strip_metadata,
    "reorder": reorder,
    "reorder-computations": reorder_computations,
    "respell-async": respell_async,
    "groups-as-lists": groups_as_lists,
    "groups-as-iotas": groups_as_iotas,
    "groups-as-meshes": groups_as_meshes,
    "elements-by-mark": elements_by_mark,
    "elements-by-instruction": elements_by_instruction,
    "no-percent": _styled(percent=False),
    "operand-shapes": _styled(operand_shapes=True),
    "comments": _styled(comments=True),
    "many-lines": _styled(spread=True),
}


def harmless(text: str, *, seed: int = 0) -> list[tuple[str, str]]:
    """(name, rewritten text) for every rewrite of HARMLESS that applies."""
    return list(_rewritten(text, HARMLESS, seed))


def _rewritten(text: str, rewrites: Mapping[str, Rewrite], seed: int) -> Iterator[tuple[str, str]]:
    original = Draft.of(text)
    for name, rewrite in rewrites.items():
        draft = copy.deepcopy(original)
        if rewrite(draft, random.Random(seed)):
            yield name, draft.text()


# -- harmful rewrites -----------------------------------------------------------------------------

_OTHER_DTYPE = {"f32": "bf16", "bf16": "f32", "f16": "f32", "f64": "f32"}
_FLOAT = re.compile(rf"\b({'|'.join(_OTHER_DTYPE)}|f8e\w+)(?=\[)")


def change_dtypes(draft: Draft, r: random.Random) -> bool:
    """Another width of every floating-point value."""
    before = [line.shape for line in draft.lines]
    for line in draft.lines:
        line.shape = _other_dtypes(line.shape)
        if layouts := line.attributes.get("operand_layout_constraints"):
            line.attributes["operand_layout_constraints"] = _other_dtypes(str(layouts))
    return before != [line.shape for line in draft.lines]


def _other_dtypes(shape: str) -> str:
    return _FLOAT.sub(lambda found: _OTHER_DTYPE.get(found[1], "f32"), shape)


def change_groups(draft: Draft, r: random.Random) -> bool:
    """Groups half as large, or one group of everybody where they are as small as can be."""
    changed = False
    for line in draft.lines:
        old = line.attributes.get("replica_groups")
        groups = parse_replica_groups(old).groups if isinstance(old, str) else ()
        if len(groups) > 1:
            everybody = sorted(number for group in groups for number in group)
            line.attributes["replica_groups"] = _list_form((tuple(everybody),))
        elif groups and len(groups[0]) > 1:
            half = len(groups[0]) // 2
            line.attributes["replica_groups"] = _list_form((groups[0][:half], groups[0][half:]))
        elif old == "{}":
            line.attributes["replica_groups"] = "{{0,1}}"
        else:
            continue
        changed = True
    return changed


_TRIPS = re.compile(r'("known_trip_count":\{"n":")(\d+)')


def change_trip_counts(draft: Draft, r: random.Random) -> bool:
    """One more trip of every while, in its annotation and in the bound of its condition."""
    changed = False
    for loop in [line for line in draft.lines if line.opcode == "while"]:
        config = str(loop.attributes.get("backend_config", ""))
        if _TRIPS.search(config):
            more = _TRIPS.sub(lambda found: f"{found[1]}{int(found[2]) + 1}", config)
            loop.attributes["backend_config"] = more
            changed = True
        for name in loop.attributes.get("condition", ()):
            for line in draft.block(name).lines:
                if line.opcode == "constant" and line.argument.strip().isdigit():
                    line.argument = str(int(line.argument) + 1)
                    changed = True
    return changed


def _drops(draft: Draft) -> Iterator[tuple[str, Rewrite]]:
    """One rewrite for each operand: it is replaced by a constant."""
    for at, block in enumerate(draft.blocks):
        for line in sorted(block.lines, key=_dullness):
            if line.opcode.endswith(("-update", "-done")):
                continue  # without its start it is no HLO
            for position in range(len(line.operands or ())):
                yield f"drop-edge {line.name} {position}", _drop(at, line.name, position)


_DULL = {"tuple", "get-tuple-element", "bitcast", "copy", "broadcast", "reshape"}


def _dullness(line: Line) -> int:
    """Rewrites of interesting operations come first, so that a check ends soon."""
    return line.opcode in _DULL


def _drop(at: int, name: str, position: int) -> Rewrite:
    def drop(draft: Draft, r: random.Random) -> bool:
        block = draft.blocks[at]
        line = block.line(name)
        assert line.operands is not None
        source, *path = line.operands[position].split("#")
        shape = parse_shape(block.line(source).shape)
        for index in path:
            shape = shape.elements[int(index)]
        cut = Line(block.fresh("cut"), str(shape), "constant", None, _zero(str(shape)))
        block.lines.insert(block.lines.index(line), cut)
        line.operands[position] = cut.name
        return True

    return drop


def _zero(shape: str) -> str:
    """A literal of that shape; arrays are elided."""
    parsed = parse_shape(shape)
    if parsed.is_tuple:
        return f"({', '.join(_zero(str(element)) for element in parsed.elements)})"
    return "{...}" if parsed.rank else "0"


def _loops(draft: Draft) -> Iterator[tuple[str, Rewrite]]:
    """One rewrite for each array operation: it moves into a while of three trips."""
    for at, block in enumerate(draft.blocks):
        for line in sorted(block.lines, key=_dullness):
            if line.opcode in ("parameter", "constant", "get-tuple-element", "tuple", "while"):
                continue
            if line.opcode.endswith(("-start", "-update", "-done")) or not line.operands:
                continue
            shapes = [
                parse_shape(block.line(name.partition("#")[0]).shape) for name in line.operands
            ]
            if all(shape.is_array for shape in (*shapes, parse_shape(line.shape))):
                yield f"into-loop {line.name}", _into_loop(at, line.name)


def _into_loop(at: int, name: str) -> Rewrite:
    def move(draft: Draft, r: random.Random) -> bool:
        block = draft.blocks[at]
        line = block.line(name)
        sources = [block.line(operand) for operand in line.operands or ()]
        zero = Line(block.fresh("zero"), "s32[]", "constant", None, "0")
        empty = Line(block.fresh("empty"), line.shape, "constant", None, _zero(line.shape))
        carry = [zero, *sources, empty]
        shape = f"({', '.join(each.shape for each in carry)})"
        start = Line(block.fresh("init"), shape, "tuple", [each.name for each in carry])
        body = _loop_body(draft, line, carry, shape)
        condition = _loop_condition(draft, shape)
        calls: dict[str, str | list[str]] = {"condition": [condition.name], "body": [body.name]}
        loop = Line(block.fresh("loop"), shape, "while", [start.name], "", calls)
        moved = replace(
            line,
            opcode="get-tuple-element",
            operands=[loop.name],
            attributes={"index": str(len(carry) - 1)},
        )
        where = block.lines.index(line)
        block.lines[where : where + 1] = [zero, empty, start, loop, moved]
        draft.blocks[at:at] = [body, condition]
        return True

    return move


def _loop_body(draft: Draft, line: Line, carry: Sequence[Line], shape: str) -> Block:
    lines = [Line("state", shape, "parameter", None, "0")]
    for index, each in enumerate(carry):
        lines.append(
            Line(
                f"e.{index}", each.shape, "get-tuple-element", ["state"], "", {"index": str(index)}
            )
        )
    inner = dict(line.attributes)
    inner.pop("control-predecessors", None)
    operands = [f"e.{index}" for index in range(1, len(carry) - 1)]
    results = ["next", *operands, "moved"]
    lines += [
        Line("one", "s32[]", "constant", None, "1"),
        Line("next", "s32[]", "add", ["e.0", "one"]),
        Line("moved", line.shape, line.opcode, operands, "", inner),
        Line("result", shape, "tuple", results),
    ]
    return Block(draft.fresh("loop_body"), lines, "result")


def _loop_condition(draft: Draft, shape: str) -> Block:
    lines = [
        Line("state", shape, "parameter", None, "0"),
        Line("index", "s32[]", "get-tuple-element", ["state"], "", {"index": "0"}),
        Line("bound", "s32[]", "constant", None, "3"),
        Line("go", "pred[]", "compare", ["index", "bound"], "", {"direction": "LT"}),
    ]
    return Block(draft.fresh("loop_condition"), lines, "go")


HARMFUL: Mapping[str, Rewrite] = {
    "change-dtypes": change_dtypes,
    "change-groups": change_groups,
    "change-trip-counts": change_trip_counts,
}


def harmful(text: str, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """(name, rewritten text), made one by one; the last ones cut one edge or move one operation."""
    yield from _rewritten(text, HARMFUL, seed)
    draft = Draft.of(text)
    yield from _rewritten(text, dict(_loops(draft)), seed)
    yield from _rewritten(text, dict(_drops(draft)), seed)


# -- checks of tables -----------------------------------------------------------------------------

# What comes from names alone, so that a text without metadata has NULL there.
FROM_METADATA = frozenset(("phase", "op_name", "full_op_name", "remat_label"))


def check_table(
    text: str,
    question: str | Callable[[str], object],
    *,
    skip: Collection[str] = (),
    from_metadata: Collection[str] = FROM_METADATA,
    must_change: bool = True,
) -> object:
    """The answer to `question` on `text`, after every rewrite has been tried on it.

    `question` is SQL, the name of a table, or a function of the text. A table is compared in its
    structural columns and measures (without references), as a bag of rows; SQL in what it selects.
    Metadata is stripped only for a table, whose columns `from_metadata` are then left out. `skip`
    names rewrites that matter by definition here; where it is used, say why.

    Raises AssertionError where a harmless rewrite changes the answer, or no harmful one does.
    """
    expected = _answer(text, question)
    for name, rewritten in harmless(text):
        if name in skip:
            continue
        if name != "strip-metadata":
            found = _answer(rewritten, question)
            assert found == expected, f"{name} changed the answer\n{rewritten}"
        elif isinstance(question, str) and question.isidentifier():
            kept = _answer(text, question, without=from_metadata)
            found = _answer(rewritten, question, without=from_metadata)
            assert found == kept, f"{name} changed the answer\n{rewritten}"
    if must_change:
        assert any(
            _answer(rewritten, question) != expected
            for name, rewritten in harmful(text)
            if name.partition(" ")[0] not in skip
        ), "no harmful rewrite changed the answer: it says nothing of the program"
    return expected


def _answer(
    text: str, question: str | Callable[[str], object], *, without: Collection[str] = ()
) -> object:
    if callable(question):
        return question(text)
    from hlo_lens.facts.runner import Facts
    from hlo_lens.facts.sqlite import run_query
    from hlo_lens.program import Program

    facts = Facts(Program([parse(text)]))
    if not question.isidentifier():
        rows = run_query([facts], question).rows
    else:
        columns = [
            column.name
            for column in facts.table(question).columns
            if column.role in ("structural", "measure")
            and column.type not in ("ref", "refs")
            and column.name not in without
        ]
        rows = [tuple(record[name] for name in columns) for record in facts.records(question)]
    return sorted(rows, key=repr)
