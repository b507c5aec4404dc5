r"""Text of a file as it must stand in DOT, so that it is shown as it is and nothing in it acts.

Where Graphviz looks for `\N`, `\l` and entities differs by place, hence a function for each place;
what holds was measured with `dot` 2.43 and with Graphviz 14.1 (`tests/figure/test_layout.py`). All
of them put control characters, newlines, text-direction marks and lone surrogates as escapes, as
`hlo_lens.present.quantities.visible` does, and `<`, `>`, `&` and quotes as entities: what they give
never ends an attribute and is never read as markup, also when it is put together with other texts.
"""

from __future__ import annotations

import html

from hlo_lens.present.quantities import visible


def text(value: str) -> str:
    r"""`value` between the tags of an HTML-like label, or in an attribute of a tag (TOOLTIP, HREF).

    `\N`, `\G` and the like are replaced there too, once the tags are read, so a backslash is
    doubled. Lines are set by `<BR/>`, not by `\n`, which is shown.
    """
    return _literal(value, "\\\\")


def quoted(value: str) -> str:
    r"""`value` in a plain label or URL, as `graphviz` takes it (which adds the quotes around).

    A backslash is doubled; lines that are joined by `\n`, `\l` or `\r` are lines.
    """
    return _literal(value, "\\\\")


def tooltip(value: str) -> str:
    r"""`value` in a plain tooltip (of a node, edge, cluster or graph), as `graphviz` takes it.

    Graphviz resolves backslashes in it twice, so each is four. Lines are joined by `\n`.
    """
    return _literal(value, "\\\\\\\\")


def _literal(value: str, backslash: str) -> str:
    return html.escape(visible(value)).replace("\\", backslash)
