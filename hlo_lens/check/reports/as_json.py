"""The outcome as JSON: everything that a verdict has, in a shape that does not change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from hlo_lens import __version__
from hlo_lens.check.gate import Checked, exit_code
from hlo_lens.check.model import Verdict
from hlo_lens.check.wording import places
from hlo_lens.facts import SCHEMA_VERSION
from hlo_lens.facts.findings import Level
from hlo_lens.present.findings import finding_data

CHECK_VERSION = 1


def json_text(checked: Sequence[Checked], fail_on: Level, problems: Sequence[str]) -> str:
    """The report as text; see `outcome_data`."""
    return json.dumps(outcome_data(checked, fail_on, problems), indent=2, ensure_ascii=False) + "\n"


def outcome_data(
    checked: Sequence[Checked], fail_on: Level, problems: Sequence[str]
) -> dict[str, object]:
    """`{"check_version", "schema_version", "hlolens_version", "exit_code", "fail_on", "problems",
    "programs"}`.

    problems: what could not be done at all, as sentences. exit_code: of what is in here; 0 passed,
    1 failed, 2 not everything could be judged. Each program has:

    - "name", and "module": the position of the module that runs in "modules", each with "stage",
      "file" (null: of no file) and "sha256" of its text
    - "verdicts": "id", "kind" (expectation, baseline, filecheck), "table" ("": of none), "outcome"
      (passed, failed, not judged), "severity", "expected", "found", "why" it is not judged,
      "because", "place" where it is written, "nearest", "command", "module", "against": the number
      of rows against it, and "rows": the first of them, with "id", "name", "source", "text_line"
      and "text"
    - "rules": the ids of the rules of findings that were judged
    - "findings": "rule", "level", "fails" (at or above "fail_on"), "message", "help", "module",
      "instr", "name", "source", "text_line"
    - "broken": why passes did not run

    Texts are "" and values null where there is nothing to say; names are as in the program, with no
    character escaped. A change of meaning changes check_version.
    """
    return {
        "check_version": CHECK_VERSION,
        "schema_version": SCHEMA_VERSION,
        "hlolens_version": __version__,
        "exit_code": exit_code(checked, fail_on, problems),
        "fail_on": fail_on,
        "problems": list(problems),
        "programs": [_program(one) for one in checked],
    }


def _program(checked: Checked) -> dict[str, object]:
    program = checked.facts.program
    main = program.index(program.main)
    return {
        "name": program.name,
        "module": main,
        "modules": [
            {"stage": stage, "file": module.filename, "sha256": module.sha256}
            for stage, module in zip(program.stages, program.modules, strict=True)
        ],
        "verdicts": [_verdict(one, main) for one in checked.verdicts],
        "rules": list(checked.rules),
        "findings": list(_findings(checked)),
        "broken": list(checked.broken),
    }


def _verdict(verdict: Verdict, main: int) -> dict[str, object]:
    data = asdict(verdict)
    rows = data.pop("offenders")
    del data["stage"]  # "module" says it
    module = main if verdict.module is None else verdict.module
    return {**data, "module": module, "rows": list(rows)}


def _findings(checked: Checked) -> Iterator[dict[str, object]]:
    where = places(checked)
    for finding in (*checked.failing, *checked.others):
        place = where[finding]
        yield {
            **finding_data(finding),
            "fails": finding in checked.failing,
            "name": place.name,
            "source": place.source,
            "text_line": place.text_line,
        }
