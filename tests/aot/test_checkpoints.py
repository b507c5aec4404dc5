"""The regions under a checkpoint, and what their policies answer, read from jaxprs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from hlo_lens.aot.checkpoints import checkpoints
from tests.aot.test_residuals import LAYERS, net

pytestmark = pytest.mark.jax

SAVED, OFFLOADED, RECOMPUTED = "saved", "offloaded", "recomputed"


def told(function: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    import jax

    return checkpoints(jax.jit(function).trace(*arguments).jaxpr)


def regions(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[dict[str, Any]]:
    found = told(function, arguments)
    assert found["checkpoints_known"]
    assert isinstance(found["checkpoints"], list)
    return found["checkpoints"]


def arrays() -> tuple[Any, Any]:
    _, (weights, x) = net("none", scanned=True)
    return weights, x


def scanned(layer: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a loss over `layer`, in a scan over the weights."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, x: Any) -> Any:
        with jax.named_scope("decoder"):
            return jnp.sum(jax.lax.scan(lambda h, w: (layer(h, w), None), x, weights)[0])

    return jax.grad(loss)


def block(h: Any, w: Any) -> Any:
    """tanh of a product with a name, and a name that no backward needs."""
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name

    return checkpoint_name(jnp.tanh(checkpoint_name(h @ w, "hidden")) + h, "sum")


def under(policy: Any, layer: Callable[..., Any] = block) -> Callable[..., Any]:
    import jax

    wrapped: Callable[..., Any] = jax.checkpoint(layer, policy=policy, prevent_cse=False)
    return wrapped


POLICIES = {
    "full": ("nothing_saveable", RECOMPUTED, False, []),
    "dots": ("dots_saveable", RECOMPUTED, True, []),
    "named": (None, SAVED, True, []),
    "mistyped": (None, RECOMPUTED, False, []),
    "offload": (None, OFFLOADED, True, ["pinned_host"]),
}


@pytest.mark.parametrize("in_scan", [False, True], ids=["unrolled", "scanned"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_asked(policy: str, in_scan: bool) -> None:
    import jax

    name, answer, saves, offloads = POLICIES[policy]
    loss, arguments = net(policy, scanned=in_scan)
    for function in (loss, jax.grad(loss), jax.value_and_grad(loss, argnums=(0, 1))):
        (region,) = regions(function, arguments)
        assert region["names"] == {"hidden": answer}
        assert (region["saves"], region["offloads"]) == (saves, offloads)
        assert (region["function"], region["count"]) == ("layer", LAYERS)
        assert region["prevent_cse"] is not in_scan
        assert region["source"].rpartition(":")[0].endswith("test_residuals.py")
        assert name is None or region["policy"] == name


def test_the_names_that_a_policy_was_made_with() -> None:
    import jax

    policies = jax.checkpoint_policies
    both = policies.save_from_both_policies

    def names(policy: Any) -> object:
        (region,) = regions(scanned(under(policy)), arrays())
        return region["policy_names"]

    assert names(policies.save_only_these_names("b", "a")) == ["a", "b"]
    assert names(policies.save_only_these_names()) == []
    assert names(both(policies.dots_saveable, policies.save_only_these_names("a"))) == ["a"]
    offload = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip
    assert names(offload) == ["a", "b"]
    # Names to leave out are none that it asks for; what else a function does is its own affair.
    for other in (policies.save_any_names_but_these("a"), policies.dots_saveable, None):
        assert names(other) is None
    assert names(lambda *args, **params: policies.save_only_these_names("a")(*args, **params)) is (
        None
    )


def test_a_policy_has_the_name_of_what_it_is() -> None:
    import jax

    def of_mine(prim: Any, *_: Any, wanted: str = "tanh", **__: Any) -> bool:
        return bool(prim.name == wanted)

    def name(policy: Any) -> object:
        (region,) = regions(scanned(under(policy)), arrays())
        return region["policy"]

    mine = "test_a_policy_has_the_name_of_what_it_is.of_mine"
    assert name(of_mine) == name(functools.partial(of_mine, wanted="sin")) == mine
    assert name(None) is None
    assert name(jax.checkpoint_policies.everything_saveable) == "everything_saveable"
    assert name(jax.checkpoint_policies.save_only_these_names("hidden")) == "SaveOnlyTheseNames"


def test_names_that_no_backward_needs_are_those_of_the_function_alone() -> None:
    import jax
    import jax.numpy as jnp

    layer = under(jax.checkpoint_policies.save_only_these_names("sum"))
    function = scanned(layer)
    (of_gradient,) = regions(function, arrays())
    assert of_gradient["names"] == {"hidden": RECOMPUTED}
    assert not of_gradient["saves"]  # though the policy would: nobody asks for it
    assert told(function, arrays())["checkpoint_names"] == ["hidden", "sum"]
    (of_loss,) = regions(lambda weights, x: jnp.sum(layer(x, weights[0])), arrays())
    assert of_loss["names"] == {"hidden": RECOMPUTED, "sum": SAVED}


def test_a_checkpoint_in_a_checkpoint() -> None:
    import jax
    from jax.ad_checkpoint import checkpoint_name

    named = jax.checkpoint_policies.save_only_these_names
    inner = under(named("hidden"))

    def pair(h: Any, w: Any) -> Any:
        with jax.named_scope("pair"):
            return inner(checkpoint_name(jax.numpy.sin(inner(h, w)), "middle"), w)

    within, around = regions(scanned(under(named("middle"), pair)), arrays())
    assert (within["function"], within["scopes"]) == ("block", ["decoder/pair"])
    assert (within["names"]["hidden"], within["saves"]) == (SAVED, True)
    assert within["count"] == 2 * LAYERS
    assert (around["function"], around["scopes"]) == ("pair", ["decoder"])
    assert (around["names"]["middle"], around["names"]["hidden"]) == (SAVED, RECOMPUTED)
    assert (around["count"], around["saves"]) == (LAYERS, True)


def test_layers_in_scopes_of_their_own_are_one_region() -> None:
    import jax

    layer = under(None)

    def loss(weights: Any, x: Any) -> Any:
        for index in range(LAYERS):
            with jax.named_scope(f"layer_{index}"):
                x = layer(x, weights[index])
        return jax.numpy.sum(x)

    (region,) = regions(jax.value_and_grad(loss), arrays())
    assert region["count"] == LAYERS
    assert sorted(region["scopes"]) == [f"layer_{index}" for index in range(LAYERS)]
    assert (region["policy"], region["saves"]) == (None, False)


def test_two_policies_are_two_regions() -> None:
    import jax

    named = jax.checkpoint_policies.save_only_these_names
    layers = [under(named("hidden")), under(named("hiden"))]

    def loss(weights: Any, x: Any) -> Any:
        for index, layer in enumerate(layers):
            x = layer(x, weights[index])
        return jax.numpy.sum(x)

    found = regions(jax.grad(loss), arrays())
    assert sorted((region["policy_names"], region["saves"]) for region in found) == [
        (["hidden"], True),
        (["hiden"], False),
    ]


@pytest.mark.parametrize(
    ("name", "names", "saves"),
    [("hidden", {}, None), ("hiden", {"hidden": RECOMPUTED}, False)],
)
def test_what_is_saved_within_a_branch_is_not_seen(
    name: str, names: dict[str, str], saves: bool | None
) -> None:
    import jax

    def branching(h: Any, w: Any) -> Any:
        return jax.lax.cond(h[0, 0] > 0, lambda h: block(h, w), lambda h: h, h)

    policy = jax.checkpoint_policies.save_only_these_names(name)

    def loss(weights: Any, x: Any) -> Any:
        return jax.numpy.sum(under(policy, branching)(x, weights[0]))

    (region,) = regions(jax.grad(loss), arrays())
    assert (region["names"], region["saves"]) == (names, saves)


def test_a_scan_and_a_jit_in_a_region_are_looked_into() -> None:
    import jax

    policy = jax.checkpoint_policies.save_only_these_names("hidden")

    def all_layers(x: Any, weights: Any) -> Any:
        return jax.lax.scan(lambda h, w: (jax.jit(block)(h, w), None), x, weights)[0]

    def loss(weights: Any, x: Any) -> Any:
        return jax.numpy.sum(under(policy, all_layers)(x, weights))

    (region,) = regions(jax.grad(loss), arrays())
    assert region["names"] == {"hidden": SAVED, "sum": RECOMPUTED}
    assert (region["saves"], region["count"]) == (True, 1)


def test_accumulation_repeats_a_region() -> None:
    import jax.numpy as jnp
    from jax import lax

    gradient = scanned(under(None))

    def accumulated(weights: Any, x: Any) -> Any:
        def step(total: Any, _: Any) -> Any:
            return total + gradient(weights, x), None

        return lax.scan(step, jnp.zeros_like(weights), None, length=5)[0]

    (region,) = regions(accumulated, arrays())
    assert region["count"] == 5 * LAYERS


def test_an_answer_that_is_none_is_not_known() -> None:
    def says(answer: object) -> Callable[..., object]:
        return lambda prim, *_, **__: answer if prim.name == "name" else False

    def fails(prim: Any, *_: Any, **params: Any) -> bool:
        return bool(prim.name == "name" and params["nothing"])

    def first(layer: Callable[..., Any], weights: Any, x: Any) -> Any:
        return layer(x, weights[0])

    # jax itself would refuse these where it differentiates.
    for policy in (says("yes"), fails):
        (region,) = regions(functools.partial(first, under(policy)), arrays())
        assert region["names"] == {"hidden": None, "sum": None}


def test_without_a_checkpoint_there_is_no_region() -> None:
    found = told(scanned(block), arrays())
    assert (found["checkpoints_known"], found["checkpoints"]) == (True, [])
    assert found["checkpoint_names"] == ["hidden", "sum"]


def test_a_region_without_an_equation_is_not_known() -> None:
    import jax

    gradient = scanned(under(None))
    twice = jax.grad(lambda weights, x: jax.numpy.sum(gradient(weights, x)))
    of_twice = told(twice, arrays())
    assert (of_twice["checkpoints_known"], of_twice["checkpoints"]) == (False, [])
    assert "without an equation" in of_twice["checkpoints_how"]


def test_the_newer_checkpoint_is_not_known() -> None:
    import jax

    if not hasattr(jax.config, "jax_remat3"):
        pytest.skip("this jax has one checkpoint")
    jax.config.update("jax_remat3", True)
    try:
        gradient = scanned(under(jax.checkpoint_policies.save_only_these_names("hidden")))
        assert not told(gradient, arrays())["checkpoints_known"]
    finally:
        jax.config.update("jax_remat3", False)
