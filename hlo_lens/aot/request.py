"""What one process asks of another: a compile, as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from hlo_lens.aot.arguments import ArgumentSpec
from hlo_lens.aot.targets import Target

__all__ = ["Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """One compile.

    `reference` is "MODULE:FUNCTION"; None where the function was sent by value, with its
    arguments. `builds` says that the function returns `(function, arguments)`; otherwise it is
    compiled itself, for `arguments` or for those that were sent with it.
    """

    target: Target
    reference: str | None = None
    builds: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    arguments: list[ArgumentSpec] = field(default_factory=list)
    mesh: dict[str, int] | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    all_passes: bool = False
    allow_stub_runtime: bool = False
    imports: list[str] = field(default_factory=list)  # sys.path of the process that asks
    config: dict[str, Any] = field(default_factory=dict)  # and what jax.config says there

    def all_flags(self) -> dict[str, Any]:
        """The flags asked for; GPUs have no device here to tune for, so that is turned off."""
        if self.target.platform in ("cuda", "rocm"):
            return {"xla_gpu_autotune_level": 0, **self.flags}
        return self.flags

    def to_json(self) -> str:
        """As `from_json` takes it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Raises TypeError for a field that there is none of."""
        data = json.loads(text)
        data["target"] = Target(**data["target"])
        data["arguments"] = [
            ArgumentSpec(
                each["dtype"],
                tuple(each["shape"]),
                tuple(tuple(one) if isinstance(one, list) else one for one in each["partition"]),
            )
            for each in data["arguments"]
        ]
        return cls(**data)
