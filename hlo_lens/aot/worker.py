"""The process that compiles: `python -m hlo_lens.aot.worker REQUEST`, started for one compile.

REQUEST is a JSON file (see `Request`). What happens is told on standard output, a JSON object a
line; what jax, XLA and the user's code print goes to standard error. The results are files in the
request's scratch folder: `dump/`, written by XLA as it goes, and one JSON file for each side file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hlo_lens.aot.arguments import ArgumentSpec
from hlo_lens.aot.gpu import answer_for_cudnn, believe_in_a_gpu
from hlo_lens.aot.packages import plugin_library
from hlo_lens.aot.reference import build, resolve
from hlo_lens.aot.request import Request
from hlo_lens.aot.scrub import Roots
from hlo_lens.aot.sending import on_mesh, receive
from hlo_lens.aot.settings import take
from hlo_lens.aot.specs import DeviceSpec, device_spec
from hlo_lens.aot.targets import Target

__all__ = ["main"]


class Refused(Exception):
    """The compile cannot start: a sentence for a person."""


def main() -> int:
    """Run the request that the command line names; 0 where it was compiled."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    events = _private_stdout()
    path = Path(sys.argv[1])
    request = Request.from_json(path.read_text())
    for folder in request.imports:
        if folder not in sys.path:
            sys.path.append(folder)
    roots = Roots.of(os.getcwd(), sys.path)
    try:
        _Compile(request, path.parent, events, roots).run()
    except BaseException as problem:  # XLA's and the user's: told, not shown as a traceback
        traceback.print_exc()
        _tell(events, error=roots.message(_sentence(problem)), where=_where(problem, roots))
        return 1
    return 0


def _end_with(parent: int) -> None:
    """End this process when the one that asked is gone: nobody waits for the result."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _private_stdout() -> IO[str]:
    """Standard output for events alone; what others print goes to standard error."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return events


def _tell(events: IO[str], **event: object) -> None:
    events.write(json.dumps(event) + "\n")
    events.flush()


def _sentence(problem: BaseException) -> str:
    lines = [line for line in str(problem).splitlines() if line.strip()]
    first = lines[0].strip() if lines else ""
    # XLA's own errors begin with a status, INVALID_ARGUMENT; jax's class for them says no more.
    of_xla = type(problem).__name__ in ("JaxRuntimeError", "XlaRuntimeError")
    if of_xla or isinstance(problem, Refused) or hasattr(problem, "render"):
        return first
    return f"{type(problem).__name__}: {first}" if first else type(problem).__name__


def _where(problem: BaseException, roots: Roots) -> str | None:
    """`file:line` of the innermost frame that is the user's own."""
    ours = os.path.dirname(os.path.dirname(__file__))
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        path = os.path.abspath(frame.filename)
        if not frame.filename.startswith("<") and not path.startswith(ours + os.sep):
            shown = roots.path(path)
            if not shown.startswith(("site-packages", "dist-packages", "python3")):
                return f"{shown}:{frame.lineno}"
    return None


