"""Exports: what is known of a program as files that other tools open.

`write_sqlite` writes all tables of programs. `as_graphml` and `panel_graph` are of a selection,
`module_graph` of a whole module; `collection_text` makes of such graphs what Model Explorer opens.
"""

from hlo_lens.export.graphml import as_graphml
from hlo_lens.export.model_explorer import collection_text, panel_graph
from hlo_lens.export.sqlite import write_sqlite
from hlo_lens.export.whole_module import module_graph

__all__ = ["as_graphml", "collection_text", "module_graph", "panel_graph", "write_sqlite"]
