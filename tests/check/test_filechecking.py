"""CHECK lines on programs: each directive, what is told of one that does not hold, bad files.

They run in the process of the tests, which is faster: test_check_child.py is about
the process that they have to themselves otherwise.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.check.check_child import Ran, check, outcome
from hlo_lens.check.filechecking import file_checked
from hlo_lens.check.model import Verdict
from hlo_lens.facts import Facts
from hlo_lens.files import InputError
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests.mutate import harmful, harmless

ROOT = Path(__file__).parents[2]
CHECKS = sorted((Path(__file__).parent / "checks").glob("*.check"))

HLO = """HloModule step, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.3 = f32[] add(%a, %b)
}

ENTRY %main.9 (x: f32[8,4], w: f32[4,8]) -> f32[8,8] {
  %x = f32[8,4]{1,0} parameter(0)
  %w = f32[4,8]{1,0} parameter(1)
  %dot.7 = f32[8,8]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %reduced = f32[8,8]{1,0} all-reduce(%dot.7), channel_id=9, replica_groups={{0,2},{3,1}}, \
to_apply=%sum, metadata={op_name="jit(step)/psum" source_file="step.py" source_line=7}
  ROOT %out = f32[8,8]{1,0} tanh(%reduced)
}
"""


def run_here(name: str, text: str, prefixes: Sequence[str], program: str) -> Ran:
    told: dict[str, Any] = {}

    def tell(what: str, value: object) -> None:
        told[what] = json.loads(json.dumps(value))

    check(name, text, prefixes, program, tell)
    ran = outcome(told)
    assert ran is not None
    return ran


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlo_lens.check.filechecking.run_checks", run_here)


def checked(tmp_path: Path, *lines: str, hlo: str = HLO, prefixes: str = "") -> Verdict:
    """The verdict of these lines, each behind `// `."""
    file = tmp_path / "step.check"
    file.write_text("".join(f"// {line}\n" for line in lines))
    return file_checked(Facts(Program([parse(hlo)])), f"{file}{prefixes}")


# --- directives ---

HOLD = {
    "in order": ["CHECK: dot(", "CHECK: all-reduce(", "CHECK: tanh("],
    "next and same": [
        "CHECK: [[D:%[^ ]+]] = f32[8,8] dot(",
        "CHECK-NEXT: [[R:%.*]] = f32[8,8] all-reduce([[D]]), channel_id=1",
        "CHECK-SAME: to_apply=[[SUM:%[^ ,]+]]",
        "CHECK-NEXT: ROOT {{.*}} tanh([[R]])",
        "CHECK-NEXT: }",
    ],
    "not": ["CHECK-NOT: all-gather", "CHECK: dot(", "CHECK-NOT: dot("],
    "in any order": ["CHECK-DAG: parameter(1)", "CHECK-DAG: parameter(0)", "CHECK: dot("],
    "label": ["CHECK-LABEL: %all-reduce_to_apply.1", "CHECK-NOT: dot(", "CHECK-LABEL: ENTRY"],
    "count": ["CHECK-LABEL: ENTRY", "CHECK-COUNT-2: = {{f32.[0-9],[0-9].}} parameter("],
    "empty": ["CHECK: HloModule step", "CHECK-EMPTY:", "CHECK-NEXT: %all-reduce_to_apply.1"],
    "groups that are in no order": ["CHECK: replica_groups={ {0,2},{3,1} }, to_apply="],
    "groups in parts": ["CHECK: replica_groups={ {0,2}", "CHECK-SAME: {3,1}"],
    "as text": ["CHECK{LITERAL}: replica_groups={ {0,2},{3,1} }"],
    "a sign in front": ["CHECK: %[[D:[^ ]+]] = {{.*}} dot(", "CHECK: all-reduce(%[[D]])"],
    "a signature": [
        "CHECK: [[ADD:%.*]] ([[A:[^:]+]]: f32[], [[B:[^ :]+]]: f32[]) -> f32[]",
        "CHECK: ROOT {{.*}} add(%[[A]], %[[B]])",
        "CHECK: to_apply=[[ADD]]",
    ],
    # These as LLVM's FileCheck has them; the package fails them.
    "not in front of what it matches itself": ["CHECK-NOT: dot(", "CHECK: dot("],
    "not in front of the next line": ["CHECK: [4,8] param", "CHECK-NOT: dot(", "CHECK-NEXT: dot("],
    "not in front of the first of lines in any order": [
        "CHECK: ENTRY",
        "CHECK-NOT: all-reduce(",
        "CHECK-DAG: tanh(",
        "CHECK-DAG: dot(",
    ],
    "next, from its first match on": [
        "CHECK: [4,8] param",
        "CHECK-NEXT: [[D:%[^ ,)]+]]",
        "CHECK-SAME: %",
        "CHECK: reduce([[D]])",
    ],
    "behind lines in any order": [
        "CHECK: ENTRY",
        "CHECK-DAG: parameter(1)",
        "CHECK-DAG: parameter(0)",
        "CHECK-NEXT: dot(",
    ],
    "a comment": ["COM: CHECK: all-gather", "CHECK: dot("],
}


@pytest.mark.parametrize("what", HOLD)
def test_what_holds(tmp_path: Path, what: str) -> None:
    verdict = checked(tmp_path, *HOLD[what])
    assert (verdict.outcome, verdict.kind) == ("passed", "filecheck"), verdict


FAIL = {
    "not there": ["CHECK: all-gather("],
    "another order": ["CHECK: tanh(", "CHECK: dot("],
    "not next": ["CHECK: dot(", "CHECK-NEXT: tanh("],
    "on another line": ["CHECK: dot(", "CHECK-SAME: channel_id"],
    "there": ["CHECK: dot(", "CHECK-NOT: all-reduce(", "CHECK: tanh("],
    "there, at the end": ["CHECK: dot(", "CHECK-NOT: tanh("],
    "there, in front of a label": ["CHECK-NOT: add(", "CHECK-LABEL: ENTRY"],
    "there, behind a label": ["CHECK-LABEL: ENTRY", "CHECK-NOT: tanh("],
    "there, behind lines in any order": ["CHECK-DAG: parameter(1)", "CHECK-NOT: tanh("],
    "there, in front of lines in any order": ["CHECK-NOT: all-reduce(", "CHECK-DAG: tanh("],
    "outside its label": ["CHECK-LABEL: %all-reduce_to", "CHECK: dot(", "CHECK-LABEL: ENTRY"],
    "no such label": ["CHECK-LABEL: %while_body"],
    "too few": ["CHECK-COUNT-2: dot("],
    "not empty": ["CHECK: dot(", "CHECK-EMPTY:"],
    "there, in front of the first of lines in any order": [
        "CHECK: ENTRY", "CHECK-NOT: dot(", "CHECK-DAG: tanh(", "CHECK-DAG: all-reduce(",
    ],
    "there, between lines in any order": [
        "CHECK-DAG: parameter(1)", "CHECK-DAG: dot(", "CHECK-NOT: all-reduce(", "CHECK-DAG: tanh(",
    ],
    "there, on the line of the next match": [
        "CHECK: [4,8] param", "CHECK-NOT: f32", "CHECK-NEXT: dot(",
    ],
    "another value": ["CHECK: [[X:%.*]] = f32[8,4] parameter(0)", "CHECK: tanh([[X]])"],
    "metadata, which is not in the text": ["CHECK: op_name"],
    "behind the end": ["CHECK: tanh(", "CHECK-NEXT: }", "CHECK-NEXT: }"],
    "behind the end of all": [r"CHECK: tanh({{.*\s+}\s+}}", "CHECK-NEXT: }"],
    "next, behind the next label": [
        "CHECK-LABEL: HloModule", "CHECK: %", "CHECK-NEXT: r", "CHECK-LABEL: reduce_to",
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", FAIL)
def test_what_does_not_hold(tmp_path: Path, what: str) -> None:
    assert checked(tmp_path, *FAIL[what]).outcome == "failed"


def test_prefixes(tmp_path: Path) -> None:
    lines = ("TPU: dot(", "GPU-NOT: tanh(", "CHECK: no such thing")
    assert checked(tmp_path, *lines, prefixes=":TPU").outcome == "passed"
    assert checked(tmp_path, *lines, prefixes=":GPU").outcome == "failed"
    assert checked(tmp_path, *lines, prefixes=":TPU,GPU").outcome == "failed"
    assert checked(tmp_path, *lines).outcome == "failed"


# --- as XLA's own tests are written ---

GEMM = """HloModule jit_layer, is_scheduled=true

