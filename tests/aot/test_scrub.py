"""Paths of the machine do not stay in the text."""

from __future__ import annotations

import re

import pytest

from hlo_lens.aot.scrub import Roots

ROOTS = Roots.of(
    "/home/ann/project",
    ["/home/ann/project", "", "/home/ann/libs", "/home/ann/libs/inner", "/opt/py/lib/python3.12",
     "/opt/py/lib/python3.12/site-packages", "/"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/home/ann/project/model.py", "model.py"),
        ("/home/ann/project/nets/llama.py", "nets/llama.py"),
        ("/home/ann/libs/nets.py", "nets.py"),
        ("/home/ann/libs/inner/deep/nets.py", "deep/nets.py"),
        ("/opt/py/lib/python3.12/site-packages/flax/linen.py", "site-packages/flax/linen.py"),
        ("/home/ann/project/.venv/lib/python3.12/site-packages/a.py", "site-packages/a.py"),
        ("/usr/lib/python3/dist-packages/a.py", "dist-packages/a.py"),
        ("/opt/py/lib/python3.12/runpy.py", "python3.12/runpy.py"),
        ("/elsewhere/on/this/machine/x.py", "x.py"),
        # Not below the folder, though it begins alike.
        ("/home/ann/project2/x.py", "x.py"),
        # No path of a machine.
        ("nets/llama.py", "nets/llama.py"),
        ("<ipython-input-3>", "<ipython-input-3>"),
    ],
)
def test_a_path(path: str, told: str) -> None:
    assert ROOTS.path(path) == told
    # jax cuts off every match of the same pattern.
    assert re.sub(ROOTS.pattern(), "", path) == told


def test_only_source_paths_of_a_text_are_touched() -> None:
    text = """HloModule m

FileNames
1 "/home/ann/project/model.py"
2 "/opt/py/lib/python3.12/site-packages/jax/nn.py"

ENTRY e {
  p = f32[] parameter(0), metadata={op_name="jit(f)/home/ann/project/x" source_file="/srv/a/b.py"}
  ROOT c = f32[] custom-call(p), custom_call_target="x", backend_config="/home/ann/project/kernel"
}
"""
    assert ROOTS.text(text) == text.replace("/home/ann/project/model.py", "model.py").replace(
        "/opt/py/lib/python3.12/site-packages", "site-packages"
    ).replace("/srv/a/b.py", "b.py")


def test_a_message() -> None:
    told = "No file /opt/cuda/nvvm/libdevice.bc: jit(f)/a/b and /home/ann/project/m.py:3"
    assert ROOTS.message(told) == "No file libdevice.bc: jit(f)/a/b and m.py:3"
    assert ROOTS.message("4/2 a/b/c") == "4/2 a/b/c"
