"""The skeleton as lines: what is alike and follows each other is one line with a count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hlo_lens.facts import LaneName
from hlo_lens.present.cells import text_of_type, trips_text, unit_text
from hlo_lens.present.page import Column, Line, Span, grid, line
from hlo_lens.present.quantities import (
    UNKNOWN,
    Bounds,
    bounds_text,
    count_text,
    executions_text,
    visible,
)
from hlo_lens.tree.skeleton import Item, Node, Skeleton, Total

_LANES: tuple[LaneName, ...] = ("communication", "compute")
_STYLES = {"communication": "cyan", "compute": "green"}
_INDENT = "│ "
# A block of lines that follows itself is shown once; one of a few lines only from three times on.
_LONGEST_BLOCK = 64
_FEW_LINES = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What lines show: `depth` of nesting (None: all), the source, the details of each lane."""

    depth: int | None = None
    source: bool = False
    details: bool = False


@dataclass(frozen=True, slots=True)
class _Amount:
    """What a total adds up: of one lane, under one label; the columns of the lines."""

    lane: LaneName
    label: str
    type: str


@dataclass(slots=True)
class _Shown:
    """A line and the lines inside it, or `count` of them alike: `names` has that of each."""

    what: str
    about: str
    each: str
    runs: Bounds | None
    totals: dict[_Amount, Bounds]
    phase: str
    names: list[str]
    source: str
    details: str
    style: str
    inside: list[_Shown]
    count: int = 1

    @property
    def likeness(self) -> tuple[object, ...]:
        """Lines of one likeness that follow each other are shown as one."""
        alike = (self.what, self.about, self.each, self.runs, self.phase, self.source, self.details)
        return (*alike, self.count, tuple(each.likeness for each in self.inside))


def as_lines(
    found: Skeleton, options: Options = Options(), *, width: int | None = None
) -> Iterator[Line]:
    """The skeleton, then its totals; `width` None folds nothing."""
    yield line(Span(found.name, "bold"), f"  {found.stage}")
    if found.truncated:
        yield line(Span("cut off: what follows is of the part that is there", "dim"))
    if not found.is_scheduled:
        yield line(Span("not scheduled: text order, which may not be the order it runs in", "dim"))
    roots = [_of_node(node, options) for node in found.roots]
    found_amounts = dict.fromkeys(amount for root in roots for amount in root.totals)
    amounts = sorted(found_amounts, key=lambda amount: _LANES.index(amount.lane))
    yield ()
    yield from _grid(roots, amounts, options, width)
    if found.totals:
        yield ()
        yield from _totals(found.totals, width)
    else:
        yield line("nothing that communicates or computes is known")


# ---------------------------------------------------------------------------------- lines


def _of_node(node: Node, options: Options) -> _Shown:
    inside = [
        _of_item(child, options) if isinstance(child, Item) else _of_node(child, options)
        for child in node.children
    ]
    shown = _Shown(
        what=_node_text(node),
        about=_node_about(node),
        each="",
        runs=None,
        totals=_sum(node.walk()),
        phase=node.phase or "",
        names=[] if node.instr is None else [visible(node.instr.name)],
        source=_node_source(node) if options.source else "",
        details="  ".join(d for item in node.items for d in item.details if options.details),
        style="bold",
        inside=_repeated(_folded(inside)),
    )
    if len(node.items) == 1:
        shown.each, shown.runs = _each_text(node.items[0]), node.items[0].runs
    return shown


def _node_text(node: Node) -> str:
    """What a node is, its name apart: `while ×4`, `call`, `entry main.4`."""
    if node.kind == "loop" and node.loop is not None:
        return f"while {trips_text(node.loop)}"
    if node.instr is not None or node.computation is None:
        return node.kind
    name = visible(node.computation.name)
    return f"entry {name}" if node.kind == "entry" else f"{name}, which nothing calls"


