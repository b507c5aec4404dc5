"""Compile jax functions for CPU, TPU, CUDA and ROCm without the device, and read what came of it.

    program = hlo_lens.aot.compile(step, weights, batch, target="rocm:gfx950-8", mesh="fsdp=8")
    program = hlo_lens.aot.compile_reference("model:train_step", target="tpu:v6e-8")

Every compile runs in a process of its own, so that a compiler that dies takes nothing with it.
"""

from hlo_lens.aot.arguments import ArgumentError, ArgumentSpec, parse_argument, parse_mesh
from hlo_lens.aot.compiling import TIMEOUT, CompileError, compile, compile_reference
from hlo_lens.aot.flags import FlagError, parse_flags
from hlo_lens.aot.packages import Readiness, readiness
from hlo_lens.aot.reference import FunctionError
from hlo_lens.aot.targets import KNOWN, Target, TargetError, parse_target

__all__ = [
    "KNOWN",
    "TIMEOUT",
    "ArgumentError",
    "ArgumentSpec",
    "CompileError",
    "FlagError",
    "FunctionError",
    "Readiness",
    "Target",
    "TargetError",
    "compile",
    "compile_reference",
    "parse_argument",
    "parse_flags",
    "parse_mesh",
    "parse_target",
    "readiness",
]
