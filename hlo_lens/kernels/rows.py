"""The kernels of a module as the tables have them, and those of them that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hlo_lens.facts import Facts, Table
from hlo_lens.present.cells import Cells, Row
from hlo_lens.present.chosen import OUTSIDE, Place, fits, in_loops, known_words
from hlo_lens.present.reading import read

KERNELS: Final = "kernels"
CALLS: Final = "custom_calls"
MATMULS: Final = "matmuls"
Record = dict[str, object]

# What stands first of the kernels of a report; the rest as the text has them.
_ORDER: Final = ("attention", "grouped_gemm", "scaled_gemm", "gemm", "convolution", "norm")
# Columns of matmuls that say more of a kernel.
_SIZES: Final = ("batch", "m", "n", "k", "algorithm", "dequantized", "converts")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which kernels: () for all. Names are exact or globs of the whole name; a loop may be `none`,
    and what is in a loop in it counts too."""

    families: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.families, self.phases, self.loops, self.kernels, self.targets))


@dataclass(frozen=True, slots=True)
class Kernels:
    """The rows of the table kernels of one module. `shown` are those that the filters leave,
    `helpers` calls among these that do no work; `all` is without filters. `at` says where the
    columns stand."""

    facts: Facts
    cells: Cells
    table: Table
    at: Mapping[str, int]
    module: int
    all: tuple[Row, ...]
    shown: tuple[Row, ...] = ()
    helpers: tuple[Row, ...] = ()
    calls: Mapping[object, Record] = field(default_factory=dict)
    """The rows of custom_calls, by instruction."""
    matmuls: Mapping[object, Sequence[Record]] = field(default_factory=dict)
    """The rows of matmuls that are in a kernel, by its id."""

    def value(self, row: Row, column: str) -> object:
        return row[self.at[column]]

    def record(self, row: Row) -> Record:
        """All that is known of a kernel: its row, the columns that custom_calls has besides, and
        sizes of the first matmul in it. `custom_call` and `matmul_rows` are the ids of those."""
        kernel: Record = dict(zip(self.table.names, row, strict=True))
        matmuls = self.matmuls.get(kernel["id"], ())
        call = {} if kernel["is_fusion"] else self.calls.get(kernel["instr"], {})
        sizes = {name: matmuls[0][name] for name in _SIZES} if matmuls else {}
        return {
            **sizes,
            **call,
            **kernel,
            "custom_call": call.get("id"),
            "matmul_rows": [one["id"] for one in matmuls],
        }


def kernels_of(facts: Facts, filters: Filters, known_families: Iterable[str]) -> Kernels:
    """The kernels of the module that runs.

    Raises `NoSuchNameError` for a family, phase or loop that is none, `NotReadError` where the
    tables could not be filled.
    """
    read(facts, CALLS, MATMULS, KERNELS)
    program = facts.program
    table, module = facts.table(KERNELS), program.index(program.main)
    at = {name: position for position, name in enumerate(table.names)}
    rows = [row for row in facts.rows(KERNELS) if row[at["module"]] == module]
    found = Kernels(
        facts,
        Cells(program),
        table,
        at,
        module,
        tuple(sorted(rows, key=_order_by(table))),
        calls={one["instr"]: one for one in facts.records(CALLS) if one["module"] == module},
        matmuls=_matmuls(facts, module),
    )
    shown = tuple(_filtered(found, filters, known_families))
    helpers = tuple(row for row in shown if not found.value(row, "does_work"))
    return replace(found, shown=shown, helpers=helpers)


def _order_by(table: Table) -> Callable[[Row], tuple[bool, bool, int]]:
    """Calls before fusions, and each by what they compute; what does no work stands last."""
    op, is_fusion, does_work = map(table.position, ("op", "is_fusion", "does_work"))

    def place(row: Row) -> tuple[bool, bool, int]:
        at = _ORDER.index(row[op]) if row[op] in _ORDER else len(_ORDER)
        return not row[does_work], bool(row[is_fusion]), at

    return place


def _matmuls(facts: Facts, module: int) -> Mapping[object, Sequence[Record]]:
    by_instruction: dict[object, list[Record]] = {}
    for record in facts.records(MATMULS):
        if record["module"] == module:
            by_instruction.setdefault(record["instr"], []).append(record)
    found: dict[object, list[Record]] = {}
    for member in facts.members(KERNELS):
        if member.role == "matmul" and member.module == module:
            found.setdefault(member.row, []).extend(by_instruction.get(member.instr, ()))
    return found


# ---------------------------------------------------------------------------------- filters


def _filtered(found: Kernels, filters: Filters, known_families: Iterable[str]) -> Iterator[Row]:
    rows, cells, value = found.all, found.cells, found.value
    here = [str(value(row, "family")) for row in rows]
    families = list(dict.fromkeys((*here, *known_families)))
    globs = [word for word in filters.families if any(fits(one, (word,)) for one in families)]
    known_words("family", filters.families, families, more=globs)
    known_words("phase", filters.phases, found.table.column("phase").values, more=(OUTSIDE,))
    inside = in_loops(filters.loops, _places(found), cells, "instruction")
    for row in rows:
        if (
            (not filters.families or fits(value(row, "family"), filters.families))
            and (not filters.phases or (value(row, "phase") or OUTSIDE) in filters.phases)
            and (not filters.loops or _place(found, row) in inside)
            and (not filters.kernels or fits(value(row, "kernel"), filters.kernels))
            and (not filters.targets or fits(value(row, "target"), filters.targets))
        ):
            yield row


def _place(found: Kernels, row: Row) -> Place:
    module, loop, depth = (found.value(row, name) for name in ("module", "loop", "loop_depth"))
    return (module if isinstance(module, int) else 0), loop, depth


def _places(found: Kernels) -> set[Place]:
    """Where the rows are, and every loop of the module that runs: a loop without a kernel is one
    to ask about, too."""
    module, loops = found.module, found.cells.loops(found.module)
    places = {_place(found, row) for row in found.all}
    places.add((module, None, 0))
    for id in loops.by_id:
        places.add((module, id, len(loops.chain(id))))
    return places
