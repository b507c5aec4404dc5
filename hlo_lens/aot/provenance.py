"""How a text was made: versions, target, flags, and what was not as on the device itself."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from hlo_lens._version import __version__
from hlo_lens.aot.flags import flag_text
from hlo_lens.aot.job import FIXED, UNWANTED, Outcome
from hlo_lens.aot.packages import installed_versions
from hlo_lens.aot.request import Request
from hlo_lens.dumps import AFTER

__all__ = ["MADE_BY", "SIDE_FILES", "provenance"]

MADE_BY = "hlolens compile"

# What the compiling process leaves beside the text, each as NAME.json.
SIDE_FILES = ("saved_residuals", "memory_analysis", "cost_analysis", "mesh")


def provenance(
    request: Request, function: str, outcome: Outcome, digests: Mapping[str, str]
) -> dict[str, Any]:
    """What is known of a compile, as JSON; `digests` are sha256 by file name.

    The same request gives the same on another day and another machine, where the packages are the
    same: there is no date in it and no path.
    """
    target = request.target
    device = outcome.results.get("device", {})
    is_gpu = target.platform in ("cuda", "rocm")
    return {
        "made_by": MADE_BY,
        "function": function,
        "command": _command(request),
        "target": {
            "name": target.name,
            "platform": target.platform,
            "chip": target.chip or None,
            "topology": target.topology or None,
            "devices": target.devices,
            "device_kind": device.get("kind"),
        },
        "device_spec": device.get("spec"),
        "mesh": outcome.results.get("mesh", {}).get("axes"),
        "flags": [flag_text(name, value) for name, value in request.all_flags().items()],
        "environment": _jax_settings(),
        **({"config": config} if (config := outcome.results.get("config")) else {}),
        "versions": {
            "hlo_lens": __version__,
            "python": ".".join(map(str, sys.version_info[:2])),
            **installed_versions(target.platform),
        },
        # Without a device nothing can be measured: tiles, split-K and algorithms are defaults.
        "autotuned": False if is_gpu else None,
        "stand_ins": device.get("stand_ins", []),
        "complete": f"{AFTER}.txt" in digests,
        "executable": outcome.error is None,
        "error": outcome.error,
        "files": dict(digests),
        "side_files": [f"{name}.json" for name in SIDE_FILES if outcome.results.get(name)],
    }


def _command(request: Request) -> str | None:
    """The command line that does the same; None for a function that was sent by value."""
    if request.reference is None:
        return None
    words = ["hlolens", "compile", request.reference, "--target", request.target.name]
    if request.mesh:
        words += ["--mesh", ",".join(f"{name}={size}" for name, size in request.mesh.items())]
    for each in request.arguments:
        words += ["--arg", str(each)]
    for name, value in request.options.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words += ["--set", f"{name}={text}"]
    for name, value in request.flags.items():
        words += ["--xla-flag", flag_text(name, value)]
    words += ["--all-passes"] if request.all_passes else []
    words += ["--allow-stub-runtime"] if request.allow_stub_runtime else []
    return shlex.join(words)


def _jax_settings() -> dict[str, str]:
    """What the environment tells jax, such as JAX_ENABLE_X64."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("JAX_") and name not in FIXED and name not in UNWANTED
    }
