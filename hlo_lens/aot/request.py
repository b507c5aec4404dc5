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
    """One compile. Either `reference` names a function, or `pickled` is a file that holds it.

    `builds` says that the function returns `(function, arguments)`; otherwise it is compiled
    itself, for `arguments`, or for those that were pickled with it.
    """

    scratch: str
    target: Target
    reference: str | None
    pickled: str | None
    builds: bool
    options: dict[str, Any]
    arguments: list[ArgumentSpec]
    mesh: dict[str, int] | None
    flags: dict[str, Any]
    all_passes: bool
    device_spec: str | None
    plugin: str | None
    allow_stub_runtime: bool
    imports: list[str] = field(default_factory=list)  # sys.path of the process that asks

    def to_json(self) -> str:
        """As `from_json` takes it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Raises TypeError where a field is missing."""
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
