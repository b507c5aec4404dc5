"""The JSON Schema of expectation files: valid, as the page has it, and of one mind with the
reader."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo_lens.check.comparing import comparison, number_of_bytes
from hlo_lens.check.json_schema import json_schema
from hlo_lens.check.model import PERS, QUANTITIES, SEVERITIES
from hlo_lens.check.places import HERE
from hlo_lens.check.presets import presets
from hlo_lens.check.reading import KEYS, ExpectationError, expectation, read_text
from hlo_lens.facts import discover_passes
from tests.conftest import Ran

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = discover_passes(installed=False)
SCHEMA = json_schema(REGISTRY)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
PARAMETERS = [one for preset in presets().values() for one in preset.parameters]


def by_schema(content: object) -> bool:
    return bool(VALIDATOR.is_valid(content))


def by_reader(one: dict[str, Any]) -> bool:
    try:
        expectation(one, HERE, REGISTRY)
    except ExpectationError:
        return False
    return True


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_page_is_what_the_command_prints(cli: Any) -> None:
    """`hlolens schema --expect -o docs/expect.schema.json` makes it anew."""
    assert json.loads((ROOT / "docs" / "expect.schema.json").read_text()) == SCHEMA
    ran: Ran = cli("schema", "--expect")
    assert (ran.code, json.loads(ran.out)["title"]) == (0, SCHEMA["title"])
    assert cli("schema", "--expect", "loops").code == 2


def test_it_has_every_key_of_the_reader() -> None:
    assert set(SCHEMA["$defs"]["expectation"]["properties"]) == {*KEYS, *PARAMETERS}


def test_what_stands_in_a_file_is_valid() -> None:
    text = """
    version = 1

    [[expect]]
    table = "collectives"
    where = "in_backward_loop"
    sum = "wire_bytes"
    is = "<= 1.5 GiB"
    per = "step"

    [[expect]]
    preset = "residual-bytes"
    at_most = "4 GiB"
    severity = "warning"

    [[expect]]
    preset = "no-f32-matmul"
    count = 2
    """
    assert read_text(text.encode(), "gate.toml", REGISTRY)
    VALIDATOR.validate(tomllib.loads(text))


@pytest.mark.parametrize(
    "one",
    [
        {},
        {"table": "loops"},
        {"table": "loopz", "count": 1},
        {"table": "loops", "preset": "no-f32-matmul"},
        {"table": "loops", "count": 1, "any": True},
        {"table": "loops", "count": "1 GiB"},
        {"table": "loops", "count": True},
        {"table": "loops", "count": 1, "is": 1},
        {"table": "loops", "every": True},
        {"table": "loops", "none": False},
        {"table": "loops", "sum": "carry_bytes"},
        {"table": "loops", "sum": "name", "is": 1},
        {"table": "loops", "sum": "wire_bytes", "is": 1},
        {"table": "loops", "count": 1, "where": " "},
        {"table": "loops", "count": 1, "allow_empty": 1},
        {"table": "loops", "count": 1, "severity": "note"},
        {"table": "modules", "count": 1, "per": "step"},
        {"table": "loops", "count": 1, "color": "red"},
        {"preset": "no-such"},
        {"preset": "residual-bytes"},
        {"preset": "residual-bytes", "at_most": -1},
        {"preset": "residual-bytes", "at_most": 1, "count": 1},
        {"preset": "no-f32-matmul", "at_most": 1},
        {"preset": "no-f32-matmul", "sum": "flops"},
        {"preset": "no-f32-matmul", "is": 1},
        {"table": "loops", "count": 1, "at_most": 1},
        {"preset": "no-f32-matmul", "sum": "wire_bytes", "is": 1},
        {"preset": "remat-not-undone", "per": "step"},
    ],
    ids=str,
)
def test_what_the_schema_refuses_the_reader_does(one: dict[str, Any]) -> None:
    assert not by_schema({"expect": [one]})
    assert not by_reader(one)


@pytest.mark.parametrize(
    "content", [{}, {"expect": []}, {"expect": 3}, {"expects": []}, {"version": 2}, []], ids=str
)
def test_a_file_without_expectations_is_refused(content: object) -> None:
    assert not by_schema(content)


# --- of one mind -------------------------------------------------------------------------------

NAMES = [table.name for table in REGISTRY.tables]
COLUMNS = sorted({column for table in REGISTRY.tables for column in table.names})
COMPARED = st.one_of(
    st.integers(-3, 10**9),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.from_regex(r"\A(==|<=|>|=)? ?-?[0-9]{1,4}(,[0-9]{3})?(\.5)? ?(GiB|FLOP|%|kb)?\Z"),
    st.sampled_from(["", "many", "<= ", "1,5", True]),
)
SQL = st.sampled_from(["loop_depth = 1", "executions > 2 -- often", " ", "", True, False, 3])
WORDS: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=3), st.sampled_from(["a", "bwd"]), st.just(1), st.just([])
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": WORDS,
    "where": SQL,
    "because": WORDS,
    "stage": WORDS,
    "count": COMPARED,
    **dict.fromkeys(("every", "none", "any"), SQL),
    **dict.fromkeys(("sum", "max", "min"), st.sampled_from(COLUMNS)),
    "is": COMPARED,
    "per": st.sampled_from([*PERS, "layer"]),
    "severity": st.sampled_from([*SEVERITIES, "note"]),
    "allow_empty": st.sampled_from([True, False, 0]),
    "family": st.sampled_from(["cudnn", "triton", "", 3]),
    "at_most": COMPARED,
    "at_least": COMPARED,
    "colour": WORDS,
}
KEY_SETS = st.lists(st.sampled_from([*VALUES]), max_size=3)
ABOUT = st.one_of(
    st.fixed_dictionaries({"table": st.sampled_from([*NAMES, "x"])}),
    st.fixed_dictionaries({"preset": st.sampled_from([*presets(), "x"])}),
)


@st.composite
def expectations(draw: st.DrawFn) -> dict[str, Any]:
    """An expectation, or what nearly is one."""
    one: dict[str, Any] = draw(ABOUT)
    keys = [*draw(KEY_SETS), draw(st.sampled_from((*QUANTITIES, *PARAMETERS)))]
    if any(key in ("sum", "max", "min") for key in keys) and draw(st.booleans()):
        keys.append("is")
    one |= {key: draw(VALUES[key]) for key in keys}
    if one.get("preset") in presets() and draw(st.booleans()):
        needed = presets()[one["preset"]].parameters
        one |= {name: draw(VALUES[name]) for name in needed}
    return one


def beyond_the_schema(one: dict[str, Any]) -> bool:
    """Whether the reader may refuse what the schema cannot: a unit, or a family that is not."""
    table = one.get("table") or presets()[one["preset"]].keys["table"]
    column = next((one[key] for key in ("sum", "max", "min") if key in one), None)
    try:
        if "is" in one:
            comparison(one["is"], REGISTRY.table(table).column(str(column)))
        for name in ("at_most", "at_least"):
            if name in one:
                number_of_bytes(one[name])
    except ValueError:
        return True
    return one.get("family") not in (None, "cudnn", "triton")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expectations())
def test_reader_and_schema_accept_the_same(one: dict[str, Any]) -> None:
    accepted = by_reader(one)
    valid = by_schema({"expect": [one]})
    if accepted:
        assert valid, [error.message for error in VALIDATOR.iter_errors({"expect": [one]})]
    elif valid:
        assert beyond_the_schema(one)


def test_a_number_that_json_has_no_word_for_is_the_readers() -> None:
    for number in (math.nan, math.inf):
        assert not by_reader({"table": "loops", "count": number})
