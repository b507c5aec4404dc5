"""Replica groups: three written forms, one meaning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_lens.hlo.replica_groups import parse_replica_groups


@pytest.mark.parametrize(
    ("text", "form", "groups"),
    [
        ("{{0,1},{2,3}}", "list", ((0, 1), (2, 3))),
        ("{ {0, 1}, /* x */ {2} }", "list", ((0, 1), (2,))),
        ("[2,4]<=[8]", "iota", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[2,4]<=[4,2]T(1,0)", "iota", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("[4,2] <= [2,2,2] T(2,0,1)", "iota", ((0, 2), (4, 6), (1, 3), (5, 7))),
        ("mesh['a'=2,'b'=4] {'b'}", "mesh", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['a'=2, 'b'=4] {'a'}", "mesh", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=2,'b'=2] {'b','a'}", "mesh", ((0, 1, 2, 3),)),  # in the mesh's order, as XLA
        ("mesh['a'=8] {'a':(1)2}", "mesh", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=8] {'a':(2)2}", "mesh", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['a'=8] {'a':(1)2,'a':(4)2}", "mesh", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['a'=8] {'a':(4)2,'a':(1)2}", "mesh", ((0, 4, 1, 5), (2, 6, 3, 7))),
        ("mesh['a'=2,'b'=1] {'a','b'}", "mesh", ((0, 1),)),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", "mesh", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['a'=2,'b'=2], device_ids=(3,2,1,0) {'b'}", "mesh", ((3, 2), (1, 0))),
        ("mesh['a'=2,'b'=2, device_ids=(3,2,1,0)] {'b'}", "mesh", ((3, 2), (1, 0))),
    ],
)
def test_groups(text: str, form: str, groups: tuple[tuple[int, ...], ...]) -> None:
    value = parse_replica_groups(text)
    assert value.form == form
    assert value.groups == groups
    assert value.group_count == len(groups)
    assert value.group_size == max(map(len, groups))
    assert value.uneven == (len(set(map(len, groups))) > 1)
    assert not value.is_empty


@pytest.mark.parametrize("text", ["{}", "{ }", "{{}}"])
def test_no_groups_are_everybody_whose_number_the_module_knows(text: str) -> None:
    value = parse_replica_groups(text)
    assert value.is_empty
    assert value.group_size is None
    assert (value.group_count, value.groups, value.uneven) == (0, (), False)


def test_axes() -> None:
    value = parse_replica_groups("mesh['data'=2,'model'=4] {'data','model':(1)2}")
    assert value.axes == ("data", "model:(1)2")
    assert value.mesh == (("data", 2), ("model", 4))
    assert parse_replica_groups("[2,4]<=[8]").axes == ()
    assert parse_replica_groups("[2,4]<=[8]").mesh == ()


def test_sizes_of_large_groups_cost_nothing() -> None:
    value = parse_replica_groups("[2,1000000000000]<=[1000000000000,2]T(1,0)")
    assert (value.group_count, value.group_size) == (2, 1000000000000)


@given(st.permutations(range(3)))
def test_every_device_is_in_one_group(perm: list[int]) -> None:
    text = f"[6,4]<=[2,3,4]T({','.join(map(str, perm))})"
    groups = parse_replica_groups(text).groups
    assert sorted(device for group in groups for device in group) == list(range(24))
    assert {len(group) for group in groups} == {4}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{0,1}",
        "{{0 1}}",
        "{{a}}",
        "[2,4]<=[9]",
        "[2,4]<=[4,2]T(1,1)",
        "[2,2,2]<=[8]",
        "mesh['a'=2] {'b'}",
        "mesh['a'=2]",
        "mesh['a'=2,'a'=2] {'a'}",
        "mesh['a'=2,'b'=2, device_ids=(0,1,2)] {'a'}",
        "mesh['a'=8] {'a':(3)2}",
        "mesh['a'=8] {'a':(1)4,'a':(2)2}",
        "mesh['a'=2] {'a','a'}",
        "mesh['a'] {'a'}",
    ],
)
def test_bad_text_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \S+"):
        parse_replica_groups(text)
