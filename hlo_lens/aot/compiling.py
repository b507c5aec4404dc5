"""Compile a function for a device that need not be there: `compile` and `compile_reference`."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlo_lens._version import __version__
from hlo_lens.aot import folder as folders
from hlo_lens.aot.arguments import ArgumentSpec, check_mesh, parse_argument, parse_mesh
from hlo_lens.aot.job import Outcome, run
from hlo_lens.aot.packages import installed_versions, plugin_library, readiness
from hlo_lens.aot.reference import check_reference
from hlo_lens.aot.request import Request
from hlo_lens.aot.scrub import Roots
from hlo_lens.aot.sending import axes_of, send
from hlo_lens.aot.specs import DeviceSpec, device_spec
from hlo_lens.aot.targets import Target, parse_target
from hlo_lens.dumps import AFTER
from hlo_lens.program import load

if TYPE_CHECKING:
    from hlo_lens.program import Program

__all__ = ["TIMEOUT", "CompileError", "compile", "compile_reference", "parse_flags"]

TIMEOUT = 900.0  # seconds that a compile may take, where nothing else is said

# What keeps XLA from an executable on this machine only, once the HLO is complete: an assembler,
# a library of device code, or the handler of a custom call.
_MISSING_HERE = re.compile(
    r"ptxas|nvlink|libdevice|No FFI handler registered|No registered implementation"
    r"|Custom emitter for .* not found"
)

Mesh = Mapping[str, int] | str | None
Progress = Callable[[str], None] | None


class CompileError(RuntimeError):
    """A compile that came to no end: a sentence that says why.

    `folder` holds the text that it got to (a Program where there is any), `log` what was printed.
    """

    def __init__(self, message: str, folder: Path | None = None, log: str = "") -> None:
        super().__init__(message)
        self.folder = folder
        self.log = log

    def render(self) -> str:
        """The sentence, for a person."""
        return str(self)


def compile(
    fn: Callable[..., Any],
    *args: Any,
    target: str = "tpu:v6e-8",
    mesh: Mesh = None,
    flags: Iterable[str] | Mapping[str, Any] = (),
    out: str | os.PathLike[str] | None = None,
    timeout: float | None = TIMEOUT,
    all_passes: bool = False,
    allow_stub_runtime: bool = False,
    progress: Progress = None,
) -> Program:
    """The Program that `fn(*args)` becomes on `target`, compiled in another process.

        hlo_lens.aot.compile(step, weights, batch, target="cuda:h100-8", mesh="fsdp=8")

    `fn` is a function, jitted or not; `args` are arrays or `jax.ShapeDtypeStruct`s, of which only
    shape, dtype and sharding are used. A `NamedSharding` is taken to the target's devices by the
    names of its axes, so that it may be over any mesh, an abstract one too; an argument without
    one is whole on every device. `mesh` gives the axes ({"fsdp": 8} or "fsdp=8"); without it, that
    of the arguments' shardings, or one axis "devices".

    `flags` are XLA's ("--xla_gpu_enable_triton_gemm=false"). `out` is a folder to keep (without
    it, one that is removed when Python ends), `timeout` is in seconds. `all_passes` keeps the text
    between every two passes; `allow_stub_runtime` lets ROCm's and cuDNN's libraries be stood in
    for. `progress` is called with the name of each step.

    Raises `CompileError` where it fails or takes too long, `TargetError`, `ArgumentError` and
    `FunctionError` (each a ValueError) for what is asked wrongly.
    """
    wanted = parse_target(target)
    _need_packages(wanted)
    axes = _axes(mesh) or axes_of(fn, args)
    return _compile(
        _Asked(wanted, axes, _flags(flags), None, all_passes, allow_stub_runtime),
        pickled=send(fn, args),
        out=out,
        timeout=timeout,
        progress=progress,
        function=f"{fn.__module__}:{fn.__qualname__}" if hasattr(fn, "__qualname__") else repr(fn),
    )


def compile_reference(
    reference: str | Callable[..., Any],
    *,
    target: str = "tpu:v6e-8",
    arguments: Iterable[str | ArgumentSpec] = (),
    options: Mapping[str, Any] | None = None,
    mesh: Mesh = None,
    flags: Iterable[str] | Mapping[str, Any] = (),
    out: str | os.PathLike[str] | None = None,
    timeout: float | None = TIMEOUT,
    all_passes: bool = False,
    allow_stub_runtime: bool = False,
    progress: Progress = None,
) -> Program:
    """The Program of what "MODULE:FUNCTION" names, or a function builds, on `target`.

    The function returns `(function, arguments)`; it takes the mesh of the target's devices where
    it has a parameter for it, and `options` by keyword. With `arguments` ("bf16[64,128]@fsdp,None")
    it is what is compiled itself. The module is imported by the process that compiles, from the
    working directory or from where Python finds its packages. The rest is as for `compile`.
    """
    asked = _Asked(
        parse_target(target),
        _axes(mesh),
        _flags(flags),
        reference if isinstance(reference, str) else None,
        all_passes,
        allow_stub_runtime,
        tuple(parse_argument(each) if isinstance(each, str) else each for each in arguments),
        dict(options or {}),
    )
    if isinstance(reference, str):
        check_reference(reference)
        pickled, function = None, reference
    else:
        pickled = send(reference, ())
        function = f"{reference.__module__}:{getattr(reference, '__qualname__', reference)}"
    return _compile(
        asked,
        pickled=pickled,
        builds=not asked.arguments,
        out=out,
        timeout=timeout,
        progress=progress,
        function=function,
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for, checked."""

    target: Target
    mesh: dict[str, int] | None
    flags: dict[str, Any]
    reference: str | None
    all_passes: bool
    allow_stub_runtime: bool
    arguments: tuple[ArgumentSpec, ...] = ()
    options: dict[str, Any] | None = None


