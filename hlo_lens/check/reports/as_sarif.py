"""The outcome as SARIF 2.1.0, for code scanning.

An expectation is a rule, and a verdict that has not passed is a result: `fail` with its severity,
or `open` where it could not be judged. Findings are results of their own rules. GitHub takes a
result of kind `pass` for an alert, so what passed is a notification of level `none`; what could not
be judged, a broken pass and a file that could not be read are notifications too, and the invocation
was not successful.

A result is shown at its first location: the JAX source where that is in the checkout, else the
expectation, else the HLO text. The rows are related locations, and the message links to those of
them that are in the checkout. Every result has a location, as GitHub rejects a file otherwise.

Fingerprints are made of what does not change where instructions are renamed. GitHub's upload takes
the hash of a line for `primaryLocationLineHash` and complains about another value, so that one is
given only where it has no such line to read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from hlo_lens import __version__
from hlo_lens.check.gate import Checked, exit_code
from hlo_lens.check.model import Verdict
from hlo_lens.check.reports.workspace import (
    FileLine,
    Workspace,
    file_line,
    first_inside,
    row_places,
    text_place,
    workspace,
)
from hlo_lens.check.wording import (
    Place,
    lines_of,
    more_rows,
    places,
    program_text,
    remark,
    row_cells,
    told,
)
from hlo_lens.facts import Finding
from hlo_lens.facts.findings import Level
from hlo_lens.present.quantities import visible

Json = dict[str, Any]

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_ROOT: Final = "%SRCROOT%"
_MOST_TEXT: Final = 1024  # characters of a description that GitHub takes


def sarif_text(checked: Sequence[Checked], fail_on: Level, problems: Sequence[str]) -> str:
    """The report, one run for all programs."""
    space = workspace()
    rules = _Rules(checked)
    results = [
        *(_of_verdict(space, rules, one, each) for one, each in _not_passed(checked)),
        *(
            _of_finding(space, rules, one, each, where)
            for one in checked
            for each, where in _findings(one)
        ),
    ]
    _fingerprint(space, results)
    code = exit_code(checked, fail_on, problems)
    run = {
        "tool": {
            "driver": {
                "name": "hlolens",
                "fullName": "hlolens check",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": rules.described,
            }
        },
        "invocations": [
            {
                "executionSuccessful": code != 2,
                "exitCode": code,
                "toolExecutionNotifications": list(_notifications(rules, checked, problems)),
            }
        ],
        "originalUriBaseIds": {_ROOT: {"uri": f"{space.root.as_uri().rstrip('/')}/"}},
        "artifacts": list(_artifacts(space, checked)),
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _not_passed(checked: Sequence[Checked]) -> Iterator[tuple[Checked, Verdict]]:
    return ((one, each) for one in checked for each in one.verdicts if each.outcome != "passed")


def _findings(checked: Checked) -> Iterator[tuple[Finding, Place]]:
    where = places(checked)
    return ((each, where[each]) for each in (*checked.failing, *checked.others))


# --- rules -----------------------------------------------------------------------------------


class _Rules:
    """What was judged, each once: expectations by kind and id, the rules of findings by theirs."""

    def __init__(self, checked: Sequence[Checked]) -> None:
        self.described: list[Json] = []
        self._index: dict[str, int] = {}
        for one in checked:
            for verdict in one.verdicts:
                self._add(_rule_id(verdict), _rule_of(verdict))
            for id in (*one.rules, *(each.rule for each in (*one.failing, *one.others))):
                rule = one.facts.registry.rules[id]
                text = f"{rule.doc}\n\nhlolens rules {id}"
                self._add(id, _description(rule.summary, rule.doc, text, rule.level))

    def _add(self, id: str, described: Json) -> None:
        if id not in self._index:
            self._index[id] = len(self.described)
            self.described.append({"id": id, **described})

    def reference(self, id: str) -> Json:
        """How a result says which rule it is of."""
        return {"ruleId": id, "ruleIndex": self._index[id]}

    def associated(self, id: str) -> Json:
        """How a notification says it."""
        return {"associatedRule": {"id": id, "index": self._index[id]}}


def _rule_id(verdict: Verdict) -> str:
    """Apart from the ids of rules of findings, which have no slash."""
    return visible(f"{verdict.kind}/{verdict.id}")


def _rule_of(verdict: Verdict) -> Json:
    because = visible(" ".join(verdict.because.split()))
    lines = [f"because: {because}"] if because else []
    lines += [f"{verdict.kind} of {visible(verdict.place)}"] if verdict.place else []
    text = "\n".join([visible(verdict.expected), *lines])
    return _description(verdict.expected, because or verdict.expected, text, verdict.severity)


def _description(short: str, full: str, help: str, level: str) -> Json:
    return {
        "shortDescription": {"text": _at_most(short)},
        "fullDescription": {"text": _at_most(full)},
        "help": {"text": help},
        "defaultConfiguration": {"level": level},
    }


def _at_most(text: str) -> str:
    line = visible(" ".join(text.split())) or "-"
    return line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 1]}…"


# --- results ---------------------------------------------------------------------------------


def _of_verdict(space: Workspace, rules: _Rules, checked: Checked, verdict: Verdict) -> Json:
    rows = [list(row_places(checked, verdict, row)) for row in verdict.offenders]
    found = [each for of_row in rows for each in of_row]
    texts = [text_place(checked, verdict.module, row.text_line) for row in verdict.offenders]
    sources = [each for each in found if each not in texts]
    related = list(dict.fromkeys(found))
    ids = {each: number for number, each in enumerate(related, 1)}
    links = [next((ids[each] for each in of_row if space.inside(each.file)), 0) for of_row in rows]
    written = file_line(verdict.place)
    primary = first_inside(space, *sources, written, *texts)
    return {
        **rules.reference(_rule_id(verdict)),
        **(
            {"kind": "open", "level": "none"}
            if verdict.outcome == "not judged"
            else {"kind": "fail", "level": verdict.severity}
        ),
        "message": {"text": _message(checked, verdict, links)},
        **_locations(space, checked, verdict.module, primary, written),
        "relatedLocations": [
            {"id": ids[each], "physicalLocation": _physical(space, each)} for each in related
        ],
        "partialFingerprints": {
            "verdict/v1": _digest(checked.facts.program.name, _rule_id(verdict))
        },
    }


def _message(checked: Checked, verdict: Verdict, links: Sequence[int]) -> str:
    lines = [f"{program_text(checked)}: {visible(verdict.id)} {verdict.outcome}"]
    for word, (first, *others) in told(verdict):
        lines += [_no_link(f"{word}: {first}"), *(_no_link(f"  {each}") for each in others)]
    for row, link in zip(verdict.offenders, links, strict=True):
        name, *cells = map(_no_link, row_cells(row))
        lines.append("  ".join(filter(None, (f"[{name}]({link})" if link else name, *cells))))
    lines += filter(
        None, (more_rows(verdict, len(verdict.offenders)), _no_link(visible(verdict.command)))
    )
    return "\n".join(lines)


def _no_link(text: str) -> str:
    """Text in which no bracket begins a link (SARIF 2.1.0, 3.11.6)."""
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")


def _of_finding(
    space: Workspace, rules: _Rules, checked: Checked, finding: Finding, place: Place
) -> Json:
    source = file_line(place.source)
    text = text_place(checked, finding.module, place.text_line)
    primary = first_inside(space, source, text)
    related = [each for each in (source, text) if each is not None and each.line is not None]
    help = f"\nhelp: {visible(finding.help)}" if finding.help else ""
    return {
        **rules.reference(finding.rule),
        "kind": "fail",
        "level": finding.level,
        "message": {
            "text": f"{program_text(checked)}: {_no_link(visible(finding.message) + help)}"
        },
        **_locations(space, checked, finding.module, primary, text),
        "relatedLocations": [
            {"id": number, "physicalLocation": _physical(space, each)}
            for number, each in enumerate(related, 1)
        ],
        "partialFingerprints": {
            "finding/v1": _digest(
                checked.facts.program.name, finding.rule, *_likeness(checked, finding)
            )
        },
    }


def _locations(
    space: Workspace,
    checked: Checked,
    module: int | None,
    primary: FileLine | None,
    otherwise: FileLine | None,
) -> Json:
    """Where a result is shown, and which artifact it is about where that is another. `primary` is
    in the checkout; without it, the HLO text or `otherwise`, and for a text of no file its name."""
    target = text_place(checked, module, None)
    name = FileLine(checked.facts.program.name or "module")
    shown = primary or target or otherwise or name
    about, at = (_artifact_location(space, each.file) for each in (target or name, shown))
    return {
        "locations": [{"physicalLocation": _physical(space, shown)}],
        **({} if about == at else {"analysisTarget": about}),
    }


def _physical(space: Workspace, place: FileLine) -> Json:
    region = {"startLine": place.line or 1}
    return {"artifactLocation": _artifact_location(space, place.file), "region": region}


def _artifact_location(space: Workspace, file: str) -> Json:
    """A path in the checkout from its root; another one as it is."""
    inside = space.inside(file)
    if inside is not None:
        return {"uri": quote(os.fsencode(inside)), "uriBaseId": _ROOT}
    if os.path.isabs(file):
        return {"uri": Path(file).as_uri()}
    return {"uri": quote(file.encode(errors="replace"))}


def _artifacts(space: Workspace, checked: Iterable[Checked]) -> Iterator[Json]:
    """The HLO texts, each once."""
    seen: set[str] = set()
    for one in checked:
        for position, module in enumerate(one.facts.program.modules):
            place = text_place(one, position, None)
            if place is not None and place.file not in seen:
                seen.add(place.file)
                yield {
                    "location": _artifact_location(space, place.file),
                    "roles": ["analysisTarget"],
                    "hashes": {"sha-256": module.sha256},
                }


# --- fingerprints ----------------------------------------------------------------------------


def _likeness(checked: Checked, finding: Finding) -> Iterator[str]:
    """What an instruction is, but for its name."""
    program = checked.facts.program
    if finding.module is None:
        return
    yield program.stages[finding.module]
    if finding.instr is not None:
        instruction = program.modules[finding.module].instruction(finding.instr)
        yield instruction.opcode
        yield instruction.shape_text
        yield instruction.op_name or ""
        yield instruction.source or ""


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:32]


def _fingerprint(space: Workspace, results: Iterable[Json]) -> None:
    """Number what is alike, in the order of the report, and say it for GitHub where its upload
    cannot."""
    seen: Counter[str] = Counter()
    for result in results:
        prints: dict[str, str] = result["partialFingerprints"]
        ((name, digest),) = list(prints.items())
        seen[digest] += 1
        prints[name] = f"{digest}:{seen[digest]}"
        place = result["locations"][0]["physicalLocation"]["artifactLocation"]
        if "uriBaseId" not in place:
            prints["primaryLocationLineHash"] = prints[name]


# --- notifications ---------------------------------------------------------------------------


def _notifications(
    rules: _Rules, checked: Sequence[Checked], problems: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    for problem in problems:
        yield _notification("error", "\n".join(lines_of(problem)))
    for one in checked:
        name = program_text(one)
        for why in one.broken:
            yield _notification("error", f"{name}: {visible(why)}")
        for verdict in one.verdicts:
            of_rule = rules.associated(_rule_id(verdict))
            text = f"{name}: {visible(verdict.id)} {verdict.outcome}"
            if verdict.outcome == "passed":
                passed = ": ".join(filter(None, (text, remark(verdict))))
                yield {**_notification("none", passed), **of_rule}
            elif verdict.outcome == "not judged":
                yield {**_notification("error", f"{text}: {visible(verdict.why)}"), **of_rule}


def _notification(level: str, text: str) -> Json:
    return {"level": level, "message": {"text": _no_link(text)}}
