"""`hlolens ledger [NAME key=value…]`: the closed forms, or one of them computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from hlo_lens.cli import config
from hlo_lens.cli.common import (
    console,
    format_option,
    is_there,
    open_output,
    output_option,
    verb,
    write_json,
)

if TYPE_CHECKING:
    from rich.console import Console

    from hlo_lens.ledger import Formula, Parameter


@verb()
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("values", metavar="[KEY=VALUE]...", nargs=-1)
@format_option("terminal", "json", "markdown")
@output_option
def command(
    name: str | None, values: tuple[str, ...], output_format: str, output: str | None
) -> None:
    """List the closed forms, explain NAME, or compute it from KEY=VALUE.

    A number is written as 4096 or 1e12, a list as 3,2,4, bytes of an element also as a dtype:

    \b
      hlolens ledger standard_attention_bytes batch=4 heads=32 query_sequence=4096
      hlolens ledger pad_waste group_sizes=3,2,4 row_tile=3
    """
    from hlo_lens.ledger import FORMULAS

    if name is not None and not is_there("formula", name, FORMULAS):
        return
    if name is None or not values:
        chosen = list(FORMULAS.values()) if name is None else [FORMULAS[name]]
        with open_output(output) as stream:
            if output_format == "json":
                write_json([_description(one) for one in chosen], stream)
            elif output_format == "markdown":
                stream.write(as_markdown(chosen))
            elif name is None:
                _print_list(chosen, console(stream))
            else:
                _print_formula(chosen[0], console(stream))
        return
    if output_format == "markdown":
        raise click.UsageError("--format markdown describes formulas; it takes no KEY=VALUE")
    formula = FORMULAS[name]
    given = _read(formula, values)
    try:
        result = formula.evaluate(given)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    with open_output(output) as stream:
        if output_format == "json":
            write_json(_result(formula, given, result), stream)
        else:
            _print_result(formula, given, result, console(stream))


# --- values ----------------------------------------------------------------------------------


def _read(formula: Formula, texts: Iterable[str]) -> dict[str, object]:
    """The values of `KEY=VALUE` texts; a usage error for one that is unknown, bad or missing."""
    known = {parameter.name: parameter for parameter in formula.parameters}
    given: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{text!r} is no KEY=VALUE")
        if key not in known:
            raise click.UsageError(f"{formula.name} has no {key!r}{config.hint(key, known)}")
        if key in given:
            raise click.UsageError(f"{key} is given twice")
        try:
            given[key] = _value(known[key], value)
        except (ValueError, KeyError):
            raise click.UsageError(f"{key}={value}: {_expected(known[key])}") from None
    missing = [one.name for one in known.values() if one.required and one.name not in given]
    if missing:
        raise click.UsageError(f"{formula.name} also needs {', '.join(missing)}")
    return given


def _value(parameter: Parameter, text: str) -> object:
    """The value that `text` stands for; ValueError or KeyError where it stands for none."""
    parts = [part.strip() for part in text.split(",")]
    match parameter.kind:
        case "int":
            return int(text)
        case "float":
            return _element_bytes(text) if parameter.name == "element_bytes" else float(text)
        case "bool":
            return {"true": True, "false": False}[text.lower()]
        case "choice":
            return parameter.choices[parameter.choices.index(text)]
        case "ints":
            return tuple(map(int, parts))
        case "floats":
            return tuple(map(float, parts))
        case _:
            return tuple(map(_residual, parts))


def _element_bytes(text: str) -> float:
    from hlo_lens.hlo.shape import dtype_bits

    bits = dtype_bits(text)
    return float(text) if bits is None else bits / 8


def _residual(text: str) -> object:
    from hlo_lens.ledger import Residual

    elements, width, *shards = text.split(":")
    count = 1
    for dimension in elements.split("x"):
        count *= int(dimension)
    return Residual(count, _element_bytes(width), *map(int, shards[:1]))


def _expected(parameter: Parameter) -> str:
    """What a value of `parameter` looks like, in words."""
    if parameter.name == "element_bytes":
        return "expected a dtype such as bf16, or a number of bytes"
    return {
        "int": "expected a whole number",
        "float": "expected a number",
        "bool": "expected true or false",
        "choice": f"expected one of {', '.join(parameter.choices)}",
        "ints": "expected whole numbers with commas between them",
        "floats": "expected numbers with commas between them",
        "residuals": "expected ELEMENTS:DTYPE[:SHARDS], such as 4x4096x4096:bf16:8, with commas",
    }[parameter.kind]


# --- one result ------------------------------------------------------------------------------


def _result(formula: Formula, given: Mapping[str, object], result: object) -> dict[str, object]:
    return {
        "name": formula.name,
        "value": _plain(result),
        "unit": formula.unit,
        "formula": formula.expression,
        "source": formula.source,
        "arguments": {key: _plain(value) for key, value in _arguments(formula, given).items()},
    }


def _arguments(formula: Formula, given: Mapping[str, object]) -> dict[str, object]:
    """What the result was computed from: what was given, and the defaults of the rest."""
    return {
        parameter.name: given.get(parameter.name, parameter.default)
        for parameter in formula.parameters
    }


def _plain(value: object) -> object:
    """A value as JSON holds it, whole numbers without a point."""
    from hlo_lens.ledger import Residual

    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Residual):
        return {name: getattr(value, name) for name in ("elements", "element_bytes", "shards")}
    return value


def value_text(value: Any, unit: str) -> str:
    """A result for people, exact and short: "48855252992 bytes (45.5 GiB)", "0.327 (32.7 %)"."""
    from hlo_lens.present.quantities import bytes_text, flops_text

    if isinstance(value, tuple):
        return f"{', '.join(map(_number, value))} {unit}"
    if unit == "bytes":
        return _with_short(f"{_number(value)} bytes", bytes_text(round(value)), value >= 1024)
    if unit == "FLOP":
        return _with_short(f"{_number(value)} FLOP", flops_text(value), value >= 1000)
    if unit == "ratio":
        return f"{value:.6g} ({100 * value:.1f} %)"
    if unit == "parameters":
        return _with_short(f"{_number(value)} {unit}", f"{value / 1e9:.3f} billion", value >= 1e6)
    return f"{_number(value)} {unit}"


def _with_short(exact: str, short: str, wanted: bool) -> str:
    return f"{exact} ({short})" if wanted else exact


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


def _print_result(
    formula: Formula, given: Mapping[str, object], result: object, screen: Console
) -> None:
    from rich.text import Text

    answer = Text.assemble((formula.name, "bold"), " = ", value_text(result, formula.unit))
    screen.print(answer, soft_wrap=True)
    arguments = ", ".join(
        f"{key}={_argument_text(value)}"
        for key, value in _arguments(formula, given).items()
        if value is not None
    )
    for label, text in (
        ("formula", formula.expression), ("with", arguments), ("source", formula.source)
    ):  # fmt: skip
        screen.print(Text.assemble((f"  {label:<8} ", "cyan"), text))


def _argument_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(_argument_text(each) for each in value)
    if hasattr(value, "elements"):
        return f"{value.elements}:{value.element_bytes:g}:{value.shards}"  # type: ignore[attr-defined]
    return str(value)


# --- descriptions ----------------------------------------------------------------------------


def _description(formula: Formula) -> dict[str, object]:
    return {
        "name": formula.name,
        "topic": formula.topic,
        "formula": formula.expression,
        "unit": formula.unit,
        "source": formula.source,
        "doc": formula.doc,
        "parameters": [_parameter_data(parameter) for parameter in formula.parameters],
    }


def _parameter_data(parameter: Parameter) -> dict[str, object]:
    return {
        "name": parameter.name,
        "symbol": parameter.symbol.letter,
        "meaning": _meaning(parameter),
        "kind": parameter.kind,
        "required": parameter.required,
        "default": parameter.default,
    }


def _meaning(parameter: Parameter) -> str:
    meaning = parameter.symbol.meaning
    return f"{meaning} ({', '.join(parameter.choices)})" if parameter.choices else meaning


def _default_text(parameter: Parameter) -> str:
    return "" if parameter.default is None else _argument_text(parameter.default)


def _print_list(formulas: Sequence[Formula], screen: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    for topic, members in groupby(formulas, key=lambda one: one.topic):
        screen.print(Text(topic, style="bold"))
        grid = Table.grid(padding=(0, 0, 0, 2))
        grid.add_column(style="cyan", no_wrap=True)
        for one in members:
            grid.add_row(one.name, Text(one.unit), Text(one.summary))
        screen.print(grid)
        screen.print()


def _print_formula(formula: Formula, screen: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    screen.print(Text.assemble((formula.name, "bold"), "  in ", formula.unit))
    screen.print(Text(f"{formula.expression}\n", style="cyan"))
    screen.print(Text(f"{formula.doc}\n"))
    screen.print(Text(f"Source: {formula.source}\n"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    for one in formula.parameters:
        default = "required" if one.required else _default_text(one)
        cells = (one.name, one.symbol.letter, default, _meaning(one))
        grid.add_row(*map(Text, cells))
    screen.print(grid)


def as_markdown(formulas: Sequence[Formula]) -> str:
    """The formulas as a page: by topic, each with its unit, source, text and parameters."""
    parts = [
        "# Ledger\n\nClosed forms, as `hlolens ledger --format markdown` prints them;"
        " `hlolens ledger NAME key=value…` computes one, and in Python they are the functions of"
        " `hlo_lens.ledger`. They predict: what a program does is read from its text.\n"
    ]
    for topic, members in groupby(formulas, key=lambda one: one.topic):
        parts.append(f"## {topic}\n")
        parts.extend(map(_markdown_formula, members))
    return "\n".join(parts)


def _markdown_formula(formula: Formula) -> str:
    rows = [
        f"| `{one.name}` | {one.symbol.letter.replace('|', chr(92) + '|')} "
        f"| {'required' if one.required else _default_text(one)} | {_meaning(one)} |"
        for one in formula.parameters
    ]
    return "\n".join(
        [
            f"### {formula.name}\n\n`{formula.expression}` in {formula.unit}\n",
            f"{formula.doc}\n",
            f"Source: {formula.source}\n",
            "| argument | letter | default | meaning |\n|---|---|---|---|",
            *rows,
            "",
        ]
    )
