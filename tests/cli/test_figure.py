"""`hlolens figure`: what it writes, where, and what it says when it cannot."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

from tests.conftest import Ran
from tests.figure.test_panels import ASYNC, LOOP, PRODUCT
from tests.figure.test_selecting import CHAIN, PRODUCTS

Cli = Callable[..., Ran]

needs_layout = pytest.mark.skipif(
    not (which("dot") or find_spec("pygraphviz")), reason="no layout engine is installed"
)


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.hlo"
    path.write_text(CHAIN)
    return path


@pytest.fixture
def products(tmp_path: Path) -> Path:
    path = tmp_path / "products.hlo"
    path.write_text(PRODUCTS)
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large.hlo"
    steps = "".join(f"  v{at} = f32[4,4] negate(v{at - 1})\n" for at in range(1, 60))
    path.write_text(PRODUCT.replace("STEPS", steps))
    return path


# --- where it goes --------------------------------------------------------------------------------


def test_dot_goes_to_standard_output(cli: Cli, chain: Path) -> None:
    ran = cli("figure", chain)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("digraph figure {\n")
    assert cli("figure", chain, "-o", "-").out == ran.out
    assert cli("figure", chain, "--format", "dot").out == ran.out


@pytest.mark.parametrize("suffix", ["dot", "gv", "DOT"])
def test_dot_goes_to_a_file(cli: Cli, chain: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"f.{suffix}"
    assert cli("figure", chain, "-o", target) == Ran(0, "", "")
    assert target.read_text() == cli("figure", chain).out


@needs_layout
@pytest.mark.parametrize(
    ("suffix", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_a_picture_is_written_as_the_suffix_or_the_format_says(
    cli: Cli, chain: Path, tmp_path: Path, suffix: str, begins: bytes
) -> None:
    target, other = tmp_path / f"f.{suffix}", tmp_path / "other.x"
    assert cli("figure", chain, "-o", target).code == 0
    assert cli("figure", chain, "--format", suffix, "-o", other).code == 0
    assert target.read_bytes().startswith(begins)
    assert other.read_bytes().startswith(begins)


@needs_layout
def test_an_svg_says_where_it_is_from(cli: Cli, chain: Path) -> None:
    out = cli("figure", chain, "--around", "b", "--radius", "0", "--format", "svg").out
    assert "<desc" in out
    told = out.partition("<metadata")[2].partition(">")[2].partition("</metadata>")[0]
    assert json.loads(told)["panels"][0]["instructions"] == ["b"]


def test_a_suffix_that_is_no_format_is_told_before_anything_is_read(
    cli: Cli, tmp_path: Path
) -> None:
    ran = cli("figure", tmp_path / "missing.hlo", "-o", tmp_path / "f.jpg")
    assert ran.code == 2
    assert "written as svg, png, pdf, dot, not as 'jpg'" in ran.err
    assert "missing" not in ran.err


def test_without_a_layout_engine_the_dot_is_written_beside(
    cli: Cli, chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hlo_lens.figure import layout

    def none(*_: object, **__: object) -> bytes:
        raise layout.LayoutError("there is none; install one")

    monkeypatch.setattr(layout, "render", none)
    ran = cli("figure", chain, "-o", tmp_path / "f.svg")
    assert ran.code == 2
    assert "there is none; install one" in ran.err
    assert "the DOT is in" in ran.err
    assert (tmp_path / "f.dot").read_text() == cli("figure", chain).out
    assert not (tmp_path / "f.svg").exists()


def test_the_dot_beside_replaces_no_file(
    cli: Cli, chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hlo_lens.figure import layout

    def none(*_: object, **__: object) -> bytes:
        raise layout.LayoutError("there is none; install one")

    monkeypatch.setattr(layout, "render", none)
    beside = tmp_path / "f.dot"
    beside.write_text("mine")
    ran = cli("figure", chain, "-o", tmp_path / "f.svg")
    assert ran.code == 2
    assert beside.read_text() == "mine"
    assert f"{beside} is there already and stays as it is" in ran.err


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(
    cli: Cli, chain: Path, tmp_path: Path
) -> None:
    target, link, gone = (tmp_path / name for name in ("f.dot", "link.dot", "gone.dot"))
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target.name)
    assert cli("figure", chain, "-o", link).code == 0
    assert link.is_symlink()
    assert target.read_text().startswith("digraph")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    target.unlink()
    link.unlink()
    link.symlink_to(gone.name)
    assert cli("figure", chain, "-o", link).code == 0
    assert link.is_symlink()
    assert gone.read_text().startswith("digraph")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["chain.hlo", "gone.dot", "link.dot"]


def test_the_longest_name_of_a_file_and_the_empty_one(
    cli: Cli, chain: Path, tmp_path: Path
) -> None:
    longest = tmp_path / f"{'f' * 251}.dot"
    assert cli("figure", chain, "-o", longest).code == 0
    assert longest.read_text().startswith("digraph")
    ran = cli("figure", chain, "-o", tmp_path / f"{'f' * 252}.dot")
    assert (ran.code, "Traceback" in ran.err) == (2, False)
    assert "ff.dot: file name too long" in ran.err
    for verb in ("figure", "export", "query"):
        ran = cli(verb, chain, *(["SELECT 1"] if verb == "query" else []), "-o", "")
        assert ran.code == 2
        assert "-o needs the name of a file" in ran.err


def test_a_folder_that_is_not_there_is_a_sentence(cli: Cli, chain: Path, tmp_path: Path) -> None:
    ran = cli("figure", chain, "-o", tmp_path / "none" / "f.dot")
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert str(tmp_path / "none" / "f.dot") in ran.err


# --- what is asked for ----------------------------------------------------------------------------


def test_options_mean_what_they_mean_in_python(cli: Cli, chain: Path, products: Path) -> None:
    def drawn(*args: object) -> list[str]:
        out = cli("figure", *args).out
        return [part.split("</B>")[0] for part in out.split("<B>%")[1:]]

    assert drawn(chain, "--around", "d", "--radius", "1") == ["c", "d", "e"]
    assert drawn(chain, "--around", "a", "--around", "f", "--radius", "0") == ["a", "f"]
    assert drawn(chain, "--from", "b", "--to", "d") == ["b", "c", "d"]
    assert drawn(chain, "--from", "b", "--to", "f", "--nodes", "3") == ["b", "c", "f"]
    assert drawn(products, "--table", "matmuls", "--row", "1", "--radius", "0") == ["q"]
    assert drawn(products, "--table", "matmuls", "--row", "0", "--row", "1") == ["p", "q"]
    first = ("--table", "matmuls", "--where", "id = 0")
    assert drawn(products, *first, "--radius", "0") == ["p"]
    around = ["a", "b", "p", "c", "q"]
    assert drawn(products, *first, "--radius", "1") == drawn(products, *first) == around


def test_kinds_that_are_kept(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP)
    assert "<B>%one</B>" not in cli("figure", path).out
    assert "<B>%one</B>" in cli("figure", path, "--keep", "constants,layout").out
    ran = cli("figure", path, "--keep", "constant")
    assert ran.code == 2
    assert "--keep: no kind 'constant'; there are tuples, layout, constants" in ran.err


def test_several_files_are_panels_with_titles(cli: Cli, chain: Path, products: Path) -> None:
    out = cli("figure", chain, products, "--title", "none", "--title", "full").out
    assert "<B>none</B>" in out
    assert "<B>full</B>" in out
    assert out.count("subgraph cluster_p") == 2


def test_a_title_is_of_its_file_also_where_one_before_cannot_be_read(
    cli: Cli, chain: Path, products: Path, tmp_path: Path
) -> None:
    titles = ("--title", "gone", "--title", "full")
    ran = cli("figure", tmp_path / "missing.hlo", products, *titles)
    assert ran.code == 2
    assert "<B>full</B>" in ran.out
    assert "gone" not in ran.out
    ran = cli("figure", chain, *titles)
    assert (ran.code, ran.out) == (2, "")
    assert "--title: 2 titles for 1 FILE" in ran.err


def test_a_title_is_of_every_module_of_a_dump(cli: Cli, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    for number, text in enumerate((CHAIN, PRODUCTS), 1):
        (dump / f"module_000{number}.jit_{number}.after_optimizations.txt").write_text(text)
    titles = ("--title", "first", "--title", "second")
    out = cli("figure", tmp_path / "missing.hlo", dump, "--module", "*", *titles).out
    assert (out.count("<B>first</B>"), out.count("<B>second</B>")) == (0, 2)


def test_files_of_one_name_are_told_apart_unless_their_titles_are_given(
    cli: Cli, tmp_path: Path
) -> None:
    files = [tmp_path / name / "step.hlo" for name in ("none", "full")]
    for file in files:
        file.parent.mkdir()
        file.write_text(CHAIN)
    out = cli("figure", *files).out
    assert "<B>chain (none)</B>" in out
    assert "<B>chain (full)</B>" in out
    assert cli("figure", *files, "--title", "same", "--title", "same").out.count("<B>same</B>") == 2


def test_themes_and_colours(cli: Cli, products: Path) -> None:
    assert "#0d1117" in cli("figure", products, "--theme", "dark").out
    assert "matmul" in cli("figure", products, "--color-by", "family").out
    assert cli("figure", products, "--theme", "pink").code == 2


# --- when it cannot -------------------------------------------------------------------------------


def test_a_large_module_is_refused_with_advice(cli: Cli, large: Path) -> None:
    ran = cli("figure", large)
    assert (ran.code, ran.out) == (2, "")
    assert (
        "instructions are too many for one figure; choose some with --view collectives" in ran.err
    )
    assert cli("figure", large, "--nodes", "100").code == 0


def test_nothing_of_what_was_asked_for_is_the_answer_no(cli: Cli, chain: Path) -> None:
    for asked in (("--view", "moe"), ("--table", "matmuls"), ("--from", "f", "--to", "a")):
        ran = cli("figure", chain, *asked)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("hlolens: no ")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("--view", "remt"), "no view 'remt'; did you mean remat?"),
        (("--table", "matmul"), "no table matmul; did you mean matmuls?"),
        (("--table", "matmuls", "--where", "ix = 1"), "no column ix"),
        (("--row", "1"), "they are about a table; name it with --table"),
        (("--table", "matmuls", "--row", "one"), "'one' is not a valid integer"),
        (("--around", "zz"), "zz: no such instruction in chain"),
        (("--from", "a"), "a path has two ends; give both"),
        (("--nodes", "0"), "0 is not in the range"),
        (("--radius", "-1"), "-1 is not in the range"),
        (("--view", "overlap", "--from", "x", "--to", "y"), "so --from, --to would change nothing"),
        (("--view", "overlap", "--nodes", "9"), "so --nodes would change nothing"),
        (("--table", "matmuls", "--where", "0) OR (1=1"), "a ) in it ends it too early"),
        (("--table", "matmuls", "--where", "\"phse\"='phse'"), 'no column "phse"'),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    cli: Cli, chain: Path, asked: tuple[str, ...], says: str
) -> None:
    ran = cli("figure", chain, *asked)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_bad_files_are_sentences_and_good_ones_are_drawn(
    cli: Cli, chain: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.hlo"
    bad.write_text("no HLO at all")
    assert cli("figure", bad).code == 2
    ran = cli("figure", chain, bad, tmp_path / "missing.hlo")
    assert ran.code == 2
    assert "<B>chain</B>" in ran.out
    assert f"{bad}:1:1: expected HLO text" in ran.err
    assert f"{tmp_path / 'missing.hlo'}: no such file or folder" in ran.err
    assert "Traceback" not in ran.err


# --- views of one's own ---------------------------------------------------------------------------

OWN = """
[[view]]
name = "products"
about = "what is multiplied"
  [[view.select]]
  table = "matmuls"
