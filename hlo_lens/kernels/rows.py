"""Every kernel of a module as a row: custom calls, and fusions that are handed to a generator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hlo_lens.facts import COMMON, Column, Facts, Table, common
from hlo_lens.hlo import Instruction
from hlo_lens.kernels.generated import Generated, generated
from hlo_lens.present.cells import Cells, Row
from hlo_lens.present.chosen import OUTSIDE, Place, fits, in_loops, known_words
from hlo_lens.present.groups import wanted
from hlo_lens.present.reading import not_read, read

CALLS: Final = "custom_calls"
MATMULS: Final = "matmuls"
Record = dict[str, object]

# What stands first of the kernels of a report; the rest as the text has them.
_ORDER: Final = ("attention", "grouped_gemm", "scaled_gemm", "gemm", "convolution", "norm")

TABLE: Final = Table(
    "kernels",
    "a kernel that XLA's own emitters do not make",
    (
        *COMMON,
        Column("family", "text", "structural", "library, or what makes the code"),
        Column("op", "text", "structural", "what it computes"),
        Column("called", "text", "structural", "name of the kernel, else the target or the kind"),
        Column("kernel", "text", "structural", "name of the kernel"),
        Column("target", "text", "structural", "custom_call_target; of a fusion its kind"),
        Column("direction", "text", "structural", "fwd or bwd, where the name fixes it"),
        Column("is_fusion", "bool", "structural", "whether it is a fusion"),
        Column("is_helper", "bool", "structural", "whether it does no work: a mark, a buffer"),
        Column("workspace_bytes", "bytes", "measure", "scratch memory that it takes"),
        Column("scoped_memory_bytes", "bytes", "measure", "TPU: on-chip memory"),
        Column("flops", "flops", "measure", "of one run, of the matmuls in it"),
        Column("key", "int", "volatile", "position of its record"),
    ),
)
"""What kernels of both sorts have, for groups and sums."""


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
    """The kernels of one module. `shown` are those that the filters leave, `helpers` calls among
    these that do no work; `all` is without filters. `records` has every column of a custom call,
    or what is known of a generated fusion, by a row's `key`; `notes`, what could not be read."""

    facts: Facts
    cells: Cells
    module: int
    shown: tuple[Row, ...]
    helpers: tuple[Row, ...]
    all: tuple[Row, ...]
    records: tuple[Record, ...]
    notes: tuple[str, ...]

    def record(self, row: Row) -> Record:
        key = value(row, "key")
        assert isinstance(key, int)
        return self.records[key]


def value(row: Row, column: str) -> object:
    """A value of a row of `TABLE`."""
    return row[_AT[column]]


_AT: Final = {name: TABLE.position(name) for name in TABLE.names}


def kernels_of(facts: Facts, filters: Filters, known_families: Iterable[str]) -> Kernels:
    """The kernels of the module that runs.

    Raises `NoSuchNameError` for a family, phase or loop that is none, `NotReadError` where custom
    calls could not be read.
    """
    read(facts, CALLS)
    program = facts.program
    module = program.index(program.main)
    records: list[Record] = []
    rows: list[Row] = []
    problem = not_read(facts, MATMULS)
    matmuls = {} if problem else _matmuls_in(facts, module)
    for record in [*_calls(facts, module, matmuls), *_fusions(facts, module, matmuls)]:
        record["key"] = len(records)
        records.append(record)
        rows.append(tuple(record.get(name) for name in TABLE.names))
    rows.sort(key=_place_in_order)
    notes = () if problem is None else (f"what is multiplied is not known: {problem}",)
    cells = Cells(program)
    kept = tuple(_filtered(rows, filters, cells, known_families))
    found = Kernels(facts, cells, module, kept, (), tuple(rows), tuple(records), notes)
    return replace(found, helpers=tuple(row for row in kept if value(row, "is_helper")))


def _place_in_order(row: Row) -> tuple[bool, bool, int]:
    op = value(row, "op")
    place = _ORDER.index(op) if op in _ORDER else len(_ORDER)
    return bool(value(row, "is_helper")), bool(value(row, "is_fusion")), place


# ---------------------------------------------------------------------------------- custom calls


def _calls(facts: Facts, module: int, matmuls: _Matmuls) -> Iterator[Record]:
    table = facts.table(CALLS)
    lane = None if table.summary is None else table.summary.lane
    rows = [row for row in facts.rows(CALLS) if row[table.position("module")] == module]
    # What does no work is what the table itself leaves out of the skeleton of a program.
    working = {row[table.position("id")] for row in wanted(table, rows, lane.skip if lane else ())}
    for row in rows:
        record: Record = dict(zip(table.names, row, strict=True))
        for name, data in _multiplied(matmuls.get(record["instr"], ())).items():
            record.setdefault(name, data)
        record |= {
            "called": record["kernel"] or record["target"],
            "is_fusion": False,
            "is_helper": record["id"] not in working,
        }
        yield record


