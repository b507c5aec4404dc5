"""What `jax.config` is told in one process, as another one is to be told."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Final

__all__ = ["SettingError", "settings", "take"]

# Where devices and caches are, what is logged, and what others of a cluster do: not the program.
_OF_THE_PROCESS: Final = (
    "jax_backend_target",
    "jax_compilation_cache_*",
    "jax_cpu_collectives_implementation",
    "jax_cpu_get_*_timeout_minutes",
    "jax_cross_host_*",
    "jax_debug_log_modules",
    "jax_default_device",
    "jax_distributed_*",
    "jax_dump_ir_*",
    "jax_enable_compilation_cache",
    "jax_enable_pgle",
    "jax_explain_cache_misses",
    "jax_hlo_source_file_canonicalization_regex",
    "jax_log_*",
    "jax_logging_level",
    "jax_mock_gpu_topology",
    "jax_num_cpu_devices",
    "jax_persistent_cache_*",
    "jax_pgle_*",
    "jax_pjrt_client_create_options",
    "jax_platform_name",
    "jax_platforms",
    "jax_raise_persistent_cache_errors",
    "jax_share_binary_*",
    "jax_xla_backend",
    "jax_*_visible_devices",
    "mock_num_gpu_processes",
)


class SettingError(ValueError):
    """What jax is told cannot be told to the process that compiles: a sentence."""

    def render(self) -> str:
        """The sentence, for a person."""
        return str(self)


def settings() -> dict[str, Any]:
    """What `jax.config` says here of the programs that jax makes, as JSON; in this thread, so that
    `with jax.enable_x64(True):` counts."""
    import jax

    # Some can be set, but not read as attributes.
    said = {name: getattr(jax.config, name, value) for name, value in jax.config.values.items()}
    return {
        name: value.name.lower() if isinstance(value, Enum) else value
        for name, value in said.items()
        if isinstance(value, (bool, int, float, str, Enum, type(None)))
        and not any(fnmatchcase(name, each) for each in _OF_THE_PROCESS)
    }


def take(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the jax of this process what another one was told; what made a difference.

    Raises `SettingError` where the environment says otherwise: jax reads it when it is imported,
    and there it may have said something else.
    """
    import jax

    own = settings()
    taken = {}
    for name, value in wanted.items():
        if name not in own:
            print(f"jax.config has no {name} here: it is not set to {value!r}", file=sys.stderr)
        elif own[name] != value:
            variable = name.upper()
            if variable in os.environ:
                raise SettingError(
                    f"jax.config.{name} is {value!r}, but {variable}={os.environ[variable]} in the"
                    " environment, which jax reads only when it is imported: which is meant?"
                    " Change one of them"
                )
            jax.config.update(name, value)
            taken[name] = value
    return taken
