"""Named views: files that people write, what is wrong in them, and what comes before what."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_lens.figure import Frame, Select, View, draw, views
from hlo_lens.files import InputError
from tests.figure.test_panels import MOVES
from tests.figure.test_selecting import CHAIN
from tests.figure.texts import FWD, drawn, edges, facts_of, frames, names, roles

OWN = """
[[view]]
name = "mine"
about = "what was marked"
color = "family"
around = 1
neighbours = 1
longest_path = 4
same_phase = true
prefer_stage = ["before_optimizations"]

  [[view.select]]
  table = "marks"
  where = "size > 1"
  order = "size DESC"
  rows = 3
  roles = ["of"]
  each = 2
  members = 9
  label = "size {size}"

  [[view.frame]]
  table = "marks"
  label = "size {size}"

  [view.names]
  of = "marked"
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "views.toml"
    path.write_text(OWN)
    return path


def test_a_view_is_what_its_file_says(written: Path) -> None:
    assert views([written]).views["mine"] == View(
        name="mine",
        about="what was marked",
        color="family",
        around=1,
        neighbours=1,
        longest_path=4,
        same_phase=True,
        prefer_stage=("before_optimizations",),
        select=(Select("marks", "size > 1", "size DESC", 3, ("of",), 9, 2, "size {size}"),),
        frame=(Frame("marks", "size {size}"),),
        names={"of": "marked"},
    )


def test_a_view_of_a_file_is_drawn(written: Path) -> None:
    marks = [{"of": "b", "size": "2"}, {"of": "d", "size": "1"}]
    panel = drawn(CHAIN, marks=marks, view="mine", known=views([written]))
    assert roles(panel) == {"a": (), "b": ("marked",), "c": ()}
    assert panel.heading == ("size 2",)
    assert frames(panel) == {"": ["a", "c"], "size 2": ["b"]}


