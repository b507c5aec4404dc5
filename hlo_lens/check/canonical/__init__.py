"""The canonical text of a module: what CHECK lines are run on."""

from hlo_lens.check.canonical.text import CanonicalText, canonical_text

__all__ = ["CanonicalText", "canonical_text"]
