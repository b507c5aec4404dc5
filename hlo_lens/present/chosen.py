"""What a reader picks by name: words, loops; and what to say where a name means nothing."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from hlo_lens.present.cells import Cells

OUTSIDE: Final = "none"
"""What `--loop` calls the place outside of every loop, and `--phase` a phase that is not known."""

Place = tuple[int, object, object]
"""Module, loop (its instruction or None), and loop depth."""


class NoSuchNameError(ValueError):
    """What was picked is not there; the message says what is."""


def known_words(
    what: str,
    given: Sequence[str],
    known: Sequence[str],
    short: Mapping[str, str] | None = None,
    more: Collection[str] = (),
) -> tuple[str, ...]:
    """The words in full, by `short`. Raises `NoSuchNameError` for one that is neither among the
    `known` nor `more`, which is what a message need not list."""
    words = [(short or {}).get(word.lower(), word) for word in given]
    for word in words:
        if word not in known and word not in more:
            raise NoSuchNameError(f"no {what} {word!r}{hint(word, known)}")
    return tuple(words)


def in_loops(
    wanted: Sequence[str], places: Collection[Place], cells: Cells, what: str
) -> frozenset[Place]:
    """Which of the places are in a loop that is wanted: a name, a glob or `none`; what is in a loop
    in it counts too. `what` stands there, for the message.

    Raises `NoSuchNameError` where a name fits no loop that one of the places is in.
    """
    named = {place: _loops_around(place, cells) for place in places}
    known = list(dict.fromkeys(name for names in named.values() for name in names))
    for word in wanted:
        if not any(fits(name, (word,)) for name in known):
            raise NoSuchNameError(f"no {what} is in a loop {word!r}{hint(word, known)}")
    return frozenset(
        place for place, names in named.items() if any(fits(name, wanted) for name in names)
    )


def _loops_around(place: Place, cells: Cells) -> tuple[str, ...]:
    module, loop, depth = place
    if isinstance(loop, int):
        return tuple(one.instr.name for one in cells.loops(module).chain(loop))
    return (OUTSIDE,) if depth == 0 else ()


def fits(name: object, wanted: Sequence[str]) -> bool:
    """Whether a name is one of those wanted: the very name, or what a glob matches as a whole."""
    return isinstance(name, str) and any(name == word or fnmatchcase(name, word) for word in wanted)


def hint(name: str, known: Sequence[str]) -> str:
    """What may be meant, else what there is, behind a sentence."""
    listed = f"; there are {', '.join(known)}" if known else "; there are none"
    return close(name, known) or listed


def close(name: str, known: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or "" where nothing is close."""
    found = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
