"""The columns of the custom_calls table, and how it is shown."""

from __future__ import annotations

from typing import Final

from hlo_lens.facts import COMMON, Cell, Column, Lane, Measure, Rule, Summary, Table

TABLE = Table(
    "custom_calls",
    "a custom call, as often as it is written; one in an async wrapper once",
    (
        *COMMON,
        Column("target", "text", "identity", "custom_call_target"),
        Column(
            "family",
            "text",
            "structural",
            "library or compiler part behind the target, by the catalogue; `unknown` where no"
            " entry knows it",
        ),
        Column("op", "text", "structural", "what it computes, by target or kernel name"),
        Column(
            "direction",
            "enum",
            "structural",
            "forward or backward where target or kernel name fix it; `phase` says where it runs",
            values=("fwd", "bwd"),
        ),
        Column("kernel", "text", "structural", "name of the kernel that a generic target launches"),
        Column(
            "kernel_from",
            "enum",
            "volatile",
            "what gave the kernel's name: its config, the op_name of the Pallas call (a scope, or a"
            " jitted function that the catalogue knows), the function in its body, or the name of"
            " the instruction",
            values=("config", "op_name", "body", "name"),
        ),
        Column("operand_layouts", "json", "structural", "shapes and layouts it takes, a list"),
        Column("result_layouts", "json", "structural", "shapes and layouts of the result's leaves"),
        Column(
            "aliasing",
            "json",
            "structural",
            "results that are written into an operand, `[{output, operand}]`: the index of a leaf"
            " of the result and the number of the operand (with `operand_index` where that is a"
            " tuple); [] where none is",
        ),
        Column(
            "gathered_operands",
            "int",
            "structural",
            "operands that a collective gives with nothing but moves in between; NULL for calls"
            " that do no work (buffers, layouts, shardings)",
        ),
        Column(
            "gathered_by",
            "json",
            "volatile",
            "these operands and their collectives, `[{operand, collective, kind}]`: number of the"
            " operand, name and kind of the operation",
        ),
        Column("api_version", "text", "structural", "custom-call ABI as XLA names it"),
        Column(
            "epilogue",
            "text",
            "structural",
            "what a gemm or convolution does to its result besides, in the words of its config;"
            " `DEFAULT` is nothing; NULL where the config says nothing of it",
        ),
        Column(
            "workspace_bytes",
            "bytes",
            "measure",
            "scratch memory that the call takes as the last leaf of its result",
        ),
        Column(
            "scoped_memory_bytes", "bytes", "measure", "TPU: on-chip memory reserved for the call"
        ),
        Column(
            "vmem_limit_bytes",
            "bytes",
            "structural",
            "TPU: on-chip memory that the kernel asks for (`vmem_limit_bytes`); NULL where it asks"
            " for none and the compiler's limit holds",
        ),
        Column(
            "thread",
            "text",
            "structural",
            "execution thread it runs on (`sparsecore`, `host`, …); NULL for the main one",
        ),
        Column("has_side_effect", "bool", "structural", "whether it may not be dropped or merged"),
        Column(
            "grid",
            "json",
            "structural",
            "programs in each dimension: x, y, z of a Triton kernel, the grid of a Mosaic kernel"
            " from its body (-1: only known when it runs)",
        ),
        Column("num_warps", "int", "structural", "Triton: warps of a program"),
        Column("num_stages", "int", "structural", "Triton: stages of the software pipeline"),
        Column(
            "tiles",
            "json",
            "structural",
            "sizes of the blocks the kernel works on, by the names its config, its author's notes"
            " (`pallas_call(metadata=…)`) or its own name give them",
        ),
        Column(
            "buffers",
            "json",
            "structural",
            "Mosaic: arrays held on chip, from the body, `[{role, shape, memory, buffers}]`: role"
            " is prefetch (scalars read ahead), window (a block of an operand or result), scratch"
            " or alloc; `buffers` counts the copies of a window where the kernel says it. A depth"
            " that the author's notes or the kernel's name tell (`rhsbuf_2`) is there with `from`:"
            " metadata or name",
        ),
        Column(
            "settings",
            "json",
            "structural",
            "what the kernel asks of the compiler: communication, layout passes, memory of operands"
            " and results, flags, dimension semantics",
        ),
        Column(
            "estimated_flops",
            "flops",
            "structural",
            "operations of one run as the kernel's author estimates them (`cost_estimate`)",
        ),
        Column(
            "estimated_bytes",
            "bytes",
            "structural",
            "bytes one run reads and writes as the kernel's author estimates them",
        ),
        Column(
            "body_ops",
            "json",
            "structural",
            "operations of the kernel's body, {name: how often it is written}; NULL where it is"
            " bytecode and jaxlib, which reads that, is not installed or cannot",
        ),
        Column(
            "body_hash",
            "text",
            "structural",
            "first 16 digits of the SHA-256 of the kernel's body: of its MLIR text without source"
            " locations, or of its bytes; compare hashes of one kind (`body_from`)",
        ),
        Column(
            "body_from",
            "enum",
            "volatile",
            "what `body_hash` is made from: MLIR text, or bytes that could not be read",
            values=("mlir", "bytes"),
        ),
        Column(
            "body_bytes",
            "bytes",
            "volatile",
            "size of the kernel's body in the config, source locations included",
        ),
        Column(
            "config",
            "json",
            "structural",
            "backend_config without a kernel's body; a text longer than 256 characters is its size"
            " and hash instead",
        ),
    ),
    summary=Summary(
        "custom calls",
        order=40,
        none="no custom calls",
        by=(
            Cell("family"),
            Cell("op"),
            Cell("target"),
            Cell("kernel"),
            Cell("phase"),
            Cell("loop"),
        ),
        measures=(
            Measure("calls", "rows"),
            Measure("runs", "executions"),
            Measure("workspace", "each", "workspace_bytes"),
        ),
        held=("family", "op", "phase", "loop_depth"),
        lane=Lane(
            "compute",
            line=(Cell("op"), Cell("family"), Cell("{kernel}"), Cell("target")),
            details=(Cell("operand_layouts"), Cell("result_layouts")),
            skip=(
                ("family", ("buffer", "layout", "sharding")),
                (
                    "op",
                    (
                        "annotate_placement",
                        "assertion",
                        "barrier",
                        "call_marker",
                        "debug",
                        "dynamic_shape",
                        "fusion_annotation",
                        "index_annotation",
                        "ordering",
                        "x64_split",
                    ),
                ),
            ),
        ),
    ),
)

RUN_AGAIN: Final = Rule(
    "kernel-run-again",
    "note",
    "A kernel runs again on what an earlier run of it had.",
    "A Triton or Mosaic kernel, a fused attention, a norm or a grouped gemm of a library is called"
    " a second time. `same values`: the later call has the operands, the attributes and the body of"
    " the earlier one by the flow of the values (through barriers, layouts, fusions and what a"
    " forward loop stacks for its backward loop), so it computes the same. `label`: the later call"
    " stands under `rematted_computation`, and target, kernel, body, shapes and layouts are those"
    " of an earlier call that does not; that the values are the same is not shown. The same kernel"
    " in another layer, on other values, is no second run. Saving the kernel's results (a"
    " checkpoint policy that names them) spares the second run for their memory. In the members of"
    " `custom_calls`, the later row has the earlier call as `first`, the earlier row the later one"
    " as `again`.",
)
RULES: Final = (
    Rule(
        "catalogue-broken",
        "warning",
        "A catalogue of the user cannot be used.",
        "The file named by HLOLENS_CATALOGUE or by `catalogues` in the config is left out; the"
        " built-in catalogue and the other files hold. The message says what is wrong with it.",
    ),
    RUN_AGAIN,
)