@dataclass(slots=True)
class _Compile:
    """The steps of one compile; each leaves its file in the scratch folder as soon as it can."""

    request: Request
    scratch: Path
    events: IO[str]
    roots: Roots

    def run(self) -> None:
        request, platform = self.request, self.request.target.platform
        self._step("starting jax")
        is_gpu = platform in ("cuda", "rocm")
        library = plugin_library(platform) if is_gpu else None
        spec = device_spec(request.target.chip, library) if is_gpu else None
        stand_ins = _rocm_libraries(request, library) if library and platform == "rocm" else []
        import jax

        # Before anything of the user's is imported or received: it may make arrays.
        self._keep("config", take(request.config))
        _configure(self.roots)
        if platform == "cuda" and request.allow_stub_runtime:
            stand_ins += answer_for_cudnn()
        mesh = _mesh(request, spec)
        device = {"kind": mesh.devices.flat[0].device_kind, "stand_ins": stand_ins}
        self._keep("device", device | {"spec": spec.told() if spec else None})
        self._keep("mesh", {"axes": dict(mesh.shape), "devices": int(mesh.devices.size)})
        self._step("building the function")
        function, arguments = self._function(mesh)
        self._step("tracing")
        jitted = function if hasattr(function, "trace") else jax.jit(function)
        with jax.set_mesh(mesh) if request.mesh and not request.builds else nullcontext():
            traced, lowered = _lower(jitted, arguments, mesh)
        self._keep("saved_residuals", self._residuals(traced, function, arguments))
        self._step("compiling")
        compiled = lowered.compile(compiler_options=self._options())
        self._keep("memory_analysis", _memory(compiled))
        self._keep("cost_analysis", _cost(compiled))
        dump = self.scratch / "dump"
        if not any(dump.glob("*after_optimizations.txt")):  # a backend that dumps nothing
            self._step("printing")
            (dump / "module.after_optimizations.txt").write_text(compiled.as_text())

    def _function(self, mesh: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What is compiled, and its arguments."""
        request = self.request
        arguments: tuple[Any, ...] = tuple(_struct(each, mesh) for each in request.arguments)
        if request.reference is None:
            function, sent = receive((self.scratch / "function.pickle").read_bytes(), mesh)
            arguments = arguments or sent
        else:
            function = resolve(request.reference)
        if request.builds:
            return build(function, mesh, request.options)
        return function, arguments

    def _step(self, name: str) -> None:
        _tell(self.events, step=name)

    def _keep(self, name: str, value: object) -> None:
        (self.scratch / f"{name}.json").write_text(json.dumps(value))

    def _options(self) -> dict[str, Any]:
        """XLA's options: the dump, of this one module alone, and the flags of the request."""
        return {
            "xla_dump_to": str(self.scratch / "dump"),
            "xla_dump_hlo_as_long_text": True,
            "xla_dump_hlo_pass_re": ".*" if self.request.all_passes else ".*spmd-partition.*",
            **self.request.all_flags(),
        }

    def _residuals(
        self, traced: Any, function: Callable[..., Any], arguments: Sequence[Any]
    ) -> dict[str, Any]:
        """What jaxprs tell. They are jax's own affair: those of a new one may read otherwise."""
        from hlo_lens.aot.checkpoints import checkpoints
        from hlo_lens.aot.residuals import saved_residuals

        told: dict[str, Any]
        try:
            told = saved_residuals(traced.jaxpr, function, arguments)
        except Exception as problem:
            told = {"known": False, "how": _sentence(problem), "residuals": []}
        try:
            told |= checkpoints(traced.jaxpr)
        except Exception as problem:
            told |= {"checkpoints_known": False, "checkpoints_how": _sentence(problem)}
            told |= {"checkpoint_names": [], "checkpoints": []}
        for each in (*told["residuals"], *told["checkpoints"]):
            if each["source"]:
                path, _, line = each["source"].rpartition(":")
                each["source"] = f"{self.roots.path(path)}:{line}"
        return told


def _rocm_libraries(request: Request, plugin: Path) -> list[str]:
    """Make ROCm's plugin loadable, which has to be before jax is imported; the stand-ins made."""
    from hlo_lens.aot import stand_ins

    missing = stand_ins.missing_library(plugin)
    if missing is None:
        return []
    if not request.allow_stub_runtime:
        raise Refused(
            f"ROCm's libraries are not installed ({missing.partition(':')[0]} and others); "
            "--allow-stub-runtime builds stand-ins for them, which is enough to compile"
        )
    extensions = sorted(plugin.parents[2].glob("jax_rocm*_plugin/*.so"))
    try:
        return stand_ins.preload(stand_ins.build([plugin, *extensions]))
    except stand_ins.StandInError as problem:
        raise Refused(str(problem)) from problem


def _configure(roots: Roots) -> None:
    """No path of this machine in what jax writes, and no frames of this package."""
    import jax

    jax.config.update("jax_hlo_source_file_canonicalization_regex", roots.pattern())
    try:
        from jax._src import source_info_util

        for prefix in (os.path.dirname(__file__), "<frozen runpy>"):
            source_info_util.register_exclusion(prefix)
    except (ImportError, AttributeError):
        return  # private to jax; without it, a few frames more


def _mesh(request: Request, spec: DeviceSpec | None) -> Any:
    """The target's devices, in the axes that were asked for, or along one, "devices"."""
    import jax
    import numpy

    devices = _devices(request.target, spec)
    axes = request.mesh or {"devices": len(devices)}
    shaped = numpy.array(devices).reshape(tuple(axes.values()))
    return jax.sharding.Mesh(shaped, tuple(axes))


def _devices(target: Target, spec: DeviceSpec | None) -> list[Any]:
    import jax

    if target.platform == "cpu":
        return list(jax.devices("cpu")[: target.devices])
    from jax.experimental import topologies

    if target.platform == "tpu":
        # A host has 2x2 chips, except where there is but one.
        one = {} if target.devices > 2 else {"chips_per_host_bounds": (1, 1, 1)}
        name = f"{target.chip}:{target.topology}"
        found = topologies.get_topology_desc(platform="tpu", topology_name=name, **one)
    else:
        if target.platform == "rocm":
            believe_in_a_gpu()
        found = topologies.get_topology_desc(
            platform=target.platform,
            topology_name=target.chip,
            topology=target.topology,
            target_config=spec.text if spec else None,
        )
    return list(found.devices)


def _struct(spec: ArgumentSpec, mesh: Any) -> Any:
    import jax
    from jax import numpy as jnp

    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec.partition))
    return jax.ShapeDtypeStruct(spec.shape, jnp.dtype(spec.dtype), sharding=sharding)


def _lower(jitted: Any, arguments: Sequence[Any], mesh: Any) -> tuple[Any, Any]:
    """Trace and lower on the target's devices.

    An argument that says nothing of its sharding is whole on every device. A function that was
    jitted with in_shardings refuses that where it says otherwise; then it has its way.
    """
    import jax

    placed = jax.tree.map(lambda leaf: _placed(leaf, mesh), tuple(arguments))
    try:
        traced = jitted.trace(*placed)
        return traced, traced.lower()
    except ValueError as problem:
        if "sharding" not in str(problem).lower():
            raise
        try:
            traced = jitted.trace(*arguments)
            return traced, traced.lower()
        except Exception:
            raise problem from None


def _placed(leaf: Any, mesh: Any) -> Any:
    """`leaf` as a shape on the target: a sharding of another mesh is moved to this one's axes."""
    import jax

    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return leaf
    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, jax.sharding.NamedSharding):
        on_target = on_mesh(sharding, mesh)
    elif sharding is None or isinstance(sharding, jax.sharding.SingleDeviceSharding):
        on_target = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    else:
        return leaf
    return jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=on_target, weak_type=getattr(leaf, "weak_type", False)
    )


def _memory(compiled: Any) -> dict[str, Any]:
    """What `memory_analysis()` says, in bytes for one device; {} where the backend says nothing."""
    stats = compiled.memory_analysis()
    names = sorted(name for name in dir(stats) if name.endswith("_in_bytes"))
    return {name: getattr(stats, name) for name in names}


def _cost(compiled: Any) -> dict[str, Any]:
    """What `cost_analysis()` says; {} where the backend says nothing."""
    told = compiled.cost_analysis()
    if isinstance(told, list):
        told = told[0] if told else None
    return dict(sorted((told or {}).items())) if isinstance(told, Mapping) else {}


if __name__ == "__main__":
    sys.exit(main())