def _node_about(node: Node) -> str:
    about = ["  ".join(map(_short, item.cells)) for item in node.items]
    if node.kind in ("call", "branch", "condition") and node.computation is not None:
        about.append(visible(node.computation.name))
    if node.omitted == "deep":
        about.append("(its inside is nested too deep)")
    elif node.omitted == "again":
        about.append("(its inside stands above)")
    if node.loop is not None and node.loop.trips_kind in ("unknown", "bounded"):
        about.append(f"trip count {node.loop.trips_kind}")
    if node.kind == "branch" and node.runs is not None:
        about.append(f"runs {executions_text(node.runs, None)}")
    return "; ".join(about)


def _node_source(node: Node) -> str:
    if node.kind not in ("loop", "conditional", "call") or node.instr is None:
        return ""
    try:
        return visible(node.instr.source or "")
    except ValueError:  # metadata that cannot be read
        return ""


def _of_item(item: Item, options: Options) -> _Shown:
    kind, *about = item.cells
    return _Shown(
        what=kind,
        about="  ".join(map(_short, about)),
        each=_each_text(item),
        runs=item.runs,
        totals=_sum([item]),
        phase=item.phase or "",
        names=[visible(item.instr.name)],
        source=visible(item.source or "") if options.source else "",
        details="  ".join(item.details) if options.details else "",
        style=_STYLES[item.lane.name],
        inside=[],
    )


def _each_text(item: Item) -> str:
    """The value of which the lane's total is a sum, of one execution."""
    total = item.lane.total
    if total is None or total.column is None:
        return ""
    text = unit_text(item.table.column(total.column))
    value = item.row[item.table.position(total.column)]
    if isinstance(value, int):
        return text(value)
    most = None if total.at_most is None else item.row[item.table.position(total.at_most)]
    return bounds_text(Bounds(0, most), text) if isinstance(most, int) else UNKNOWN


def _sum(items: Iterable[Item]) -> dict[_Amount, Bounds]:
    sums: dict[_Amount, Bounds] = {}
    for item in items:
        total = item.lane.total
        if total is None or total.column is None:
            continue
        amount = _Amount(item.lane.name, total.label, item.table.column(total.column).type)
        added = item.total or Bounds(0, None)
        sums[amount] = sums[amount] + added if amount in sums else added
    return sums


def _folded(lines: Iterable[_Shown]) -> list[_Shown]:
    """The lines, those that are alike and follow each other as one."""
    folded: list[_Shown] = []
    likeness: tuple[object, ...] | None = None
    for each in lines:
        own = each.likeness
        if own == likeness:
            folded[-1].count += 1
            _add(folded[-1], each)
        else:
            folded.append(each)
        likeness = own
    return folded


def _repeated(lines: Sequence[_Shown]) -> list[_Shown]:
    """The lines, a block that follows itself as one, as of the layers of an unrolled network."""
    numbers: dict[tuple[object, ...], int] = {}
    ids = [numbers.setdefault(each.likeness, len(numbers)) for each in lines]
    found: list[_Shown] = []
    at = 0
    while at < len(lines):
        length, times = _longest_repeat(ids, at)
        if times == 1:
            found.append(lines[at])
            at += 1
            continue
        block = list(lines[at : at + length])
        for start in range(at + length, at + length * times, length):
            for first, other in zip(block, lines[start : start + length], strict=True):
                _add(first, other)
        found.append(_block(block, times))
        at += length * times
    return found


