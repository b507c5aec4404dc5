"""A pass of another package: the parameters of every entry computation, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens.facts import COMMON, Column, Finding, Member, PassResult, Rule, Table, common

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

ENTRY_PARAMETERS = Table(
    "entry_parameters",
    "a parameter of an entry computation",
    (
        *COMMON,
        Column("number", "int", "identity", "which parameter, from 0"),
        Column("bytes", "bytes", "measure", "size of its shape"),
    ),
)
UNUSED = Rule(
    "unused-entry-parameter",
    "note",
    "A parameter of the entry has no user.",
    "The caller passes a value that nothing reads. XLA keeps it, because the signature is fixed.",
)


@dataclass(frozen=True, slots=True)
class ParameterBytes:
    """Lists the parameters of each module's entry, in order, and notes those nothing uses."""

    name: str = "parameter_bytes"
    tables: tuple[Table, ...] = (ENTRY_PARAMETERS,)
    requires: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = (UNUSED,)

    def run(self, program: Program, facts: Facts) -> PassResult:
        rows: list[dict[str, object]] = []
        members: list[Member] = []
        findings: list[Finding] = []
        for number, module in enumerate(program.modules):
            for parameter in module.entry.parameters:
                row = len(rows)
                rows.append(
                    {
                        **common(program, number, parameter),
                        "number": parameter.parameter_number,
                        "bytes": parameter.shape.bytes,
                    }
                )
                members.append(Member("entry_parameters", row, "parameter", number, parameter.id))
                if not parameter.users:
                    findings.append(
                        Finding(
                            UNUSED.id,
                            UNUSED.level,
                            f"nothing uses parameter {parameter.parameter_number}",
                            number,
                            parameter.id,
                            evidence=(("entry_parameters", row),),
                        )
                    )
        return PassResult({"entry_parameters": rows}, members, findings)


PASS = ParameterBytes()
