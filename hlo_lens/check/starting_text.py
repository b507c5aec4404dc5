"""A starting expectation file as TOML that a person reads and edits."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator

from hlo_lens.check.presets import presets
from hlo_lens.check.starting import Starting
from hlo_lens.check.starting_words import Given
from hlo_lens.present.quantities import visible

_WIDTH = 100


def starting_text(found: Starting, *, stage: str | None = None) -> str:
    """The file, which `reading.read_text` reads; above each expectation stands what was found.
    stage: as it was asked for, which judging has to ask for too."""
    return "".join(f"{one}\n" for one in _lines(found, stage))


def _lines(found: Starting, stage: str | None) -> Iterator[str]:
    asked = "" if stage is None else f" --stage {stage}"
    yield from _comment(
        f"What {found.program} is, {found.stage}. `hlolens check PROGRAM{asked} --expect FILE` "
        "says whether a program is so still. Counts are exact, but for how many are overlapped or "
        "matched, a lower bound; bytes and FLOP are upper bounds without slack. Take out what need "
        "not stay, and say in `because` why the rest must."
    )
    if not found.named:
        yield from _comment("The text has no op_names, so that no phase is known or expected here.")
    taken: Counter[str] = Counter()
    for section in found.sections:
        yield ""
        yield from _comment(f"--- {section.title}")
        for text in section.left_out:
            yield from _comment(f"Left out, as {text}")
        for one in section.expected:
            yield ""
            yield from _comment(_found(one))
            yield "[[expect]]"
            yield from _keys({key: one[key] for key in one if key != "because"}, taken)


def _found(one: Given) -> str:
    """What was found; of a preset, what it expects."""
    if "preset" in one:
        return presets()[str(one["preset"])].summary
    return str(one.get("because", ""))


def _keys(one: Given, taken: Counter[str]) -> Iterator[str]:
    for key, value in one.items():
        if key == "id":
            taken[str(value)] += 1
            again = taken[str(value)]
            value = value if again == 1 else f"{value}-{again}"
        yield f"{key} = {_value(value)}"


def _value(value: object) -> str:
    """A bool or a text in TOML: a basic string, which is a JSON string without DEL."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> Iterator[str]:
    return iter(
        textwrap.wrap(
            visible(text), _WIDTH, initial_indent="# ", subsequent_indent="# ",
            break_long_words=False, break_on_hyphens=False,
        )
    )  # fmt: skip
