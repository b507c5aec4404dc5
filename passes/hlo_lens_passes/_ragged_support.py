"""Why a ragged dot was expanded: the conditions of each grouped lowering, one by one.

From XLA's ragged_dot_rewriter.cc (`CanBeHandledByGpublasltGroupGemm`, `CanBeHandledByCuDNNFusion`,
2026), its gemm_rewriter.cc for the Triton fusion, and what compilers of jax 0.11 do with f16 and
bf16 on gfx950. The order in which XLA asks: cuDNN, hipBLASLt, Triton, expansion.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.dumps import read_name

if TYPE_CHECKING:
    from hlo_lens.program import Program
    from hlo_lens_passes._ragged_found import Ragged

Answer = Literal["yes", "no", "unknown"]

PROVENANCE: Final = "provenance.json"
GROUPED: Final = "xla_gpu_experimental_use_ragged_dot_grouped_gemm"
LIBRARY: Final = "xla_gpu_enable_cublaslt"
FUSED: Final = "xla_gpu_experimental_use_ragged_dot_fusion"
TRITON: Final = "xla_gpu_experimental_triton_ragged_dot"
TILING: Final = "xla_gpu_experimental_enable_tiling_propagation"

# What hipBLASLt groups, by the architecture.
_LIBRARY_DTYPES: Final = {"gfx942": ("f16", "bf16"), "gfx950": ("f16",)}
_FUSION_DTYPES: Final = ("f16", "bf16")
_BEFORE_AMPERE: Final = ("k", "m", "p", "v", "t4")
_PLATFORM: Final = "gpu: platform"
_ON: Final = ("", "true", "1")


@dataclass(frozen=True, slots=True)
class Target:
    """What a text was compiled for. flags: those the compile was given; None: not known."""

    platform: str | None = None
    chip: str | None = None
    flags: Mapping[str, str] | None = None

    def flag(self, name: str, default: bool) -> tuple[Answer, str]:
        """Whether a flag is on, and the words for it."""
        if self.flags is None:
            return "unknown", "the flags of the compile are not known"
        given = self.flags.get(name)
        if given is None:
            return ("yes" if default else "no"), f"--{name} is {'on' if default else 'off'} unasked"
        on = given.lower() in _ON
        return ("yes" if on else "no"), f"--{name}={given or 'true'}"


def target_of(program: Program, position: int, platform: str | None) -> Target:
    """From the side file of the compile, the file name of XLA's dump, and what the text shows
    (`platform`, as the modules table tells it)."""
    told = _provenance(program)
    given = told.get("flags")
    if given is None and isinstance(environment := told.get("environment"), dict):
        # What was not made by `hlolens compile` has them as they were set.
        given = str(environment.get("XLA_FLAGS", "")).split()
    flags = dict(_flag(str(one)) for one in given) if isinstance(given, list) else None
    if isinstance(of := told.get("target"), dict):
        return Target(of.get("platform"), of.get("chip"), flags)
    name = read_name(os.path.basename(program.modules[position].filename or ""))
    chip = None if name is None or name.platform is None else name.platform.removesuffix("_gpu")
    if chip is not None and chip.startswith("gfx"):
        return Target("rocm", chip, flags)
    if chip is not None and chip.startswith("sm_"):
        return Target("cuda", chip, flags)
    return Target(platform, None, flags)


def _provenance(program: Program) -> Mapping[str, object]:
    """What the compile says of itself; {} where it does not, or not as JSON."""
    path = program.side_files.get(PROVENANCE)
    try:
        told = {} if path is None else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _flag(text: str) -> tuple[str, str]:
    name, _, value = text.lstrip("-").partition("=")
    return name, value


@dataclass(frozen=True, slots=True)
class Check:
    """A condition: of which lowering, whether it holds, why; soft where a flag would change it."""

    rule: str
    answer: Answer
    why: str
    soft: bool = False

    def described(self) -> dict[str, str]:
        return {"rule": self.rule, "answer": self.answer, "why": self.why}


def checks_of(found: Ragged, target: Target) -> tuple[Check, ...]:
    """Every condition of every grouped lowering that the platform has."""
    if target.platform == "cpu":
        why = "XLA's CPU back end has none; jax expands the dot before any text is written"
        return (Check("cpu: a grouped matmul", "no", why),)
    if target.platform == "tpu":
        why = "the TPU compiler does not publish its conditions"
        return (Check("tpu: a kernel for groups", "unknown", why),)
    return (
        *_one_ragged(found),
        *_known(target),
        *(_fusion(found, target) if target.platform != "rocm" else ()),
        *(_library(found, target) if target.platform != "cuda" else ()),
        *_triton(target),
    )


def _known(target: Target) -> Iterator[Check]:
    if target.platform not in ("cuda", "rocm"):
        yield Check(_PLATFORM, "unknown", "the text does not tell CUDA from ROCm")


def _one_ragged(found: Ragged) -> Iterator[Check]:
    if found.variant == "batch":
        why = "a ragged batch is lowered to a batched dot before any back end sees it"
        yield Check("gpu: ragged dimension", "no", why)
    else:
        yield Check("gpu: one ragged dimension of the left operand", "yes", f"{found.variant}")
        yield Check("gpu: layout", "yes", "no back end asks for one")


def _fusion(found: Ragged, target: Target) -> Iterator[Check]:
    yield Check("cudnn: flag", *target.flag(FUSED, False), soft=True)
    yield _dtype("cudnn", found, _FUSION_DTYPES)
    if found.variant == "contracting":
        why = "a weight gradient takes a newer cuDNN than the forward product"
        yield Check("cudnn: variant", "unknown", why)
    yield Check("cudnn: version", "unknown", "has to be 9.22 or newer; the text does not name it")
    yield _ampere(target.chip)


def _ampere(chip: str | None) -> Check:
    """cuDNN's fusion asks for compute capability 8.0; chips have names, or numbers in a dump."""
    rule = "cudnn: architecture"
    if chip is None:
        return Check(rule, "unknown", "needs Ampere or newer; the text does not name it")
    number = chip.removeprefix("sm_").partition(".")[0]
    old = int(number) < 8 if number.isdecimal() else chip.startswith(_BEFORE_AMPERE)
    return Check(rule, "no" if old else "yes", f"needs Ampere or newer; this is {chip}")


