"""Public HLO of 2018 to 2026: every text is read as XLA reads it."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from hlo_lens.hlo import HloParseError, parse
from tests.shared import needs_shared, unpacked

pytestmark = needs_shared

CHUNKS = 8

# Texts that XLA refuses and the reader too, with the reason; the others that XLA refuses are read.
REFUSED = {
    "expected_error": {
        "other/03818.hlo": "an operand that is not defined",
        "other/03822.hlo": "`p#-1`: a negative tuple index",
        "other/03886.hlo": "a comment that never ends",
        "other/03893.hlo": "a brace that never closes, two instructions to a half",
        "other/03903.hlo": "an operand that is not defined",
    },
    "syntax_other": {
        "other/14128.hlo": "an operand that is not defined",
        "other/14337.hlo": "an operand that is not defined",
    },
    "semantic_or_version": {
        "other/07563.hlo": "a template: the word OTHER_ATTRIBUTES stands for attributes",
        "other/07570.hlo": "a template: the word OTHER_ATTRIBUTES stands for attributes",
        "other/14364.hlo": "one name for two instructions of a computation",
    },
    "truncated_or_fragment": {"other/08034.hlo": "cut off before the first instruction"},
    "fragment_missing_computation": {},
    "ref_crash": {},
}


@cache
def folder() -> Path:
    return unpacked("corpus/hlo-corpus.tar.xz")


@cache
def records() -> list[dict]:
    return [json.loads(line) for line in (folder() / "oracle.jsonl").read_text().splitlines()]


def read(file: str) -> str:
    return (folder() / file).read_bytes().decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_valid_texts_equal_the_oracle(chunk: int) -> None:
    """Per computation, opcodes and operand positions are those of XLA's own parser."""
    wrong = []
    compared = 0
    for record in records()[chunk::CHUNKS]:
        if record["class"] != "valid":
            continue
        module = parse(read(record["file"]), filename=record["file"])
        if "computations" in record:
            compared += 1
            expected = [[(op, tuple(to)) for op, to in body] for body in record["computations"]]
            if [list(body) for body in module.expanded()] != expected:
                wrong.append(record["file"])
        else:
            assert module.expanded()
    assert compared
    assert wrong == []


def test_there_are_all_valid_texts() -> None:
    valid = [record for record in records() if record["class"] == "valid"]
    assert len(valid) == 6444
    assert sum("computations" in record for record in valid) == 6441


@pytest.mark.parametrize("kind", REFUSED)
def test_other_texts_are_read_or_refused_with_a_sentence(kind: str) -> None:
    refused = {}
    for record in records():
        if record["class"] != kind:
            continue
        try:
            parse(read(record["file"])).expanded()
        except HloParseError as error:
            refused[record["file"]] = str(error)
    assert refused.keys() == REFUSED[kind].keys(), refused


def test_there_are_all_other_texts() -> None:
    assert Counter(r["class"] for r in records() if r["class"] != "valid") == {
        "semantic_or_version": 130,
        "expected_error": 59,
        "truncated_or_fragment": 13,
        "ref_crash": 13,
        "syntax_other": 9,
        "fragment_missing_computation": 9,
    }


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_valid_texts_survive_printing(chunk: int) -> None:
    for record in records()[chunk::CHUNKS]:
        if record["class"] == "valid" and record["bytes"] < 200_000:
            module = parse(read(record["file"]))
            again = parse(module.to_text(), filename=record["file"])
            # Inline computations are printed in front of their callers.
            assert sorted(again.expanded()) == sorted(module.expanded()), record["file"]