ENTRY %main.4 (y: f32[3,4], x: f32[2,3], b: f32[2,4]) -> f32[2,4] {
  %y = f32[3,4]{1,0} parameter(1)
  %x = f32[2,3]{1,0} parameter(0)
  %b = f32[2,4]{1,0} parameter(2)
  %cublas.1 = (f32[2,4]{1,0}, s8[4194304]{0}) custom-call(%x, %y, %b), \
custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"alpha_real":3,\
"beta":1,"dot_dimension_numbers":{"rhs_contracting_dimensions":["0"],\
"lhs_contracting_dimensions":["1"]},"epilogue":"BIAS"},"operation_queue_id":"0"}
  ROOT %get-tuple-element = f32[2,4]{1,0} get-tuple-element(%cublas.1), index=0
}
"""

EXCHANGE = """HloModule test, is_scheduled=true

ENTRY %test_computation {
  %a1 = u32[1,8]{1,0} parameter(0)
  %gathered = u32[4,8]{1,0} all-gather(%a1), channel_id=3, replica_groups={{0,1,2,3},{4,5,6,7}}, \
dimensions={0}, backend_config={"collective_backend_config":{"is_sync":true}}
  ROOT %moved = u32[4,8]{1,0} collective-permute(%gathered), channel_id=4, \
source_target_pairs={{0,1},{1,0}}
}
"""


def test_a_gemm_with_an_epilogue(tmp_path: Path) -> None:
    verdict = checked(
        tmp_path,
        "CHECK-LABEL: ENTRY %{{.*}} ({{.*}}: f32[2,3], {{.*}}: f32[2,4]) -> f32[2,4] {",
        "CHECK-DAG:     [[X:%[^ ]+]] = f32[2,3] parameter(0)",
        "CHECK-DAG:     [[Y:%[^ ]+]] = f32[3,4] parameter(1)",
        "CHECK-DAG:     [[BIAS:%[^ ]+]] = f32[2,4] parameter(2)",
        "CHECK-NEXT:    [[GEMM:%[^ ]+]] = (f32[2,4], s8[{{[0-9]+}}]) custom-call(",
        "CHECK-SAME:    [[X]], [[Y]], [[BIAS]]),",
        'CHECK-SAME:    custom_call_target="__cublas$lt$matmul",',
        "CHECK-SAME:    backend_config={",
        'CHECK-DAG:       "alpha_real":3',
        'CHECK-DAG:       "lhs_contracting_dimensions":["1"]',
        'CHECK-DAG:       "rhs_contracting_dimensions":["0"]',
        'CHECK-DAG:       "epilogue":"BIAS"',
        "CHECK:         ROOT {{.*}} get-tuple-element([[GEMM]]), index=0",
        hlo=GEMM,
    )
    assert verdict.outcome == "passed", verdict


def test_a_collective_that_is_synchronous(tmp_path: Path) -> None:
    verdict = checked(
        tmp_path,
        "CHECK-LABEL: ENTRY %main",
        "CHECK-NOT: all-gather-start",
        "CHECK: %[[AG:.*]] = u32[4,8] all-gather(%{{.*}})",
        "CHECK-SAME: replica_groups=[2,4]<=[8], dimensions={0}",
        "CHECK-SAME: backend_config={{.*}}is_sync{{.*}}true",
        "CHECK-NOT: all-gather-done",
        "CHECK: ROOT %{{.*}} = u32[4,8] collective-permute(%[[AG]])",
        "CHECK-SAME: source_target_pairs={",
        "CHECK-SAME: {0,1},{1,0}",
        "CHECK-SAME: }",
        hlo=EXCHANGE,
    )
    assert verdict.outcome == "passed", verdict


# --- committed programs ---


def _named(file: Path, word: str) -> tuple[Path, str | None] | None:
    """(program, stage) behind `RUN: hlolens check` or `TWIN:`."""
    for line in file.read_text().splitlines():
        _, mark, rest = line.partition(f"{word} ")
        if mark:
            path, *options = rest.split()
            return ROOT / path, options[1] if options[:1] == ["--stage"] else None
    return None


@pytest.mark.parametrize("file", CHECKS, ids=lambda file: file.stem)
def test_a_file_holds_under_harmless_rewrites_and_fails_on_its_twin(file: Path) -> None:
    named = _named(file, "RUN: hlolens check")
    assert named is not None
    path, stage = named
    text = load(path, stage=stage).main.text
    assert _outcome(text, file) == "passed"
    for name, rewritten in harmless(text):
        assert _outcome(rewritten, file) == "passed", name
    if (twin := _named(file, "TWIN:")) is not None:
        assert _outcome(load(twin[0], stage=twin[1]).main.text, file) == "failed"
    assert any(_outcome(rewritten, file) == "failed" for _, rewritten in harmful(text))


def _outcome(text: str, file: Path) -> str:
    return file_checked(Facts(Program([parse(text)])), str(file)).outcome


# --- what is told ---


def test_a_line_that_does_not_match_is_told_with_where_it_was_looked_for(tmp_path: Path) -> None:
    verdict = checked(
        tmp_path,
        "CHECK: [[D:%[^ ]+]] = f32[8,8] dot(",
        "CHECK: tanh([[D]])",
    )
    file = tmp_path / "step.check"
    assert verdict.place == f"{file}:2"
    assert verdict.expected == f"{file}:2: CHECK: tanh([[D]])"
    assert verdict.found == (
        "nothing matches, searched from canonical line 12 (line 12 of the program); "
        "[[D]] is '%dot.1'"
    )
    assert verdict.nearest == (
        "its beginning matches in canonical line 14 (line 14 of the program): "
        "ROOT %tanh.1 = f32[8,8] tanh(%all-reduce.1)"
    )
    assert verdict.command == "hlolens show FILE --canonical"


@pytest.mark.parametrize(
    ("lines", "found", "nearest"),
    [
        (
            ["CHECK: dot(", "CHECK-NEXT: tanh("],
            "the next line is canonical line 13 (line 13 of the program): %all-reduce.1 = ",
            "it matches further on, in canonical line 14",
        ),
        (
            ["CHECK: tanh(", "CHECK: dot("],
            "nothing matches, searched from canonical line 14",
            "it matches before that, in canonical line 12",
        ),
        (
            ["CHECK: dot(", "CHECK-SAME: tanh("],
            "not in the rest of canonical line 12 (line 12 of the program): %parameter.3, ",
            "it matches further on, in canonical line 14",
        ),
        (["CHECK: all-gather-start("], "nothing matches, searched from canonical line 1", ""),
        (["CHECK-LABEL: %while"], "no line matches", ""),
        (
            ["CHECK-LABEL: ENTRY", "CHECK-LABEL: HloModule"],
            "no line matches behind the label before it, which is in canonical line 9 (line 9 of",
            "it matches before that, in canonical line 1",
        ),
        (
            ["CHECK-LABEL: ENTRY", "CHECK-LABEL: all-reduce(%tanh"],
            "no line matches behind the label before it, which is in canonical line 9 (line 9 of",
            "its beginning matches in canonical line 13",
        ),
        (
            ["CHECK-LABEL: ENTRY", "CHECK-COUNT-3: parameter("],
            "2 of 3 matches; nothing more matches, searched from canonical line 11",
            "it matches before that, in canonical line 4",
        ),
        (
            ["CHECK-COUNT-5: parameter("],
            "4 of 5 matches; nothing more matches, searched from canonical line 11",
            "",
        ),
        (
            ["CHECK-COUNT-3: parameter(", "CHECK-LABEL: ENTRY"],
            "2 of 3 matches; nothing more matches, searched from canonical line 5",
            "it matches further on, in canonical line 10",
        ),
        (["CHECK-COUNT-2: while("], "nothing matches, searched from canonical line 1", ""),
        (["CHECK: dot(", "CHECK-EMPTY:"], "the next line is canonical line 13", ""),
    ],
)
def test_found_and_nearest(tmp_path: Path, lines: list[str], found: str, nearest: str) -> None:
    verdict = checked(tmp_path, *lines)
    assert verdict.found.startswith(found)
    assert verdict.nearest.startswith(nearest)
    assert bool(verdict.nearest) == bool(nearest)


def test_what_must_not_be_there_is_told_as_the_instruction_that_it_is(tmp_path: Path) -> None:
    verdict = checked(tmp_path, "CHECK: dot(", "CHECK-NOT: all-reduce(")
    assert verdict.found.startswith("it matches in canonical line 13 (line 13 of the program)")
    (offender,) = verdict.offenders
    assert (offender.name, offender.source, offender.text_line) == ("reduced", "step.py:7", 13)
    assert verdict.against == 1


# --- what cannot be judged ---

BAD = {
    "no line with CHECK:": ["just words", "CHECKED: x"],
    ":2: Malformed regex": ["CHECK: dot(", "CHECK: {{[}}"],
    ":1: Invalid regex block": ["CHECK: {{a"],
    ":1: Invalid substitution block": ["CHECK: [[X+1]]"],
    ":1: found empty check string": ["CHECK:"],
    ":1: Variable X referenced": ["CHECK: dot([[X]]"],
    ":3: Variable X referenced": ["CHECK: a", "CHECK-NOT: [[X:b]]", "CHECK: [[X]]"],
    ":1: the package filecheck does no arithmetic": ["CHECK: [[#X+1]]"],
    ":1: the package filecheck cannot run this line: Can't translate": ["CHECK: {{[[:print:]]}}"],
    ":1: the package filecheck miscounts": ["CHECK: dot{{[(]}}[[X:%.*]], "],
    ":1: a CHECK-LABEL captures no variable": ["CHECK-LABEL: ENTRY [[X:%.*]] ("],
    ":2: no directive CHECK-NXT:, did you mean CHECK-NEXT:?": ["CHECK: a", "CHECK-NXT: b"],
    ":1: no directive CHECK_NEXT:, did you mean CHECK-NEXT:?": ["CHECK_NEXT: b"],
    ":1: no directive CHECK-NOT-NEXT:, did you mean CHECK-NOT:?": ["CHECK-NOT-NEXT: b"],
    ":1: no directive CHECK-COUNT:, did you mean CHECK-COUNT-2:?": ["CHECK-COUNT: b"],
    ":1: invalid count": ["CHECK-COUNT-0: b"],
    ":1: CHECK-SAME: has no CHECK: line before it": ["CHECK-SAME: dot("],
    ":2: CHECK-NEXT: has no CHECK: line before it": ["CHECK-NOT: a", "CHECK-NEXT: dot("],
    ":3: CHECK-EMPTY: has no CHECK: line before it": [
        "CHECK-DAG: a",
        "CHECK-NOT: b",
        "CHECK-EMPTY:",
    ],
    ":2: the package filecheck cannot run this line: it nests too deep": [
        "CHECK: dot(",
        f"CHECK: {{{{{'(' * 3000}{')' * 3000}}}}}",
    ],
    ":1: the package filecheck cannot run this line: the repetition number is too large": [
        "CHECK: [[X:a{4294967296}]]",
    ],
    ":1: no directive CEHCK:, did you mean CHECK:?": ["CEHCK: a", "CHECK: b"],
    ":1: no directive CHEK-NOT, did you mean CHECK-NOT:?": ["CHEK-NOT: a", "CHECK: b"],
    ":2: no directive chekc-not, did you mean CHECK-NOT:?": ["CHECK: b", "chekc-not : a"],
    ":2: no directive CHECKK-NOT, did you mean CHECK-NOT:?": ["CHECK: b", "CHECKK-NOT: a"],
    ":2: no directive CHEK-NOT, did you mean CHECK-NOT:?": ["CHECK: b", "add() // CHEK-NOT: a"],
    ":2: no directive CHECK-nto:, did you mean CHECK-NOT:?": ["CHECK: b", "CHECK-nto: a"],
}


@pytest.mark.parametrize("said", BAD)
def test_a_bad_file_is_told_by_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    with pytest.raises(InputError) as raised:
        checked(tmp_path, *BAD[said])
    assert said in str(raised.value)
    assert str(tmp_path / "step.check") in str(raised.value)
    assert capsys.readouterr() == ("", "")


def test_lines_of_another_prefix_are_no_misspelled_ones(tmp_path: Path) -> None:
    lines = ("CHECK-GPU: x", "CHECK-GPU-NEXT: x", "CHECK-DIRECT: y", "CHECK: dot(")
    assert checked(tmp_path, *lines).outcome == "passed"


NEARLY = {
    "CHECK-NOT :": "CHECK-NOT:",
    "CHECK-NOT": "CHECK-NOT:",
    "CHECK-NOT;": "CHECK-NOT:",
    "check-not:": "CHECK-NOT:",
    "Check-Not:": "CHECK-NOT:",
    "CHECK-not:": "CHECK-NOT:",
    "CHECKNOT:": "CHECK-NOT:",
    "CHECK NOT:": "CHECK-NOT:",
    "CHECK--NOT:": "CHECK-NOT:",
    "CHECK-NOT {LITERAL}:": "CHECK-NOT{LITERAL}:",
    "CHECK-NOT{literal}:": "CHECK-NOT{LITERAL}:",
    "CHECK-NOT{LITERALS}:": "CHECK-NOT{LITERAL}:",
    "CHECK\N{EN DASH}NOT:": "CHECK-NOT:",
    "-CHECK-NOT:": "CHECK-NOT:",
    "CHECK\N{NON-BREAKING HYPHEN}NOT:": "CHECK-NOT:",
    "CHECK-NOT\N{FULLWIDTH COLON}": "CHECK-NOT:",
    "CHECK-NOT\N{NO-BREAK SPACE}:": "CHECK-NOT:",
    "CHECK - NOT:": "CHECK-NOT:",
    "CHECK -NOT": "CHECK-NOT:",
    "CHECK.NOT:": "CHECK-NOT:",
    "CHECK NOT": "CHECK-NOT:",
    "CHECKNOT": "CHECK-NOT:",
    "- CHECK-NOT": "CHECK-NOT:",
    '""" CHECK-NOT': "CHECK-NOT:",
    "%x = add() // CHECK-NOT :": "CHECK-NOT:",
    "%x = add() // CHECK-NOT": "CHECK-NOT:",
    "%x = add() # check-not:": "CHECK-NOT:",
    "%x = add() /* CHECKNOT": "CHECK-NOT:",
    "CHECK/NOT:": "CHECK-NOT:",
    "CHECK, NOT:": "CHECK-NOT:",
    "CHECK\N{ZERO WIDTH SPACE}-NOT:": "CHECK-NOT:",
    "CHECK\N{SOFT HYPHEN}NOT:": "CHECK-NOT:",
    "CHECK{LITERALS}:": "CHECK{LITERAL}:",
    "CHECK {LITERAL}:": "CHECK{LITERAL}:",
    "CHECK :": "CHECK:",
    "CHECKS:": "CHECK:",
    "check:": "CHECK:",
    "CHECK-COUNT-2 :": "CHECK-COUNT-2:",
    "check-next:": "CHECK-NEXT:",
}


