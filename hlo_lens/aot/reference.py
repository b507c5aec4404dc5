"""What is compiled: what `MODULE:FUNCTION` names, or what that returns."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

__all__ = ["FunctionError", "build", "check_reference", "needs_mesh", "resolve"]


class FunctionError(ValueError):
    """A function that cannot be had: a sentence that says why."""

    def render(self) -> str:
        """The sentence, for a person."""
        return str(self)


def check_reference(reference: str) -> tuple[str, str]:
    """The module and the function of "MODULE:FUNCTION". Raises `FunctionError`."""
    module, colon, function = reference.partition(":")
    names = [*module.split("."), *function.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise FunctionError(
            f"{reference!r} names no function; write MODULE:FUNCTION, such as model:train_step"
        )
    return module, function


def resolve(reference: str) -> Any:
    """Import what "MODULE:FUNCTION" names. Raises `FunctionError` where there is no such thing.

    What goes wrong inside the module is raised as it is.
    """
    module_name, attribute = check_reference(reference)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module_name}.".startswith(f"{problem.name}."):
            raise  # the module is there; what it imports is not
        raise FunctionError(
            f"no module {problem.name!r} here; {module_name} is looked for in the working "
            "directory and where Python finds its packages"
        ) from None
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise FunctionError(f"module {module_name!r} has no {attribute!r}")
        found = getattr(found, name)
    if not callable(found):
        raise FunctionError(f"{reference} is a {type(found).__name__}, no function")
    return found


def needs_mesh(builder: Callable[..., Any], options: Mapping[str, Any]) -> str | None:
    """The parameter of `builder` that takes the mesh; None where there is none.

    It is called "mesh", or is the only one that has no default and is not among `options`.

    Raises `FunctionError` where an option has no parameter, or a parameter has no value.
    """
    parameters = inspect.signature(builder).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    name = getattr(builder, "__name__", getattr(builder, "func", builder))
    if not takes_any and (unknown := [each for each in options if each not in parameters]):
        raise FunctionError(
            f"{name} takes no {', '.join(unknown)}; it takes {', '.join(parameters) or 'nothing'}"
        )
    if "mesh" in parameters and "mesh" not in options:
        return "mesh"
    unfilled = [
        each.name
        for each in parameters.values()
        if each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and each.name not in options
    ]
    if len(unfilled) > 1:
        raise FunctionError(
            f"{name} wants {', '.join(unfilled)}; a function that builds what is compiled takes "
            "a mesh or nothing. To compile it itself, say what its arguments are (--arg)"
        )
    return unfilled[0] if unfilled else None


def build(
    builder: Callable[..., Any], mesh: Any, options: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Call `builder` for `(function, arguments)`. Raises `FunctionError` for anything else."""
    parameter = needs_mesh(builder, options)
    if parameter is None:
        built = builder(**options)
    elif inspect.signature(builder).parameters[parameter].kind is inspect.Parameter.KEYWORD_ONLY:
        built = builder(**{parameter: mesh, **options})
    else:
        built = (
            partial(builder, mesh)(**options)
            if parameter != "mesh"
            else builder(mesh=mesh, **options)
        )
    match built:
        case (function, (tuple() | list()) as arguments) if callable(function):
            return function, tuple(arguments)
    name = getattr(builder, "__name__", "the function")
    raise FunctionError(
        f"{name} returned no (function, (argument, ...)). To compile {name} itself, say what its "
        "arguments are (--arg)"
    )