def _compile(
    asked: _Asked,
    *,
    pickled: bytes | None,
    function: str,
    out: str | os.PathLike[str] | None,
    timeout: float | None,
    progress: Progress,
    builds: bool = False,
) -> Program:
    target = asked.target
    if asked.mesh:
        check_mesh(asked.mesh, target.devices, target.name)
    _need_packages(target)
    spec = _spec(target)
    folder = _folder(out)
    with tempfile.TemporaryDirectory(prefix="hlo-lens-") as scratch:
        request = _request(asked, scratch, pickled, spec, builds=builds)
        outcome = run(request, timeout=timeout, progress=progress)
        digests = _keep(request, outcome, folder)
    _write_provenance(asked, spec, outcome, digests, folder, function)
    complete = f"{AFTER}.txt" in digests
    if outcome.error is not None and not (complete and _MISSING_HERE.search(outcome.error)):
        raise CompileError(
            _message(outcome, function, target, folder, digests), folder, outcome.log
        )
    return load(folder)


def _need_packages(target: Target) -> None:
    state = readiness(target)
    if not state.ready:
        raise CompileError(f"{target.name} needs packages that are not installed: {state.install}")


def _spec(target: Target) -> DeviceSpec | None:
    if target.platform not in ("cuda", "rocm"):
        return None
    return device_spec(target.chip, plugin_library(target.platform))


