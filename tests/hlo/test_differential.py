"""Our reader against XLA's own parser, on small texts and on random modules."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo_lens.hlo import HloParseError, parse
from tests.hlo.features import FEATURES
from tests.hlo.module_generator import module_text
from tests.hlo.reference_parser import needs_jax, reference_answers, too_new
from tests.shared import texts

pytestmark = needs_jax


def is_read(text: str) -> bool:
    try:
        parse(text)
    except HloParseError:
        return False
    return True


def differences(sources: dict[str, str]) -> dict[str, str]:
    """Texts that the reference takes and we refuse, read otherwise, or print so that it differs."""
    answers = dict(zip(sources, reference_answers(list(sources.values())), strict=True))
    taken = {name: text for name, text in sources.items() if answers[name].structure is not None}
    found = {name: text for name, text in taken.items() if not is_read(text)}
    taken = {name: text for name, text in taken.items() if name not in found}
    printed = {name: parse(text).to_text() for name, text in taken.items()}
    again = dict(zip(printed, reference_answers(list(printed.values())), strict=True))
    for name, text in taken.items():
        ours = parse(text).expanded()
        theirs = answers[name].structure
        assert theirs is not None
        if ours != theirs:
            found[name] = f"read otherwise\n{ours}\n{theirs}\n{text}"
        elif again[name].structure is None:
            found[name] = f"print refused: {again[name].error}\n{printed[name]}"
        elif sorted(again[name].structure or ()) != sorted(theirs):
            found[name] = f"printed otherwise\n{printed[name]}"
    return found


def test_feature_texts() -> None:
    assert differences({name: feature.text for name, feature in FEATURES.items()}) == {}


def test_which_feature_texts_the_reference_takes() -> None:
    answers = reference_answers([feature.text for feature in FEATURES.values()])
    taken = [
        name for name, answer in zip(FEATURES, answers, strict=True) if answer.structure is not None
    ]
    assert taken == [
        name for name, feature in FEATURES.items() if feature.xla and not too_new(feature.text)
    ]


def test_random_modules() -> None:
    drawn = {str(seed): module_text(random.Random(seed)) for seed in range(300)}
    sources = {seed: text for seed, text in drawn.items() if not too_new(text)}
    assert all(answer.structure for answer in reference_answers(list(sources.values())))
    assert differences(sources) == {}


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.randoms(use_true_random=False), min_size=5, max_size=5))
def test_drawn_modules(sources: list[random.Random]) -> None:
    assert differences({str(n): module_text(r) for n, r in enumerate(sources)}) == {}


def test_real_texts() -> None:
    """Dumps of GPU compilers, and the case files."""
    paths = [
        *texts("cases/*.hlo", "dumps/gpu-aot/*.txt"),
        *texts("gfx950/**/*.txt")[::7],
    ]
    assert differences({str(path): path.read_text() for path in paths}) == {}


def test_texts_that_kill_the_reference_are_isolated() -> None:
    fine = "HloModule m\nENTRY e { ROOT x = f32[] constant(1) }"
    # The shape should be unsigned; jaxlib 0.11 dies of it.
    deadly = "HloModule m\nENTRY e { ROOT p = s32[] partition-id(), sharding={manual} }"
    answers = reference_answers([fine, deadly, fine])
    assert [answer.error for answer in answers] == ["", "crashed", ""]
