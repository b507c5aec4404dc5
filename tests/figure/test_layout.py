"""Layout by both engines: what they are given is shown as it is, and failures are sentences."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from hlo_lens.figure import layout
from hlo_lens.figure.escape import quoted, text, tooltip
from hlo_lens.figure.layout import LayoutError, engine, render
from hlo_lens.present.quantities import visible

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"

THERE = {"dot": shutil.which("dot"), "pygraphviz": find_spec("pygraphviz")}

HOSTILE = (
    "</script><script>alert(1)</script>", "<b>x</b>", "<>", '"', "'", '\\"', "&amp;", "&#65;", "&",
    r"\N", r"\G", r"\E\T\H\L", r"\n", r"\l", r"\\", r"\\N", r"\\\N", "end\\", "]]>", "a--b", "-->",
    "two\nlines", "\r", "\t", "".join(map(chr, range(32))), "\x7f\x80", "\u202ertl", "\ud800",
    "\ufffe", "é😀", "%s%n", "javascript:x", "graph", "1.5", "fusion.12:s",
)  # fmt: skip


@pytest.fixture(params=["dot", "pygraphviz"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an engine, which is chosen. pygraphviz must do without anything on PATH."""
    name = str(request.param)
    if not THERE[name]:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setenv("HLOLENS_LAYOUT", name)
    if name == "pygraphviz":
        monkeypatch.setenv("PATH", "")
    return name


def tree(svg: bytes) -> ET.Element:
    root = ET.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "g", "title", "text", "polygon", "path", "ellipse", "a"
    }  # fmt: skip
    assert not [key for element in root.iter() for key in element.attrib if key.startswith("on")]
    return root


def shown(svg: bytes) -> list[str]:
    return ["".join(each.itertext()) for each in tree(svg).iter(f"{SVG}text")]


def tips(svg: bytes) -> list[str | None]:
    return [each.get(f"{XLINK}title") for each in tree(svg).iter(f"{SVG}a")]


def dot_of(kind: str, values: tuple[str, ...]) -> str:
    """DOT as the graphviz package writes it, with `values` where `kind` says."""
    import graphviz

    graph = graphviz.Digraph()
    for number, value in enumerate(values):
        place = {
            "label": {"label": quoted(value)},
            "html": {"label": f"<<TABLE><TR><TD>{text(value)}</TD></TR></TABLE>>"},
            "bold": {"label": f"<<B>{text(value)}</B>>"},
            "tooltip": {"label": "x", "tooltip": tooltip(value)},
            "cell": {"label": f'<<TABLE><TR><TD HREF="#" TOOLTIP="{text(value)}">x</TD></TR>'
                     "</TABLE>>"},
        }[kind]  # fmt: skip
        graph.node(f"n{number}", **place)
    return str(graph.source)


@pytest.mark.parametrize("kind", ["label", "html", "bold", "tooltip", "cell"])
def test_hostile_text_is_shown_as_it_is(by: str, kind: str) -> None:
    svg = render(dot_of(kind, HOSTILE), "svg")
    found = tips(svg) if kind in ("tooltip", "cell") else shown(svg)
    assert found == [visible(value) for value in HOSTILE]


def test_hostile_text_of_edges_clusters_and_the_graph_is_shown_as_it_is(by: str) -> None:
    import graphviz

    for value in HOSTILE:
        graph = graphviz.Digraph(
            graph_attr={"label": quoted(value), "tooltip": tooltip(value)},
            node_attr={"label": ""},
        )
        graph.edge("n0", "n1", label=quoted(value), edgetooltip=tooltip(value))
        with graph.subgraph(
            name="cluster_0", graph_attr={"label": quoted(value), "tooltip": tooltip(value)}
        ) as cluster:
            cluster.node("n0")
        svg = render(graph.source, "svg")
        assert shown(svg) == [visible(value)] * 3
        assert [tip for tip in tips(svg) if tip is not None] == [visible(value)] * 3


def test_a_url_is_one_attribute_that_says_what_it_said(by: str) -> None:
    url = 'https://e.org/?a=1&b="x"<y>\\N'
    root = tree(render(f'digraph {{ a [label=x, URL="{quoted(url)}"] }}', "svg"))
    assert [each.get(f"{XLINK}href") for each in root.iter(f"{SVG}a")] == [url]


def test_lines_of_a_label_and_of_a_tooltip_are_joined_by_n(by: str) -> None:
    label, tip = rf"{quoted('a')}\n{quoted('b')}", rf"{tooltip('a')}\n{tooltip('b')}"
    svg = render(f'digraph {{ n [label="{label}", tooltip="{tip}"] }}', "svg")
    assert shown(svg) == ["a", "b"]
    assert tips(svg) == ["a\nb"]


def test_labels_by_default_are_drawn(by: str) -> None:
    dot = 'digraph { node [label="by default"]; edge [label="to"]; a; b [label="own"]; a -> b }'
    assert sorted(shown(render(dot, "svg"))) == ["by default", "own", "to"]


def test_every_format_comes_out(by: str) -> None:
    dot = 'digraph { a [label="x"] }'
    assert render(dot, "png").startswith(b"\x89PNG\r\n")
    assert render(dot, "pdf").startswith(b"%PDF-")
    assert render(dot, "svg") == render(dot, "svg")


def test_the_engine_names_itself_with_its_version(by: str) -> None:
    pattern = {"dot": r"dot \d+\.\d+\.\d+", "pygraphviz": r"pygraphviz 2\.\S+, Graphviz \d+\.\S+"}
    assert re.fullmatch(pattern[by], engine())


