"""What an instruction computes, from its attributes alone."""

from hlo_lens.hlo.structural import (
    COMMENTARY,
    IDENTITY,
    PLACEMENT,
    structural_attributes,
)

DROPPED = COMMENTARY | IDENTITY


def test_names_ids_and_places_are_left_out() -> None:
    tail = (
        ", channel_id=7, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add.3,"
        ' control-predecessors={%x}, metadata={op_name="jit(f)/a{b}, dimensions={9}"}'
    )
    assert structural_attributes(tail, without=DROPPED) == (
        ", replica_groups={{0,1}}, use_global_device_ids=true"
    )


def test_order_blanks_comments_and_empty_values_do_not_matter() -> None:
    one = ', lhs_batch_dims={}, lhs_contracting_dims={1, 2}, metadata={op_name="a"}'
    two = ', metadata={op_name="b" stack_frame_id=3}, lhs_contracting_dims={1,/*two*/2}'
    assert structural_attributes(one, without=DROPPED) == ", lhs_contracting_dims={1,2}"
    assert structural_attributes(two, without=DROPPED) == ", lhs_contracting_dims={1,2}"


def test_another_dimension_is_another_operation() -> None:
    texts = (", dimensions={0}", ", dimensions={1}", ", dimensions={0}, is_stable=true")
    assert len({structural_attributes(text, without=DROPPED) for text in texts}) == 3


def test_the_back_end_config_stays_unless_it_is_asked_away() -> None:
    tail = ', dimensions={0}, backend_config={"a":"metadata={"}, metadata={op_name="x"}'
    assert structural_attributes(tail, without=DROPPED) == (
        ', backend_config={"a":"metadata={"}, dimensions={0}'
    )
    assert structural_attributes(tail, without=DROPPED | PLACEMENT) == ", dimensions={0}"


def test_metadata_in_a_string_is_no_metadata() -> None:
    tail = ', custom_call_target="x, metadata={y}", api_version=API_VERSION_ORIGINAL'
    assert structural_attributes(tail, without=DROPPED) == (
        ', api_version=API_VERSION_ORIGINAL, custom_call_target="x,metadata={y}"'
    )


def test_a_tail_that_cannot_be_split_is_given_as_it_is() -> None:
    assert structural_attributes(", dimensions={0", without=DROPPED) == ", dimensions={0"
