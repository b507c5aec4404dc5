"""Facts: the typed tables passes fill, the findings they report, and the runner that asks them."""

from hlo_lens.facts.columns import COMMON, FINDINGS, MEMBERS, Column, Table
from hlo_lens.facts.context import common, common_row
from hlo_lens.facts.findings import Finding, Rule
from hlo_lens.facts.passes import Member, Pass, PassResult, Row
from hlo_lens.facts.runner import (
    ENTRY_POINT_GROUP,
    Facts,
    Registry,
    UnknownTableError,
    discover_passes,
    register,
)
from hlo_lens.facts.summary import Cell, Lane, LaneName, Measure, Summary

SCHEMA_VERSION = 1
"""Raised when a table or column changes its meaning or goes; not when one is added."""

__all__ = [
    "COMMON",
    "ENTRY_POINT_GROUP",
    "FINDINGS",
    "MEMBERS",
    "SCHEMA_VERSION",
    "Cell",
    "Column",
    "Facts",
    "Finding",
    "Lane",
    "LaneName",
    "Measure",
    "Member",
    "Pass",
    "PassResult",
    "Registry",
    "Row",
    "Rule",
    "Summary",
    "Table",
    "UnknownTableError",
    "common",
    "common_row",
    "discover_passes",
    "register",
]