def test_a_view_may_limit_neighbours_and_paths(written: Path) -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  b = f32[4] add(x, y)
  c = f32[4] sine(b)
  d = f32[4] cosine(b)
  e1 = f32[4] abs(d)
  e2 = f32[4] abs(e1)
  e3 = f32[4] abs(e2)
  f = f32[4] tanh(e3)
  ROOT g = f32[4] abs(f)
}
"""
    panel = drawn(text, marks=[{"of": "b g", "size": "2"}], view="mine", known=views([written]))
    assert names(panel) == ["x", "b", "c", "f", "g"]
    assert panel.notes == ("2 neighbours left out",)
    assert edges(panel) == ["b-[d e1 e2 e3]>f", "b>c", "f>g", "x>b"]
    longer = text.replace("tanh(e3)", "tanh(e4)").replace("  f =", "  e4 = f32[4] abs(e3)\n  f =")
    panel = drawn(longer, marks=[{"of": "b g", "size": "2"}], view="mine", known=views([written]))
    assert edges(panel) == ["b>c", "f>g", "x>b"]


def test_neighbours_of_another_phase_are_left_out_where_the_view_says_so(written: Path) -> None:
    text = CHAIN.replace("negate(x)", f"negate(x){FWD}").replace(
        "add(b, a)", 'add(b, a), metadata={op_name="jit(f)/transpose(jvp(g))/add"}'
    )
    text = text.replace("exponential(a)", f"exponential(a){FWD}")
    panel = drawn(text, marks=[{"of": "b", "size": "2"}], view="mine", known=views([written]))
    assert names(panel) == ["a", "b"]


def test_views_of_a_file_come_before_those_of_later_files_and_built_in_ones(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text('[[view]]\nname = "moe"\nabout = "first"\n')
    second.write_text(
        '[[view]]\nname = "moe"\nabout = "second"\n[[view]]\nname = "new"\nabout = "second"\n'
    )
    found = views([first, second])
    assert (found.view("moe").about, found.view("new").about) == ("first", "second")
    assert list(found.views)[:2] == ["moe", "new"]
    assert found.view("remat") == views().view("remat")
    assert views().view("moe").about != "first"


def test_what_a_file_prunes_takes_the_place_of_the_list_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / "views.toml"
    path.write_text('[prune]\nlayout = ["reshape", "broadcast"]\nsimple = ["negate"]\n')
    known = views([path])
    assert names(drawn(MOVES, known=known)) == ["x", "t", "rows", "b", "c", "d"]
    assert "a" in names(drawn(MOVES, known=known, keep=["simple"]))
    panel = drawn(MOVES, known=known, around="b", radius=0)
    assert panel.left_out["simple"] == 1


def test_families_are_of_the_table_that_a_file_names(tmp_path: Path) -> None:
    path = tmp_path / "views.toml"
    path.write_text('[families]\ntable = "instructions"\nkey = "opcode"\nvalue = "name"\n')
    panel = drawn(CHAIN, known=views([path]))
    assert {node.name: node.family for node in panel.nodes}["c"] == "c"


@pytest.mark.parametrize(
    ("families", "says"),
    [
        ('table = "opcode"\nkey = "a"\nvalue = "b"', r"\[families\]: no table opcode"),
        ('table = "opcodes"\nkey = "a"\nvalue = "b"', r"\[families\]: .* no column a"),
    ],
)
def test_families_of_what_is_not_there_are_a_sentence(
    tmp_path: Path, families: str, says: str
) -> None:
    path = tmp_path / "views.toml"
    path.write_text(f"[families]\n{families}\n")
    with pytest.raises(InputError, match=says):
        drawn(CHAIN, known=views([path]))


VIEW = '[[view]]\nname = "v"\nabout = "w"\n'
SELECT = VIEW + '[[view.select]]\ntable = "t"\n'
FRAME = VIEW + '[[view.frame]]\ntable = "t"\n'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[[view", "not TOML: "),
        ("\xff", "not TOML: "),
        ("[" * 5000, "not TOML: "),
        ("[views]", "the file has no key 'views'; did you mean 'view'?"),
        ("[colours]", "the file has no key 'colours'; there are "),
        ("view = 3", "[[view]] are tables, not 3"),
        ("[view]", "[[view]] are tables, not {}"),
        ("[[view]]", "a [[view]] has a name"),
        ('[[view]]\nname = ""', "a [[view]] has a name"),
        ('[[view]]\nname = "v"', "view v: about is a text, not None"),
        (VIEW + VIEW, "view v stands there twice"),
        (VIEW + 'colour = "phase"', "view v has no key 'colour'; did you mean 'color'?"),
        (VIEW + 'color = "red"', "view v: color is phase or family, not 'red'"),
        (VIEW + 'kind = "tree"', "view v: kind is graph or lanes, not 'tree'"),
        (VIEW + 'around = "1"', "view v: around is a number from 0 to 2147483647, not '1'"),
        (VIEW + "around = -1", "view v: around is a number from 0 to 2147483647, not -1"),
        (VIEW + "around = true", "view v: around is a number from 0 to 2147483647, not True"),
        (VIEW + 'same_phase = "no"', "view v: same_phase is true or false, not 'no'"),
        (VIEW + 'prefer_stage = "x"', "view v: prefer_stage is a list of texts, not 'x'"),
        (VIEW + "names = [1]", "names is a table, not [1]"),
        (VIEW + "names = {a = 1}", "view v: names is a text, not 1"),
        (VIEW + "select = {}", "[[select]] are tables, not {}"),
        (VIEW + "[[view.select]]", "view v: select: table is a text, not None"),
        (SELECT + 'when = "1"', "view v: select has no key 'when'"),
        (SELECT + 'where = 1', "view v: select: where is a text, not 1"),
        (SELECT + 'order = []', "view v: select: order is a text, not []"),
        (SELECT + 'rows = "a"', "view v: rows is a number from 0"),
        (SELECT + f"rows = 1{'0' * 23}", "view v: rows is a number from 0 to 2147483647"),
        (SELECT + f"rows = 1{'0' * 5000}", "not TOML: "),
        (SELECT + 'ids = [1]', "view v: select has no key 'ids'"),
        (SELECT + 'each = -2', "view v: each is a number from 0"),
        (SELECT + 'roles = [1]', "view v: roles is a list of texts"),
        (FRAME, "view v: frame: label is a text, not None"),
        (FRAME + 'label = "l"\nrows = 1', "view v: frame has no key 'rows'"),
        ("prune = 1", "prune is a table, not 1"),
        ('[prune]\nlayout = "copy"', "prune.layout is a list of texts, not 'copy'"),
        ('[families]\ntable = "t"', "[families]: key is a text, not None"),
        ("families = 1", "families is a table, not 1"),
        ("[families]\ncolumn = 1", "[families] has no key 'column'"),
        (VIEW + 'kind = "lanes"\n[view.lanes]\nbar = 1', "view v: lanes has no key 'bar'; did you"),
        (
            VIEW + 'kind = "lanes"\n[[view.lanes.verdicts]]\nkind = "red"',
            "view v: lanes: verdicts: kind is one of ",
        ),
        (
            VIEW + 'kind = "lanes"\n[[view.lanes.bars]]\ntable = "t"\ntitle = "t"\ncells = "c"',
            "view v: lanes: bars: cells is a list, not 'c'",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_told_with_its_place(
    tmp_path: Path, content: str, says: str
) -> None:
    path = tmp_path / "views.toml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError) as raised:
        views([path])
    assert raised.value.render().startswith(f"{path}: {says}")


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        views([tmp_path / "none.toml"])


def test_a_label_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    wide = "{size!r:>99999999}", "{size:.201f}", "{size:>00000000000000000001}"
    for label in ("{size", "{size:q}", "{0}", "{}", *wide):
        frame = Frame("marks", label)
        one = View("v", "w", select=(Select("marks"),), frame=(frame,))
        with pytest.raises(InputError, match="a label of marks: "):
            draw(facts_of(CHAIN, marks=[{"of": "a"}]), view=one)


def test_every_built_in_view_says_what_it_shows_and_names_roles_in_words() -> None:
    for name, view in views().views.items():
        assert view.name == name
        assert view.about
        assert view.select or view.lanes
        assert not [word for word in view.names.values() if "_" in word]