@pytest.mark.parametrize("written", NEARLY)
def test_what_nearly_is_a_directive_is_a_mistake(tmp_path: Path, written: str) -> None:
    """FileCheck passes over it, and a CHECK-NOT that is not run holds of everything."""
    with pytest.raises(InputError) as raised:
        checked(tmp_path, "CHECK: dot(", f"{written} tanh(")
    assert "step.check:2: no directive " in str(raised.value)
    assert f"did you mean {NEARLY[written]}?" in str(raised.value)
    of_gpu = written.replace("CHECK", "GPU").replace("check", "gpu").replace("Check", "Gpu")
    with pytest.raises(InputError, match="no directive"):
        checked(tmp_path, "GPU: dot(", f"{of_gpu} tanh(", prefixes=":GPU")
    assert checked(tmp_path, "CHECK: dot(", f"{of_gpu} tanh(").outcome == "passed"


@pytest.mark.parametrize(
    "prose",
    [
        "check that all is well",
        "CHECK the following",
        "checks: see below",
        "A CHECK-NOT holds of anything else",
        "we check not only dots: all of it",
        "check not only dots: all of it",
        "%x = add() // check that all is well, not only dots",
        "CHECK the following; checks: see below",
        "%x = add() # not all of it is checked: NOT this",
        "Check labels: all of them",
        "MY-CHECK-NOT: dot(",
        "RUN: hlolens check --filecheck x CHECK-NOT :",
        "COM: CHECK-NOT : dot(",
        "RECHECK: dot(",
    ],
)
def test_prose_is_no_directive(tmp_path: Path, prose: str) -> None:
    assert checked(tmp_path, "CHECK: dot(", prose).outcome == "passed"


