"""What a laid-out figure says of itself: title, alternative text, and where it is from.

An SVG also loses what Graphviz leaves in it and gets ids of its own, so that several stand on one
page. A PDF is left as it is: its caption tells where it is from.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Mapping

from hlo_lens._version import __version__
from hlo_lens.figure.layout import LayoutError, OutputFormat
from hlo_lens.present.quantities import visible

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
ET.register_namespace("", _SVG)
ET.register_namespace("xlink", _XLINK)

_REFERENCE = re.compile(r"url\(#([^)]+)\)")

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER = len(_PNG) + 4 + 4 + 13 + 4  # the signature and the first chunk, IHDR


def annotated(
    data: bytes,
    output_format: OutputFormat,
    *,
    title: str,
    description: str,
    provenance: Mapping[str, object],
) -> bytes:
    """`data`, a picture that Graphviz made, with `title`, `description` and `provenance` in it.

    title: a few words. description: what stands for the figure where it cannot be seen; may have
    several lines. provenance: what JSON can hold. The same input gives the same bytes.

    In an SVG they are `<title>`, `<desc>` and, as JSON, `<metadata>`; in a PNG the texts Title,
    Description and, as JSON, Source. A PDF is returned as it is. Raises `LayoutError` for an SVG
    that is no XML, which a control character in a label makes.
    """
    words, described = _lines(title), _lines(description)
    if output_format == "svg":
        return _svg(data, words, described, _json(provenance))
    if output_format == "png":
        texts = {
            "Title": words,
            "Description": described,
            "Software": f"hlo_lens {__version__}",
            "Source": _json(provenance),
        }
        return _png(data, texts)
    return data


def _lines(value: str) -> str:
    """`value` without the control characters that XML and PNG forbid; lines stay lines."""
    return "\n".join(visible(line) for line in value.split("\n"))


def _json(provenance: Mapping[str, object]) -> str:
    """JSON in ASCII that has no markup in it, however it is cut out of the file."""
    text = json.dumps(provenance, sort_keys=True, ensure_ascii=True)
    for sign in "<>&\x7f":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


# --- SVG -------------------------------------------------------------------------------------


def _svg(data: bytes, title: str, description: str, metadata: str) -> bytes:
    try:
        root = ET.fromstring(data)  # leaves out the comments, which hold names of nodes
    except ET.ParseError as problem:
        raise LayoutError(f"Graphviz wrote an SVG that is not well-formed: {problem}") from None
    # The same figure has the same ids; what differs in anything does not share one.
    parts = (data, title.encode(), description.encode(), metadata.encode())
    digest = hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts))
    prefix = f"h{digest.hexdigest()[:12]}-"
    _drop_titles(root)
    _scope_ids(root, prefix)
    root.set("role", "img")
    root.set("aria-labelledby", f"{prefix}title {prefix}desc")
    own = {"title": title, "desc": description, "metadata": metadata}
    for position, (name, text) in enumerate(own.items()):
        element = ET.Element(f"{{{_SVG}}}{name}", {"id": f"{prefix}{name}"})
        element.text = text
        element.tail = "\n"
        root.insert(position, element)
    # No declaration: UTF-8 is the default, and HTML that holds the figure has no place for one.
    return ET.tostring(root, encoding="unicode").encode() + b"\n"


def _drop_titles(root: ET.Element) -> None:
    """Drop the titles of nodes, edges and clusters: Graphviz puts its ids of them there.

    What a person may read is in the labels and in the tooltips (`xlink:title`), which stay.
    """
    for group in root.iter(f"{{{_SVG}}}g"):
        for title in group.findall(f"{{{_SVG}}}title"):
            group.remove(title)


def _scope_ids(root: ET.Element, prefix: str) -> None:
    """Put `prefix` before each id and in each reference to one."""
    ids = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}

    def scoped(found: re.Match[str]) -> str:
        return f"url(#{prefix}{found[1]})" if found[1] in ids else found[0]

    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, prefix + value)
            elif key in ("href", f"{{{_XLINK}}}href"):
                if value[:1] == "#" and value[1:] in ids:
                    element.set(key, f"#{prefix}{value[1:]}")
            elif key != f"{{{_XLINK}}}title":
                element.set(key, _REFERENCE.sub(scoped, value))


# --- PNG -------------------------------------------------------------------------------------


def _png(data: bytes, texts: Mapping[str, str]) -> bytes:
    """`data` with an iTXt chunk a text behind its header (PNG specification, 11.3.3.4)."""
    if not data.startswith(_PNG):
        raise LayoutError("Graphviz wrote no PNG")
    chunks = b"".join(_international_text(key, text) for key, text in texts.items())
    return data[:_PNG_HEADER] + chunks + data[_PNG_HEADER:]


def _international_text(keyword: str, text: str) -> bytes:
    """An iTXt chunk: keyword, uncompressed, no language, no translated keyword, UTF-8."""
    kind, body = b"iTXt", keyword.encode("latin-1") + b"\0\0\0\0\0" + text.encode()
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