@pytest.mark.parametrize(
    ("dot", "says"),
    [
        ("digraph { a -> ", "syntax error in line 1"),
        ("no graph", "syntax error in line 1"),
        ("", "failed"),
        ("digraph { a [label=<<FOO>x</FOO>>] }", "Unknown HTML element <FOO>"),
        ('digraph { a [label="\0"] }', "quoted string"),
    ],
)
def test_what_the_engine_cannot_lay_out_is_a_sentence(by: str, dot: str, says: str) -> None:
    with pytest.raises(LayoutError) as raised:
        render(dot, "svg")
    sentence = raised.value.render()
    assert sentence.startswith(f"{by} failed: ")
    assert says in sentence
    assert "Traceback" not in sentence
    assert "\n" not in sentence


def test_a_lone_surrogate_in_dot_is_no_crash(by: str) -> None:
    assert shown(render('digraph { a [label="x\ud800"] }', "svg")) == ["xud800"]


def test_warnings_are_told_and_fontconfig_is_not(
    by: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "fonts.conf"
    config.write_text("<fontconfig><nonsense/><dir>/usr/share/fonts</dir></fontconfig>")
    monkeypatch.setenv("FONTCONFIG_FILE", str(config))
    render("digraph { a [shape=nosuch] }", "svg")
    assert capfd.readouterr() == ("", "Warning: using box for unknown shape nosuch\n")


def test_it_works_where_there_is_no_standard_error(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    assert shown(render('digraph { a [shape=nosuch, label="x"] }', "svg")) == ["x"]


@pytest.fixture
def no_fonts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux is known without fonts")
    config = tmp_path / "fonts.conf"
    config.write_text("<fontconfig></fontconfig>")
    monkeypatch.setenv("FONTCONFIG_FILE", str(config))
    layout._has_fonts.cache_clear()
    yield
    layout._has_fonts.cache_clear()


def test_without_fonts_text_of_an_svg_is_text_and_a_png_is_refused(
    by: str, no_fonts: None
) -> None:
    dot = 'digraph { a [label="fusion.1"] }'
    assert shown(render(dot, "svg")) == ["fusion.1"]
    for output_format in ("png", "pdf"):
        with pytest.raises(LayoutError, match=r"no font is installed.* would be boxes; .*font"):
            render(dot, output_format)  # type: ignore[arg-type]


# --- which engine ----------------------------------------------------------------------------


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A PATH with nothing but `names`, which fail."""
    for name in names:
        program = folder / name
        program.write_text("#!/bin/sh\nkill -9 $$\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("HLOLENS_LAYOUT", raising=False)


def without_pygraphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "find_spec", lambda _name: None)


@pytest.mark.skipif(not all(THERE.values()), reason="dot or pygraphviz is not installed")
def test_dot_is_taken_where_it_is_and_pygraphviz_where_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HLOLENS_LAYOUT", raising=False)
    assert engine().startswith("dot ")
    monkeypatch.setenv("PATH", "")
    assert engine().startswith("pygraphviz ")


@pytest.mark.parametrize(
    ("there", "wheel", "line"),
    [
        ("apt-get", True, 'pip install "pygraphviz>=2.0.4"'),
        ("apt-get", False, "apt install graphviz"),
        ("apk", False, "apk add graphviz font-dejavu"),
        ("dnf", False, "dnf install graphviz"),
        ("winget", False, "winget install graphviz"),
        ("none-known", False, "install Graphviz: https://graphviz.org/download"),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="makes programs of /bin/sh")
def test_without_an_engine_the_message_ends_in_the_line_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, wheel: bool, line: str
) -> None:
    programs(tmp_path, monkeypatch, there)
    without_pygraphviz(monkeypatch)
    monkeypatch.setattr(layout, "_has_wheel", lambda: wheel)
    for call in (engine, lambda: render("digraph {}", "svg")):
        with pytest.raises(LayoutError) as raised:
            call()
        assert raised.value.render() == (
            f"no layout engine: neither `dot` nor pygraphviz is installed; {line}"
        )


def test_the_engine_chosen_is_taken_or_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    without_pygraphviz(monkeypatch)
    for choice, says in {
        "dot": "HLOLENS_LAYOUT is dot, but no `dot` is on PATH; install",
        "pygraphviz": 'is not installed; pip install "pygraphviz>=2.0.4"',
        "neato": "HLOLENS_LAYOUT is 'neato'; it may be dot or pygraphviz",
    }.items():
        monkeypatch.setenv("HLOLENS_LAYOUT", choice)
        with pytest.raises(LayoutError) as raised:
            engine()
        assert says in str(raised.value)


@pytest.mark.skipif(os.name != "posix", reason="makes programs of /bin/sh")
def test_an_engine_that_is_killed_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, "dot")
    with pytest.raises(LayoutError, match="dot failed: it was ended by signal 9"):
        render("digraph {}", "svg")
    with pytest.raises(LayoutError, match="`dot` does not tell its version"):
        engine()


def test_it_takes_pygraphviz_of_the_path_of_this_process_and_not_of_the_folder_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of that name in the current folder is no engine; Python would take it with `-c`."""
    if not THERE["pygraphviz"]:
        pytest.skip("pygraphviz is not installed")
    (tmp_path / "pygraphviz.py").write_text("raise SystemExit('not me')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HLOLENS_LAYOUT", "pygraphviz")
    assert shown(render('digraph { a [label="x"] }', "svg")) == ["x"]


def test_the_layout_loads_no_engine_before_it_is_asked() -> None:
    program = (
        "import sys, hlo_lens.figure.layout, hlo_lens.figure.annotate;"
        "print({'graphviz', 'pygraphviz'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "set()\n", ran.stderr
