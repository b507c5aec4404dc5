"""The columns of the kernels table."""

from __future__ import annotations

from hlo_lens.facts import COMMON, Column, Table

TABLE = Table(
    "kernels",
    "a kernel that XLA's own emitters do not make: a custom call, or a fusion that is handed to a"
    " code generator or a library",
    (
        *COMMON,
        Column(
            "family",
            "text",
            "structural",
            "library or generator that makes it; `unknown` where none is known for the target or"
            " the kind",
        ),
        Column(
            "op",
            "text",
            "structural",
            "what it computes: of a custom call by target or kernel name, of one that only hands a"
            " computation to another core by that (collective, scatter, gather, else call), of a"
            " fusion by what is in it (gemm, grouped_gemm, scaled_gemm, convolution, collective,"
            " reduction, else fusion); NULL where the name does not tell",
        ),
        Column(
            "called",
            "text",
            "structural",
            "what a reader calls it: the kernel's name, else the target; of a fusion its target and"
            " the dtypes of its matmul, or the op; of a computation on another core what it does"
            " and where, such as `all-gather on SparseCore`",
        ),
        Column("kernel", "text", "structural", "name of the kernel that a generic target launches"),
        Column(
            "target",
            "text",
            "identity",
            "custom_call_target; of a fusion the kind that its config names, such as"
            " `__triton_gemm`, or the name of a custom fusion, such as `cutlass_gemm`",
        ),
        Column(
            "direction",
            "enum",
            "structural",
            "forward or backward where target or kernel name fix it; `phase` says where it runs",
            values=("fwd", "bwd"),
        ),
        Column(
            "is_fusion",
            "bool",
            "identity",
            "whether it is a fusion; a custom call has more columns in custom_calls, by `instr`",
        ),
        Column(
            "does_work",
            "bool",
            "structural",
            "false for calls that stand for no work: marks, buffers, layouts, shardings, order",
        ),
        Column(
            "operand_layouts",
            "json",
            "structural",
            "shapes and layouts it takes, a list; of a computation on another core, the"
            " computation's",
        ),
        Column("result_layouts", "json", "structural", "shapes and layouts of the result's leaves"),
        Column(
            "matmuls",
            "int",
            "measure",
            "dots and gemms in it that the table matmuls has; itself where it is one",
        ),
        Column(
            "flops",
            "flops",
            "measure",
            "of one run, of the matmuls in it; NULL where it has none or one of them is not known"
            " (what fused attention computes is in the table attention)",
        ),
        Column(
            "workspace_bytes",
            "bytes",
            "measure",
            "scratch memory that a call takes as the last leaf of its result",
        ),
        Column(
            "scoped_memory_bytes", "bytes", "measure", "TPU: on-chip memory reserved for the call"
        ),
        Column(
            "grid",
            "json",
            "structural",
            "programs in each dimension: x, y, z of a Triton kernel, the grid of a Mosaic kernel",
        ),
        Column(
            "tiles",
            "json",
            "structural",
            "sizes of the blocks it works on: of a fusion {output, contracted}, each in the order"
            " of dimensions (of several outputs a list each); of a call by the names that its"
            " config, its author's notes or its own name give them",
        ),
        Column("num_warps", "int", "structural", "Triton: warps of a program"),
        Column("num_stages", "int", "structural", "Triton: stages of the software pipeline"),
        Column("num_ctas", "int", "structural", "Triton: thread blocks of a cluster"),
        Column(
            "waves_per_eu",
            "int",
            "structural",
            "Triton on AMD: waves that are to fit a SIMD unit at a time",
        ),
        Column(
            "split_k",
            "int",
            "structural",
            "slices that the contraction of its matmul is cut in; NULL where nothing shows it",
        ),
    ),
    needs_configs=True,
)
