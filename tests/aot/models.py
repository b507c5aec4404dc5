"""Functions that the tests compile; importable, as a person's own are."""

from __future__ import annotations

from typing import Any


def product(a: Any, b: Any) -> Any:
    """A function to be compiled itself."""
    return a @ b


def step(mesh: Any, *, layers: int = 2, policy: str = "named") -> tuple[Any, tuple[Any, ...]]:
    """A gradient over a scan, its weights split over the first axis of the mesh."""
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name

    def layer(h: Any, w: Any) -> Any:
        return jnp.tanh(checkpoint_name(h @ w, "hidden"))

    saved = jax.checkpoint_policies.save_only_these_names("hidden")
    layer = jax.checkpoint(layer, policy=saved, prevent_cse=False) if policy == "named" else layer

    def loss(weights: Any, x: Any) -> Any:
        h, _ = jax.lax.scan(lambda h, w: (layer(h, w), None), x, weights)
        return jnp.sum(h)

    (axis,) = mesh.axis_names
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, axis))
    weights = jax.ShapeDtypeStruct((layers, 8, 8), jnp.float32, sharding=split)
    return jax.value_and_grad(loss), (weights, jax.ShapeDtypeStruct((4, 8), jnp.float32))


def wrong_shapes() -> tuple[Any, tuple[Any, ...]]:
    """Fails when it is traced."""
    import jax
    import jax.numpy as jnp

    x = jax.ShapeDtypeStruct((3, 4), jnp.float32)
    return product, (x, x)


def calls_a_library() -> tuple[Any, tuple[Any, ...]]:
    """Calls what no library here has: complete HLO, no executable."""
    import jax
    import jax.numpy as jnp

    x = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    return (lambda a: jax.ffi.ffi_call("a_library_s_kernel", x)(jnp.sin(a))), (x,)


def grouped() -> tuple[Any, tuple[Any, ...]]:
    """The ragged product of the published gfx950 fixtures: 64 tokens, 4 experts, width 128."""
    import jax
    import jax.numpy as jnp

    def shape(*sizes: int, dtype: Any = jnp.float16) -> Any:
        return jax.ShapeDtypeStruct(sizes, dtype)

    arguments = (shape(64, 128), shape(4, 128, 128), shape(4, dtype=jnp.int32))
    return (lambda a, b, sizes: jax.lax.ragged_dot(a, b, sizes)), arguments


def fsdp(mesh: Any) -> tuple[Any, tuple[Any, ...]]:
    """Two FSDP layers, as `dumps/gpu-aot` of the shared material has them: [512, 512] over d."""
    import jax
    import jax.numpy as jnp

    def split(*axes: str) -> Any:
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.mean(x * x)

    w = jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=split("d"))
    x = jax.ShapeDtypeStruct((256, 512), jnp.float32, sharding=split("d"))
    step = jax.jit(jax.value_and_grad(loss), out_shardings=(split(), [split("d")] * 2))
    return step, ([w, w], x)


def two_needed(a: Any, b: Any) -> Any:
    """No builder: it wants more than a mesh."""


no_function = 3
