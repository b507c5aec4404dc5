"""Properties of the reader: print and read again, and never anything but HloParseError."""

from __future__ import annotations

import random
import re
import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo_lens.hlo import HloParseError, Module, parse
from tests.hlo.features import FEATURES
from tests.hlo.module_generator import module_text
from tests.shared import needs_shared, texts

few = settings(
    max_examples=60, deadline=2000, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
many = settings(few, max_examples=400)

randoms = st.randoms(use_true_random=False)
FEATURE_TEXTS = [feature.text for feature in FEATURES.values()]
# Words and marks of the grammar: random texts from these get further than random characters.
PIECES = st.sampled_from(
    [
        *"{}()[],=%#:\"'\n *?-",
        *("HloModule", "ENTRY", "ROOT", "m", "p", "parameter", "add", "f32[2]", "f32", "->", "<="),
        *("/*", "*/", "//", "\\", "constant", "calls", "to_apply", "metadata", "0", "1.5", "while"),
        *("FileNames", "StackFrames", "negate-start", "(s32[], ", "{...}", "sharding", "é", "\x00"),
    ]
)


def read_or_refuse(text: str) -> Module | None:
    """The module, looked at from all sides, or None where the text is refused in order."""
    try:
        module = parse(text)
    except HloParseError as error:
        error.render()
        return None
    module.expanded()
    with suppress(HloParseError):  # a value that was broken stays so
        parse(module.to_text())
    for computation in module.computations:
        for instruction in computation.instructions:
            assert instruction.operands is not None
            assert instruction.users is not None
            assert instruction.called_by is not None
            assert repr(instruction)
    return module


@few
@given(randoms)
def test_printed_modules_read_back(r: random.Random) -> None:
    module = parse(module_text(r))
    printed = module.to_text()
    again = parse(printed)
    assert again.to_text() == printed
    assert sorted(again.expanded()) == sorted(module.expanded())
    assert dict(again.header) == dict(module.header)
    assert again.frames == module.frames
    assert [each.name for each in again.computations] == [each.name for each in module.computations]
    assert again.entry.name == module.entry.name
    assert again.repairs == ()


@pytest.mark.parametrize("name", FEATURES)
def test_printed_features_read_back(name: str) -> None:
    module = parse(FEATURES[name].text)
    printed = module.to_text()
    again = parse(printed)
    assert again.to_text() == printed
    assert sorted(again.expanded()) == sorted(module.expanded())


@few
@given(randoms)
def test_every_value_of_a_module_can_be_read(r: random.Random) -> None:
    for computation in parse(module_text(r)).computations:
        for instruction in computation.instructions:
            assert instruction.shape.bytes is not None or instruction.shape_text == ""
            assert instruction.metadata is None or instruction.metadata.op_name
            assert instruction.backend_config is None or instruction.backend_config.raw
            assert instruction.literal is None or instruction.literal.elided in (True, False)
            assert instruction.sharding is None
            assert instruction.replica_groups is None or instruction.replica_groups.form
            assert ", ".join(instruction.attributes) or instruction.tail == ""


@many
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    read_or_refuse(data.decode("utf-8", "surrogateescape"))


@many
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    read_or_refuse(text)


@many
@given(st.lists(PIECES, max_size=40).map(" ".join))
def test_any_words(text: str) -> None:
    read_or_refuse(text)
    read_or_refuse(text.replace(" ", ""))


@many
@given(st.lists(PIECES, max_size=12).map("".join), st.integers(0, 6), st.integers(0, 3))
def test_any_words_in_a_computation(words: str, before: int, behind: int) -> None:
    """Somewhere in `HloModule m ENTRY e { p = f32[2] parameter(0) … }`."""
    start = ["HloModule m\n", "ENTRY e ", "{\n", "p = f32[2] ", "parameter(0)", "\n", "q = "]
    end = ["", "}\n", "\n}\n", ', metadata={op_name="x"}\n}\n']
    read_or_refuse("".join(start[: before + 1]) + words + end[behind])


@many
@given(st.sampled_from(FEATURE_TEXTS), randoms)
def test_damaged_features(text: str, r: random.Random) -> None:
    read_or_refuse(damaged(text, r))


@few
@given(randoms)
def test_damaged_modules(r: random.Random) -> None:
    read_or_refuse(damaged(module_text(r, instructions=6), r))


@needs_shared
@few
@given(randoms)
def test_damaged_real_texts(r: random.Random) -> None:
    text = r.choice(texts("cases/*.hlo")).read_text()
    start = r.randrange(len(text) // 2)
    read_or_refuse(damaged(text[: start + 3000], r))


def damaged(text: str, r: random.Random, *, keep: str = "") -> str:
    """`text` after one to three cuts, swaps or doublings of its words, but none of `keep`."""
    words = re.findall(r"\w+|\s+|.", text)
    for _ in range(r.randint(1, 3)):
        loose = [at for at, word in enumerate(words) if word not in keep or not keep]
        at, other = r.choice(loose), r.choice(loose)
        change = r.randrange(4)
        if change == 0:
            del words[at]
        elif change == 1:
            words[at], words[other] = words[other], words[at]
        elif change == 2:
            words.insert(at, words[other])
        else:
            words.insert(at, r.choice([mark for mark in "{}()[],=%#\"'/*\\\n" if mark not in keep]))
        words = words or ["{"]
    return "".join(words)


@pytest.mark.parametrize(
    "part",
    [
        "{", "(", "[", "((", "{{", '"', "'", "/*", "//", "\\", "%", "a(", "f32[2] add(", "x = ",
        "a = b(", "{ a = f(), to_apply=", "f32[", "b(", "p#0", "(f32[], ", "mesh[", "\n}", "}\n",
        "ENTRY e { p = f32[] parameter(0)\n", "I0521 12:04:45.883483 1509 service.cc:186] ",
        "HloModule m, a={", "StackFrames\n1 {", "x = f32[] constant({", "...",
    ],
)  # fmt: skip
@pytest.mark.parametrize("around", ["", "HloModule m\nENTRY e {\n", "ENTRY e { p = f32[] add("])
def test_deep_and_long_repetition_ends(part: str, around: str) -> None:
    """No recursion error, and no time that grows with the square of the length."""
    read_or_refuse(around + part * 3000)
    read_or_refuse(around + part * 3000 + "}" * 3000)


def seconds(text: str, *, fast: bool) -> float:
    """Processor time, the best of three: other processes must not count."""
    times = []
    for _ in range(3):
        start = time.process_time()
        parse(text, fast=fast).expanded()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    "line",
    [
        "  %a.{} = f32[4]{{0}} negate(%p), metadata={{op_name=\"x\"}}\n",
        "  a.{} = f32[4] add(negate(p), p#0)\n",
        "  a.{} = f32[4] map(p), to_apply={{ x = f32[] parameter(0) y = f32[] negate(x) }}\n",
        "  a.{} = ((f32[4]), f32[4]) slice-start(p), slice={{[0:4]}}\n",
        "  ROOT %r = f32[] copy(p)\n}}\n%c{} {{\n  p = f32[] parameter(0)\n",
    ],
)  # fmt: skip
def test_time_grows_with_the_length(line: str, fast: bool) -> None:
    """Eight times the text takes less than forty times the time; a square would take 64."""

    def text(lines: int) -> str:
        middle = "".join(line.format(number) for number in range(lines))
        return f"HloModule m\n\nENTRY %e {{\n  p = f32[4] parameter(0)\n{middle}}}\n"

    assert seconds(text(4000), fast=fast) < 40 * seconds(text(500), fast=fast)
