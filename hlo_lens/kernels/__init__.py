"""Which kernels a program runs, in which pass, how often, and what each is called with."""

from __future__ import annotations

from hlo_lens.kernels.report import Report, kernels_report
from hlo_lens.kernels.rows import Filters
from hlo_lens.present.chosen import NoSuchNameError
from hlo_lens.present.reading import NotReadError

__all__ = ["Filters", "NoSuchNameError", "NotReadError", "Report", "kernels_report"]
