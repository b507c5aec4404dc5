"""The collectives of a program in groups that the reader picks, and which to look at first."""

from __future__ import annotations

from hlo_lens.collectives.chosen import BY_DEFAULT, Filters, keys_named
from hlo_lens.collectives.report import Report, collectives_report
from hlo_lens.present.chosen import NoSuchNameError
from hlo_lens.present.reading import NotReadError

__all__ = [
    "BY_DEFAULT",
    "Filters",
    "NoSuchNameError",
    "NotReadError",
    "Report",
    "collectives_report",
    "keys_named",
]
