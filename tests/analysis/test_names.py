"""Paths in op_names."""

from __future__ import annotations

import pytest

from hlo_lens.analysis import last_component, split_path
from hlo_lens.analysis.names import PHASES, is_absolute, rank_of


@pytest.mark.parametrize(
    ("op_name", "path"),
    [
        ("jit(f)/jvp(a/b)/mul", ("jit(f)", "jvp(a/b)", "mul")),
        ("params['a/b']['c']", ("params['a/b']['c']",)),
        ("jit(f)/dot_general[dims=(((1,), (0,)), ((), ()))]", None),
        ("(ws[0]:ws[1])", ("ws[0]", "ws[1]")),
        ("(jit(f)/a:jit(f)/b/c)", ("jit(f)", "a", "jit(f)", "b", "c")),
        ("jit(f)/(a:b)", ("jit(f)", "a", "b")),
        ("(a)", ("(a)",)),
        ("btd,de->bte/dot_general", ("btd,de->bte", "dot_general")),
        ("a)/b(/c", ("a)", "b(", "c")),
        ("a//b", ("a", "b")),
        ("", ()),
    ],
)
def test_split_path(op_name: str, path: tuple[str, ...] | None) -> None:
    if path is None:
        path = tuple(op_name.split("/"))
    assert split_path(op_name) == path


@pytest.mark.parametrize(
    ("op_name", "phase"),
    [
        ("jit(f)/jvp(g)/dot_general", "fwd"),
        ("jit(f)/transpose(jvp(g))/dot_general", "bwd"),
        ("jit(f)/vmap(transpose(jvp(g)))/dot_general", "bwd"),
        ("jit(f)/transpose(jvp(g))/checkpoint/rematted_computation/dot_general", "remat"),
        ("jit(f)/jvp(checkpoint)/dot_general", "fwd"),
        ("jit(f)/transpose(jvp(g))/checkpoint/mul", "bwd"),
        ("jit(f)/vmap(rematted_computation)/mul", "remat"),
        ("jit(f)/rematted_computation_x/mul", "other"),
        ("jit(f)/transpose[permutation=(1, 0)]", "other"),
        ("jit(f)/pallas_call[name=jvp(g)]", "other"),
        ("jit(f)/my_transpose(x)/add", "other"),
        ("jit(f)/custom_jvp(x)/add", "other"),
        ("jit(f)/transpose", "other"),
        ("(jit(f)/jvp(g)/a:jit(f)/transpose(jvp(g))/b)", "bwd"),
        ("x", "other"),
    ],
)
def test_phase_of_a_name(op_name: str, phase: str) -> None:
    assert PHASES[rank_of(op_name)] == phase


@pytest.mark.parametrize(
    ("op_name", "last"),
    [
        ("jit(f)/vmap(scatter-add)", "scatter-add"),
        ("jit(f)/while[cond_nconsts=0]", "while"),
        ("jit(f)/transpose(jvp(a/b))", "a/b"),
        ("add", "add"),
        ("", None),
    ],
)
def test_last_component(op_name: str, last: str | None) -> None:
    assert last_component(op_name) == last


def test_absolute_paths() -> None:
    assert is_absolute("jit(f)/x")
    assert is_absolute("pjit(f)/x")
    assert is_absolute("(jit(f)/a:jit(f)/b)")
    assert not is_absolute("closed_call/jit(f)/x")
    assert not is_absolute("jitter(f)")


def test_absolute_paths_of_a_program() -> None:
    assert is_absolute("jit(f)", "jit(f)")
    assert is_absolute("(jit(f)/a:jit(f)/b)", "jit(f)")
    assert is_absolute("(jit(<lambda>):jit(<lambda>)/b)", "jit(<lambda>)")
    assert not is_absolute("jit(gather)/x", "jit(f)")
    assert not is_absolute("jit(f2)/x", "jit(f)")
