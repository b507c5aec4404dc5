"""CHECK lines, run by the `filecheck` package on the canonical text of a program."""

from __future__ import annotations

from hlo_lens.check.model import Verdict
from hlo_lens.facts import Facts


def file_checked(facts: Facts, file: str) -> Verdict:
    """The verdict of a FileCheck file on the module that runs."""
    raise NotImplementedError
