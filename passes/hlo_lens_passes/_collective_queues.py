"""How many collectives are under way where another one is issued, by the order of the schedule."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.hlo import Computation

_WITHIN: Final = frozenset(("body", "call", "branch"))
"""Calls whose callee has a schedule of its own, in the caller's place."""

Row = Mapping[str, object]


class Queues:
    """The collectives of one module in flight at each place, apart for each core.

    Collectives of a GPU share one stream, but for send and recv (AsyncStreamKind in XLA).
    """

    def __init__(self, analysis: ModuleAnalysis, rows: Iterable[Row]) -> None:
        self._module = analysis.module
        self._callers: dict[Computation, list[tuple[Computation, int]]] = {}
        for site in analysis.call_sites:
            if site.kind in _WITHIN:
                place = site.caller.computation, site.caller.index
                self._callers.setdefault(site.callee, []).append(place)
        starts: dict[tuple[Computation, str], list[int]] = {}
        ends: dict[tuple[Computation, str], list[int]] = {}
        for row in rows:
            start = row["start"]
            if not isinstance(start, int) or row["is_sync"] is True:
                continue
            begin = self._module.instruction(start)
            key = begin.computation, _queue(row)
            starts.setdefault(key, []).append(begin.index)
            ends.setdefault(key, []).append(self._end(row, begin.computation))
        self._starts = {key: sorted(found) for key, found in starts.items()}
        self._ends = {key: sorted(found) for key, found in ends.items()}

    def _end(self, row: Row, computation: Computation) -> int:
        """Where the done stands; the end of the computation where a loop carries it on."""
        done = row["done"]
        if isinstance(done, int):
            instr = self._module.instruction(done)
            if instr.computation is computation:
                return instr.index
        return len(computation.names)

    def before(self, row: Row) -> int | None:
        """How many others are started and not done where the one of `row` is started.

        In a loop or call also those that the caller has in flight around it. None where the order
        of the text is none, and where what calls the computation differs.
        """
        if not self._module.is_scheduled:
            return None
        id = row["start"] if isinstance(row["start"], int) else row["instr"]
        if not isinstance(id, int):
            return None
        instr = self._module.instruction(id)
        computation, index, count = instr.computation, instr.index, 0
        for _ in range(256):  # calls nest less deep; a text may call in a circle
            key = computation, _queue(row)
            started = bisect_left(self._starts.get(key, ()), index)
            count += started - bisect_right(self._ends.get(key, ()), index)
            callers = self._callers.get(computation)
            if callers is None:
                return count
            if len(callers) > 1:
                return None
            computation, index = callers[0]
        return None


def _queue(row: Row) -> str:
    if isinstance(core := row["core"], str):
        return core
    return "p2p" if row["kind"] in ("send", "recv") else "stream"
