"""The config of a custom call as compact JSON, without the kernel's body in it."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Final

from hlo_lens.decode.kernels import body_path
from hlo_lens.hlo.config import BackendConfig

_LONGEST_TEXT: Final = 256
_LONGEST_CONFIG: Final = 1 << 16
# What holds nothing but where the kernel's operations were written, or a hash of these and them.
_OF_LOCATIONS: Final = frozenset(("debug_locations", "kernel_hash"))


@lru_cache(maxsize=1 << 10)
def config_text(config: BackendConfig) -> str:
    """A backend_config as compact JSON, without a kernel's body and its source locations.

    Another text of more than 256 characters is `{"bytes": its length in UTF-8, "sha256": the first
    16 digits of its hash}`; so is a whole config that is still longer than 64 Ki characters."""
    value = config.raw if config.value is None else config.value
    body = body_path(config)
    text = json.dumps(_short(value, body), ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _LONGEST_CONFIG else json.dumps(_digest(config.raw))


def _short(value: object, body: tuple[str, ...] | None = None) -> object:
    """The value with long texts cut; `body`: the keys to a text that is left out."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in _OF_LOCATIONS}
        if body is not None and len(body) == 1:
            kept.pop(body[0], None)
        below = {body[0]: body[1:]} if body is not None and len(body) > 1 else {}
        return {str(key): _short(item, below.get(key)) for key, item in kept.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return _digest(value)
    return value


def _digest(text: str) -> dict[str, object]:
    data = text.encode("utf-8", "surrogatepass")
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()[:16]}
