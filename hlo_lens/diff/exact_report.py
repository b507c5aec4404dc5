"""What an exact comparison says, before it is laid out: the verdict, and where the sides part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hlo_lens.diff.exact import By, Parting, Place, elided_literals
from hlo_lens.hlo import Module
from hlo_lens.present.quantities import count_text, visible
from hlo_lens.present.reading import place_of
from hlo_lens.program import Program

_COMPARED = {
    "program": "Compared without names, ids, metadata and source locations of kernels; the order "
    "of instructions counts where the text is scheduled.",
    "text": "Compared line by line, without metadata and frame tables.",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A place as it is shown: file, line and computation; its text, None past the end."""

    where: str
    text: str | None = None
    column: int = 0

    def around(self, width: int) -> tuple[str, int]:
        """The text cut to about `width` around the column, and where the column is in that.

        The name that the line begins with stays.
        """
        assert self.text is not None
        before, behind = visible(self.text[: self.column]), visible(self.text[self.column :])
        if len(before) > width * 2 // 3:
            name, equals, _ = before.partition(" = ")
            head = f"{name}{equals}…" if equals and len(name) < width // 3 else "…"
            before = head + before[-(width * 2 // 3 - len(head)) :]
        if len(before) + len(behind) > width:
            behind = f"{behind[: width - len(before) - 1]}…"
        return before + behind, len(before)


@dataclass(frozen=True, slots=True)
class ExactReport:
    """What is said of two programs; of each stage its name, the verdict and where they part."""

    same: bool
    headline: str
    old: str
    new: str
    notes: tuple[str, ...]
    stages: tuple[tuple[str, str, tuple[Shown, ...]], ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """The modules of one stage, and where they part; None where they are the same."""

    name: str
    old: Module
    new: Module
    parting: Parting | None


def exact_report(by: By, old: Program, new: Program, stages: Sequence[Stage]) -> ExactReport:
    """What there is to say about an exact comparison."""
    apart = [stage.name for stage in stages if stage.parting is not None]
    headline = f"{'different' if apart else 'same'} {by}"
    if apart and len(stages) > 1:
        headline += f" in {' and '.join(map(visible, apart))}"
    return ExactReport(
        not apart,
        headline,
        place_of(old, [old.index(stage.old) for stage in stages]),
        place_of(new, [new.index(stage.new) for stage in stages]),
        (_COMPARED[by], *_notes(stages)),
        tuple((stage.name, _verdict(stage), _places(stage)) for stage in stages),
    )


def _verdict(stage: Stage) -> str:
    if stage.parting is not None:
        return stage.parting.message
    return f"the same {count_text(stage.old.instruction_count)} instructions"


def _places(stage: Stage) -> tuple[Shown, ...]:
    if stage.parting is None:
        return ()
    return (
        _shown("old", stage.old, stage.parting.old),
        _shown("new", stage.new, stage.parting.new),
    )


def _shown(name: str, module: Module, place: Place | None) -> Shown:
    file = module.filename or name
    if place is None:
        return Shown(visible(f"{file}: ended"))
    inside = f" in {place.computation}" if place.computation else ""
    return Shown(visible(f"{file}:{place.line}{inside}"), place.text, place.column)


def _notes(stages: Iterable[Stage]) -> Iterator[str]:
    """What is not in the texts, so that nothing is said of it."""
    for stage in stages:
        elided = elided_literals(stage.old)
        if stage.parting is None and elided:
            yield (
                f"{stage.name}: constants that the text elides as {{...}}, whose values are not"
                f" compared: {count_text(elided)}"
            )
        if stage.old.truncated or stage.new.truncated:
            yield f"{stage.name}: a text is cut off, and compared as far as it goes"
