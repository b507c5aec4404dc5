"""The JSON Schema of expectation files, made from what the reader knows: draft 2020-12.

What the reader accepts it accepts. Units, SQL, the lists that a catalogue extends and that no id
comes twice are the reader's alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from hlo_lens.check.comparing import COUNT, MOST, NUMBER, SIGN
from hlo_lens.check.model import PERS, QUANTITIES, SEVERITIES
from hlo_lens.check.presets import Parameter, Preset, presets
from hlo_lens.check.reading import COLUMN_TYPES, NUMBERS, OF_A_COLUMN, VERSION
from hlo_lens.facts import Registry, Table

Schema = dict[str, Any]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NUMBER: Final[Schema] = {"type": "number", "minimum": -MOST, "maximum": MOST}
_UNIT: Final = r"(?:[^\s0-9.,_]\S*)?"
_TEXT: Final[Schema] = {"type": "string", "pattern": r"\S"}

_DOCS: Final[Mapping[str, str]] = {
    "id": "A name for the expectation, which reports show.",
    "table": "The table whose rows are judged; `hlolens schema TABLE` describes it.",
    "preset": "An expectation that hlolens brings; `hlolens presets NAME` describes it.",
    "where": "SQL: the rows that are meant. With a preset both conditions have to hold.",
    "because": "Why this is expected; told where it is not so.",
    "stage": "The stage that is judged, such as before_optimizations; else the one that runs.",
    "count": 'How many rows there are: "== 6".',
    "every": "SQL that every row fulfils.",
    "none": "SQL that no row fulfils; true: there is no row.",
    "any": "SQL that a row fulfils; true: there is a row.",
    "sum": "The column whose values are added up; `is` says what they may be together.",
    "max": "The column whose largest value `is` is about.",
    "min": "The column whose smallest value `is` is about.",
    "is": 'What sum, max or min is to be: "<= 1.1 GiB".',
    "per": "Count a row once (text), as often as it runs in a step (step), or as often as in one"
    " iteration of the loop that it stands in, each loop by itself (loop execution).",
    "severity": "Whether it is an error where this is not so, or a warning.",
    "allow_empty": "Whether it is fine that no row is meant.",
    "show": "The columns that are told of a row that is against it.",
}


def json_schema(registry: Registry) -> Schema:
    """The schema of a file, with the tables of `registry`."""
    return {
        "$schema": _DIALECT,
        "title": "Expectations that hlolens check judges",
        "description": "`hlolens schema --expect` prints this.",
        "type": "object",
        "properties": {
            "version": {"const": VERSION},
            "expect": {
                "type": "array",
                "minItems": 1,
                "items": {"$ref": "#/$defs/expectation"},
            },
        },
        "required": ["expect"],
        "additionalProperties": False,
        "$defs": {
            "expectation": _expectation(registry.tables),
            **{f"of_{table.name}": _of_a_table(table) for table in registry.tables},
            **{f"columns_of_{table.name}": _columns(table) for table in registry.tables},
        },
    }


def _expectation(tables: Iterable[Table]) -> Schema:
    names = {table.name: table for table in tables}
    return {
        "type": "object",
        "properties": dict(_properties(names.values())),
        "additionalProperties": False,
        "oneOf": [{"required": ["table"]}, {"required": ["preset"]}],
        "allOf": [
            *_quantities(),
            *(_if("table", name, {"$ref": f"#/$defs/of_{name}"}) for name in names),
            *(_if("preset", one.name, _of_a_preset(one, names)) for one in presets().values()),
        ],
    }


def _properties(tables: Iterable[Table]) -> Iterator[tuple[str, Schema]]:
    tables = list(tables)
    known: dict[str, Schema] = {
        "id": _TEXT,
        "table": _one_of({table.name: f"A row is {table.row}." for table in tables}),
        "preset": _one_of({preset.name: preset.about for preset in presets().values()}),
        "where": _TEXT,
        "because": _TEXT,
        "stage": _TEXT,
        "count": {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MOST},
                {"type": "string", "pattern": rf"^\s*{SIGN}?\s*{COUNT}\s*$"},
            ]
        },
        "every": _TEXT,
        "none": {"anyOf": [{"const": True}, _TEXT]},
        "any": {"anyOf": [{"const": True}, _TEXT]},
        **{key: {"type": "string"} for key in OF_A_COLUMN},
        "is": _compared(_UNIT),
        "per": {"enum": list(PERS)},
        "severity": {"enum": list(SEVERITIES)},
        "allow_empty": {"type": "boolean"},
        "show": {"type": "array", "items": {"type": "string"}},
    }
    for key, schema in known.items():
        yield key, {"description": _DOCS[key], **schema}
    for preset in presets().values():
        for one in preset.parameters.values():
            yield one.name, _parameter(one, preset)


def _one_of(docs: Mapping[str, str]) -> Schema:
    """One of these words, with what an editor says of each."""
    return {"enum": list(docs), "x-taplo": {"docs": {"enumValues": list(docs.values())}}}


def _compared(unit: str) -> Schema:
    text = {"type": "string", "pattern": rf"^\s*{SIGN}?\s*{NUMBER}\s*{unit}\s*$"}
    return {"anyOf": [_NUMBER, text]}


def _parameter(one: Parameter, preset: Preset) -> Schema:
    schema: Schema = {"description": f"Of preset {preset.name}: {one.about}."}
    if one.default is not None:
        schema["default"] = one.default
    if one.kind == "bytes":
        size = {"type": "string", "pattern": rf"^\s*\+?{NUMBER}\s*{_UNIT}\s*$"}
        return schema | {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MOST}, size]}
    return schema | _TEXT | ({"examples": [*one.values()]} if one.known else {})


def _quantities() -> Iterator[Schema]:
    """With a table one quantity and no parameter, with a preset at most one; `is` beside a column
    and nothing else."""
    said = [{"required": [one]} for one in QUANTITIES]
    taken = sorted({one for preset in presets().values() for one in preset.parameters})
    yield {
        "if": {"required": ["table"]},
        "then": {"oneOf": said, "not": {"anyOf": [{"required": [one]} for one in taken]}},
    }
    yield {"if": {"anyOf": said}, "then": {"oneOf": said}}
    of_a_column = {"anyOf": [{"required": [one]} for one in OF_A_COLUMN]}
    yield {"if": of_a_column, "then": {"required": ["is"]}}
    others = {"anyOf": [{"required": [one]} for one in QUANTITIES if one not in OF_A_COLUMN]}
    yield {"if": others, "then": {"not": {"required": ["is"]}}}
    conditions = {"anyOf": [{"required": [one]} for one in QUANTITIES if one not in NUMBERS]}
    yield {"if": conditions, "then": {"not": {"required": ["per"]}}}
    extremes = {"anyOf": [{"required": [one]} for one in ("max", "min")]}
    yield {"if": extremes, "then": {"properties": {"per": {"not": {"const": "step"}}}}}


def _if(key: str, value: str, then: Schema) -> Schema:
    return {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}


def _of_a_table(table: Table) -> Schema:
    columns = {"$ref": f"#/$defs/columns_of_{table.name}"}
    runs = PERS if "executions" in table.names else PERS[:1]
    return {
        "properties": {
            **dict.fromkeys(OF_A_COLUMN, columns),
            "per": {"enum": [*runs]},
            "show": {"items": {"enum": [*table.names]}},
        }
    }


def _columns(table: Table) -> Schema:
    return _one_of({one.name: one.doc for one in table.columns if one.type in COLUMN_TYPES})


def _of_a_preset(preset: Preset, tables: Mapping[str, Table]) -> Schema:
    taken = {one.name for other in presets().values() for one in other.parameters.values()}
    refused = {*preset.fixed, *taken} - {*preset.parameters}
    needed = [one.name for one in preset.parameters.values() if one.default is None]
    about = preset.keys["table"]
    # Older readers take nothing but `$ref` where there is one.
    schema: Schema = {"allOf": [{"$ref": f"#/$defs/of_{about}"}]} if about in tables else {}
    if needed:
        schema["required"] = needed
    if not {*OF_A_COLUMN} & {*preset.keys}:
        columns = [{"required": [one]} for one in OF_A_COLUMN]
        schema |= {"if": {"required": ["is"]}, "then": {"anyOf": columns}}
    if refused:
        schema["not"] = {"anyOf": [{"required": [one]} for one in sorted(refused)]}
    return schema
