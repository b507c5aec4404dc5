"""A report about one topic on an output, in the format that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from hlo_lens.cli.common import write_json
from hlo_lens.cli.page import width_of, write_lines

if TYPE_CHECKING:
    from hlo_lens.present.report import Report

Columns = tuple[tuple[str, ...], list[tuple[object, ...]]]


def write_report(
    report: Report,
    topic: str,
    output_format: str,
    stream: IO[str],
    data: Callable[[], dict[str, object]],
    columns: Callable[[], Columns] | None = None,
    *,
    of_a_rule: int = 0,
) -> None:
    """Write it: `data` for JSON, `columns` (names and rows) for CSV, which not every topic has.
    `of_a_rule`: how many findings of one rule a reader is told (0: all)."""
    if output_format == "json":
        write_json(data(), stream)
    elif output_format == "csv" and columns is not None:
        from hlo_lens.facts.sqlite import QueryResult
        from hlo_lens.query import as_csv

        names, rows = columns()
        stream.write(as_csv(QueryResult(names, rows)))
    elif output_format == "markdown":
        from hlo_lens.present.markdown import as_markdown

        stream.write(as_markdown(report, topic, of_a_rule=of_a_rule))
    else:
        from hlo_lens.present.terminal import as_lines

        write_lines(as_lines(report, width=width_of(stream), of_a_rule=of_a_rule), stream)
