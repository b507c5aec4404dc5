"""The measurements: parse time, peak memory, and the time of whole processes."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_lens.hlo import Module, parse


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement, as it is and as a multiple (`ratio`) of `against`, at most `target`.

    Without a ratio it is only shown, or what it is compared with is missing here.
    """

    what: str
    value: str
    ratio: float | None = None
    target: float = 0
    against: str = ""

    @property
    def met(self) -> bool:
        return self.ratio is None or self.ratio <= self.target

    def __str__(self) -> str:
        shown = f"  {self.what:<18} {self.value:>8}"
        if self.ratio is None:
            return shown + (f"   needs {self.against} to compare with" if self.against else "")
        verdict = "ok" if self.met else "MISSED"
        return (
            f"{shown}   {self.ratio:5.2f} x {self.against:<15} at most {self.target:g}: {verdict}"
        )


def everything(file: Path, text: str, repeat: int) -> list[Result]:
    """All results for the text of `file`."""
    ours, theirs = parse_times(text, repeat)
    memory = peak_memory(file)
    inspect = process_time(["-m", "hlo_lens", "inspect", str(file)], repeat)
    version = process_time(["-m", "hlo_lens", "--version"], 2 * repeat)
    nothing = process_time(["-c", "pass"], 2 * repeat)
    cpp = "the C++ parse"
    return [
        Result("the C++ parse", _ms(theirs)),
        Result("parse", _ms(ours), _ratio(ours, theirs), 0.5, cpp),
        Result(
            "peak memory", f"{memory / 1e6:.0f} MB", memory / file.stat().st_size, 5, "the text"
        ),
        # Thirteen tables, with what is replayed, which communication need not be, what attention
        # and experts became, and what is computed twice among them.
        Result("hlolens inspect", _ms(inspect), _ratio(inspect, theirs), 8, cpp),
        Result("python -c pass", _ms(nothing)),
        Result("hlolens --version", _ms(version), _ratio(version, nothing), 3, "python -c pass"),
        figure_result(repeat),
    ]


_FIGURE = Path(__file__).parents[1] / "fixtures" / "hlo" / "remat" / "full" / "cpu"


def figure_result(repeat: int) -> Result:
    """The time of a figure of a committed fixture over that of `dot` alone on the same DOT."""
    with tempfile.TemporaryDirectory() as folder:
        dot, svg = Path(folder, "figure.dot"), Path(folder, "figure.svg")
        figure = ["-m", "hlo_lens", "figure", str(_FIGURE), "--view", "remat", "-o"]
        ours = process_time([*figure, str(svg)], repeat)
        if shutil.which("dot") is None:
            return Result("hlolens figure", _ms(ours), against="dot")
        process_time([*figure, str(dot)], 1)
        command = ["dot", "-Tsvg", str(dot)]
        theirs = min(
            _seconds(lambda: subprocess.run(command, capture_output=True, check=True))
            for _ in range(repeat)
        )
    return Result("hlolens figure", _ms(ours), (ours - theirs) / 0.5, 1, "500 ms over dot")


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.0f} ms"


def _ratio(one: float, other: float | None) -> float | None:
    return None if other is None else one / other


def parse_times(text: str, repeat: int) -> tuple[float, float | None]:
    """Seconds of our parse and of XLA's, taken in turn; None for XLA's without jaxlib."""
    try:
        from jaxlib._hlo import hlo_module_from_text
    except ImportError:
        return min(_seconds(lambda: touched(parse(text))) for _ in range(repeat)), None
    ours, theirs = [], []
    for _ in range(repeat):
        theirs.append(_seconds(lambda: hlo_module_from_text(text)))
        ours.append(_seconds(lambda: touched(parse(text))))
    return min(ours), min(theirs)


def _seconds(work: Callable[[], object]) -> float:
    """Seconds that `work` takes, without the time to free its result."""
    gc.collect()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    del result
    return seconds


def touched(module: Module) -> Module:
    """The module, after every operand's target has been looked up, as XLA's parser does."""
    for computation in module.computations:
        for index in range(len(computation.instructions)):
            computation.operand_indices(index)
    return module


_MEMORY = """
import sys
from benchmarks.measure import parse, resident_peak, touched
before = resident_peak()
module = touched(parse(open(sys.argv[1]).read()))
print(resident_peak() - before)
"""


def resident_peak() -> int:
    """Bytes that this process has held at most.

    On Linux not from getrusage, whose value a process inherits from the one that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak_memory(file: Path) -> int:
    """Bytes that reading the file and touching its operands adds to a fresh interpreter."""
    command = [sys.executable, "-c", _MEMORY, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def process_time(arguments: Sequence[str], repeat: int) -> float:
    """Seconds of the quickest of `repeat` Python processes with these arguments.

    Compiled modules are kept from one to the next, as in any installation.
    """
    command = [sys.executable, *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return min(
        _seconds(lambda: subprocess.run(command, capture_output=True, check=True, env=environment))
        for _ in range(repeat)
    )
