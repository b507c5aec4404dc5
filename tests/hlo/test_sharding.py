"""Shardings: every written form, 2018 to 2026."""

import pytest

from hlo_lens.hlo.metadata import Metadata
from hlo_lens.hlo.replica_groups import Axis
from hlo_lens.hlo.sharding import DimSharding, parse_sharding


@pytest.mark.parametrize(
    ("text", "kind", "tile_dims", "subgroups", "devices"),
    [
        ("{replicated}", "replicated", (), (), ()),
        ("{manual}", "manual", (), (), ()),
        ("{unknown}", "unknown", (), (), ()),
        ("{unreduced}", "unreduced", (), (), ()),
        ("{maximal device=3}", "maximal", (), (), (3,)),
        ("{maximal_mesh[device_id=3]}", "maximal", (), (), (3,)),
        ("{devices=[2,2]0,1,2,3}", "tiled", (2, 2), (), (0, 1, 2, 3)),
        ("{devices=[2,1]1, /*x*/ 0}", "tiled", (2, 1), (), (1, 0)),
        ("{devices=[2,2]<=[4]}", "tiled", (2, 2), (), (0, 1, 2, 3)),
        ("{devices=[2,2]<=[2,2]T(1,0)}", "tiled", (2, 2), (), (0, 2, 1, 3)),
        ("{f32[2,1] devices=[2]0,1}", "tiled", (2,), (), (0, 1)),
        (
            "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
            "tiled",
            (2, 1),
            ("replicated",),
            (0, 1, 2, 3),
        ),
        (
            "{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}",
            "tiled",
            (2,),
            ("manual", "replicated"),
            tuple(range(8)),
        ),
        (
            "{devices=[1,4]<=[4] last_tile_dim_replicate}",
            "replicated",
            (1,),
            ("replicated",),
            (0, 1, 2, 3),
        ),
        ("{devices=[1,4]<=[4] last_tile_dims={manual}}", "manual", (1,), ("manual",), (0, 1, 2, 3)),
        ("{mesh['a'=2], replicated}", "replicated", (), (), (0, 1)),
        ("{mesh['a'=2,'b'=2], [{'b'}, {'a'}]}", "tiled", (2, 2), (), (0, 2, 1, 3)),
        ("{mesh['a'=2,'b'=2] [{'b','a'}, {}]}", "tiled", (4, 1), (), (0, 2, 1, 3)),
        ("{mesh['a'=4] [{'a':(2)2}, {'a':(1)2}]}", "tiled", (2, 2), (), (0, 2, 1, 3)),
        ("{mesh['a'=2], [{}, {?}]}", "replicated", (1, 1), (), (0, 1)),
        ("{mesh['a'=2], [{}], unreduced={'a'}}", "unreduced", (1,), (), (0, 1)),
        ("{mesh['a'=2], [{}], manual={'a'}}", "manual", (1,), (), (0, 1)),
        ("{mesh['a'=2,'b'=2], [{}], manual={'a'}}", "tiled", (1,), (), (0, 1, 2, 3)),
        ("{mesh['a'=2,'b'=2], device_ids=(3,2,1,0), [{'b'}]}", "tiled", (2,), (), (3, 1, 2, 0)),
    ],
)
def test_forms(
    text: str,
    kind: str,
    tile_dims: tuple[int, ...],
    subgroups: tuple[str, ...],
    devices: tuple[int, ...],
) -> None:
    sharding = parse_sharding(text)
    assert sharding.text == text
    assert sharding.kind == kind
    assert sharding.tile_dims == tile_dims
    assert sharding.subgroup_types == subgroups
    assert sharding.devices == devices
    assert sharding.is_split == any(size > 1 for size in tile_dims)


def test_a_mesh_form_with_everything() -> None:
    sharding = parse_sharding(
        "{mesh['a'=2,'b'=4,'c'=2,'d'=2,'e'=2], [{'a'}, {'b':(1)2, ?}], replicated={'b':(2)2}, "
        "unreduced=max{'c','d'}, manual={'e'}, metadata={op_name=\"x\"}}"
    )
    assert sharding.mesh is not None
    assert sharding.mesh.axes == (("a", 2), ("b", 4), ("c", 2), ("d", 2), ("e", 2))
    assert sharding.dims == (DimSharding((Axis("a"),)), DimSharding((Axis("b", 1, 2),), True))
    assert sharding.replicated_axes == (Axis("b", 2, 2),)
    assert (sharding.unreduced_kind, sharding.unreduced_axes) == ("max", (Axis("c"), Axis("d")))
    assert sharding.manual_axes == (Axis("e"),)
    assert sharding.axes == ("a", "b:(1)2")
    assert sharding.metadata == (Metadata(op_name="x"),)


def test_tuples() -> None:
    sharding = parse_sharding("{{replicated}, {devices=[2]0,1}, /*index=2*/ {manual}}")
    assert sharding.kind == "tuple"
    assert [element.kind for element in sharding.elements] == ["replicated", "tiled", "manual"]
    assert [element.text for element in sharding.elements][1] == "{devices=[2]0,1}"
    assert sharding.is_split
    assert sharding.devices == ()
    assert parse_sharding("{}").elements == ()


@pytest.mark.parametrize(
    ("text", "shard_as", "shard_like"),
    [
        ("{replicated shard_as 3}", 3, None),
        ("{devices=[2,1]<=[2] shard_like 4}", None, 4),
        ('{devices=[2,1]0,1 shard_as 5 metadata={op_name="a"}}', 5, None),
    ],
)
def test_shard_groups(text: str, shard_as: int | None, shard_like: int | None) -> None:
    sharding = parse_sharding(text)
    assert (sharding.shard_as, sharding.shard_like) == (shard_as, shard_like)


def test_several_metadata() -> None:
    sharding = parse_sharding('{replicated metadata={{op_name="a}"}, {source_line=2}}}')
    assert sharding.metadata == (Metadata(op_name="a}"), Metadata(source_line=2))
    assert sharding == parse_sharding(sharding.text)


def test_a_large_tile_assignment_is_not_expanded_to_count_it() -> None:
    sharding = parse_sharding(
        "{devices=[1000000,1,1000000]<=[1000000000000] last_tile_dim_replicate}"
    )
    assert sharding.tile_dims == (1000000, 1)
    assert sharding.shard_count == 1000000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "replicated",
        "{replicate}",
        "{devices=[2,2]0,1,2}",
        "{devices=[2,2]<=[5]}",
        "{devices=[2]}",
        "{last_tile_dim_replicate}",
        "{devices=[2]0,1 last_tile_dims={manual,replicated}}",
        "{mesh['a'=2], [{'b'}]}",
        "{mesh['a'=2], [{'a'}, {'a'}]}",
        "{[{'a'}]}",
        "{{replicated}, manual}",
        "{mesh['a'=2], manual=x{'a'}}",
        "{" * 1000 + "}" * 1000,
    ],
)
def test_bad_text_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \S+"):
        parse_sharding(text)
