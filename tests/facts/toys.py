"""A small program, and passes made of a function, for the tests of the runner and of SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hlo_lens.facts import Column, Facts, PassResult, Rule, Table
from hlo_lens.hlo import parse
from hlo_lens.program import Program

TEXT = """\
HloModule toy
ENTRY main {
  a = f32[2]{0} parameter(0)
  b = f32[2]{0} multiply(a, a)
  ROOT c = f32[2]{0} add(a, b)
}
"""


def program(*texts: str) -> Program:
    """A Program of one module a text; of `TEXT` where none is given."""
    return Program([parse(text) for text in texts or (TEXT,)])


@dataclass(frozen=True, slots=True)
class Toy:
    """A pass that does what `does` says and notes in `runs` that it ran."""

    name: str
    tables: tuple[Table, ...]
    does: Callable[[Program, Facts], PassResult]
    requires: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    runs: list[str] = field(default_factory=list)

    def run(self, program: Program, facts: Facts) -> PassResult:
        self.runs.append(self.name)
        return self.does(program, facts)


def table(name: str, *columns: Column) -> Table:
    """A table with `id`, `module`, `instr` and the columns given."""
    return Table(
        name,
        f"one of the {name}",
        (
            Column("id", "int", "volatile", "number"),
            Column("module", "int", "identity", "module"),
            Column("instr", "ref", "volatile", "instruction"),
            *columns,
        ),
    )


OPS = table(
    "ops",
    Column("opcode", "text", "structural", "opcode"),
    Column("operands", "refs", "volatile", "operands"),
    Column("is_root", "bool", "structural", "whether it is the root"),
)
SUMS = table("sums", Column("terms", "int", "measure", "number of terms"))


def list_ops(program: Program, facts: Facts) -> PassResult:
    return PassResult(
        {
            "ops": [
                {
                    "module": number,
                    "instr": one.id,
                    "opcode": one.opcode,
                    "operands": [operand.id for operand in one.operands],
                    "is_root": one.is_root,
                }
                for number, module in enumerate(program.modules)
                for one in module.entry.instructions
            ]
        }
    )


def list_sums(program: Program, facts: Facts) -> PassResult:
    return PassResult(
        {
            "sums": [
                {"module": op["module"], "instr": op["instr"], "terms": len(op["operands"])}
                for op in facts.records("ops")
                if op["opcode"] == "add"
            ]
        }
    )


def ops(**changes: object) -> Toy:
    """The pass that lists the entry's instructions, changed as said."""
    return Toy(**{"name": "ops", "tables": (OPS,), "does": list_ops} | changes)


def sums(**changes: object) -> Toy:
    """The pass that lists additions, from table `ops`, changed as said."""
    given = {"name": "sums", "tables": (SUMS,), "does": list_sums, "requires": ("ops",)}
    return Toy(**given | changes)
