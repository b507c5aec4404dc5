"""The sentences at the head of a report on lowerings: what each kind of work became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from hlo_lens.lowering.tables import ATTENTION, EXPERTS, MATMULS, RAGGED, Lowered, Record, Rows
from hlo_lens.present.cells import Row
from hlo_lens.present.quantities import (
    UNKNOWN,
    Bounds,
    bounds_text,
    bytes_text,
    count_text,
    executions_text,
    flops_text,
    visible,
)

GROUPED: Final = (
    "grouped_gemm", "cudnn_fusion", "triton_fusion", "mosaic_kernel", "tpu_native",
)  # fmt: skip
"""The lowerings of a ragged dot that multiply each row with the matrix of its group alone."""
PADDED: Final = "dense_padded"
KEPT: Final = "ragged-dot"
EXPOSED: Final = "exposed"
_OTHERS: Final = "other"


def answers(found: Lowered) -> Iterator[tuple[str, str]]:
    """A word and a sentence for each kind of work; for kinds that are not there, too, as a person
    asks for them."""
    yield "ragged dots", _said(found, RAGGED, _ragged)
    yield "attention", _said(found, ATTENTION, _attention)
    yield "experts", _said(found, EXPERTS, _experts)
    yield "matmuls", _said(found, MATMULS, _matmuls)


def _said(found: Lowered, name: str, sentence: Callable[[Lowered, Rows], str]) -> str:
    rows = found.rows(name)
    if rows.problem is not None:
        return f"not known: {visible(rows.problem)}"
    if rows:
        return sentence(found, rows)
    before = () if found.before is None else found.rows(name, found.before).rows
    if before:
        stage = found.facts.program.stages[found.before or 0]
        return f"none is seen; {stage} has {count_text(len(before))}"
    return "none is seen" + (" in the part that is there" if _is_cut(found) else "")


def _is_cut(found: Lowered) -> bool:
    return found.facts.program.modules[found.module].truncated


# ---------------------------------------------------------------------------------- ragged dots


def _ragged(found: Lowered, rows: Rows) -> str:
    """Did it become a grouped GEMM?"""
    records = rows.records()
    grouped = [one for one in records if one["lowering"] in GROUPED]
    kept = [one for one in records if one["lowering"] == KEPT]
    told = f" ({classes})" if (classes := listed(_classes(records))) else ""
    count, ways = count_text(len(records)), _ways_of(grouped)
    if len(grouped) == len(records):
        return f"grouped, {'the one' if len(records) == 1 else f'all {count}'}{told}: {ways}"
    if len(kept) == len(records):
        return f"not lowered yet: {count} written as ragged-dot{told}"
    dense = [one for one in records if one["lowering"] == PADDED]
    if len(dense) == len(records):
        return f"not grouped: {_padded(dense, told)}"
    parts = [
        f"{len(grouped)} of {count} grouped ({_ways_of(grouped)})" if grouped else "not grouped"
    ]
    parts += [_padded(dense, "")] if dense else []
    parts += [f"{count_text(len(kept))} written as ragged-dot, not lowered"] if kept else []
    return "; ".join(parts)


def _ways_of(records: Iterable[Record]) -> str:
    """How they are lowered."""
    return listed(str(one["lowering"]) for one in records)


def _classes(records: Sequence[Record]) -> Iterator[str]:
    """What they compute in the step, by class where only that is known, the forward first; what is
    replayed is told apart."""
    kinds = [one.get("direction") or one["class"] for one in records]
    for name in ("fwd", "dgrad", "wgrad"):
        same = [one for one, kind in zip(records, kinds, strict=True) if kind == name]
        again = [one for one in same if one["phase"] == "remat"]
        yield from [name] * (len(same) - len(again))
        yield from [f"{name} again in a replay"] * len(again)
    yield from ["of no known class" for kind in kinds if kind is None]


def _padded(dense: Sequence[Record], told: str) -> str:
    """How many are dense, what that costs, and why."""
    factors = sorted({one["factor"] for one in dense if isinstance(one["factor"], (int, float))})
    cost = ""
    if factors:
        low, high = (f"{one:.3g}" for one in (factors[0], factors[-1]))
        cost = f", {low if low == high else f'{low} – {high}'} times the useful FLOP"
        cost = _one_group(dense) if high == "1" else cost
    reasons = list(dict.fromkeys(
        str(one["why_not_grouped"]) for one in dense if one.get("why_not_grouped") is not None
    ))  # fmt: skip
    why = f"; {visible(reasons[0])}" if reasons else ""
    others = len(reasons) - 1
    more = f" (and {others} other reason{'s' * (others > 1)})" if others > 0 else ""
    return f"{len(dense)} padded to dense{told}{cost}{why}{more}"


def _one_group(dense: Sequence[Record]) -> str:
    """What is true of a product that issues no more than the useful FLOP, which count all rows."""
    if all(one["groups"] == 1 for one in dense):
        return (
            ", of one group: a plain product over all rows, whose useful FLOP are an upper bound,"
            " as tokens may not fill the rows"
        )
    return ", at no more FLOP than can be useful"


# ---------------------------------------------------------------------------------- attention


def _attention(found: Lowered, rows: Rows) -> str:
    """Did it stay fused, forward and backward?"""
    assert rows.table is not None
    pairs = list(zip(rows.records(), rows.rows, strict=True))
    again = [(one, row) for one, row in pairs if one.get("recomputed")]
    first = [(one, row) for one, row in pairs if not one.get("recomputed")]
    ways = {
        name: _ways([one for one, _ in first if one["direction"] == direction])
        for name, direction in (("forward", "fwd"), ("backward", "bwd"), ("in no pass", None))
    }
    said = {name: text for name, text in ways.items() if text}
    if len(said) == 2 and len(set(said.values())) == 1:
        text = next(iter(said.values()))
        parts = [f"{text}{',' if ',' in text else ''} {' and '.join(said)}"]
    else:
        parts = [f"{name} {text}" for name, text in said.items()]
    if again:
        runs = _runs(rows, [row for _, row in again])
        parts.append(f"the forward again in a replay, {_ways([one for one, _ in again])}, {runs}")
    fell = [one for one, _ in pairs if one.get("fell_back")]
    if fell:
        parts.append(f"{count_text(len(fell))} fell back: others here are fused")
    exposed = [one for one, _ in pairs if one["route"] == EXPOSED]
    return "; ".join([*parts, *_scores(exposed)])


def _ways(records: Sequence[Record]) -> str:
    """`fused (cudnn ×2)`, `exposed`; of several, `1 of 2 fused (cudnn), 1 exposed`."""
    fused = [str(one["route"]) for one in records if one["route"] not in (EXPOSED, None, _OTHERS)]
    exposed = sum(1 for one in records if one["route"] == EXPOSED)
    kinds = (
        (len(fused), f"fused ({listed(fused)})"),
        (exposed, EXPOSED),
        (len(records) - len(fused) - exposed, "by a kernel that is not known"),
    )
    there = [(count, text) for count, text in kinds if count]
    if len(there) == 1:
        (count, text) = there[0]
        return text if count == 1 or count == len(fused) else f"{text} ×{count}"
    of = f" of {len(records)}"
    return ", ".join(f"{count}{'' if at else of} {text}" for at, (count, text) in enumerate(there))


def _scores(exposed: Sequence[Record]) -> Iterator[str]:
    """What the scores take that lie in memory."""
    sizes = Counter(
        (str(one["score_shape"]), one["score_bytes"])
        for one in exposed
        if one.get("score_shape") is not None
    )
    if not sizes:
        return
    values = [n for one in exposed if isinstance(n := one.get("score_values"), int)]
    (shape, size), _ = sizes.most_common(1)[0]
    count = sum(values)
    if not count:
        told = f" of {bytes_text(size)}" if isinstance(size, int) else ""
        yield f"scores {visible(shape)}{told} {'never ' if values else ''}lie in memory"
        return
    written = [n for one in exposed if isinstance(n := one.get("score_written_bytes"), int)]
    many = f"{count_text(count)} value{'s' * (count > 1)}"
    if len(written) == len(values):
        many += f", {bytes_text(sum(written))} in one run of each"
    yield f"scores {visible(shape)} lie in memory: {many}"


# ---------------------------------------------------------------------------------- experts


def _experts(found: Lowered, rows: Rows) -> str:
    """How the tokens get to the experts, and what takes more: that or the products."""
    records = rows.records()
    kinds = Counter(_expert_text(one) for one in records if one["phase"] in ("fwd", "other", None))
    kinds = kinds or Counter(map(_expert_text, records))
    blocks = [f"{text} ×{n}" if n > 1 else text for text, n in kinds.most_common()]
    parts = ["; ".join(blocks), _balance(records)]
    if any(one.get("drops") for one in records):
        parts.append("what exceeds the capacity can be dropped")
    return "; ".join(filter(None, parts))


def _balance(records: Sequence[Record]) -> str:
    """`compute-heavy`; by passes where these differ."""
    found: dict[object, list[str]] = {}
    for one in records:
        if one.get("balance") is not None:
            found.setdefault(one["balance"], []).append(str(one["phase"] or "no pass"))
    if len(found) == 1:
        return f"{next(iter(found))}-heavy"
    return ", ".join(
        f"{heavier}-heavy in {', '.join(dict.fromkeys(phases))}"
        for heavier, phases in found.items()
    )


def _expert_text(one: Record) -> str:
    parts = [str(one["path"] or "of no known path").replace("_", " ")]
    if one.get("experts") is not None:
        parts.append(f"{one['experts']} experts")
    for column, word in (("top_k", "top-"), ("capacity", "capacity "), ("tokens", "tokens ")):
        if one.get(column) is not None:
            parts.append(f"{word}{one[column]}")
    return ", ".join(parts)


# ---------------------------------------------------------------------------------- matmuls


def _matmuls(found: Lowered, rows: Rows) -> str:
    """How many, what they compute, and whose they are."""
    records = rows.records()
    total = rows.per_step("flops")
    ways = listed(str(one["backend"] or one["form"]) for one in records)
    flops = bounded(total, flops_text)
    cost = "FLOP not known" if flops == UNKNOWN else f"{flops} a step"
    told = f"{count_text(len(records))}, {cost}: {ways}"
    wide = sum(1 for one in records if one.get("dequantized"))
    told += f"; {wide} with fp8 operands made wide in front of it" if wide else ""
    return told + _in_kernels(found)


def _in_kernels(found: Lowered) -> str:
    """The FLOP of attention that a kernel computes: no row of matmuls has them."""
    rows = found.rows(ATTENTION)
    inside = [row for one, row in zip(rows.records(), rows.rows, strict=True) if in_kernel(one)]
    flops = bounded(rows.per_step("flops", inside), flops_text) if inside else UNKNOWN
    return "" if flops == UNKNOWN else f"; attention kernels {flops} a step, not in the matmuls"


def in_kernel(site: Record) -> bool:
    """Whether a kernel computes this attention, of which the text shows no products."""
    return site["route"] is not None and site["route"] != EXPOSED


def bounded(bounds: Bounds | None, text: Callable[[int], str]) -> str:
    return UNKNOWN if bounds is None else bounds_text(bounds, text)


def _runs(rows: Rows, of: Sequence[Row]) -> str:
    text = executions_text(rows.runs(of), None)
    return "runs not known" if text == UNKNOWN else f"{text} run{'' if text == '1' else 's'}"


def listed(words: Iterable[str]) -> str:
    """`fwd 3, dgrad 3` as `fwd ×3, dgrad ×3`: each once, as first found."""
    found = Counter(words)
    return ", ".join(visible(f"{word} ×{n}" if n > 1 else word) for word, n in found.items())
