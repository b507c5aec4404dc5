"""Outcomes with one of each: passed, failed, a warning, not judged, findings, a broken pass, a file
that is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hlo_lens.check.gate import Checked, judged_by_rules
from hlo_lens.check.judging import judge
from hlo_lens.check.model import Offender, Verdict
from hlo_lens.check.reading import read_file
from hlo_lens.facts import Facts, Finding, PassResult, Rule, Table, discover_passes
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load

MODEL = "def layer(x):\n    return psum(x)\n"
STEP = """\
HloModule step, is_scheduled=true

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[8] parameter(0)
  first = f32[8] all-reduce(x), replica_groups={{0,1}}, to_apply=add, metadata={op_name="jit(f)/transpose(jvp())/psum" source_file="model.py" source_line=2}
  ROOT last = f32[8] all-reduce(first), replica_groups={{0,1}}, to_apply=add, metadata={op_name="jit(f)/jvp()/psum" source_file="/elsewhere/lib.py" source_line=7}
}
"""  # noqa: E501
GATE = """\
[[expect]]
id = "two"
table = "collectives"
count = 2

[[expect]]
id = "none-in-backward"
table = "collectives"
where = "phase = 'bwd'"
none = true
because = "it is | summed\\nonce"

[[expect]]
id = "few"
table = "collectives"
count = "<= 1"
severity = "warning"

[[expect]]
id = "channels"
table = "collectives"
every = "channel_id = 1"
"""
PROBLEM = "none.hlo: no such file or folder\n  ^"

# What no reader of a report may act on, or choke on.
HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"a\" 'b' &amp; ]]> <!-- -- -->",
    "a|b`c` **d** [e](1) {0} \\",
    "two\nlines\r::error::x",
    "bell\x07 esc\x1b[31m nul\x00 \ufffe \ud800",
    "100%, a:b,c ##[error]",
    "",
    "é 日本 \U0001f600",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `report_text` takes."""

    checked: tuple[Checked, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pass:
    name: str
    rules: tuple[Rule, ...]
    does: Callable[[], PassResult]
    tables: tuple[Table, ...] = ()
    requires: tuple[str, ...] = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        return self.does()


def _rule(id: str, level: str = "warning") -> Rule:
    return Rule(id, level, f"What {id} is.", f"Why {id} matters.")  # type: ignore[arg-type]


def _fails() -> PassResult:
    raise KeyError("lost")


def facts_with(program: Program, *findings: Finding) -> Facts:
    """The facts of a program about which one pass has these findings, another nothing to say, and a
    third breaks."""
    rules = {one.rule: _rule(one.rule) for one in findings}
    own = (
        _Pass("tells", tuple(rules.values()), lambda: PassResult({}, findings=findings)),
        _Pass("quiet", (_rule("never-seen"),), lambda: PassResult({})),
        _Pass("breaks", (_rule("not-known"),), _fails),
    )
    return Facts(program, (*discover_passes(installed=False).passes, *own))


def everything(folder: Path) -> Outcome:
    """The outcome for a program in `folder`, which also holds the model that it is of."""
    (folder / "model.py").write_text(MODEL)
    (folder / "step.hlo").write_text(STEP)
    (folder / "gate.toml").write_text(GATE)
    program = load("step.hlo")
    first = next(one for one in program.main.entry.instructions if one.name == "first")
    facts = facts_with(
        program,
        Finding("summed-twice", "warning", "first is summed", 0, first.id, help="sum once"),
        Finding("of-the-module", "note", "it is small", 0),
    )
    verdicts = judge(facts, read_file("gate.toml", facts.registry))
    others = (
        Verdict("loops", "baseline", "passed", "no change", "1 row differs, as allowed"),
        Verdict("collectives", "baseline", "failed", "no change", "1 row is new", against=1),
        Verdict("step.check", "filecheck", "failed", "its CHECK lines match", "no match\n  here"),
    )
    by_rules = judged_by_rules(
        facts, "warning", ["summed-twice", "of-the-module", "never-seen", "not-known"]
    )
    return Outcome((replace(by_rules, verdicts=(*verdicts, *others)),), (PROBLEM,))


def passing(folder: Path) -> Outcome:
    """The outcome where all is as expected."""
    whole = everything(folder)
    (one,) = whole.checked
    return Outcome((Checked(one.facts, (one.verdicts[0],), rules=("never-seen",)),))


def hostile(text: str) -> Outcome:
    """The outcome where every name and sentence that a file may hold is `text`."""
    program = Program([parse(STEP, filename=text)], name=f"n{text}")
    facts = facts_with(program, Finding("summed-twice", "warning", text, 0, 3, help=text))
    row = Offender(0, text, f"{text}:3", 4, text)
    verdicts = tuple(
        Verdict(
            text,
            kind,
            outcome,
            text,
            text,
            why=text,
            because=text,
            place=f"{text}:1",
            offenders=(row, row),
            against=9,
            nearest=text,
            command=text,
        )
        for kind in ("expectation", "baseline", "filecheck")
        for outcome in ("passed", "failed", "not judged")
    )
    by_rules = judged_by_rules(facts, "warning", ["summed-twice"])
    broken = (*by_rules.broken, f"pass {text}: {text}")
    return Outcome((replace(by_rules, verdicts=verdicts, broken=broken),), (text,))
