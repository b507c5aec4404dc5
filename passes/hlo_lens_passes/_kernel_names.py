"""The name of the kernel that a generic target launches, and what told it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from hlo_lens.decode.kernels import Body, name_in
from hlo_lens.decode.triton import triton_call_of
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.config import BackendConfig
from hlo_lens.hlo.metadata import parse_metadata

_PALLAS_NAME = re.compile(r"pallas_call\[(?:[^\]]*[ ,])?name=([\w.\-]+)")
_PALLAS_SCOPE = re.compile(r"(?:^|/)([^/()]+)/pallas_call\b[^/]*\Z")
_JITTED = re.compile(r"jit\((\w+)\)\)*/pallas_call\b[^/]*\Z")
# Components that a transformation or a loop puts into a path: no kernel is called so.
_SCOPES: Final = frozenset(
    (
        "while", "body", "cond", "scan", "checkpoint", "remat", "rematted_computation",
        "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
        "shard_map", "pjit", "xla_call", "eval_jaxpr", "run_state",
    )
)  # fmt: skip
_NUMBERED = re.compile(r"(?:\.(?:\d+|clone|remat\d*))+\Z")
_NAMELESS: Final = frozenset(
    ("custom-call", "custom-call-start", "pallas_call", "tpu_custom_call", "ffi_call", "cc")
)


def kernel_name(
    call: Instruction,
    attributes: Mapping[str, str],
    config: BackendConfig | None,
    body: Body | None,
    known: Callable[[str], object],
    full_op_name: Callable[[], str | None],
) -> tuple[str | None, str | None]:
    """The kernel's name and where it stands: the config, else the path of the Pallas call, else
    the function in its body, else the jitted function that calls it where a catalogue knows that
    name (`known`: Megablox's `gmm` names its kernels `kernel`) or the end of the op_name, where it
    knows that (`ragged-dot-none`), else the instruction, which XLA names after the kernel."""
    if config is not None:
        for path in (("name",), ("kernel_name",), ("custom_call_config", "kernel_name")):
            name = config.get(*path)
            if isinstance(name, str) and name:
                return name, "config"
        compiled = triton_call_of(config)
        if compiled is not None and compiled.kernel is not None:
            return compiled.kernel, "config"
    op_name = _op_name(attributes)
    found = _PALLAS_NAME.search(op_name)
    if found is not None:
        return found[1], "op_name"
    found = _PALLAS_SCOPE.search(op_name)
    if found is not None and found[1] not in _SCOPES:
        return found[1], "op_name"
    inside = None if body is None else name_in(body)
    if inside is not None:
        return inside, "body"
    stem = _NUMBERED.sub("", call.name)
    if stem in _NAMELESS or known(stem) is None:
        found = _JITTED.search(full_op_name() or "")
        if found is not None and known(found[1]) is not None:
            return found[1], "op_name"
        # XLA calls its own kernels so in both places; an instruction may have another name since.
        last = op_name.rpartition("/")[2]
        if last and known(last) is not None:
            return last, "op_name"
    return (None, None) if stem in _NAMELESS else (stem, "name")


def _op_name(attributes: Mapping[str, str]) -> str:
    """The op_name of the metadata; "" where there is none or it cannot be read."""
    text = attributes.get("metadata")
    try:
        return "" if text is None else parse_metadata(text).op_name or ""
    except ValueError:
        return ""
