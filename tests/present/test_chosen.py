"""Names that a reader picks: exact or globs, and what is said of one that means nothing."""

from __future__ import annotations

import pytest

from hlo_lens.present.chosen import NoSuchNameError, fits, known_words


def test_a_name_fits_as_a_whole_or_as_a_glob() -> None:
    assert fits("__cudnn$fmhaSoftmax", ("__cudnn$fmhaSoftmax",))
    assert not fits("__cudnn$fmhaSoftmaxBackward", ("__cudnn$fmhaSoftmax",))
    assert fits("__cudnn$fmhaSoftmaxBackward", ("__cudnn$fmha*",))
    assert not fits("cudnn", ("CUDNN",))
    # What looks like a set of characters is also taken as it is written.
    assert fits("f[x]", ("f[x]",))
    assert not fits(None, ("*",))
    assert not fits("x", ())


def test_words_are_known_short_or_an_error_with_a_hint() -> None:
    known = ("all-gather", "all-reduce")
    assert known_words("kind", ("AG", "all-reduce"), known, {"ag": "all-gather"}) == known
    assert known_words("phase", ("none",), ("fwd",), more=("none",)) == ("none",)
    with pytest.raises(NoSuchNameError, match="no kind 'all-gether'; did you mean 'all-gather'"):
        known_words("kind", ("all-gether",), known)
    with pytest.raises(NoSuchNameError, match="no kind 'xyzzy'; there are all-gather, all-reduce"):
        known_words("kind", ("xyzzy",), known)
    with pytest.raises(NoSuchNameError, match="no kind 'x'; there are none"):
        known_words("kind", ("x",), ())
