"""Rows of the moe table: the products and the routing of a block, phase by phase."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.calls import written_instruction
from hlo_lens.analysis.collectives import shape_of
from hlo_lens_passes._moe_block import Block
from hlo_lens_passes._moe_blocks import find_blocks
from hlo_lens_passes._moe_choice import Choice, experts_choose
from hlo_lens_passes._moe_products import Products
from hlo_lens_passes._moe_routing import ALL_TO_ALL, Moved, Router, Routing, size_of
from hlo_lens_passes._moe_shared import Shared

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import Instruction

Row = Mapping[str, object]
Key = tuple[str | None, int | None]
"""A phase and the loop it stands in."""

_PHASES: Final = ("fwd", "other", None, "remat", "bwd")
_ORDER: Final = ("gate", "fused", "up", "down", "product")


@dataclass(slots=True)
class Part:
    """A block in one phase. instr: its first product; products: their rows; roles: what else of it
    is which instruction; bytes: of each operation that routes; sent: the all-to-alls among them;
    exchanged: whether the block has any; doubtful: whether a router of no block moves something
    here, too; choice: the numbers of a router by which experts choose tokens."""

    block: Block
    key: Key
    instr: Instruction
    inferred: bool
    products: list[Row] = field(default_factory=list)
    roles: list[tuple[str, Instruction]] = field(default_factory=list)
    bytes: list[int | None] = field(default_factory=list)
    sent: list[Instruction] = field(default_factory=list)
    shared: int | None = None
    router: Router | None = None
    exchanged: bool = False
    doubtful: bool = False
    choice: Choice | None = None


class Found:
    """The blocks of one module, in parts."""

    def __init__(
        self, analysis: ModuleAnalysis, matmuls: Iterable[Row], ragged: Iterable[Row]
    ) -> None:
        matmuls = list(matmuls)
        self.analysis = analysis
        self.products = Products(analysis, matmuls, ragged)
        self.routing = Routing(self.products)
        phases = {row["instr"]: row["phase"] for row in matmuls}
        self.blocks = find_blocks(self.products, self.routing, phases)  # type: ignore[arg-type]
        self.shared = Shared(self.products, self.routing)
        self._gradients = {
            number
            for block in self.blocks
            if block.forward
            for number in block.members.keys() - block.forward
        }
        self._backward: list[bool] = []

    def parts(self) -> list[Part]:
        found: list[Part] = []
        for block in self.blocks:
            parts = self._of(block)
            self._add_moves(block, parts)
            self._add_router(block, parts)
            self._add_shared(block, parts)
            choice = experts_choose(self.products, self.routing, block)
            for part in parts.values():
                part.router = self.routing.routers.get(-1 if block.router is None else block.router)
                part.choice = choice
                part.exchanged = any(one.sent for one in parts.values())
            found += sorted(parts.values(), key=lambda part: _PHASES.index(part.key[0]))
        return found

    # -- products ---------------------------------------------------------------------------------

    def _of(self, block: Block) -> dict[Key, Part]:
        placed: dict[Key, list[tuple[int, int, str, Row, bool]]] = {}
        for number, role in block.members.items():
            for row in self._rows(number):
                key, inferred = self._key(block, number, row)
                rank = _ORDER.index(role) if role in _ORDER else len(_ORDER)
                placed.setdefault(key, []).append((rank, number, role, row, inferred))
        parts: dict[Key, Part] = {}
        for key, ones in placed.items():
            ones.sort(key=lambda one: one[:2])
            first = self._instr(ones[0][3])
            part = parts[key] = Part(block, key, first, any(one[4] for one in ones))
            for _, _, role, row, _ in ones:
                part.products.append(row)
                part.roles.append((role, self._instr(row)))
        return parts

    def _rows(self, number: int) -> list[Row]:
        ragged = self.products.ragged.get(number)
        return ragged if ragged is not None else self.products.found[number].rows

    def _instr(self, row: Row) -> Instruction:
        assert isinstance(row["instr"], int)
        return self.analysis.module.instruction(row["instr"])

    def _key(self, block: Block, number: int, row: Row) -> tuple[Key, bool]:
        """Where a product belongs: a gradient is of the backward, whatever its name has lost; one
        of the forward is so where another one of the block says it."""
        phase, loop = row["phase"], row["loop"]
        inferred = False
        if phase not in ("fwd", "bwd", "remat"):
            forward = number in block.forward
            phases = {
                one["phase"] for other in block.forward for one in self._rows(other)
            } if forward else set()  # fmt: skip
            if not forward and block.forward:
                phase, inferred = "bwd", True
            elif "fwd" in phases:
                phase, inferred = "fwd", True
        return (phase, loop), inferred  # type: ignore[return-value]

    # -- routing ----------------------------------------------------------------------------------

    def _add_moves(self, block: Block, parts: dict[Key, Part]) -> None:
        for number, role in block.moves.items():
            product = self.products.found[number]
            for instr in product.instrs:
                part = self._part(parts, instr, number)
                if part is not None:
                    part.roles.append((role, instr))
                    if block.path == "fixed_capacity":
                        sizes = [size_of(shape_of(one)) for one in (*instr.operands, instr)]
                        known = [size for size in sizes if size is not None]
                        part.bytes.append(sum(known) if len(known) == len(sizes) else None)
        for moved in self._moved(block):
            part = self._part(parts, moved.instr, moved.number)
            if part is not None:
                part.roles.append((moved.kind, moved.instr))
                part.bytes.append(moved.bytes)
                if moved.instr.opcode in ALL_TO_ALL:
                    part.sent.append(moved.instr)
        for number in () if block.router is None else self._unclaimed:
            if self.routing.alike(number, block.router):  # type: ignore[arg-type]
                for moved in self.routing.moved_by.get(number, ()):
                    part = self._part(parts, moved.instr, moved.number)
                    if part is not None:
                        part.doubtful = True

    def _moved(self, block: Block) -> Iterator[Moved]:
        """What routes for a block, in the order of the program."""
        by = self.routing.moved_by
        for number in () if block.router is None else self.routing.again(block.router):
            yield from by.get(number, ())
        for moved in by.get(None, ()):
            if moved.instr.opcode in ALL_TO_ALL and self._sends(block, moved):
                yield moved

    @cached_property
    def _unclaimed(self) -> set[int]:
        """The routers that are not known to be of any block."""
        routers = {block.router for block in self.blocks}
        claimed = (self.routing.again(one) for one in routers if one is not None)
        return self.routing.routers.keys() - {one for ones in claimed for one in ones}

    def _sends(self, block: Block, moved: Moved) -> bool:
        """Whether an all-to-all that no router steers is of a block."""
        if not moved.operands:
            return False
        latest = self.routing.latest(moved.operands[0])
        if latest == block.router and latest is not None and _is_counts(moved.instr):
            return True
        members = block.members.keys()
        behind = {one for operand in moved.operands for one in self.products.sources(operand)}
        return bool(members & behind) or any(
            moved.number in self.products.sources(operand)
            for member in members
            for operand in self._operands(member)
        )

    def _operands(self, number: int) -> tuple[int, ...]:
        found = self.products.found.get(number)
        return self.products.ragged_operands[number] if found is None else found.operands

    def _part(self, parts: dict[Key, Part], instr: Instruction, number: int) -> Part | None:
        """The part an operation belongs to: of its phase and loop, or the only one of its loop."""
        phase = self.analysis.phase(instr).phase
        loop = self.analysis.loop(instr.computation)
        while True:
            place = None if loop is None else loop.instr.id
            here = {key[0]: part for key, part in parts.items() if key[1] == place}
            if phase in here or len(here) == 1:
                return here[phase] if phase in here else next(iter(here.values()))
            if here and phase in (None, "other"):
                return self._by_dataflow(here, number)
            if here or loop is None:
                return None
            loop = self.analysis.loop(loop.instr.computation)

    def _by_dataflow(self, here: dict[str | None, Part], number: int) -> Part:
        """Where no name tells: what depends on a gradient is backward; in a backward loop, what
        the forward computes too is computed again there."""
        if not self._is_backward(number):
            for phase in ("fwd", "other", None):
                if phase in here:
                    return here[phase]
            if "remat" in here and number in self._numbers_of_forward:
                return here["remat"]
        return here.get("bwd") or next(iter(here.values()))

    @cached_property
    def _numbers_of_forward(self) -> set[int]:
        return {
            one.number
            for one in self.routing.moved
            if self.analysis.phase(one.instr).phase == "fwd"
        }

    def _is_backward(self, number: int) -> bool:
        """Whether it depends on a gradient of an expert's product."""
        known = self._backward
        while len(known) <= number:
            of = self.products.numbers[len(known)].operands
            known.append(
                len(known) in self._gradients or any(known[n] for n in of if n < len(known))
            )
        return known[number]

    def _add_router(self, block: Block, parts: dict[Key, Part]) -> None:
        router = None if block.router is None else self.routing.routers[block.router]
        for number in () if router is None else router.products:
            for instr in self.products.found[number].instrs:
                part = self._part(parts, instr, number)
                if part is not None:
                    part.roles.append(("router", instr))

    def _add_shared(self, block: Block, parts: dict[Key, Part]) -> None:
        """Shared experts: how many of the width of one expert the shared layer is wide."""
        numbers = self.shared.of(block)
        count: int | None = None
        if numbers is not None:
            width = self._width(block)
            wide = self.shared.width(numbers[-1]) if numbers else 0
            count = wide // width if width and wide % width == 0 else None if numbers else 0
        for part in parts.values():
            part.shared = count
        for number in numbers or ():
            for instr in self.products.found[number].instrs:
                for part in parts.values():
                    if part.key == (self.analysis.phase(instr).phase, self._loop_of(instr)):
                        part.roles.append(("shared", instr))

    def _loop_of(self, instr: Instruction) -> int | None:
        loop = self.analysis.loop(instr.computation)
        return None if loop is None else loop.instr.id

    def _width(self, block: Block) -> int | None:
        """The width of the hidden layer of one expert: what its last product sums over."""
        for number, role in block.members.items():
            if role == "down" and number in block.forward:
                width = self._rows(number)[0]["k"]
                return width if isinstance(width, int) else None
        return None


def _is_counts(instr: Instruction) -> bool:
    """Whether what is exchanged is whole numbers: how many rows go where."""
    return instr.shape_text.lstrip("(").startswith(("s", "u"))


def flops_of(rows: Iterable[Row]) -> float | None:
    """Issued by one execution of the products; of a ragged-dot, which does not say, all rows."""
    total: float = 0
    for row in rows:
        flops = row["flops"]
        if flops is None:
            flops = row.get("useful_flops")
        if not isinstance(flops, (int, float)):
            return None
        total += flops
    return total


def written(instrs: Iterable[tuple[str, Instruction]]) -> dict[tuple[str, int], None]:
    """(role, instruction) each once, as the text has them."""
    return dict.fromkeys((role, written_instruction(one).id) for role, one in instrs)
