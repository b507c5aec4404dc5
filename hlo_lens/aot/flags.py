"""XLA's flags: as people write them, as `compiler_options` takes them, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["FlagError", "flag_text", "parse_flags"]


class FlagError(ValueError):
    """No flag of XLA: a sentence that says how to write one."""

    def render(self) -> str:
        """The sentence, for a person."""
        return str(self)


def parse_flags(flags: str | Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    """XLA flags by name, without dashes: `--xla_a=true`, `xla_b=3`, `xla_c` (true).

    One text may hold several, as XLA_FLAGS does. Raises `FlagError` for what is no flag.
    """
    if isinstance(flags, Mapping):
        flags = [flag_text(name, value) for name, value in flags.items()]
    parsed: dict[str, Any] = {}
    for flag in flags.split() if isinstance(flags, str) else flags:
        name, equals, value = flag.strip().lstrip("-").partition("=")
        if not re.fullmatch(r"xla_\w+", name):
            raise FlagError(
                f"{flag!r} is no XLA flag; write it as --xla_gpu_enable_triton_gemm=false"
            )
        parsed[name] = _value(value) if equals else True
    return parsed


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def flag_text(name: str, value: Any) -> str:
    """`--xla_a=true`, as XLA_FLAGS has it."""
    return f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
