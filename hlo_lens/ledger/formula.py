"""What a closed form is here: a documented function with its formula, unit and source, listed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from hlo_lens.ledger.symbols import SYMBOLS, Symbol

P = ParamSpec("P")
R = TypeVar("R")

CHAPTER = "Memory and Kernel Optimizations (How to Scale Your Model on AMD, chapter 6)"
GROUP_GEMM = "Group-GEMM in XLA: Making Mixture-of-Experts Fast and Memory-Efficient"
MAXTEXT = "MaxText"
DERIVED = "derived here"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a formula, as a person gives it: `name=value`.

    `kind` is int, float, bool, choice, ints, floats or residuals; `default` is None where the
    argument must be given (`required`) or where leaving it out means what `meaning` says.
    """

    name: str
    symbol: Symbol
    kind: str
    required: bool
    default: object = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Formula:
    """A closed form: `function` computes `expression`, in `unit`, as `source` states it."""

    function: Callable[..., Any]
    expression: str
    unit: str
    source: str
    topic: str

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def summary(self) -> str:
        """The first sentence of the function's docstring."""
        return self.doc.partition("\n")[0]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What may be given, the fields of a dataclass argument in its place."""
        return tuple(
            parameter
            for name, hint, default in _arguments(self.function)
            for parameter in _expand(name, hint, default)
        )

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """The result for `values` by parameter name.

        Raises ValueError where one is out of its range or the result is too large for a float,
        TypeError where a required one is missing or one is unknown.
        """
        given = dict(values)
        arguments = {}
        for name, hint, _ in _arguments(self.function):
            if is_dataclass(hint):
                own = {
                    each.name: given.pop(each.name) for each in fields(hint) if each.name in given
                }
                arguments[name] = hint(**own)  # type: ignore[operator]
            elif name in given:
                arguments[name] = given.pop(name)
        try:
            result = self.function(**arguments, **given)
        except OverflowError:
            result = math.inf
        if result == math.inf:
            raise ValueError("the result is too large for a float")
        return result


LISTED: list[Formula] = []
"""Every formula, as the modules that hold them are imported."""


def formula(
    expression: str, *, unit: str, source: str, topic: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """List a function as a formula; its arguments are checked against their symbol's range."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            check(signature.bind(*args, **kwargs).arguments)
            return function(*args, **kwargs)

        LISTED.append(Formula(checked, expression, unit, source, topic))
        return checked

    return decorate


def check(arguments: Mapping[str, object]) -> None:
    """Raise ValueError for a number outside its symbol's range; None stands for left out."""
    for name, value in arguments.items():
        symbol = SYMBOLS.get(name)
        if symbol is None or value is None or isinstance(value, bool | str):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            if not isinstance(each, int | float):
                continue
            if not symbol.least <= each <= symbol.most or each == math.inf:
                raise ValueError(f"{name} is {each}, but must be {symbol.range_text}")


def _arguments(function: Callable[..., Any]) -> list[tuple[str, Any, object]]:
    hints = get_type_hints(function)
    return [
        (name, hints[name], parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def _expand(name: str, hint: Any, default: object) -> list[Parameter]:
    if not is_dataclass(hint):
        return [_parameter(name, hint, default)]
    hints = get_type_hints(hint)
    return [_parameter(each.name, hints[each.name], each.default) for each in fields(hint)]


def _parameter(name: str, hint: Any, default: object) -> Parameter:
    required = default in (inspect.Parameter.empty, MISSING)
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    if choices:
        kind = "choice"
    elif get_origin(hint) is tuple:
        kind = {int: "ints", float: "floats"}.get(get_args(hint)[0], "residuals")
    else:
        kind = hint.__name__
    return Parameter(name, SYMBOLS[name], kind, required, None if required else default, choices)
