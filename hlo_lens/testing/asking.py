"""The database that the statements about one program ask: filled once, by the first."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.facts.sqlite import Database

__tracebackhide__ = True


class Asked:
    """A program that is asked several times.

    The database is opened when something is asked, and closed when nobody holds this any more, or
    by `close`. Threads ask one after the other.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._lock = threading.RLock()
        self._database: Database | None = None
        self._closing: weakref.finalize[Any, Any] | None = None

    @contextmanager
    def database(self) -> Iterator[Database]:
        """The database, for as long as the block runs."""
        from hlo_lens.facts.sqlite import Database

        with self._lock:
            if self._database is None:
                self._database = Database((self.facts,))
                self._closing = weakref.finalize(self, self._database.close)
            try:
                yield self._database
            except BaseException:  # it may have ended while a table was being filled
                self.close()
                raise

    def close(self) -> None:
        """Let go of the tables; what is asked next opens them again."""
        with self._lock:
            if self._closing is not None:
                self._closing()
            self._database = self._closing = None
