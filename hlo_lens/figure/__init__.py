"""Figures: a small part of a program, drawn from its text.

`draw(program, view="remat")` gives a `Figure`, which shows itself in a notebook and writes itself
as SVG, PNG, PDF or DOT (`save`). Every node is a written instruction, every edge an operand path.
"""

from hlo_lens.figure.drawing import draw, views_with_rows
from hlo_lens.figure.model import Cluster, Edge, Node, Panel
from hlo_lens.figure.picture import FORMATS, Figure, Format, format_of
from hlo_lens.figure.selecting import NothingSelectedError
from hlo_lens.figure.themes import THEMES, ThemeName
from hlo_lens.figure.views import Frame, Select, View, Views, views

__all__ = [
    "FORMATS",
    "THEMES",
    "Cluster",
    "Edge",
    "Figure",
    "Format",
    "Frame",
    "Node",
    "NothingSelectedError",
    "Panel",
    "Select",
    "ThemeName",
    "View",
    "Views",
    "draw",
    "format_of",
    "views",
    "views_with_rows",
]
