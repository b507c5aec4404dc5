"""The version of hlo_lens, in one place."""

__version__ = "0.1.0"
