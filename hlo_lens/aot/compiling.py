"""Compile a function for a device that need not be there: `compile` and `compile_reference`."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlo_lens.aot.arguments import ArgumentSpec, check_mesh, parse_argument, parse_mesh
from hlo_lens.aot.flags import parse_flags
from hlo_lens.aot.folder import PROVENANCE, clear, collect, write_json
from hlo_lens.aot.job import Outcome, run
from hlo_lens.aot.packages import readiness
from hlo_lens.aot.provenance import SIDE_FILES, provenance
from hlo_lens.aot.reference import check_reference
from hlo_lens.aot.request import Request
from hlo_lens.aot.scrub import Roots
from hlo_lens.aot.sending import axes_of, send
from hlo_lens.aot.settings import settings
from hlo_lens.aot.targets import Target, parse_target
from hlo_lens.dumps import AFTER, STAGES
from hlo_lens.program import load

if TYPE_CHECKING:
    from hlo_lens.program import Program

__all__ = ["TIMEOUT", "CompileError", "compile", "compile_reference"]

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
    one is whole on every device. What `jax.config` says of programs, such as x64, holds for this
    one. `mesh` gives the axes ({"fsdp": 8} or "fsdp=8"); without it, that of the arguments'
    shardings, or one axis "devices".

    `flags` are XLA's ("--xla_gpu_enable_triton_gemm=false"). `out` is a folder to keep (without
    it, one that is removed when Python ends), `timeout` is in seconds. `all_passes` keeps the text
    between every two passes; `allow_stub_runtime` lets ROCm's and cuDNN's libraries be stood in
    for. `progress` is called with the name of each step.

    Raises `CompileError` where it fails or takes too long, `TargetError`, `ArgumentError` and
    `FunctionError` (each a ValueError) for what is asked wrongly.
    """
    wanted = parse_target(target)
    _need_packages(wanted)
    request = Request(
        wanted,
        mesh=_axes(mesh) or axes_of(fn, args),
        flags=parse_flags(flags),
        all_passes=all_passes,
        allow_stub_runtime=allow_stub_runtime,
        imports=_imports(),
        config=settings(),
    )
    return _compile(request, _name(fn), send(fn, args), out, timeout, progress)


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
    wanted = parse_target(target)
    _need_packages(wanted)
    specs = [parse_argument(each) if isinstance(each, str) else each for each in arguments]
    request = Request(
        wanted,
        reference=reference if isinstance(reference, str) else None,
        builds=not specs,
        options=dict(options or {}),
        arguments=specs,
        mesh=_axes(mesh),
        flags=parse_flags(flags),
        all_passes=all_passes,
        allow_stub_runtime=allow_stub_runtime,
        imports=_imports(),
    )
    if isinstance(reference, str):
        check_reference(reference)
        return _compile(request, reference, None, out, timeout, progress)
    return _compile(request, _name(reference), send(reference, ()), out, timeout, progress)


def _compile(
    request: Request,
    function: str,
    pickled: bytes | None,
    out: str | os.PathLike[str] | None,
    timeout: float | None,
    progress: Progress,
) -> Program:
    target = request.target
    if request.mesh:
        check_mesh(request.mesh, target.devices, target.name)
    folder = _folder(out)
    with tempfile.TemporaryDirectory(prefix="hlo-lens-") as scratch:
        outcome = run(request, Path(scratch), pickled, timeout=timeout, progress=progress)
        digests = collect(
            Path(scratch, "dump"),
            folder,
            Roots.of(os.getcwd(), request.imports),
            devices=target.devices,
            all_passes=request.all_passes,
        )
    for name in SIDE_FILES:
        if outcome.results.get(name):  # a backend that says nothing of its cost leaves {}
            write_json(folder / f"{name}.json", outcome.results[name])
    write_json(folder / PROVENANCE, provenance(request, function, outcome, digests))
    complete = f"{AFTER}.txt" in digests
    if outcome.error is not None and not (complete and _MISSING_HERE.search(outcome.error)):
        message = _message(outcome, function, target, folder, digests)
        raise CompileError(message, folder, outcome.log)
    return load(folder)


def _need_packages(target: Target) -> None:
    state = readiness(target)
    if not state.ready:
        raise CompileError(f"{target.name} needs packages that are not installed: {state.install}")


def _folder(out: str | os.PathLike[str] | None) -> Path:
    """`out`, without what an earlier compile left there; else one for as long as Python runs."""
    if out is None:
        folder = Path(tempfile.mkdtemp(prefix="hlo-lens-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    return folder


def _message(
    outcome: Outcome, function: str, target: Target, folder: Path, digests: Mapping[str, str]
) -> str:
    place = f"{outcome.where}: " if outcome.where else ""
    error = (outcome.error or "").rstrip(".")
    doing = "" if outcome.step in ("compiling", "printing") else f", {outcome.step}"
    hint = ""
    if target.platform == "cuda" and "cudnn" in error.lower():
        hint = "; --allow-stub-runtime answers for a cuDNN that is not installed"
    kept = [stage for stage in STAGES if f"{stage}.txt" in digests]
    tail = f" (kept in {folder}: {', '.join(kept)})" if kept else ""
    return f"{function} on {target.name}{doing}: {place}{error}{hint}{tail}"


def _axes(mesh: Mesh) -> dict[str, int] | None:
    if mesh is None:
        return None
    return parse_mesh([mesh]) if isinstance(mesh, str) else dict(mesh)


def _imports() -> list[str]:
    """sys.path, so that the compiling process finds what this one does."""
    return [os.path.abspath(each) for each in sys.path]


def _name(function: Callable[..., Any]) -> str:
    """`module:function`, to tell a person by; a partial has the name of what is in it."""
    inner = getattr(function, "func", function)
    module = getattr(inner, "__module__", None) or type(inner).__module__
    return f"{module}:{getattr(inner, '__qualname__', type(inner).__qualname__)}"