def test_a_sign_that_looks_like_another_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"CHECK-NOT:\? \('\\u2013' is no ASCII sign\)"):
        checked(tmp_path, "CHECK: dot(", "CHECK\N{EN DASH}NOT: tanh(")


def test_prefixes_that_differ_in_digits_are_no_misspelled_ones(tmp_path: Path) -> None:
    lines = ("STEP12: dot(", "STEP21: x", "STEP1: x", "STEP122: x", "STEP1-NOT: dot(")
    assert checked(tmp_path, *lines, prefixes=":STEP12").outcome == "passed"
    with pytest.raises(InputError, match="did you mean STEP12-NOT:"):
        checked(tmp_path, *lines, "SETP12-NOT: tanh(", prefixes=":STEP12")


@pytest.mark.parametrize(
    "line",
    ["TELECOM: CHECK-NOT: tanh(", "CHECK-NOT: {{tanh|RUN: CHECK}}"],
)
def test_what_is_no_comment_is_run(tmp_path: Path, line: str) -> None:
    """As LLVM's: COM: and RUN: are words of their own, in front of a directive."""
    assert checked(tmp_path, "CHECK: dot(", line).outcome == "failed"
    assert checked(tmp_path, "CHECK: dot(", f"COM: {line}").outcome == "passed"
    assert checked(tmp_path, "CHECK: dot(", f"a.RUN: {line}").outcome == "passed"