def _library(found: Ragged, target: Target) -> Iterator[Check]:
    yield Check("hipblaslt: flag", *target.flag(GROUPED, True), soft=True)
    yield Check("hipblaslt: library", *target.flag(LIBRARY, True), soft=True)
    if target.chip is None:
        yield Check(
            "hipblaslt: architecture",
            "unknown",
            "groups on gfx942 and gfx950; the text does not name it",
        )
        return
    dtypes = _LIBRARY_DTYPES.get(target.chip)
    if dtypes is None:
        yield Check(
            "hipblaslt: architecture", "no", f"groups on gfx942 and gfx950, not on {target.chip}"
        )
        return
    yield Check("hipblaslt: architecture", "yes", target.chip)
    yield _dtype("hipblaslt", found, dtypes, f" on {target.chip}")


def _dtype(of: str, found: Ragged, dtypes: tuple[str, ...], where: str = "") -> Check:
    words = " or ".join(dtypes)
    given = [dtype for dtype in found.dtypes if dtype is not None]
    if not given:
        return Check(f"{of}: dtype", "unknown", f"takes {words}{where}; not known here")
    wrong = [dtype for dtype in given if dtype not in dtypes]
    if wrong:
        return Check(f"{of}: dtype", "no", f"takes {words}{where}, not {wrong[0]}")
    if len(set(given)) > 1:
        return Check(
            f"{of}: dtype", "no", f"takes one dtype, not {' and '.join(dict.fromkeys(given))}"
        )
    return Check(f"{of}: dtype", "yes", f"takes {given[0]}{where}")


def _triton(target: Target) -> Iterator[Check]:
    yield Check("triton: flag", *target.flag(TRITON, False), soft=True)
    yield Check("triton: tiling propagation", *target.flag(TILING, False), soft=True)


_NAMES: Final = {
    "cpu": "CPU",
    "cudnn": "cuDNN",
    "gpu": "GPU",
    "hipblaslt": "hipBLASLt",
    "tpu": "TPU",
}


def why_not(checks: tuple[Check, ...]) -> str:
    """The answer in a line, by the library of the platform: Triton's fusion is an experiment."""
    own = [one for one in checks if not one.rule.startswith("triton")]
    for one in own:
        if one.answer == "no" and not one.soft:
            return f"not supported: {_spelled(one)}"
    for one in own:
        if one.rule == _PLATFORM:
            return f"unknown: {_spelled(one)}"
    for one in own:
        if one.answer == "no":
            return f"not enabled: {_spelled(one)}"
    for one in own:
        if one.answer == "unknown":
            return f"unknown: {_spelled(one)}"
    return "unknown: every condition that is known holds"


def _spelled(check: Check) -> str:
    """`hipBLASLt takes f16 on gfx950, not bf16`, `hipBLASLt: --flag=false`."""
    name = _NAMES[check.rule.partition(":")[0]]
    colon = "" if check.why.startswith(("takes ", "needs ", "groups ", "has ")) else ":"
    return f"{name}{colon} {check.why}"
