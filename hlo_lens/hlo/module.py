"""Module, Computation and Instruction: what an HLO text holds, in flat columns with cursors."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

from hlo_lens.hlo import attributes as attrs
from hlo_lens.hlo.called import NAMES, called_names
from hlo_lens.hlo.config import BackendConfig, parse_config
from hlo_lens.hlo.frames import FrameTable, parse_frames
from hlo_lens.hlo.literal import Literal
from hlo_lens.hlo.metadata import Metadata, parse_metadata
from hlo_lens.hlo.opcodes import NEVER_CALLS, base_opcode, sugar
from hlo_lens.hlo.rows import Repair, Rows, SharedRows
from hlo_lens.hlo.shape import UNKNOWN_SHAPE, Shape, parse_shape

if TYPE_CHECKING:
    from hlo_lens.hlo.attributes import Alias
    from hlo_lens.hlo.replica_groups import ReplicaGroups
    from hlo_lens.hlo.sharding import Sharding

_INDEX = re.compile(r", index=(\d+)(?=,|\Z)")
# As printers emit it. Longer numbers are read where errors are told.
_FRAME_ID = re.compile(
    r', metadata=\{(?:op_type="[^"\\]*",? *)?(?:op_name="[^"\\]*",? *)?'
    r"stack_frame_id=(\d{1,9})[ ,}]"
)
_OP_NAME = re.compile(r', metadata=\{(?:op_type="[^"\\]*",? *)?op_name="([^"\\]*)"')


class Instruction:
    """A cursor on one instruction: cheap, hashable, equal by position."""

    __slots__ = ("computation", "index")

    def __init__(self, computation: Computation, index: int) -> None:
        self.computation = computation
        self.index = index

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Instruction)
            and self.index == other.index
            and self.computation is other.computation
        )

    def __hash__(self) -> int:
        return hash((id(self.computation), self.index))

    def __repr__(self) -> str:
        return f"<Instruction {self.shape_text[:60]} {self.opcode} %{self.name}>"

    def _repr_html_(self) -> str:
        from hlo_lens.notebook.shown_hlo import instruction_html

        return instruction_html(self)

    @property
    def id(self) -> int:
        """Position in text order over the module; for an implied one that of what implies it."""
        computation = self.computation
        if computation.host is not None:
            return computation.host.id
        if self.index >= 0:
            return computation.first_id + self.index
        operands = computation.rows.implied[~self.index].operands
        return Instruction(computation, operands[0]).id if operands else computation.first_id

    @property
    def implied(self) -> bool:
        """Whether the text only implies this instruction (`x#1`, the operation in `OP-start`)."""
        return self.index < 0 or self.computation.implied

    @property
    def name(self) -> str:
        return self.computation.name_of(self.index)

    @property
    def opcode(self) -> str:
        """As written: `add`, `all-gather-start`, also sugar such as `dynamic-slice-start`."""
        return self.computation.opcode_of(self.index)

    @property
    def base_opcode(self) -> str:
        """The opcode XLA gives it: `dynamic-slice-start` is `async-start`."""
        return base_opcode(self.opcode)

    @property
    def is_root(self) -> bool:
        return self.index == self.computation.root_index

    @property
    def shape_text(self) -> str:
        """The shape as written; "" where the text leaves it out."""
        return self.computation.shape_of(self.index)

    @property
    def shape(self) -> Shape:
        """The shape; UNKNOWN_SHAPE where the text leaves it out. Raises ValueError for no shape."""
        text = self.shape_text
        return parse_shape(text) if text else UNKNOWN_SHAPE

    @property
    def tail(self) -> str:
        """Everything behind the operand list, as written: `, dimensions={0}, metadata={…}`."""
        return self.computation.tail_of(self.index)

    @property
    def argument_text(self) -> str:
        """What stands between the parentheses, as written."""
        if self.index < 0:
            return self.computation.rows.implied[~self.index].argument
        return self.computation.rows.arguments[self.index]

    @property
    def operands(self) -> tuple[Instruction, ...]:
        computation = self.computation
        return tuple(
            Instruction(computation, operand) for operand in computation.operand_indices(self.index)
        )

    @property
    def users(self) -> tuple[Instruction, ...]:
        """Written instructions of the computation that take this one, in text order, once each."""
        of = self.computation
        return tuple(Instruction(of, user) for user in of.user_indices(self.index))

    @property
    def called_by(self) -> Mapping[str, tuple[Computation, ...]]:
        """Called computations by attribute: {"body": (…,), "condition": (…,)}.

        The operation in `OP-start` is the one called computation of it, under "calls".
        Names that the text does not define are left out (see `Module.repairs`).
        """
        return MappingProxyType(self.computation.calls_of(self.index))

    @property
    def called(self) -> tuple[Computation, ...]:
        """Every called computation, in the order of the attributes."""
        return tuple(callee for group in self.called_by.values() for callee in group)

    @property
    def control_predecessors(self) -> tuple[Instruction, ...]:
        text = self.attributes.get("control-predecessors")
        if text is None:
            return ()
        index = self.computation.rows.index
        found = (index.get(name) for name in NAMES.findall(text))
        return tuple(Instruction(self.computation, i) for i in found if i is not None)

    @property
    def attributes(self) -> Mapping[str, str]:
        """Raw text of each attribute, in order; unknown ones too."""
        return MappingProxyType(attrs.split_attributes(self.tail))

    def attribute(self, name: str) -> str | None:
        """Raw text of one attribute, or None; without reading the others where it is not there."""
        return self.attributes.get(name) if f"{name}=" in self.tail else None

    def int_attribute(self, name: str) -> int | None:
        """Raises ValueError where the attribute is no integer."""
        text = self.attribute(name)
        return None if text is None else int(text)

    def ints_attribute(self, name: str) -> tuple[int, ...] | None:
        """`{1,2}` as a tuple. Raises ValueError where it is something else."""
        text = self.attribute(name)
        return None if text is None else attrs.parse_ints(text)

    def bool_attribute(self, name: str) -> bool | None:
        text = self.attribute(name)
        return None if text is None else text in ("true", "1")

    @property
    def op_name(self) -> str | None:
        """The `op_name` of the metadata: the JAX name-stack path, as far as this line has it."""
        tail = self.tail
        match = _OP_NAME.search(tail)
        if match is not None and tail.count('"', 0, match.start()) % 2 == 0:
            return match[1]
        if "metadata=" not in tail:
            return None
        try:
            metadata = self.metadata
        except ValueError:  # `metadata` says what is wrong with it; the name is not known
            return None
        return metadata.op_name if metadata is not None else None

    @property
    def metadata(self) -> Metadata | None:
        text = self.attribute("metadata")
        return None if text is None else parse_metadata(text)

    @property
    def backend_config(self) -> BackendConfig | None:
        text = self.attribute("backend_config")
        return None if text is None else parse_config(text)

    @property
    def sharding(self) -> Sharding | None:
        from hlo_lens.hlo.sharding import parse_sharding

        text = self.attribute("sharding")
        return None if text is None else parse_sharding(text)

    @property
    def replica_groups(self) -> ReplicaGroups | None:
        from hlo_lens.hlo.replica_groups import parse_replica_groups

        text = self.attribute("replica_groups")
        return None if text is None else parse_replica_groups(text)

    @property
    def custom_call_target(self) -> str | None:
        """None also where it is no string."""
        try:
            text = self.attribute("custom_call_target")
            return None if text is None else attrs.parse_string(text)
        except ValueError:
            return None

    @property
    def channel_id(self) -> int | None:
        return self.int_attribute("channel_id")

    @property
    def parameter_number(self) -> int | None:
        """N of `parameter(N)`, or None for every other opcode."""
        if self.opcode != "parameter":
            return None
        return attrs.whole_number(attrs.strip_comments(self.argument_text).strip())

    @property
    def tuple_index(self) -> int | None:
        """`index` of a get-tuple-element; None for other opcodes, and where it is no number."""
        if self.opcode != "get-tuple-element":
            return None
        printed = _INDEX.match(self.tail)
        if printed is not None:
            return attrs.whole_number(printed[1])
        try:
            return attrs.whole_number(self.attribute("index") or "")
        except ValueError:
            return None

    @property
    def literal(self) -> Literal | None:
        """The value of a constant, read when asked; None for every other opcode."""
        return Literal(self.argument_text, self.shape) if self.opcode == "constant" else None

    @property
    def source(self) -> str | None:
        """`file:line` of the innermost frame, or of the metadata; None where neither says, also
        where neither can be read."""
        tail = self.tail
        match = _FRAME_ID.search(tail)
        if match is not None and tail.count('"', 0, match.start()) % 2 == 0:
            frames = self.computation.module._readable_frames
            frame = None if frames is None else frames.frames.get(int(match[1]))
            if frame is not None:
                return f"{frame.file}:{frame.line}"
        if "metadata=" not in tail:
            return None
        try:
            metadata = self.metadata
        except ValueError:  # `metadata` says what is wrong with it
            return None
        if metadata is None:
            return None
        frames = self.computation.module._readable_frames
        if metadata.stack_frame_id and frames is not None:
            for frame in frames.stack(metadata.stack_frame_id):
                return f"{frame.file}:{frame.line}"
        if metadata.source_file:
            line = metadata.source_line
            return f"{metadata.source_file}:{line}" if line else metadata.source_file
        return None

    @property
    def text(self) -> str:
        """The instruction on one line, as a printer writes it, with its literal attributes."""
        from hlo_lens.hlo.printer import instruction_text

        return instruction_text(self)

    @property
    def text_line(self) -> int:
        """1-based line of the text on which the instruction starts."""
        return self.computation.line_of(self.index)


class Computation:
    """A computation: its instructions are cursors on flat columns (`names`, `opcodes`, …)."""

    __slots__ = (
        "_bounds", "_calls", "_first_row", "_operands", "_source", "_text_line", "_users",
        "execution_thread", "first_id", "host", "index", "is_entry", "module", "name", "names",
        "opcodes", "rows", "shape_texts", "size", "tails",
    )  # fmt: skip

    # The columns; cut out of those of the chunk when first asked for (`__getattr__`).
    rows: Rows
    names: Sequence[str]
    opcodes: Sequence[str]
    shape_texts: Sequence[str]
    tails: Sequence[str]  # the attributes of each, from the comma behind its operands

    def __init__(
        self, module: Module, name: str, rows: Rows | SharedRows, size: int, *,
        first_row: int = 0, is_entry: bool = False, execution_thread: str | None = None,
        text_line: int | None = None, host: Instruction | None = None,
    ) -> None:
        self.module = module
        self.name = name
        self.size = size
        self._source = rows
        # Operands can be walked without cutting the columns of a chunk apart.
        self._operands = rows.operands
        self._bounds = rows.bounds
        self._first_row = first_row
        self.is_entry = is_entry
        self.execution_thread = execution_thread
        self._text_line = text_line
        # The `OP-start` that implies this computation; None for one that is written.
        self.host = host
        self.index = -1
        self.first_id = -1
        self._calls: dict[int, dict[str, tuple[Computation, ...]]] | None = None
        self._users: list[list[int]] | None = None

    def __repr__(self) -> str:
        entry = "ENTRY " if self.is_entry else ""
        return f"<Computation {entry}%{self.name}: {self.size} instructions>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # Only for a slot that is not filled yet, so that a filled one costs no call.
            if name not in ("rows", "names", "opcodes", "shape_texts", "tails"):
                raise AttributeError(f"'Computation' object has no attribute '{name}'")
            source = self._source
            if not isinstance(source, Rows):
                self._text_line = self.text_line
                source = self._source = source.cut(self._first_row)
            self.rows = source
            self.names, self.opcodes = source.names, source.opcodes
            self.shape_texts, self.tails = source.shapes, source.tails
            return getattr(self, name)

    @property
    def text_line(self) -> int:
        """1-based line of the text on which the computation starts."""
        if self._text_line is None:
            # In a chunk, the row in front of the first instruction is the line that opens it.
            self._text_line = self._source.lines[self._first_row - 1]
        return self._text_line

    @property
    def implied(self) -> bool:
        """Whether `OP-start` implies the computation; it is then in no `module.computations`."""
        return self.host is not None

    @property
    def instructions(self) -> InstructionList:
        return InstructionList(self)

    @property
    def root_index(self) -> int:
        return self.rows.root

    @property
    def root(self) -> Instruction:
        """The ROOT; the last instruction where none is marked (also in a cut-off text)."""
        return Instruction(self, self.rows.root)

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """By number; parameters that only a nameless operand implies included."""
        opcodes = self.rows.opcodes
        found = [Instruction(self, i) for i, op in enumerate(opcodes) if op == "parameter"]
        found += [
            Instruction(self, ~k)
            for k, implied in enumerate(self.rows.implied)
            if implied.opcode == "parameter"
        ]
        return tuple(sorted(found, key=lambda instruction: instruction.parameter_number or 0))

    def operand_indices(self, index: int) -> tuple[int, ...]:
        """Positions of the operands; one below zero is ~k of an implied instruction."""
        if index < 0:
            return self.rows.implied[~index].operands
        bounds, at = self._bounds, self._first_row + index
        return self._operands[bounds[at] : bounds[at + 1]]

    def user_indices(self, index: int) -> tuple[int, ...]:
        """Positions of the written users in text order, once each; through `x#i` too."""
        users = self._users
        if users is None:
            users = self._users = self._collect_users()
        if index >= 0:
            return tuple(users[index])
        return tuple(i for i in range(len(users)) if index in self.operand_indices(i))

    def _collect_users(self) -> list[list[int]]:
        rows = self.rows
        users: list[list[int]] = [[] for _ in rows.names]
        for user in range(len(rows.names)):
            for operand in rows.operands[rows.bounds[user] : rows.bounds[user + 1]]:
                target = operand
                while target < 0 and rows.implied[~target].operands:
                    target = rows.implied[~target].operands[0]
                if target >= 0 and (not users[target] or users[target][-1] != user):
                    users[target].append(user)
        return users

    def name_of(self, index: int) -> str:
        return self.names[index] if index >= 0 else self.rows.implied[~index].name

    def opcode_of(self, index: int) -> str:
        return self.opcodes[index] if index >= 0 else self.rows.implied[~index].opcode

    def shape_of(self, index: int) -> str:
        return self.shape_texts[index] if index >= 0 else self.rows.implied[~index].shape

    def tail_of(self, index: int) -> str:
        return self.tails[index] if index >= 0 else self.rows.implied[~index].tail

    def line_of(self, index: int) -> int:
        if self.host is not None:
            return self.host.text_line
        if index < 0:
            return self.text_line
        return self.rows.lines[index]

    def calls_of(self, index: int) -> dict[str, tuple[Computation, ...]]:
        """Called computations by attribute; `Instruction.called_by` says more."""
        calls = self._calls
        if calls is None:
            calls = self._calls = {}
        known = calls.get(index)
        if known is None:
            known = calls[index] = self._find_calls(index)
        return known

    def _find_calls(self, index: int) -> dict[str, tuple[Computation, ...]]:
        opcode = self.opcode_of(index)
        written = sugar(opcode)
        if written is not None:
            if written[1] != "start" or index < 0:
                return {}
            from hlo_lens.hlo.wrapped import wrapped_computation

            return {"calls": (wrapped_computation(Instruction(self, index), written[0]),)}
        computations = self.module.computations
        found = {
            attribute: tuple(
                callee for name in names if (callee := computations.get(name)) is not None
            )
            for attribute, names in called_names(self.tail_of(index)).items()
        }
        for attribute, indices in self.rows.inline.get(index, {}).items():
            found[attribute] = tuple(computations[i] for i in indices)
        return {attribute: callees for attribute, callees in found.items() if callees}


class InstructionList(Sequence[Instruction]):
    """The instructions of a computation in text order; also `[name]`, `.get(name)`, `name in`."""

    __slots__ = ("_computation",)

    def __init__(self, computation: Computation) -> None:
        self._computation = computation

    def __len__(self) -> int:
        return self._computation.size

    def __iter__(self) -> Iterator[Instruction]:
        computation = self._computation
        return (Instruction(computation, i) for i in range(len(self)))

    @overload
    def __getitem__(self, key: int | str) -> Instruction: ...
    @overload
    def __getitem__(self, key: slice) -> list[Instruction]: ...
    def __getitem__(self, key: int | str | slice) -> Instruction | list[Instruction]:
        if isinstance(key, str):
            return Instruction(self._computation, self._computation.rows.index[key.lstrip("%")])
        if isinstance(key, slice):
            return [Instruction(self._computation, i) for i in range(*key.indices(len(self)))]
        index = key + len(self) if key < 0 else key
        if not 0 <= index < len(self):
            raise IndexError(f"instruction {key} of {len(self)}")
        return Instruction(self._computation, index)

    def get(self, name: str) -> Instruction | None:
        index = self._computation.rows.index.get(name.lstrip("%"))
        return None if index is None else Instruction(self._computation, index)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            return key.lstrip("%") in self._computation.rows.index
        return isinstance(key, Instruction) and key.computation is self._computation

    def __repr__(self) -> str:
        return f"<{len(self)} instructions of %{self._computation.name}>"


class ComputationList(Sequence[Computation]):
    """The computations of a module in text order; also `[name]`, `.get(name)`, `name in`.

    Where a name is there twice, lookup gives the first.
    """

    __slots__ = ("_items", "_names")

    def __init__(self, items: Sequence[Computation]) -> None:
        self._items = tuple(items)
        self._names = {item.name: item for item in reversed(self._items)}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Computation]:
        return iter(self._items)

    @overload
    def __getitem__(self, key: int | str) -> Computation: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[Computation]: ...
    def __getitem__(self, key: int | str | slice) -> Computation | Sequence[Computation]:
        if isinstance(key, str):
            return self._names[key.lstrip("%")]
        return self._items[key]

    def get(self, name: str) -> Computation | None:
        return self._names.get(name.lstrip("%"))

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            return key.lstrip("%") in self._names
        return any(key is item for item in self._items)

    def __repr__(self) -> str:
        return f"<{len(self)} computations>"


class Module:
    """One HLO module as its text holds it.

    Made by `hlo_lens.hlo.parse`; columns are read, values (shapes, attributes, metadata,
    configurations, literals) are parsed when asked.
    """

    def __init__(
        self, text: str, name: str, header: Mapping[str, str], frames_text: str,
        *, filename: str | None = None,
    ) -> None:
        self.text = text
        self.name = name
        self.header = MappingProxyType(dict(header))
        self.filename = filename
        self.computations = ComputationList(())
        self._frames_text = frames_text
        self._repairs: tuple[Repair, ...] = ()
        self._first_ids: list[int] = []
        self.instruction_count = 0

    def _fill(self, computations: Sequence[Computation], repairs: Sequence[Repair]) -> None:
        """Number the computations and take them in; called once, by the reader."""
        self._first_ids = []
        count = 0
        for index, computation in enumerate(computations):
            computation.index = index
            computation.first_id = count
            self._first_ids.append(count)
            count += computation.size
        self.instruction_count = count
        self.computations = ComputationList(computations)
        self._repairs = tuple(repairs)

    def __repr__(self) -> str:
        return (
            f"<Module {self.name}: {len(self.computations)} computations, "
            f"{self.instruction_count} instructions>"
        )

    def _repr_html_(self) -> str:
        from hlo_lens.notebook.shown_hlo import module_html

        return module_html(self)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the text in UTF-8, in hexadecimal digits."""
        import hashlib

        return hashlib.sha256(self.text.encode(errors="replace")).hexdigest()

    @cached_property
    def entry(self) -> Computation:
        """The ENTRY computation; the last one where none is marked, as XLA has it."""
        return next((c for c in self.computations if c.is_entry), self.computations[-1])

    def instruction(self, id: int) -> Instruction:
        """The instruction at position `id` of the text. Raises IndexError."""
        if not 0 <= id < self.instruction_count:
            raise IndexError(f"instruction {id} of {self.instruction_count}")
        at = bisect_right(self._first_ids, id) - 1
        return Instruction(self.computations[at], id - self._first_ids[at])

    @property
    def is_scheduled(self) -> bool:
        """Whether the text order is the order of execution."""
        return self.header.get("is_scheduled") == "true"

    @property
    def num_partitions(self) -> int | None:
        return self._header_int("num_partitions")

    @property
    def replica_count(self) -> int | None:
        return self._header_int("replica_count")

    def _header_int(self, key: str) -> int | None:
        return attrs.whole_number(self.header.get(key, ""))

    @cached_property
    def input_output_alias(self) -> tuple[Alias, ...]:
        """Donated buffers: which output lives in which parameter."""
        text = self.header.get("input_output_alias")
        return () if text is None else attrs.parse_alias(text)

    @property
    def frames_text(self) -> str:
        """The stack-frame tables as written; "" where there are none."""
        return self._frames_text

    @cached_property
    def frames(self) -> FrameTable:
        """The stack-frame tables. Raises ValueError where they cannot be read."""
        return parse_frames(self._frames_text)

    @cached_property
    def _readable_frames(self) -> FrameTable | None:
        try:
            return self.frames
        except ValueError:
            return None

    @cached_property
    def has_metadata(self) -> bool:
        """Whether any instruction has an `op_name`."""
        return any('op_name="' in tail for c in self.computations for tail in c.rows.tails)

    @cached_property
    def lacks_configs(self) -> bool:
        """Whether the text was printed without `backend_config`: it has none, and a fusion or a
        start that compilers give one."""
        configured = "backend_config=" in self.text
        return not configured and ("kind=kCustom" in self.text or "-start(" in self.text)

    @cached_property
    def repairs(self) -> tuple[Repair, ...]:
        """What the text lacks and was read around; empty for a whole text."""
        return self._repairs + tuple(self._missing_computations())

    def _missing_computations(self) -> Iterator[Repair]:
        seen: set[str] = set()
        for computation in self.computations:
            for index, (opcode, tail) in enumerate(
                zip(computation.opcodes, computation.tails, strict=True)
            ):
                if opcode in NEVER_CALLS:
                    continue
                for attribute, names in called_names(tail).items():
                    if attribute in computation.rows.inline.get(index, {}):
                        continue
                    for name in names:
                        if name in seen or self.computations.get(name) is not None:
                            continue
                        seen.add(name)
                        yield Repair(
                            "missing-computation",
                            f"%{computation.names[index]} calls %{name} ({attribute}), "
                            "which the text does not define",
                            computation.line_of(index),
                        )

    @property
    def truncated(self) -> bool:
        """Whether the text stops in the middle."""
        return any(repair.kind == "truncated" for repair in self._repairs)

    def to_text(self) -> str:
        """The module in XLA's long form; reads back to the same module."""
        from hlo_lens.hlo.printer import module_text

        return module_text(self)

    def expanded(self) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], ...]:
        """Per computation (opcode, operand positions), as XLA's own parser builds them.

        What sugar implies is in it: `x#1` is a get-tuple-element in front of its user, `OP-start`
        an async-start behind a computation of its own. Opcodes are XLA's `kAdd` names.
        """
        from hlo_lens.hlo.expanded import expanded

        return expanded(self)
