"""Metadata: every field, in every spelling that printers have used."""

import pytest

from hlo_lens.hlo.metadata import Metadata, parse_metadata


def test_all_fields() -> None:
    text = (
        '{op_type="Add" op_name="jit(f)/a\\"b/add" source_file="/m/\\303\\251.py" source_line=1 '
        "source_end_line=2 source_column=3 source_end_column=4 stack_frame_id=7 "
        'profile_type={1} deduplicated_name="d" scheduling_name="s.1" metadata_payload="x{}"}'
    )
    assert parse_metadata(text) == Metadata(
        op_type="Add",
        op_name='jit(f)/a"b/add',
        source_file="/m/é.py",
        source_line=1,
        source_end_line=2,
        source_column=3,
        source_end_column=4,
        stack_frame_id=7,
        deduplicated_name="d",
        scheduling_name="s.1",
        other={"profile_type": "{1}", "metadata_payload": "x{}"},
    )


@pytest.mark.parametrize(
    ("text", "metadata"),
    [
        ("{}", Metadata()),
        ('{op_name="a", source_line=3,}', Metadata(op_name="a", source_line=3)),
        ("{ /* c */ op_name='a'\n}", Metadata(op_name="a")),
        ('{op_name=""}', Metadata(op_name="")),
        ("{preserve_layout=true}", Metadata(other={"preserve_layout": "true"})),
        (
            '{scheduling_name="a\\nb" stack_frame_id=1}',
            Metadata(scheduling_name="a\\nb", stack_frame_id=1),
        ),
        (
            '{scheduling_name="a"b" stack_frame_id=1}',
            Metadata(scheduling_name='a"b', stack_frame_id=1),
        ),
    ],
)
def test_spellings(text: str, metadata: Metadata) -> None:
    assert parse_metadata(text) == metadata


def test_equal_texts_give_one_object() -> None:
    assert parse_metadata('{op_name="a"}') is parse_metadata('{op_name="a"}')
    assert repr(parse_metadata('{op_name="a"}')) == "Metadata(op_name='a')"


@pytest.mark.parametrize(
    "text", ["op_name=1", "{op_name}", '{op_name="a}', "{source_line=x}", "{=1}"]
)
def test_bad_text_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \S+"):
        parse_metadata(text)
