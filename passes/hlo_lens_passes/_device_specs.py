"""Device specs: what connects the devices of a group, what a ring over it takes, what one does.

Built-in specs are `catalogues/devices.toml`, which says what the keys mean. A user's catalogue (see
`_catalogue`) may hold [[device]] entries too. Which one holds: the environment variable
HLOLENS_SPEC, else `spec = "…"` in the config that names catalogues, the name of a spec or a TOML
file with one; else the target in the provenance.json of the compile; else the device that XLA names
in the file name of a dump.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.dumps import read_name
from hlo_lens_passes._catalogue import CatalogueError, config_of_user, configured

if TYPE_CHECKING:
    from hlo_lens.program import Program

VARIABLE: Final = "HLOLENS_SPEC"
PROVENANCE: Final = "provenance.json"
_BUILT_IN: Final = "catalogues/devices.toml"
_SHAPES: Final = ("switch", "mesh", "ring")
_NUMBERS: Final = ("link_bandwidth", "links", "share", "step_us", "launch_us")
_PEAKS: Final = ("memory_bandwidth", "peak_flops")
_WHOLE: Final = ("devices", "links")

From = Literal["user", "side_file", "platform"]
Domain = Literal["fast", "slow"]
RINGS: Final = ("all-gather", "all-reduce", "reduce-scatter")
_ONE_WAY: Final = ("collective-permute", "send", "recv")


@dataclass(frozen=True, slots=True)
class Fabric:
    """Connections of a device, within a domain or between domains; devices.toml defines the fields.

    Bandwidths are bytes a second, times microseconds; None is not known.
    """

    shape: str
    link_bandwidth: float | None = None
    links: int = 1
    share: float = 1.0
    step_us: float | None = None
    launch_us: float | None = None

    def bandwidth(self, kind: str, group_size: int | None) -> float | None:
        """What one device of a group sends in a second; None where it is not known.

        A permute sends to one device: over all links where they lead to a switch, else over one.
        """
        if self.link_bandwidth is None:
            return None
        links = self.links
        if self.shape != "switch":
            most = 1 if kind in _ONE_WAY or group_size is None else group_size - 1
            links = max(1, min(links, most))
        return self.link_bandwidth * links * self.share


@dataclass(frozen=True, slots=True)
class Spec:
    """What connects devices of one kind. `sources`: where each number comes from, by its key.

    memory_bandwidth: bytes a second of one device's HBM; peak_flops: its dense BF16 FLOP a second.
    """

    name: str
    about: str
    names: tuple[str, ...]
    devices: int | None
    fast: Fabric | None
    slow: Fabric | None
    sources: Mapping[str, str]
    memory_bandwidth: float | None = None
    peak_flops: float | None = None

    def is_named(self, name: str) -> bool:
        """Whether somebody who calls a device `name` means this one."""
        called = name.casefold()
        return any(fnmatchcase(called, one.casefold()) for one in (self.name, *self.names))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Microseconds of one run. `latency` None: the spec gives none; then only bandwidth counts."""

    bandwidth: float
    latency: float | None

    @property
    def total(self) -> float:
        return self.bandwidth + (self.latency or 0.0)


def estimate(
    spec: Spec,
    domain: Domain,
    kind: str,
    wire_bytes: int,
    group_size: int | None,
    each: int = 1,
) -> Estimate | None:
    """What one run takes in a ring: bytes sent ÷ bandwidth + launch + steps × step.

    Between domains, a ring over `each` devices of every domain sends through the NICs of all of
    them, and that many of its steps go on at once (RingLatency of XLA's SolGPUCostModel). None
    where the spec has no bandwidth there.
    """
    fabric = spec.fast if domain == "fast" else spec.slow
    bandwidth = None if fabric is None else fabric.bandwidth(kind, group_size)
    if fabric is None or bandwidth is None:
        return None
    together = each if domain == "slow" and kind in RINGS else 1
    bandwidth *= together
    within = None if spec.fast is None else spec.fast.bandwidth(kind, group_size)
    if together > 1 and within is not None:
        bandwidth = min(bandwidth, within)
    steps = steps_of(kind, group_size)
    known = [fabric.launch_us]
    if steps is not None and fabric.step_us is not None:
        known.append(steps / together * fabric.step_us)
    times = [time for time in known if time is not None]
    return Estimate(wire_bytes / bandwidth * 1e6, sum(times) if times else None)


