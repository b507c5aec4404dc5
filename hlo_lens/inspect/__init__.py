"""The report on a program: what it is, what its tables hold in groups, what there is to say."""

from hlo_lens.inspect.data import as_data
from hlo_lens.inspect.markdown import as_markdown
from hlo_lens.inspect.report import Head, Report, Section, Told, report
from hlo_lens.inspect.terminal import as_lines

__all__ = [
    "Head",
    "Report",
    "Section",
    "Told",
    "as_data",
    "as_lines",
    "as_markdown",
    "report",
]
