"""A function and its arguments, sent from one process to another: by value, without devices."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import CodeType
from typing import Any

from hlo_lens.aot.reference import FunctionError

__all__ = ["axes_of", "on_mesh", "receive", "send"]


def send(function: Callable[..., Any], arguments: Sequence[Any]) -> bytes:
    """`function` and the shapes of `arguments`, for `receive`.

    cloudpickle is used where it is installed: it sends functions of notebooks, and closures. Of
    arrays only shape, dtype and sharding are sent. What `jax.jit` was told is sent along with the
    function in it, since a jitted function is not whole when it comes out of a pickle.

    Raises `FunctionError` that says what to do where it cannot be sent.
    """
    inner, options = _unjitted(function)
    return _dump((inner, _without_devices(options), _shapes(arguments)))


def receive(data: bytes, mesh: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What `send` was given, its shardings on the devices of `mesh`, by the names of the axes."""
    import jax

    function, options, arguments = pickle.loads(data)
    if options is not None:
        placed = {name: _map_shardings(value, mesh) for name, value in options.items()}
        function = jax.jit(function, **placed)
    return function, tuple(arguments)


def axes_of(function: Callable[..., Any], arguments: Sequence[Any]) -> dict[str, int] | None:
    """The axes of the first mesh among the shardings of the arguments, or of `jax.jit`.

    None where there is no sharding over a mesh.
    """
    import jax

    for leaf in jax.tree.leaves((tuple(arguments), _unjitted(function)[1])):
        sharding = getattr(leaf, "sharding", leaf)
        if isinstance(sharding, jax.sharding.NamedSharding):
            return dict(sharding.mesh.shape)
    return None


def on_mesh(sharding: Any, mesh: Any) -> Any:
    """The NamedSharding that `sharding` is over the axes of `mesh`."""
    import jax

    if sharding.mesh == mesh:
        return sharding
    return jax.sharding.NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)


def _unjitted(function: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any] | None]:
    """What `jax.jit` was given, and what it was told; (function, None) for one not jitted."""
    info = getattr(function, "_jit_info", None)  # jax tells nowhere else
    if info is None or not hasattr(function, "__wrapped__"):
        return function, None
    options = {
        name: getattr(info, name)
        for name in ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
        if getattr(info, name, ())
    }
    if info.keep_unused:
        options["keep_unused"] = True
    if info.compiler_options_kvs:
        options["compiler_options"] = dict(info.compiler_options_kvs)
    for name in ("in_shardings", "out_shardings"):
        leaves = getattr(info, f"{name}_leaves")
        if not all(type(leaf).__name__ == "UnspecifiedValue" for leaf in leaves):
            options[name] = getattr(info, f"{name}_treedef").unflatten(leaves)
    return function.__wrapped__, options


def _shapes(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """`arguments` without arrays' values and without devices."""
    import jax

    def shape(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        sharding = getattr(leaf, "sharding", None)
        named = isinstance(sharding, jax.sharding.NamedSharding)
        return jax.ShapeDtypeStruct(
            leaf.shape,
            leaf.dtype,
            sharding=_without_devices(sharding) if named else None,
            weak_type=getattr(leaf, "weak_type", False),
        )

    return tuple(jax.tree.map(shape, tuple(arguments)))


def _without_devices(tree: Any) -> Any:
    """Every NamedSharding in `tree` over the abstract mesh of the same axes."""
    return _map_shardings(tree, None)


def _map_shardings(tree: Any, mesh: Any) -> Any:
    import jax

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, jax.sharding.NamedSharding):
            return leaf
        return on_mesh(leaf, mesh or getattr(leaf.mesh, "abstract_mesh", leaf.mesh))

    return jax.tree.map(place, tree, is_leaf=lambda leaf: leaf is None)


def _dump(value: Any) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        cloudpickle = None
    try:
        data: bytes = pickle.dumps(value) if cloudpickle is None else _by_value(value)
    except Exception as problem:  # pickling raises what the objects within raise
        if cloudpickle is None:
            raise FunctionError(_NEEDS_CLOUDPICKLE) from problem
        raise FunctionError(
            f"this function cannot be sent to the compiling process ({problem}). Where it holds a "
            "jax Mesh or devices, write one that takes the mesh and returns (function, "
            "arguments), for compile_reference"
        ) from problem
    if cloudpickle is None and b"__main__" in data:
        raise FunctionError(_NEEDS_CLOUDPICKLE)
    return data


def _by_value(value: Any) -> bytes:
    """`value` as cloudpickle sends it, but jax's caches by where they stand, code with its file.

    A function under `jax.checkpoint` is a closure of jax over such caches, which have no name. To
    cloudpickle all code is of the file `<dynamic-code>`, so that notebooks give the same bytes
    again; where there is a file, the HLO is to name it.
    """
    import io

    import cloudpickle

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, CodeType) and os.path.isfile(obj.co_filename):
                make, parts = self.dispatch_table[CodeType](obj)
                named = (obj.co_filename if one == "<dynamic-code>" else one for one in parts)
                return make, tuple(named)
            if type(obj).__name__ == "WeakrefLRUCache" and (place := _place_in_jax(obj)):
                return _named, place
            return super().reducer_override(obj)

    stream = io.BytesIO()
    Pickler(stream).dump(value)
    return stream.getvalue()


def _place_in_jax(wanted: Any) -> tuple[str, str] | None:
    """The module of jax and the name in it that hold this object."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "jax" and module is not None:
            for name, value in vars(module).items():
                if value is wanted:
                    return module_name, name
    return None


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


_NEEDS_CLOUDPICKLE = (
    "a function that is defined in a notebook, in a script or within another takes cloudpickle to "
    "be compiled in another process: pip install 'hlo-lens[aot]', or put it into a module"
)
