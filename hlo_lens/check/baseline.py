"""No change against a program that is known to be good, but for what is meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hlo_lens.check.model import Verdict
from hlo_lens.facts import Facts, Registry


@dataclass(frozen=True, slots=True)
class Allowed:
    """A change that is meant: of these columns of a table, or of all of it where there are none."""

    table: str
    columns: tuple[str, ...] = ()


def allowed_change(text: str, registry: Registry) -> Allowed:
    """What `TABLE` or `TABLE:COLUMN,…` allows. Raises `InputError` for what does not exist."""
    raise NotImplementedError


def unchanged(good: Facts, facts: Facts, allowed: Sequence[Allowed]) -> Iterator[Verdict]:
    """A verdict for each compared table, and one for the instructions."""
    raise NotImplementedError