"""


def test_a_view_of_a_file(cli: Cli, products: Path, tmp_path: Path) -> None:
    views = tmp_path / "own.toml"
    views.write_text(OWN)
    ran = cli("figure", products, "--views", views, "--view", "products")
    assert (ran.code, ran.err) == (0, "")
    assert "<B>%p</B>" in ran.out
    assert "What is multiplied." in ran.out
    views.write_text("[[view")
    ran = cli("figure", products, "--views", views, "--view", "products")
    assert ran.code == 2
    assert f"{views}: not TOML: " in ran.err
    ran = cli("figure", products, "--views", tmp_path / "none.toml", "--view", "products")
    assert ran.code == 2
    assert f"{tmp_path / 'none.toml'}: " in ran.err


def test_views_that_a_config_file_names(
    cli: Cli, products: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    (tmp_path / "hlolens.toml").write_text('[figure]\nviews = ["own.toml"]\n')
    monkeypatch.chdir(tmp_path)
    ran = cli("figure", products, "--view", "products")
    assert (ran.code, ran.err) == (0, "")
    assert "What is multiplied." in ran.out


def test_what_a_config_file_says_of_graphs_does_not_stop_a_schedule(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(ASYNC.replace("HloModule later", "HloModule later, is_scheduled=true"))
    (tmp_path / "hlolens.toml").write_text('[figure]\nnodes = 60\nradius = 1\nkeep = "layout"\n')
    monkeypatch.chdir(tmp_path)
    assert cli("figure", path, "--view", "overlap").code == 0
    ran = cli("figure", path, "--view", "overlap", "--radius", "2")
    assert ran.code == 2
    assert "so --radius would change nothing" in ran.err


def test_a_refusal_counts_the_rows_of_ones_own_views(cli: Cli, large: Path, tmp_path: Path) -> None:
    views = tmp_path / "own.toml"
    views.write_text(OWN)
    assert "--view products (1 row)" in cli("figure", large, "--views", views).err
