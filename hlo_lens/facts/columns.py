"""The schema as data: typed columns with a role and a unit, tables, and what tables share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hlo_lens.facts.summary import Summary

ColumnType = Literal[
    "ref", "refs", "int", "float", "bytes", "flops", "bool", "enum", "text", "json"
]
Role = Literal["identity", "structural", "volatile", "measure"]

COLUMN_TYPES: tuple[ColumnType, ...] = get_args(ColumnType)
ROLES: tuple[Role, ...] = get_args(Role)

TYPE_DOCS: dict[ColumnType, str] = {
    "ref": "id of a written instruction of the row's module, in the table instructions",
    "refs": "ids of written instructions of the row's module; a JSON array in SQL",
    "int": "whole number",
    "float": "number",
    "bytes": "whole number of bytes",
    "flops": "number of floating-point operations, a multiply-add counting two",
    "bool": "truth value; 1 or 0 in a query, true or false in the JSON of inspect",
    "enum": "one of the words listed",
    "text": "text",
    "json": "JSON text",
}

ROLE_DOCS: dict[Role, str] = {
    "identity": "what the row is",
    "structural": "a property a comparison of two programs compares",
    "volatile": "names, ids and lines, which change without the program changing",
    "measure": "a number a comparison subtracts and a gate bounds",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; NULL in any column means "not known", never 0.

    `unit` names the unit of a number where the type does not say it. `values` lists every word
    of an `enum`. needs_op_names: in a text without metadata it says nothing, or less;
    needs_configs: in one printed without `backend_config`. dtypes: the text is a dtype of HLO, or
    several with commas between. Raises `ValueError` for an unknown type or role, a name that is no
    lower-case identifier, or an `enum` without values.
    """

    name: str
    type: ColumnType
    role: Role
    doc: str
    unit: str | None = None
    values: tuple[str, ...] = ()
    needs_op_names: bool = False
    dtypes: bool = False
    needs_configs: bool = False

    def __post_init__(self) -> None:
        _check_name("column", self.name)
        if self.type not in COLUMN_TYPES:
            raise ValueError(f"column {self.name}: unknown type {self.type!r}")
        if self.role not in ROLES:
            raise ValueError(f"column {self.name}: unknown role {self.role!r}")
        if (self.type == "enum") != bool(self.values):
            raise ValueError(f"column {self.name}: an enum lists its values, nothing else does")


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its name, what a row is, and its columns, `id` and `module` among them.

    `(module, id)` is the key of every table. `summary` says how views present it; a table without
    one is shown when it is asked for by name. needs_op_names: in a text without metadata it may
    lack rows; needs_configs: in one that was printed without `backend_config`. Raises `ValueError`
    where a column name repeats, the key columns are missing, or the summary names a column that is
    not there or does not fit.
    """

    name: str
    row: str
    columns: tuple[Column, ...]
    summary: Summary | None = None
    needs_op_names: bool = False
    needs_configs: bool = False

    def __post_init__(self) -> None:
        _check_name("table", self.name)
        names = self.names
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"table {self.name}: column named twice: {', '.join(twice)}")
        for key in ("id", "module"):
            if key not in names:
                raise ValueError(f"table {self.name}: column {key} is missing")
        if self.summary is not None:
            self._check_summary(self.summary)

    def _check_summary(self, summary: Summary) -> None:
        known = self.names
        for name in summary.columns():
            if name not in known:
                raise ValueError(f"table {self.name}: its summary shows no column {name}")
        lane = summary.lane
        measures = [*summary.measures, *([lane.total] if lane and lane.total else [])]
        for measure in measures:
            for name in filter(None, (measure.column, measure.at_most)):
                type = self.column(name).type
                if type not in (("bool",) if measure.how == "true" else ("int", "bytes", "flops")):
                    raise ValueError(f"table {self.name}: {measure.how} of {name}, a {type}")

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """The column of that name; `KeyError` where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name}")

    def position(self, name: str) -> int:
        """Where that column stands in a row; `KeyError` where there is none."""
        return self.columns.index(self.column(name))


def _check_name(what: str, name: str) -> None:
    if not (name.isidentifier() and name == name.lower()):
        raise ValueError(f"{what} name {name!r} is not a lower-case identifier")


_ID = Column("id", "int", "volatile", "number of the row, unique with module")
_MODULE = Column("module", "int", "identity", "position of the module among those loaded")
_INSTR = Column("instr", "ref", "volatile", "the instruction the row is about")

# definitions.md, "Names and phase" and "Multiplicity", say what each of these means.
COMMON: tuple[Column, ...] = (
    _ID,
    _MODULE,
    _INSTR,
    Column("name", "text", "volatile", "name of that instruction, without the leading %"),
    Column(
        "phase",
        "enum",
        "structural",
        "part of a training step; NULL where neither a name nor dataflow tells",
        values=("fwd", "bwd", "remat", "other"),
        needs_op_names=True,
    ),
    Column(
        "phase_from",
        "enum",
        "volatile",
        "what told the phase: its own op_name, a caller's, or the phase its users agree on",
        values=("own", "caller", "dataflow"),
        needs_op_names=True,
    ),
    Column(
        "loop", "ref", "volatile", "innermost while around it; NULL outside or where callers differ"
    ),
    Column("loop_name", "text", "volatile", "name of that while; NULL where loop is"),
    Column(
        "loop_depth",
        "int",
        "structural",
        "number of whiles around it; NULL where callers differ",
        unit="loops",
    ),
    Column(
        "executions",
        "int",
        "measure",
        "times it runs when the entry runs once; NULL where the bounds differ",
        unit="times",
    ),
    Column("executions_min", "int", "measure", "least times it runs", unit="times"),
    Column("executions_max", "int", "measure", "most times it runs; NULL: no bound", unit="times"),
    Column(
        "trips_kind",
        "enum",
        "volatile",
        "how the trip counts behind executions are known, the worst of the chain; NULL: no loop",
        values=("annotated", "inferred", "bounded", "unknown"),
    ),
    Column(
        "source", "text", "volatile", "innermost source frame, as file:line", needs_op_names=True
    ),
    Column("text_line", "int", "volatile", "line of the HLO text, from 1", unit="line"),
)

MEMBERS = Table(
    "members",
    "an instruction that is part of a row of another table, and as what",
    (
        _ID,
        _MODULE,
        Column("table", "text", "identity", 'the other table (write "table" in SQL)'),
        Column("row", "int", "volatile", "id of the row there; its module is this row's module"),
        Column(
            "role", "text", "identity", "what the instruction is to that row: start, done, dot, …"
        ),
        Column("instr", "ref", "volatile", "the instruction"),
    ),
)

FINDINGS = Table(
    "findings",
    "something a pass has to say about the program",
    (
        *COMMON,
        Column("rule", "text", "identity", "id of the rule; `hlolens rules ID` explains it"),
        Column("level", "enum", "structural", "weight", values=("note", "warning", "error")),
        Column("message", "text", "volatile", "the finding as a sentence, with names and lines"),
        Column("evidence", "json", "volatile", "rows that show it, as [[table, id], …]"),
        Column("help", "text", "volatile", "what to do about it"),
    ),
    needs_op_names=True,
)
