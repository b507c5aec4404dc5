"""The execution skeleton: what communicates and computes, in which loop, in the order it runs."""

from hlo_lens.tree.data import as_data
from hlo_lens.tree.lines import Options, as_lines
from hlo_lens.tree.skeleton import Item, Node, Skeleton, Total, skeleton

__all__ = ["Item", "Node", "Options", "Skeleton", "Total", "as_data", "as_lines", "skeleton"]
