"""The schema and summary of the matmuls table."""

from __future__ import annotations

from typing import Final

from hlo_lens.facts import COMMON, Cell, Column, Lane, Measure, Rule, Summary, Table

TABLE: Final = Table(
    "matmuls",
    "a matrix multiplication: a dot, alone or in a fusion, a convolution that is one (as TPU text"
    " writes dots), or a call of a gemm library",
    (
        *COMMON,
        Column(
            "form",
            "enum",
            "identity",
            "how the text writes it",
            values=("dot", "scaled-dot", "ragged-dot", "convolution", "custom_call"),
        ),
        Column("target", "text", "identity", "custom_call_target of a gemm call"),
        Column(
            "backend",
            "text",
            "structural",
            "what computes it: the library of a gemm call, or what the config of the fusion around"
            " a dot names, such as triton; NULL for another dot, which the compiler may still hand"
            " to a library",
        ),
        Column(
            "lhs_dtype",
            "text",
            "structural",
            "dtype of the left operand",
            dtypes=True,
        ),
        Column(
            "rhs_dtype",
            "text",
            "structural",
            "dtype of the right operand",
            dtypes=True,
        ),
        Column(
            "accumulate_dtype",
            "text",
            "structural",
            "dtype sums are kept in, where the algorithm says; NULL is the backend's choice",
        ),
        Column(
            "out_dtype",
            "text",
            "structural",
            "dtype of the result",
            dtypes=True,
        ),
        Column("algorithm", "text", "structural", "dot algorithm as HLO names it"),
        Column(
            "operand_precision", "text", "structural", "precision asked for each operand, by commas"
        ),
        Column(
            "batch",
            "int",
            "measure",
            "product of the batch dimensions; the groups of a ragged one are none, nor is what"
            " stands for them in a TPU convolution",
        ),
        Column("m", "int", "measure", "product of the other dimensions of the left operand"),
        Column("n", "int", "measure", "product of the other dimensions of the right operand"),
        Column(
            "k",
            "int",
            "measure",
            "product of the contracted dimensions; of one slice where split_k cuts them in a batch",
        ),
        Column(
            "groups",
            "int",
            "measure",
            "how many groups of rows a ragged one has; NULL for every other",
        ),
        Column(
            "flops",
            "flops",
            "measure",
            "2·batch·m·n·k of one execution; of a ragged one an upper bound, reached when the"
            " groups cover every row: the number of groups does not count",
        ),
        Column(
            "ragged",
            "bool",
            "structural",
            "whether groups of rows have a matrix each: ragged-dot, a grouped gemm or kernel, or a"
            " convolution whose TPU config says so (is_ragged_dot, or a mask whose other groups are"
            " skipped)",
        ),
        Column("epilogue", "text", "structural", "what a gemm call does to its result besides"),
        Column(
            "workspace_bytes",
            "bytes",
            "measure",
            "scratch memory that a gemm call takes as the last leaf of its result",
        ),
        Column(
            "split_k",
            "int",
            "measure",
            "slices that the contraction is cut in, their products added up behind: as the config"
            " of its fusion says, or as a batch dimension that every use sums over; NULL where"
            " nothing shows it",
        ),
        Column(
            "tiles",
            "json",
            "structural",
            "tile sizes of the kernel, as {output, contracted}, each in the order of dimensions;"
            " NULL where no config says them",
        ),
        Column("num_warps", "int", "structural", "warps of a block of a Triton kernel"),
        Column("num_stages", "int", "structural", "pipeline stages of a Triton kernel"),
        Column(
            "converts",
            "text",
            "structural",
            "converts next to it, as `lhs bf16->f32, result f32->bf16`; NULL for none",
        ),
        Column(
            "convert_before",
            "json",
            "volatile",
            "converts in front of its operands, through fusions and what only moves data, as"
            " [{operand, from, to, via}]; NULL for none",
        ),
        Column(
            "convert_after",
            "json",
            "volatile",
            "the nearest convert that takes its result, as {from, to, via}; NULL for none",
        ),
        Column(
            "dequantized",
            "text",
            "structural",
            "operands that are fp8 made wide again in front of it, as `lhs f8e4m3fn->bf16 × scalar,"
            " rhs f8e4m3fn->bf16`, the scale told where there is one; NULL for none",
        ),
        Column("dims", "json", "structural", "its dimension numbers, where the text has them"),
    ),
    summary=Summary(
        "matmuls",
        order=30,
        about="2·batch·m·n·k FLOP",
        none="no matmuls",
        by=(
            Cell("loop"),
            Cell("phase"),
            Cell("form"),
            Cell("backend"),
            Cell("{lhs_dtype}×{rhs_dtype}→{out_dtype}", "dtypes", merged=True),
        ),
        measures=(
            Measure("matmuls", "rows"),
            Measure("runs", "executions"),
            Measure("FLOP per run", "once", "flops"),
            Measure("FLOP per step", "per_step", "flops"),
        ),
        held=(
            "lhs_dtype",
            "phase",
            "loop_depth",
            "rhs_dtype",
            "out_dtype",
            "form",
            "backend",
            "algorithm",
            "operand_precision",
        ),
        unknown=(Cell("ragged", words=("ragged", "")), Cell("form")),
        lane=Lane(
            "compute",
            line=(
                Cell("form"),
                Cell("backend"),
                Cell("{lhs_dtype}×{rhs_dtype}→{out_dtype}", merged=True),
                Cell("b{batch}", blank=(1,)),
                Cell("m{m} n{n} k{k}"),
                Cell("ragged", words=("ragged", "")),
                Cell("{groups} groups"),
                Cell("split-K {split_k}", blank=(1,)),
                Cell("epilogue", blank=("default",)),
            ),
            details=(
                Cell("target"),
                Cell("algorithm"),
                Cell("converts"),
                Cell("dequantized"),
                Cell("tiles"),
                Cell("workspace_bytes", "workspace"),
            ),
            total=Measure("computes", "per_step", "flops"),
        ),
    ),
)

RULE: Final = Rule(
    "fp8-not-used",
    "warning",
    "A matmul runs wide although its operands come from fp8.",
    "Both operands are fp8 values that are converted, and mostly scaled, in front of the matmul: it"
    " reads and multiplies the wide values, so that fp8 saved nothing but what is stored. On GPUs"
    " XLA's GemmRewriter makes an fp8 gemm of this, but not of two f8e5m2 operands, not where a"
    " scale is no scalar, not where what is scaled is converted again, and not where an operand has"
    " more than one contracted and one other dimension beside its batch; nor on GPUs before Ada and"
    " MI300, with CUDA before 12 or ROCm before 6, or in a compile that knows neither. Other"
    " platforms have no such rewrite: there a program gives the dot fp8 operands and scales its"
    " result. With one operand from fp8 it is a note: weights may be stored so on purpose, and no"
    " fp8 gemm takes a wide operand. Before optimization this is how such a matmul is written, and"
    " no finding.",
)
