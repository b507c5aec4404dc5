"""The outcome as JUnit XML: a test suite a program, a test case for each thing that was judged.

What could not be judged is an error, not skipped: a viewer counts skipped tests as good ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from hlo_lens.check.gate import Checked, is_heeded
from hlo_lens.check.model import Outcome, Verdict
from hlo_lens.check.wording import (
    finding_text,
    lines_of,
    places,
    program_text,
    remark,
    verdict_text,
)
from hlo_lens.facts.findings import Level
from hlo_lens.present.quantities import visible

if TYPE_CHECKING:
    from junitparser import TestCase, TestSuite


def junit_text(checked: Sequence[Checked], fail_on: Level, problems: Sequence[str]) -> str:
    """The report, with the attributes and elements of the schema of Jenkins (junit-10.xsd)."""
    from junitparser import JUnitXml

    report = JUnitXml("hlolens check")
    for one in checked:
        report.append(_suite(program_text(one), _cases(one, fail_on)))
    if problems:
        report.append(_suite("could not be done", map(_of_problem, problems)))
    report.update_statistics()
    report._elem.attrib.pop("skipped", None)  # of a suite only, in that schema
    written = BytesIO()
    report.write(written, pretty=True)
    return f"{written.getvalue().decode()}\n"


def _suite(name: str, cases: Iterable[TestCase]) -> TestSuite:
    """The cases under names that are different: viewers take those of one name for one test."""
    from junitparser import TestSuite

    suite = TestSuite(" ".join(name.split()))
    seen: Counter[str] = Counter()
    for case in cases:
        seen[case.name] += 1
        if seen[case.name] > 1:
            case.name = f"{case.name} ({seen[case.name]})"
        # Jenkins has a dot between package and class.
        case.classname = f"{suite.name.replace('.', '_')}.{case.classname}"
        suite.append(case)
    suite.update_statistics()
    return suite


def _cases(checked: Checked, fail_on: Level) -> Iterator[TestCase]:
    for verdict in checked.verdicts:
        yield _of_verdict(verdict, is_heeded(verdict, fail_on))
    where = places(checked)
    found = (*checked.failing, *checked.others)
    for rule in dict.fromkeys((*checked.rules, *(one.rule for one in found))):
        text = "\n\n".join(finding_text(one, where[one]) for one in found if one.rule == rule)
        failing = [one.message for one in checked.failing if one.rule == rule]
        yield _case(rule, "rule", "failed" if failing else "passed", "; ".join(failing[:1]), text)
    for why in checked.broken:
        yield _case(why.partition(":")[0], "pass", "not judged", why, why)


def _of_verdict(verdict: Verdict, heeded: bool) -> TestCase:
    text = remark(verdict) if verdict.outcome == "passed" else verdict_text(verdict)
    if verdict.outcome != "passed" and not heeded:
        text = f"{verdict.outcome}, as a warning\n{text}"
        return _case(verdict.id, verdict.kind, "passed", "", text)
    message = verdict.why or f"expected: {verdict.expected}; found: {verdict.found}"
    return _case(verdict.id, verdict.kind, verdict.outcome, message, text)


def _of_problem(problem: str) -> TestCase:
    first, *_ = lines = lines_of(problem)
    return _case(first, "problem", "not judged", first, "\n".join(lines))


def _case(name: str, classname: str, outcome: Outcome, message: str, text: str) -> TestCase:
    """A case; the text of one that passed is what it printed."""
    from junitparser import Error, Failure, SystemOut, TestCase

    case = TestCase(visible(name), classname)
    if outcome == "passed":
        if text:
            case.append(SystemOut(_legal(text)))
        return case
    result = (Failure if outcome == "failed" else Error)(
        visible(" ".join(message.split())), outcome
    )
    result.text = _legal(text)
    case.append(result)
    return case


def _legal(text: str) -> str:
    """The lines of a text without what XML cannot hold."""
    return "\n".join(map(visible, text.split("\n")))