def _longest_repeat(ids: Sequence[int], at: int) -> tuple[int, int]:
    """The block at a position that takes most lines with its repeats: (its length, how often)."""
    best = (1, 1)
    for length in range(2, min(_LONGEST_BLOCK, (len(ids) - at) // 2) + 1):
        times = 1
        block = ids[at : at + length]
        while ids[at + times * length : at + (times + 1) * length] == block:
            times += 1
        enough = times > 1 + (length <= _FEW_LINES)
        if enough and times * length > best[0] * best[1]:
            best = (length, times)
    return best


def _block(lines: list[_Shown], times: int) -> _Shown:
    totals: dict[_Amount, Bounds] = {}
    for each in lines:
        for amount, added in each.totals.items():
            totals[amount] = totals[amount] + added if amount in totals else added
    return _Shown(
        what="these lines",
        about="",
        each="",
        runs=None,
        totals=totals,
        phase="",
        names=[],
        source="",
        details="",
        style="bold",
        inside=lines,
        count=times,
    )


def _add(first: _Shown, other: _Shown) -> None:
    """Add up what two lines that are alike stand for, and what is inside them."""
    first.names += other.names
    if first.runs is not None and other.runs is not None:
        first.runs += other.runs
    for amount, added in other.totals.items():
        first.totals[amount] += added
    for inner, more in zip(first.inside, other.inside, strict=True):
        _add(inner, more)


def _short(cell: str) -> str:
    """A list of more than three, such as the shapes of a combined all-reduce, by its first two."""
    parts = cell.split(", ")
    return cell if len(parts) <= 3 else f"{parts[0]}, {parts[1]}, … {len(parts) - 2} more"


def _grid(
    roots: Sequence[_Shown], amounts: Sequence[_Amount], options: Options, width: int | None
) -> Iterator[Line]:
    columns = [
        Column("", rigid=True),
        Column(""),
        Column("each", right=True, spare=True),
        Column("runs", right=True),
        *(Column(f"{amount.label} per step", right=True) for amount in amounts),
        Column("phase"),
        Column("instruction", rigid=True),
        Column("source"),
        Column("details"),
    ]
    flat = list(_flat(roots, options, 0))
    rows = [_row(shown, depth, amounts) for shown, depth in flat]
    kept = [at for at in range(len(columns)) if at == 0 or any(row[at] for row in rows)]
    yield from grid(
        [columns[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
        width=width,
        indent=0,
        marks=[shown.style for shown, _ in flat],
    )


def _flat(lines: Iterable[_Shown], options: Options, depth: int) -> Iterator[tuple[_Shown, int]]:
    for shown in lines:
        hidden = options.depth is not None and depth >= options.depth
        if hidden and shown.inside:
            more = sum(1 for _ in _flat(shown.inside, Options(), 0))
            about = f"{shown.about}; " if shown.about else ""
            shown.about = f"{about}… {more} more line{'' if more == 1 else 's'} inside"
        yield shown, depth
        if not hidden:
            yield from _flat(shown.inside, options, depth + 1)


def _row(shown: _Shown, depth: int, amounts: Sequence[_Amount]) -> list[str]:
    count = f"{shown.count} × " if shown.count > 1 else ""
    more = len(shown.names) - 1
    return [
        f"{_INDENT * (depth - 1)}{'├ ' if depth else ''}{count}{shown.what}",
        shown.about,
        shown.each,
        "" if shown.runs is None else bounds_text(shown.runs, count_text),
        *(_amount_text(shown, amount) for amount in amounts),
        shown.phase,
        f"{shown.names[0]}{f' +{more}' if more else ''}" if shown.names else "",
        shown.source,
        shown.details,
    ]


def _amount_text(shown: _Shown, amount: _Amount) -> str:
    found = shown.totals.get(amount)
    return "" if found is None else bounds_text(found, text_of_type(amount.type))


# ---------------------------------------------------------------------------------- totals


def _totals(totals: Sequence[Total], width: int | None) -> Iterator[Line]:
    """What every kind of work adds up to in one execution of the entry, a lane after the other."""
    yield line(Span("per step", "bold cyan"), Span("  rows of the text × executions", "dim"))
    columns = [Column(""), Column("")]
    columns += [Column(name, right=True) for name in ("in the text", "runs", "total")]
    ordered = sorted(totals, key=lambda each: _LANES.index(each.lane.name))
    rows = []
    for position, each in enumerate(ordered):
        first = not position or ordered[position - 1].lane.name != each.lane.name
        rows.append(
            (
                each.lane.name if first else "",
                each.kind,
                count_text(each.rows),
                UNKNOWN if each.runs is None else bounds_text(each.runs, count_text),
                _total_text(each),
            )
        )
    yield from grid(columns, rows, width=width)


def _total_text(each: Total) -> str:
    measure = each.lane.total
    if measure is None or measure.column is None:
        return ""
    if each.total is None:
        return UNKNOWN
    return bounds_text(each.total, unit_text(each.table.column(measure.column)))
