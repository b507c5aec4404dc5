"""Mixture of experts: routed rows, padding, capacity, and what each way of computing costs."""

from __future__ import annotations

import math
from typing import Literal

from hlo_lens.ledger.formula import CHAPTER, DERIVED, GROUP_GEMM, MAXTEXT, formula

TOPIC = "Mixture of experts"
_WHY = f"{CHAPTER}: Why MoE requires grouped GEMM"
_TABLE_3 = f"{GROUP_GEMM}: The Three MoE Compute Paths in MaxText, table 3"
_MODES = f"{GROUP_GEMM}: Two MoE Modes: Drop vs. Dropless, expert_capacity"


@formula(
    "B·S·k·f",
    unit="rows",
    source=f"{GROUP_GEMM}: From an MoE Layer to 6 Ragged-Dot Classes, table 6",
    topic=TOPIC,
)
def routed_rows(*, batch: int, sequence: int, top_k: int, buffer_factor: float = 1.0) -> float:
    """Rows of the ragged dimension: one for each token and each expert it is sent to.

    Table 6 calls M the real count without capacity padding, f = 1. The M of the document's own
    micro-benchmark (table 12) are 1.25 times that for every model of tables 4 and 5 that it has.
    """
    return batch * sequence * top_k * buffer_factor


@formula("T·k / E", unit="rows", source=f"{_WHY}, n̄", topic=TOPIC)
def mean_group_size(*, tokens: int, top_k: int, experts: int) -> float:
    """Mean rows of an expert; the real counts depend on the data."""
    return tokens * top_k / experts


@formula(
    "⌊M/G⌋, and one row more for each of the first M mod G groups",
    unit="rows",
    source=f"{GROUP_GEMM}: Fixing group_sizes Deterministically; Autotuning",
    topic=TOPIC,
)
def balanced_group_sizes(
    *, rows: int, groups: int, remainder: Literal["first", "last"] = "first"
) -> tuple[int, ...]:
    """Group sizes as equal as can be, which sum to `rows`.

    The document has two rules for what is left over: the hipBLASLt autotuner and the
    micro-benchmark spread it over the first groups (`first`); of the Triton autotuner it says that
    the last group takes it all (`last`).
    """
    each, over = divmod(rows, groups)
    if remainder == "last":
        return (*[each] * (groups - 1), each + over)
    return (*[each + 1] * over, *[each] * (groups - over))


@formula("E / k", unit="ratio", source=_WHY, topic=TOPIC)
def dense_masked_multiplier(*, experts: int, top_k: int) -> float:
    """Expert arithmetic of the dense masked way over that of the routed rows alone."""
    if top_k > experts:
        raise ValueError(f"top_k is {top_k}, more than the {experts} experts")
    return experts / top_k


@formula("⌈T/E⌉·f", unit="rows", source=_MODES, topic=TOPIC)
def expert_capacity(*, tokens_per_batch: int, experts: int, capacity_factor: float) -> float:
    """Rows reserved for each expert, as the document prints it; not always a whole number.

    The document does not say what its tokens_per_batch counts. In the code that it describes they
    are the assignments of one sequence (S·k), not the tokens of a batch, and the product is cut to
    a whole number: see `maxtext_expert_capacity`.
    """
    return math.ceil(tokens_per_batch / experts) * capacity_factor


@formula(
    "int(max(⌈S·k/E⌉·f, f))",
    unit="rows",
    source=f"{MAXTEXT}: RoutedMoE.generate_masks",
    topic=TOPIC,
)
def maxtext_expert_capacity(
    *, sequence: int, top_k: int, experts: int, capacity_factor: float
) -> int:
    """Rows that MaxText reserves for each expert and each sequence of the batch.

    E·B·C rows in all; assignments beyond C are dropped. The maximum is there to avoid 0, but never
    changes the result, as the share is at least f already: with f < 1 and few tokens it is 0.
    Older versions had int(S·k/E·f), which differs where E does not divide S·k.
    """
    share = math.ceil(sequence * top_k / experts) * capacity_factor
    return int(max(share, capacity_factor))


@formula("Σ_e ⌈n_e/T_M⌉", unit="tiles", source=f"{_WHY}, ñ_e / T_M", topic=TOPIC)
def row_tiles(*, group_sizes: tuple[int, ...], row_tile: int) -> int:
    """Row tiles of a grouped GEMM, each of one group.

    The Triton kernel that "Group-GEMM in XLA" describes cuts all rows into ⌈M/T_M⌉ tiles instead
    and gives a tile to the group of its first row: 3 tiles for group sizes 3, 2, 4 and a tile of 3
    (its table 2), where this model has 4. Read literally it leaves row 5 out: the tile of rows 3 to
    5 belongs to the group of rows 3 and 4, and masks the rest. Every row needs the 4.
    """
    return sum(math.ceil(size / row_tile) for size in group_sizes)


