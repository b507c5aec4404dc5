"""Which part of a condition asks a column for what it never holds, and which only seems to."""

from __future__ import annotations

import pytest

from hlo_lens.check.literals import mistake_in
from hlo_lens.facts import discover_passes

_TABLES = [discover_passes().table(name) for name in ("collectives", "loops")]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("CASE WHEN lower(phase) = 'BWD' THEN 1 ELSE 0 END", "LOWER(phase) = 'BWD' holds of no"),
        ("CASE WHEN instr(phase, 'train') THEN 1 END", "INSTR(phase, 'train') holds of no phase"),
        ("CASE lower(phase) WHEN 'BWD' THEN 1 END", "LOWER(phase) = 'BWD' holds of no phase"),
        ("lower(phase) IN ('bwd', 'train')", "LOWER(phase) = 'train' holds of no phase"),
        ("lower(phase) NOT IN ('BWD')", "did you mean 'bwd'?"),
        ("lower(phase) IN (SELECT 'BWD')", "holds of no phase"),
        ("lower(phase) IN (SELECT 'bwd' UNION SELECT 'BWD')", "holds of no phase"),
        ("(lower(phase), dtype) = ('BWD', 'bf16')", "LOWER(phase) = 'BWD' holds of no phase"),
        ("(lower(phase), dtype) <> ('BWD', 'bf16')", "holds of every phase"),
        ("(lower(phase), dtype) IN (VALUES ('BWD', 'bf16'))", "holds of no phase"),
        ("(phase, dtype) IN (SELECT 'train', 'bf16')", "phase never is 'train'"),
        ("(lower(phase) = 'BWD') + (wire_bytes > 3) = 2", "holds of no phase"),
        ("coalesce(lower(phase) = 'BWD', overlapped)", "holds of no phase"),
        ("phase LIKE 'b!_d' ESCAPE '!'", "ESCAPE '!' holds of no phase"),
        ("phase NOT LIKE 'b!_d' ESCAPE '!'", "ESCAPE '!' holds of"),
        ("dtype GLOB 'float*'", "dtype GLOB 'float*' holds of no dtype"),
        ("'train' IN (phase, loop_name)", "holds of no phase"),
        ("EXISTS (SELECT 1 FROM loops l WHERE l.phase || '>' || l.phase = 'fwd>bwd')", "of no"),
    ],
)
def test_every_part_is_asked_for_itself(condition: str, says: str) -> None:
    assert says in mistake_in(condition, _TABLES)


@pytest.mark.parametrize(
    "condition",
    [
        "CASE WHEN lower(phase) = 'bwd' THEN 1 ELSE 0 END",
        "CASE upper(phase) WHEN 'BWD' THEN 1 END",
        "CASE WHEN phase = 'bwd' AND loop_name = 'x' THEN 1 END",
        "upper(phase) IN ('BWD', 'REMAT')",
        "coalesce(phase, 'none') IN ('none', 'bwd')",
        "upper(phase) IN (SELECT 'BWD')",
        "(upper(phase), dtype) = ('BWD', 'bf16')",
        "(upper(phase), dtype) IN (VALUES ('BWD', 'bf16'))",
        "(upper(phase) = 'BWD') + (wire_bytes > 3) = 2",
        "phase LIKE 'b!wd' ESCAPE '!'",
        "phase NOT LIKE 'b!wd' ESCAPE '!'",
        "max(phase, '') = 'bwd'",
        "phase COLLATE NOCASE IN ('BWD')",
        "'bwd' IN (phase, loop_name)",
        "phase IS NOT NULL AND phase = 'bwd'",
    ],
)
def test_what_a_word_answers_is_fine(condition: str) -> None:
    assert not mistake_in(condition, _TABLES)


@pytest.mark.parametrize(
    "condition",
    [
        "dtype LIKE 's32,%'",
        "dtype LIKE '%,s32'",
        "dtype LIKE '%,%,%'",
        "dtype LIKE 'bf16,f32,%'",
        "instr(dtype, 's32,')",
        "dtype GLOB '*s32*u8*'",
        "dtype GLOB '*f32*f32*f32*'",
        "dtype LIKE '%f8%f8%f8%'",
    ],
)
def test_lists_of_dtypes_are_of_any_length(condition: str) -> None:
    assert not mistake_in(condition, _TABLES)


@pytest.mark.parametrize(
    "condition",
    [
        "EXISTS (SELECT 1 FROM loops GROUP BY module HAVING group_concat(phase) = 'fwd,bwd')",
        "EXISTS (SELECT 1 FROM loops HAVING max(phase) || min(phase) = 'fwdbwd')",
        "(SELECT group_concat(phase) FROM loops) = 'fwd,bwd'",
        "lower(phase) IN (SELECT lower(phase) || '' FROM loops)",
        "EXISTS (SELECT 1 FROM loops l WHERE l.phase || '>' || collectives.phase = 'fwd>bwd')",
        "EXISTS (SELECT 1 FROM loops WHERE loops.phase || '>' || phase = 'fwd>bwd')",
    ],
)
def test_what_looks_at_several_rows_is_not_asked_of_one(condition: str) -> None:
    assert not mistake_in(condition, _TABLES)


def test_a_condition_too_deep_to_take_apart_is_left_to_sqlite() -> None:
    assert not mistake_in("phase" + " || ''" * 5000 + " = 'bwd'", _TABLES)
    assert not mistake_in("(" * 3000 + "phase = 'bwd'" + ")" * 3000, _TABLES)