def steps_of(kind: str, group_size: int | None) -> int | None:
    """Steps of a ring over a group; None where its size is not known."""
    if kind in _ONE_WAY:
        return 1
    if group_size is None:
        return None
    return (group_size - 1) * (2 if kind == "all-reduce" else 1)


# ---------------------------------------------------------------------------------- which spec


@dataclass(frozen=True, slots=True)
class Chosen:
    """The spec that holds, and what told it; `broken` says what could not be used."""

    spec: Spec | None = None
    by: From | None = None
    broken: tuple[str, ...] = ()


def choose(program: Program) -> Chosen:
    """The spec for a program. A user's word that means none is `broken`, and nothing else is tried:
    numbers of another device would answer a question that nobody asked."""
    specs, broken = known_specs()
    try:
        word = asked()
        if word is not None:
            return Chosen(find(word, specs), "user", broken)
    except CatalogueError as problem:
        return Chosen(broken=(*broken, str(problem)))
    for by, names in (("side_file", _of_compile(program)), ("platform", _of_dump(program))):
        for name in names:
            spec = next((spec for spec in specs if spec.is_named(name)), None)
            if spec is not None:
                return Chosen(spec, by, broken)  # type: ignore[arg-type]
    return Chosen(broken=broken)


def asked() -> str | None:
    """What the user asks for: a name or a file. Raises `CatalogueError` for a broken config."""
    if word := os.environ.get(VARIABLE):
        return word
    try:
        found = config_of_user(Path.cwd())
    except OSError:
        return None
    if found is None or "spec" not in found[1]:
        return None
    config, given = found[0], found[1]["spec"]
    if not isinstance(given, str):
        raise CatalogueError(f"{config}: spec is a name or a file, not {given!r}")
    return str(config.parent / Path(given).expanduser()) if _is_file(given) else given


