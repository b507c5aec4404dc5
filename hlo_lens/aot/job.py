"""One compile in a process of its own: started, watched, bounded, and what came of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hlo_lens.aot.request import Request

__all__ = ["Outcome", "run"]

# Where the compiler finds a device, a cache or flags of its own: not for a compile that is to be
# the same tomorrow and elsewhere.
UNWANTED = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_PLATFORM_NAME",
    "JAX_NUM_CPU_DEVICES",
)
FIXED = {
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_COMPILATION_CACHE": "0",
    "PYTHONHASHSEED": "0",
    # XLA's CPU compiler splits work by the number of cores that it finds; eight, wherever it runs.
    "PJRT_NPROC": "8",
    # libtpu looks for a TPU, asks a cloud's metadata server, and locks itself to one process.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_LOG_DIR": "disabled",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v6e-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_FATAL = re.compile(r"^F\d{4} .*?\] (.*)|^(.*Unknown flags? in XLA_FLAGS.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a compile ended. `error` is a sentence, None where it came through.

    `results` are the JSON files that the worker left, by name; `log` is what was printed.
    """

    error: str | None
    where: str | None
    step: str
    seconds: float
    results: Mapping[str, Any]
    log: str


def run(
    request: Request,
    scratch: Path,
    pickled: bytes | None,
    *,
    timeout: float | None,
    progress: Callable[[str], None] | None,
) -> Outcome:
    """Run `request` in a process of its own, for `timeout` seconds at most.

    XLA's dump lies in `scratch`/dump afterwards. `pickled` is a function that `send` made ready.
    `progress` is called with the name of each step as it begins, from another thread.
    """
    (scratch / "dump").mkdir()
    (scratch / "request.json").write_text(request.to_json())
    if pickled is not None:
        (scratch / "function.pickle").write_bytes(pickled)
    begun = time.monotonic()
    state: dict[str, str | None] = {"step": "starting", "error": None, "where": None}
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "hlo_lens.aot.worker", str(scratch / "request.json")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(request),
            text=True,
            encoding="utf-8",
            start_new_session=True,  # so that what it starts ends with it
        )
        assert process.stdout is not None
        reader = threading.Thread(
            target=_follow, args=(process.stdout, state, progress), daemon=True
        )
        reader.start()
        timed_out = _wait(process, timeout)
        reader.join(5)
        process.stdout.close()
    text = (scratch / "log").read_text(errors="replace")
    error, where = state["error"], state["where"]
    if timed_out:
        error, where = f"not done after {timeout:g} seconds, while {state['step']}", None
    elif error is None and process.returncode != 0:
        error = _death(process.returncode, text)
    return Outcome(
        error, where, str(state["step"]), time.monotonic() - begun, _results(scratch), text
    )


def environment(request: Request) -> dict[str, str]:
    """The environment of the worker: this process's, without what would change the compile."""
    env = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    env |= FIXED
    env["JAX_NUM_CPU_DEVICES"] = str(request.target.devices)
    if request.target.platform != "cpu":
        env["JAX_NUM_CPU_DEVICES"] = "1"
    # hlo_lens itself must be found, however this process found it.
    home = str(Path(__file__).parents[2])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (env.get("PYTHONPATH"), home)))
    return env


def _follow(
    stream: IO[str], state: dict[str, str | None], progress: Callable[[str], None] | None
) -> None:
    for line in stream:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        state.update(event)
        if "step" in event and progress is not None:
            progress(event["step"])


def _wait(process: subprocess.Popen[str], timeout: float | None) -> bool:
    """Whether it had to be ended for having taken too long. Interrupted, it is ended, too."""
    try:
        process.wait(timeout)
        return False
    except subprocess.TimeoutExpired:
        _end(process)
        return True
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _death(code: int, log: str) -> str:
    """Why a process ended without a word of its own: XLA's last one, or the signal."""
    fatal = [match[1] or match[2] for match in _FATAL.finditer(log)]
    try:
        how = f"the compiling process died ({signal.Signals(-code).name})" if code < 0 else None
    except ValueError:
        how = f"the compiling process died (signal {-code})"
    how = how or f"the compiling process ended with exit code {code}"
    return f"{how}: {fatal[-1]}" if fatal else how


def _results(scratch: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(scratch.glob("*.json")):
        if path.name != "request.json":
            try:
                found[path.stem] = json.loads(path.read_text())
            except ValueError:
                continue  # it was ended in the middle of writing it
    return found
