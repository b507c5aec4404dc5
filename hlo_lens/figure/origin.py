"""Where a program comes from, as far as its side files tell: versions, target."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hlo_lens.program import Program

_PROVENANCE = "provenance.json"


def provenance(program: Program) -> tuple[str, ...]:
    """`target tpu:v6e-8`, `jax 0.11.0`, …; empty where no file says or it cannot be read."""
    path = program.side_files.get(_PROVENANCE)
    if path is None:
        return ()
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    if not isinstance(content, Mapping):
        return ()
    found = []
    target = content.get("target")
    if isinstance(target, Mapping) and isinstance(target.get("name"), str):
        found.append(f"target {target['name']}")
    versions = content.get("versions")
    if isinstance(versions, Mapping):
        found += [
            f"{name} {version}"
            for name, version in versions.items()
            if isinstance(version, str) and name not in ("hlo_lens", "python")
        ]
    return tuple(found)