def find(word: str, specs: Sequence[Spec]) -> Spec:
    """The spec that a name or a file means. Raises `CatalogueError` with what there is instead."""
    if _is_file(word):
        own = read_specs(word, _text_of(word))
        if len(own) != 1:
            raise CatalogueError(f"spec {word}: one [[device]] is wanted, it has {len(own)}")
        return own[0]
    for spec in specs:
        if spec.is_named(word):
            return spec
    names = list(dict.fromkeys(spec.name for spec in specs))
    close = difflib.get_close_matches(word.lower(), names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
    raise CatalogueError(f"no device spec {word}; {hint} (or a TOML file)")


def _is_file(word: str) -> bool:
    return word.endswith(".toml") or os.sep in word


def _of_compile(program: Program) -> Iterator[str]:
    """What the compile says it is for: its chip, and what the runtime calls it."""
    path = program.side_files.get(PROVENANCE)
    try:
        told = {} if path is None else json.loads(path.read_text(encoding="utf-8"))
        target = told.get("target", {})
        names = [target.get(key) for key in ("chip", "device_kind")]
        yield from (name for name in names if isinstance(name, str))
    except (OSError, ValueError, AttributeError, TypeError):
        return


def _of_dump(program: Program) -> Iterator[str]:
    """The device in the file names of XLA's dump: `sm_9.0` of `…sm_9.0_gpu_after_optimizations`."""
    for module in program.modules:
        name = read_name(os.path.basename(module.filename or ""))
        if name is not None and name.platform is not None:
            yield name.platform.removesuffix("_gpu")


# ---------------------------------------------------------------------------------- reading


def known_specs() -> tuple[tuple[Spec, ...], tuple[str, ...]]:
    """Specs of the user's catalogues, then the built-in ones; and what could not be used."""
    found: list[Spec] = []
    broken: list[str] = []
    try:
        for path in configured(Path.cwd(), os.environ):
            try:
                found += read_specs(str(path), _text_of(path))
            except CatalogueError as problem:
                broken.append(str(problem))
    except (CatalogueError, OSError) as problem:
        broken.append(str(problem))
    return (*found, *_built_in()), tuple(broken)


@cache
def _built_in() -> tuple[Spec, ...]:
    file = resources.files("hlo_lens_passes") / _BUILT_IN
    return read_specs(_BUILT_IN, file.read_text(encoding="utf-8"))


def _text_of(path: str | Path) -> str:
    try:
        if not os.path.isfile(path) and os.path.exists(path):
            raise CatalogueError(f"spec {path}: not a file")  # reading a pipe may never end
        return Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise CatalogueError(f"spec {path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise CatalogueError(f"spec {path}: not UTF-8 text") from None


def read_specs(file: str, text: str) -> tuple[Spec, ...]:
    """The [[device]] entries of a TOML text. Raises `CatalogueError`."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise CatalogueError(f"spec {file}: not TOML: {problem}") from None
    given = table.get("device", [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise CatalogueError(f"spec {file}: entries are written [[device]]")
    return tuple(_spec(f"spec {file}: [[device]] {at}", one) for at, one in enumerate(given, 1))


def _spec(where: str, one: Mapping[str, object]) -> Spec:
    keys = ("name", "about", "names", "devices", *_PEAKS, "fast", "slow")
    _check_keys(where, one, keys)
    name, about, names = one.get("name"), one.get("about", ""), one.get("names", [])
    if not isinstance(name, str) or not name or not isinstance(about, str):
        raise CatalogueError(f"{where}: name and about are texts")
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise CatalogueError(f"{where}: names is a list of texts")
    sources: dict[str, str] = {}
    devices = _number(where, "devices", one, sources)
    memory, flops = (_number(where, key, one, sources) for key in _PEAKS)
    fabrics = [_fabric(f"{where}, {domain}", domain, one.get(domain), sources)
               for domain in ("fast", "slow")]  # fmt: skip
    if fabrics[0] is None:
        raise CatalogueError(f"{where}: [device.fast] is missing")
    whole = None if devices is None else int(devices)
    return Spec(
        name, about, tuple(names), whole, fabrics[0], fabrics[1], sources, memory, flops
    )  # fmt: skip


def _fabric(where: str, domain: str, given: object, sources: dict[str, str]) -> Fabric | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise CatalogueError(f"{where}: it is written [device.{domain}]")
    _check_keys(where, given, ("shape", *_NUMBERS))
    shape = given.get("shape", "switch")
    if shape not in _SHAPES:
        raise CatalogueError(f"{where}: shape is {', '.join(_SHAPES)}, not {shape!r}")
    own: dict[str, str] = {}
    numbers = {key: _number(where, key, given, own) for key in _NUMBERS}
    sources.update({f"{domain}.{key}": source for key, source in own.items()})
    links, share = numbers["links"], numbers["share"]
    return Fabric(
        shape,
        numbers["link_bandwidth"],
        1 if links is None else int(links),
        1.0 if share is None else share,
        numbers["step_us"],
        numbers["launch_us"],
    )


def _check_keys(where: str, given: Mapping[str, object], keys: Sequence[str]) -> None:
    if strange := sorted(given.keys() - set(keys)):
        raise CatalogueError(f"{where}: no key {strange[0]!r}; there are {', '.join(keys)}")


def _number(
    where: str, key: str, given: Mapping[str, object], sources: dict[str, str]
) -> float | None:
    """A number, written alone or with its source; None where the key is missing."""
    value = given.get(key)
    if isinstance(value, dict):
        _check_keys(f"{where}, {key}", value, ("value", "source"))
        source, value = value.get("source", ""), value.get("value")
        if not isinstance(source, str):
            raise CatalogueError(f"{where}, {key}: source is a text")
        sources[key] = source
    if value is None and key not in given:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value < float("inf"):  # type: ignore[operator]
        raise CatalogueError(f"{where}: {key} is a number above 0, not {value!r}")
    if key in _WHOLE and value != int(value):  # type: ignore[call-overload]
        raise CatalogueError(f"{where}: {key} is a whole number, not {value!r}")
    return float(value)  # type: ignore[arg-type]
