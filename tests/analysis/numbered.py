"""The numbers of a text's values: how the tests of congruence ask."""

from __future__ import annotations

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.analysis.congruence import Congruence
from hlo_lens.hlo import parse


def congruence(text: str) -> Congruence:
    """A module, run on numbers."""
    found = Congruence(ModuleAnalysis(parse(text)))
    assert found.entry is not None
    return found


def numbers(text: str) -> dict[str, set[int]]:
    """Name -> the numbers it has, one for each place where its computation is called."""
    found: dict[str, set[int]] = {}
    for context in congruence(text).contexts():
        computation = context.evaluation.computation
        for index, number in enumerate(context.evaluation.values):
            found.setdefault(computation.name_of(index), set()).add(number)
    return found


def same(text: str, *names: str) -> bool:
    """Whether these instructions compute one value, somewhere."""
    known = numbers(text)
    return bool(set.intersection(*(known[name] for name in names)))