# ---------------------------------------------------------------------------------- fusions


def _fusions(facts: Facts, module: int, matmuls: _Matmuls) -> Iterator[Record]:
    program = facts.program
    for one in generated(program.modules[module]):
        yield {
            **common(program, module, one.fusion),
            **_described(one, matmuls.get(one.fusion.id, ())),
            "operand_layouts": _shapes(one.fusion.operands),
            "result_layouts": _leaves(one.fusion),
            "target": one.kind,
            "is_fusion": True,
            "is_helper": one.kind == "__dynamic_memcpy",
        }


def _described(one: Generated, matmuls: Sequence[Record]) -> Record:
    """What a fusion computes: that of its matmul, where it has one."""
    op = "reduction" if one.is_reduction else "fusion"
    called = one.kind if op == "fusion" else f"{one.kind} ({op})"
    if matmuls:
        first = matmuls[0]
        op = "grouped_gemm" if first["ragged"] else "gemm"
        op = "scaled_gemm" if first["form"] == "scaled-dot" else op
        dtypes = [str(first[f"{side}_dtype"] or "?") for side in ("lhs", "rhs", "out")]
        told = dtypes[0] if len(set(dtypes)) == 1 else f"{dtypes[0]}×{dtypes[1]}→{dtypes[2]}"
        called = f"{one.kind} ({told})"
    found: Record = {"family": one.family, "op": op, "called": called}
    return {**_multiplied(matmuls), **one.launch, **found}


def _multiplied(matmuls: Sequence[Record]) -> Record:
    """What a kernel multiplies: sizes and so on of the first matmul in it, FLOP of all."""
    if not matmuls:
        return {}
    found = {name: matmuls[0].get(name) for name in _SIZES if matmuls[0].get(name) is not None}
    sizes = [each["flops"] for each in matmuls]
    known = [size for size in sizes if isinstance(size, int)]
    return {
        **found,
        "flops": sum(known) if len(known) == len(sizes) else None,
        "matmuls": [each["id"] for each in matmuls],
    }


_SIZES: Final = (
    "batch", "m", "n", "k", "algorithm", "dequantized", "converts", "tiles", "split_k",
    "workspace_bytes",
)  # fmt: skip
_Matmuls = Mapping[object, Sequence[Record]]


def _matmuls_in(facts: Facts, module: int) -> _Matmuls:
    """The matmuls by their instructions and by the fusions around them."""
    graph = facts.program.analysis(facts.program.modules[module]).graph
    found: dict[object, list[Record]] = {}
    for record in facts.records(MATMULS):
        id = record["instr"]
        if record["module"] != module or not isinstance(id, int):
            continue
        found.setdefault(id, []).append(record)
        site = graph.only_caller(facts.program.modules[module].instruction(id).computation)
        while site is not None and site.kind == "fusion":
            found.setdefault(site.caller.id, []).append(record)
            site = graph.only_caller(site.caller.computation)
    return found


def _shapes(instructions: Sequence[Instruction]) -> list[str]:
    return [one.shape_text or "?" for one in instructions]


def _leaves(fusion: Instruction) -> list[str]:
    try:
        return [str(leaf) for leaf in fusion.shape.leaves()]
    except ValueError:
        return [fusion.shape_text]


# ---------------------------------------------------------------------------------- filters


def _filtered(
    rows: Sequence[Row], filters: Filters, cells: Cells, known_families: Iterable[str]
) -> Iterator[Row]:
    here = [str(value(row, "family")) for row in rows]
    families = list(dict.fromkeys((*here, *known_families)))
    globs = [word for word in filters.families if any(fits(one, (word,)) for one in families)]
    known_words("family", filters.families, families, more=globs)
    known_words("phase", filters.phases, TABLE.column("phase").values, more=(OUTSIDE,))
    inside = in_loops(filters.loops, _places(rows, cells), cells, "instruction")
    for row in rows:
        if (
            (not filters.families or fits(value(row, "family"), filters.families))
            and (not filters.phases or (value(row, "phase") or OUTSIDE) in filters.phases)
            and (not filters.loops or _place(row) in inside)
            and (not filters.kernels or fits(value(row, "kernel"), filters.kernels))
            and (not filters.targets or fits(value(row, "target"), filters.targets))
        ):
            yield row


def _place(row: Row) -> Place:
    module = value(row, "module")
    return (module if isinstance(module, int) else 0), value(row, "loop"), value(row, "loop_depth")


def _places(rows: Sequence[Row], cells: Cells) -> set[Place]:
    """Where the rows are, and every loop of the module that runs: a loop without a kernel is one
    to ask about, too."""
    program = cells.program
    module = program.index(program.main)
    found = {_place(row) for row in rows}
    found.add((module, None, 0))
    for id in cells.loops(module).by_id:
        found.add((module, id, len(cells.loops(module).chain(id))))
    return found
