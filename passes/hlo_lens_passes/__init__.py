"""Rule passes: each module fills the tables it owns.

PYTEST_DONT_REWRITE, as in `hlo_lens`.
"""
