"""Text of a file in Markdown: what is read stays, nothing acts, on GitHub neither."""

from __future__ import annotations

import html
import re

import pytest

from hlo_lens.present.markdown import code, escaped, folded, image, in_html

markdown_it = pytest.importorskip("markdown_it")

HOSTILE = (
    "</details><script>alert(1)</script>",
    "a|b`c` *d* _e_ __f__ ~~g~~ $h$ \\| [i](http://j) ![k](l) [m][n] [o]: p",
    "@octocat and org/repo@abc #12 GH-34 org/repo#5",
    "http://a.example www.b.example c@d.example :bug: &amp; &#35; <!-- x -->",
    "# a ## #",
    "- [x] a",
    "1. a",
    "> a",
    "`",
    "``a`` `b",
    "a\nb",
    "===",
)
WRITERS = {
    "a paragraph": lambda text: escaped(text),
    "an item": lambda text: f"- {escaped(text)}",
    "a heading": lambda text: f"## {escaped(text)}",
    "a cell": lambda text: f"| a | b |\n|---|---|\n| {escaped(text)} | 1 |",
    "code": lambda text: f"- {code(text)}",
    "a title": lambda text: "\n".join(folded(text, ["body"])),
}


def shown(page: str) -> str:
    """The page as HTML, by the rules of GitHub for Markdown; its filters come behind."""
    rules = markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return str(rules.render(page))


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("where", WRITERS)
def test_text_reads_as_it_is_and_nothing_in_it_acts(where: str, text: str) -> None:
    page = shown(WRITERS[where](text))
    tags = set(re.findall(r"<(\w+)", page))
    assert not tags & {"script", "a", "img", "em", "strong", "s", "hr", "ol", "blockquote", "input"}
    assert page.count("<details>") == page.count("</details>") == (where == "a title")
    of_page = {"a heading": "h2", "a title": "summary", "a cell": "td"}.get(where, "p|li")
    inside = re.search(rf"<(?:{of_page})>\s*(.*?)\s*</(?:{of_page})>", page, re.DOTALL)
    assert inside is not None
    words = html.unescape(re.sub("<!--.*?-->|</?(?:code|p)>", "", inside[1]))
    assert words == text.replace("\n", " ")


@pytest.mark.parametrize(
    "text",
    ["@octocat", "#12", "GH-34", "http://a.example", "www.b.example", "c@d.example", ":bug:"],
)
def test_what_github_looks_for_in_the_html_is_taken_apart(text: str) -> None:
    """No escape of Markdown helps there: its filters read the HTML."""
    for page in (shown(escaped(text)), in_html(text)):
        assert text not in page
        assert text in page.replace("<!-- -->", "")


def test_what_needs_no_escape_has_none() -> None:
    for text in ("jit_train_step", "bf16[4,8]{1,0:T(8,128)}", "model.py:12", "-5", "a#b", "a @ b"):
        assert escaped(text) == text
    assert escaped("__cudnn$x_") == r"\_\_cudnn\$x\_"


def test_an_image_has_its_text_and_its_path() -> None:
    page = shown(image("a ](b) <c> @d", "fig ures/a(1).svg"))
    assert page == '<p><img src="fig%20ures/a%281%29.svg" alt="a ](b) &lt;c&gt; @d" /></p>\n'