@formula("(Σ_e ñ_e − Σ_e n_e) / Σ_e n_e", unit="ratio", source=f"{_WHY}, W_pad", topic=TOPIC)
def pad_waste(*, group_sizes: tuple[int, ...], row_tile: int) -> float:
    """Padded rows over useful ones, where each group is padded to whole row tiles.

    An upper model: predication can leave some of the arithmetic out. ValueError without any row.
    """
    useful = sum(group_sizes)
    if not useful:
        raise ValueError("group_sizes have no row: the waste is a share of the rows")
    return row_tiles(group_sizes=group_sizes, row_tile=row_tile) * row_tile / useful - 1


@formula("2·K·N·Σ_e n_e", unit="FLOP", source=f"{_WHY}, F_useful", topic=TOPIC)
def useful_flops(
    *, group_sizes: tuple[int, ...], contracting_width: int, output_width: int
) -> float:
    """FLOPs of the rows that were routed."""
    return 2 * contracting_width * output_width * sum(group_sizes)


@formula("2·K·N·Σ_e ñ_e", unit="FLOP", source=f"{_WHY}, F_padded", topic=TOPIC)
def padded_flops(
    *, group_sizes: tuple[int, ...], row_tile: int, contracting_width: int, output_width: int
) -> float:
    """FLOPs of the row tiles that are issued, an upper model."""
    rows = row_tiles(group_sizes=group_sizes, row_tile=row_tile) * row_tile
    return 2 * contracting_width * output_width * rows


@formula("2·M·K·N", unit="FLOP", source=f"{_TABLE_3}, path 1", topic=TOPIC)
def sparse_path_flops(*, rows: int, contracting_width: int, output_width: int) -> float:
    """FLOPs of one expert GEMM on the sparse path (ragged dot); sort and scatter come on top.

    The document gives multiply-adds, M·K·N; here as in the other paths a multiply-add is 2 FLOPs.
    """
    return 2 * rows * contracting_width * output_width


@formula("2·E·(B·S)·K·N", unit="FLOP", source=f"{_TABLE_3}, path 2", topic=TOPIC)
def dense_path_flops(
    *, experts: int, tokens: int, contracting_width: int, output_width: int
) -> float:
    """FLOPs of one expert GEMM on the dense dropless path: every token visits every expert."""
    return 2 * experts * tokens * contracting_width * output_width


@formula("2·E·B·C·K·N", unit="FLOP", source=f"{_TABLE_3}, path 3", topic=TOPIC)
def capacity_path_flops(
    *,
    experts: int,
    capacity: float,
    contracting_width: int,
    output_width: int,
    batch: int = 1,
) -> float:
    """FLOPs of one expert GEMM on the dense drop path: C rows an expert, padding and all.

    The document writes E·C·K·N beside code whose buffer is [E, B, C, M], where C is the share of
    one sequence: then `batch` is the factor that is missing. Dispatch and combine come on top
    (`dispatch_combine_flops`).
    """
    return 2 * experts * batch * capacity * contracting_width * output_width


@formula(
    "4·B·S·E·C·D",
    unit="FLOP",
    source=f"{DERIVED}: the two einsums of path 3, BSM,BSEC->EBCM and EBCM,BSEC->BSM",
    topic=TOPIC,
)
def dispatch_combine_flops(
    *, batch: int, sequence: int, experts: int, capacity: float, width: int
) -> float:
    """FLOPs of the one-hot products that put tokens into capacity slots and gather them back.

    Table 3 leaves them out. Against gate, up and down of width F they are about 2·S / 3·F of the
    arithmetic: 14 % at S = 3072, F = 14336, but 89 % at S = 1024, F = 768.
    """
    return 4 * batch * sequence * experts * capacity * width


@formula("E·M·N·w", unit="bytes", source=f"{GROUP_GEMM}: Memory Savings", topic=TOPIC)
def expert_stack_bytes(
    *, experts: int, rows: int, output_width: int, element_bytes: float = 2
) -> float:
    """Bytes of the E-fold stack that the padded lowering of a ragged dot builds.

    The document describes E results [M, N], masked afterwards, and savings that grow with E·M·N.
    Compiled for gfx950 the same operation masks its rows to [M, E, K] and contracts E·K at once:
    the stack is then E·M·K (give K as `output_width`), and that is what the published savings of
    the models with 128 experts follow, at about 3 stacks each.
    """
    return experts * rows * output_width * element_bytes