def test_a_carriage_return_ends_a_line(tmp_path: Path) -> None:
    with_it = "CHECK-NOT: no such thing\r// CHECK-NOT: tanh("
    verdict = checked(tmp_path, "CHECK: dot(", with_it)
    assert (verdict.outcome, verdict.place) == ("failed", f"{tmp_path / 'step.check'}:3")
    assert checked(tmp_path, "CHECK: dot(", with_it.replace("tanh(", "sine(")).outcome == "passed"


def test_a_prefix_without_a_line_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no line with GPU: in it: nothing would be checked"):
        checked(tmp_path, "TPU: dot(", prefixes=":TPU,GPU")


@pytest.mark.parametrize("prefix", ["A.B", "", "1st", "TPU,", "TPU:GPU", "A.B:TPU"])
def test_what_is_no_prefix_is_told(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(InputError, match=f"'{prefix}' is no prefix of CHECK lines"):
        checked(tmp_path, "TPU: dot(", prefixes=f":{prefix}")


@pytest.mark.parametrize("prefix", ["COM", "RUN"])
def test_what_begins_a_comment_is_no_prefix(tmp_path: Path, prefix: str) -> None:
    """As LLVM's: one line would be both."""
    with pytest.raises(InputError, match=f"{prefix} is no prefix of CHECK lines"):
        checked(tmp_path, f"{prefix}: dot(", "TPU: dot(", prefixes=f":TPU,{prefix}")
    line = f"{prefix}ET: dot("
    assert checked(tmp_path, line, prefixes=f":{prefix}ET").outcome == "passed"


def test_a_colon_in_the_name_of_a_file_begins_no_prefix(tmp_path: Path) -> None:
    (tmp_path / "step:TPU").write_text("CHECK: dot(\n")
    (tmp_path / "step").write_text("TPU: no such thing\n")
    facts = Facts(Program([parse(HLO)]))
    assert file_checked(facts, str(tmp_path / "step:TPU")).outcome == "passed"
    (tmp_path / "step").unlink()
    assert file_checked(facts, str(tmp_path / "step:TPU:CHECK")).outcome == "passed"


def test_a_file_that_is_none(tmp_path: Path) -> None:
    facts = Facts(Program([parse(HLO)]))
    with pytest.raises(FileNotFoundError):
        file_checked(facts, str(tmp_path / "none.check"))
    with pytest.raises(IsADirectoryError):
        file_checked(facts, str(tmp_path))
    (tmp_path / "bytes").write_bytes(b"// CHECK: a\n\xff")
    with pytest.raises(InputError, match=r"bytes:2: not UTF-8"):
        file_checked(facts, str(tmp_path / "bytes"))


def test_a_text_that_ends_before_its_entry_is_not_judged(tmp_path: Path) -> None:
    verdict = checked(tmp_path, "CHECK-NOT: dot(", hlo=HLO[: HLO.index("ENTRY")])
    assert (verdict.outcome, verdict.why) == (
        "not judged", "the text has no ENTRY: it may be cut off",
    )  # fmt: skip


def test_a_text_that_is_cut_off_is_not_judged(tmp_path: Path) -> None:
    cut = HLO[: HLO.index("ROOT %out")]
    for line in ("CHECK: dot(", "CHECK-NOT: tanh("):
        verdict = checked(tmp_path, line, hlo=cut)
        assert (verdict.outcome, verdict.found) == ("not judged", "")
        assert "cut off" in verdict.why


def test_without_the_package_nothing_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "filecheck", None)
    verdict = checked(tmp_path, "CHECK: dot(")
    assert verdict.outcome == "not judged"
    assert "pip install 'hlo-lens[filecheck]'" in verdict.why


def test_what_the_package_prints_is_kept_off_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # It prints where it moves behind lines in any order, and warns of an empty variable.
    for line in ("CHECK: dot(", "CHECK: no such thing"):
        checked(tmp_path, "CHECK-DAG: parameter(0)", "CHECK: [[E:x*]]", line)
    assert capsys.readouterr() == ("", "")
