"""What a function keeps for its backward pass, read from jaxprs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hlo_lens.aot.residuals import saved_residuals

pytestmark = pytest.mark.jax

LAYERS, TOKENS, WIDTH = 3, 4, 8


def net(policy: str, *, scanned: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """tanh(x @ w), LAYERS times: a loss, and its arguments."""
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name

    def layer(h: Any, w: Any) -> Any:
        return jnp.tanh(checkpoint_name(h @ w, "hidden"))

    rules = jax.checkpoint_policies
    policies = {
        "full": rules.nothing_saveable,
        "dots": rules.dots_saveable,
        "named": rules.save_only_these_names("hidden"),
        "mistyped": rules.save_only_these_names("hiden"),
        "offload": rules.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"],
            offload_src="device", offload_dst="pinned_host",
        ),
    }  # fmt: skip
    if policy != "none":
        layer = jax.checkpoint(layer, policy=policies[policy], prevent_cse=not scanned)

    def loss(weights: Any, x: Any) -> Any:
        if scanned:
            return jnp.sum(jax.lax.scan(lambda h, w: (layer(h, w), None), x, weights)[0])
        for index in range(LAYERS):
            x = layer(x, weights[index])
        return jnp.sum(x)

    weights = jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), jnp.float32)
    return loss, (weights, jax.ShapeDtypeStruct((TOKENS, WIDTH), jnp.float32))


def told(function: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    import jax

    return saved_residuals(jax.jit(function).trace(*arguments).jaxpr, function, arguments)


def names(residuals: list[dict[str, Any]]) -> list[str]:
    return [each["checkpoint_name"] for each in residuals if each["checkpoint_name"]]


@pytest.mark.parametrize("scanned", [False, True], ids=["unrolled", "scanned"])
@pytest.mark.parametrize("policy", ["none", "full", "dots", "named", "mistyped", "offload"])
def test_a_gradient_keeps_what_vjp_keeps(policy: str, scanned: bool) -> None:
    import jax

    loss, arguments = net(policy, scanned=scanned)
    of_gradient = told(jax.value_and_grad(loss, argnums=(0, 1)), arguments)
    of_loss = told(loss, arguments)
    assert of_gradient["known"]
    assert of_loss["known"]
    assert of_gradient["how"] != of_loss["how"]

    def kept(of: dict[str, Any]) -> Counter[tuple[object, ...]]:
        return Counter(
            (*each["shape"], each["kind"], each["checkpoint_name"], each["stacked"])
            for each in of["residuals"]
        )

    assert kept(of_gradient) == kept(of_loss)


def test_named_values_of_a_scan_are_stacked() -> None:
    import jax

    loss, arguments = net("named", scanned=True)
    residuals = told(jax.grad(loss), arguments)["residuals"]
    (hidden,) = (each for each in residuals if each["checkpoint_name"])
    assert hidden["checkpoint_name"] == "hidden"
    assert (hidden["shape"], hidden["dtype"]) == ([LAYERS, TOKENS, WIDTH], "float32")
    assert hidden["bytes"] == LAYERS * TOKENS * WIDTH * 4
    assert (hidden["stacked"], hidden["offloaded"], hidden["repeats"]) == (LAYERS, False, 1)
    assert hidden["source"].rpartition(":")[0].endswith("test_residuals.py")
    kinds = {each["kind"] for each in residuals}
    assert kinds == {"name", "carry", "argument"}  # what enters each layer, and the weights


def test_a_mistyped_name_saves_nothing() -> None:
    import jax

    for scanned in (False, True):
        loss, arguments = net("mistyped", scanned=scanned)
        assert names(told(jax.grad(loss), arguments)["residuals"]) == []


def test_offloaded_values_are_told() -> None:
    import jax

    for scanned, count in ((False, LAYERS), (True, 1)):
        loss, arguments = net("offload", scanned=scanned)
        residuals = told(jax.grad(loss), arguments)["residuals"]
        offloaded = [each for each in residuals if each["offloaded"]]
        assert names(offloaded) == ["hidden"] * count
        assert not any(each["offloaded"] for each in residuals if each not in offloaded)


def test_accumulation_makes_them_anew_in_each_step() -> None:
    import jax
    import jax.numpy as jnp

    loss, (weights, x) = net("named", scanned=True)

    def accumulated(weights: Any, batches: Any) -> Any:
        def step(total: Any, batch: Any) -> Any:
            return total + jax.grad(loss)(weights, batch), None

        return jax.lax.scan(step, jnp.zeros_like(weights), batches)[0]

    batches = jax.ShapeDtypeStruct((5, *x.shape), x.dtype)
    residuals = told(accumulated, (weights, batches))["residuals"]
    (hidden,) = (each for each in residuals if each["checkpoint_name"])
    assert (hidden["repeats"], hidden["stacked"]) == (5, LAYERS)


def test_what_has_no_backward_pass_is_not_known() -> None:
    loss, arguments = net("none", scanned=False)
    of_many = told(lambda weights, x: (loss(weights, x), x), arguments)
    assert (of_many["known"], of_many["residuals"]) == (False, [])
    assert "no backward pass" in of_many["how"]