def _folder(out: str | os.PathLike[str] | None) -> Path:
    if out is None:
        folder = Path(tempfile.mkdtemp(prefix="hlo-lens-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    folders.clear(folder)
    return folder


def _request(
    asked: _Asked, scratch: str, pickled: bytes | None, spec: DeviceSpec | None, *, builds: bool
) -> Request:
    sent = None
    if pickled is not None:
        sent = str(Path(scratch, "function.pickle"))
        Path(sent).write_bytes(pickled)
    library = plugin_library(asked.target.platform) if spec else None
    return Request(
        scratch=scratch,
        target=asked.target,
        reference=asked.reference,
        pickled=sent,
        builds=builds,
        options=asked.options or {},
        arguments=list(asked.arguments),
        mesh=asked.mesh,
        flags=_all_flags(asked),
        all_passes=asked.all_passes,
        device_spec=spec.text if spec else None,
        plugin=str(library) if library else None,
        allow_stub_runtime=asked.allow_stub_runtime,
        imports=[os.path.abspath(each) if each else os.getcwd() for each in sys.path],
    )


def _all_flags(asked: _Asked) -> dict[str, Any]:
    """The flags asked for; GPUs have no device here to tune for, so that is turned off."""
    if asked.target.platform in ("cuda", "rocm"):
        return {"xla_gpu_autotune_level": 0, **asked.flags}
    return asked.flags


def _keep(request: Request, outcome: Outcome, folder: Path) -> dict[str, str]:
    """Write texts and side files into `folder`; the sha256 of each text."""
    roots = Roots.here(request.imports)
    dump = Path(request.scratch, "dump")
    digests = folders.collect(
        dump, folder, roots, devices=request.target.devices, all_passes=request.all_passes
    )
    for name in _SIDE_FILES:
        if name in outcome.results:
            folders.write_json(folder / f"{name}.json", outcome.results[name])
    return digests


_SIDE_FILES = ("saved_residuals", "memory_analysis", "cost_analysis", "mesh")


def _write_provenance(
    asked: _Asked,
    spec: DeviceSpec | None,
    outcome: Outcome,
    digests: Mapping[str, str],
    folder: Path,
    function: str,
) -> None:
    target = asked.target
    device = outcome.results.get("device", {})
    folders.write_json(
        folder / folders.PROVENANCE,
        {
            "made_by": folders.made_by(),
            "function": function,
            "command": _command(asked),
            "target": {
                "name": target.name,
                "platform": target.platform,
                "chip": target.chip or None,
                "topology": target.topology or None,
                "devices": target.devices,
                "device_kind": device.get("kind"),
            },
            "device_spec": None
            if spec is None
            else {
                "description": spec.description,
                "source": spec.source,
                "sha256": spec.digest,
            },
            "mesh": outcome.results.get("mesh", {}).get("axes"),
            "flags": [f"--{name}={_flag_text(value)}" for name, value in _all_flags(asked).items()],
            "environment": _jax_environment(),
            "versions": {
                "hlo_lens": __version__,
                "python": ".".join(map(str, sys.version_info[:2])),
                **installed_versions(target.platform),
            },
            # Without a device nothing can be measured: tiles, split-K and algorithms are defaults.
            "autotuned": False if target.platform in ("cuda", "rocm") else None,
            "stand_ins": device.get("stand_ins", []),
            "complete": f"{AFTER}.txt" in digests,
            "executable": outcome.error is None,
            "error": outcome.error,
            "files": dict(digests),
            "side_files": [f"{name}.json" for name in _SIDE_FILES if name in outcome.results],
        },
    )


def _command(asked: _Asked) -> str | None:
    """The command line that does the same; None for a function that was sent by value."""
    if asked.reference is None:
        return None
    words = ["hlolens", "compile", asked.reference, "--target", asked.target.name]
    if asked.mesh:
        words += ["--mesh", ",".join(f"{name}={size}" for name, size in asked.mesh.items())]
    for each in asked.arguments:
        words += ["--arg", str(each)]
    for name, value in (asked.options or {}).items():
        words += ["--set", f"{name}={value}"]
    for name, value in asked.flags.items():
        words += ["--xla-flag", f"--{name}={_flag_text(value)}"]
    words += ["--all-passes"] if asked.all_passes else []
    words += ["--allow-stub-runtime"] if asked.allow_stub_runtime else []
    return shlex.join(words)


def _jax_environment() -> dict[str, str]:
    """The settings of jax that the environment makes, such as JAX_ENABLE_X64."""
    from hlo_lens.aot.job import FIXED, UNWANTED

    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith("JAX_") and name not in FIXED and name not in UNWANTED
    }


def _message(
    outcome: Outcome, function: str, target: Target, folder: Path, digests: Mapping[str, str]
) -> str:
    place = f"{outcome.where}: " if outcome.where else ""
    kept = [name.removesuffix(".txt") for name in digests if not re.match(r"\d{4}\.", name)]
    tail = f" (kept in {folder}: {', '.join(kept)})" if kept else ""
    hint = ""
    if "cudnn" in (outcome.error or "").lower() and target.platform == "cuda":
        hint = "; --allow-stub-runtime answers for a cuDNN that is not installed"
    doing = "" if outcome.step in ("compiling", "printing") else f", {outcome.step}"
    error = (outcome.error or "").rstrip(".")
    return f"{function} on {target.name}{doing}: {place}{error}{hint}{tail}"


# --- what is asked, read -----------------------------------------------------------------------


def _axes(mesh: Mesh) -> dict[str, int] | None:
    if mesh is None:
        return None
    return parse_mesh([mesh]) if isinstance(mesh, str) else dict(mesh)


def parse_flags(flags: Iterable[str]) -> dict[str, Any]:
    """XLA flags by name, without dashes: `--xla_a=true`, `xla_b=3`, `xla_c` (true).

    Raises ValueError for what is no flag.
    """
    parsed: dict[str, Any] = {}
    for flag in flags:
        name, equals, value = flag.strip().lstrip("-").partition("=")
        if not re.fullmatch(r"xla_\w+", name):
            raise FlagError(
                f"{flag!r} is no XLA flag; write it as xla_gpu_enable_triton_gemm=false"
            )
        parsed[name] = _flag_value(value) if equals else True
    return parsed


class FlagError(ValueError):
    """No flag of XLA: a sentence that says how to write one."""

    def render(self) -> str:
        """The sentence, for a person."""
        return str(self)


def _flags(flags: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(flags, Mapping):
        return dict(flags)
    return parse_flags([flags] if isinstance(flags, str) else flags)


def _flag_value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _flag_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
