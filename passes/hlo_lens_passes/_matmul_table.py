"""The schema and summary of the matmuls table."""

from __future__ import annotations

from typing import Final

from hlo_lens.facts import COMMON, Cell, Column, Lane, Measure, Summary, Table

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
        Column("lhs_dtype", "text", "structural", "dtype of the left operand"),
        Column("rhs_dtype", "text", "structural", "dtype of the right operand"),
        Column(
            "accumulate_dtype",
            "text",
            "structural",
            "dtype sums are kept in, where the algorithm says; NULL is the backend's choice",
        ),
        Column("out_dtype", "text", "structural", "dtype of the result"),
        Column("algorithm", "text", "structural", "dot algorithm as HLO names it"),
        Column(
            "operand_precision", "text", "structural", "precision asked for each operand, by commas"
        ),
        Column("batch", "int", "measure", "product of the batch dimensions"),
        Column("m", "int", "measure", "product of the other dimensions of the left operand"),
        Column("n", "int", "measure", "product of the other dimensions of the right operand"),
        Column("k", "int", "measure", "product of the contracted dimensions"),
        Column(
            "flops",
            "flops",
            "measure",
            "2·batch·m·n·k of one execution; of a ragged one an upper bound, reached when the"
            " groups cover every row; NULL for a ragged convolution, whose text counts every group",
        ),
        Column(
            "ragged",
            "bool",
            "structural",
            "whether groups of rows have a matrix each: ragged-dot, a grouped gemm, or what the"
            " TPU compiler says is one",
        ),
        Column("epilogue", "text", "structural", "what a gemm call does to its result besides"),
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
                Cell("epilogue", blank=("default",)),
            ),
            details=(Cell("target"), Cell("algorithm"), Cell("converts")),
            total=Measure("computes", "per_step", "flops"),
        ),
    ),
)
