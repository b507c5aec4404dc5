"""How often each computation runs when the entry runs once: sums over call sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_lens.analysis.calls import CallSite
from hlo_lens.analysis.loops import Nesting
from hlo_lens.analysis.trips import TripsKind
from hlo_lens.hlo import Computation

_KINDS: tuple[TripsKind | None, ...] = (None, "annotated", "inferred", "bounded", "unknown")


@dataclass(frozen=True, slots=True)
class Executions:
    """How often a computation runs: `exact` where the bounds meet, else None.

    `minimum` None: nothing is known, as for what an operation applies to elements. `maximum`
    None: no bound is known. `trips_kind`: how the trip counts behind it are known, the worst of
    the chain (annotated, inferred, bounded, unknown); None outside of loops.
    """

    exact: int | None
    minimum: int | None
    maximum: int | None
    trips_kind: TripsKind | None = None


MOST = 2**63 - 1
"""The largest count: more, which only a text can say that no one runs, is no bound."""

UNKNOWN = Executions(None, None, None)

Bounds = tuple[int, int | None]
"""(least, most); most None: no bound."""


def multiplicity(nesting: Nesting, site: CallSite) -> Bounds | None:
    """How often the callee runs each time the caller does; None where the text cannot say.

    1 for a call, fusion or async start; T for a while body and T + 1 for its condition; 0 to 1
    for a branch. What an operation applies to elements is not known. A custom call runs a
    computation that takes its operands once, and one of another thread (a program for a TPU's
    SparseCore, whose operands may come with the update); one of other parameters (a comparator,
    a function of elements) it applies.
    """
    if site.kind in ("body", "condition"):
        trips = nesting.trips.get(site.caller)
        least, most = (0, None) if trips is None else (trips.count or 0, trips.most)
        if site.kind == "body":
            return least, most
        return least + 1, None if most is None else most + 1
    if site.kind == "branch":
        return 0, 1
    if site.kind == "custom_call" and not runs_once(site):
        return None
    if site.kind == "apply":
        return None
    return 1, 1


def runs_once(site: CallSite) -> bool:
    """Whether a custom call runs a computation on its operands, and does not apply it to
    elements; see `multiplicity`."""
    return _takes_operands(site) or _is_of_another_thread(site)


def _is_of_another_thread(site: CallSite) -> bool:
    thread = site.callee.execution_thread
    return thread is not None and thread != site.caller.computation.execution_thread


def _takes_operands(site: CallSite) -> bool:
    parameters = site.callee.parameters
    operands = site.caller.operands
    if len(parameters) != len(operands):
        return False
    try:
        return all(
            (a.shape.dtype, a.shape.dimensions) == (b.shape.dtype, b.shape.dimensions)
            for a, b in zip(parameters, operands, strict=True)
        )
    except ValueError:
        return False


def executions(nesting: Nesting) -> Sequence[Executions]:
    """Executions of each computation of the module, by index; linear in the call graph.

    A text that was cut off may lack calls: there the sums are lower bounds, unless the module is
    scheduled, where XLA has given each call a computation of its own. Without its ENTRY, nothing
    is known.
    """
    graph = nesting.graph
    module = graph.module
    found = [UNKNOWN] * len(module.computations)
    entry: Computation | None = module.entry
    if module.truncated and not module.entry.is_entry:
        entry = None
    lacks_calls = module.truncated and not module.is_scheduled
    for computation in graph.order:
        addends: list[tuple[Bounds | None, TripsKind | None]] = []
        if computation is entry:
            addends.append(((1, 1), None))
        elif lacks_calls:
            addends.append((None, None))
        for site in graph.callers(computation):
            addends.append(_addend(nesting, found[site.caller.computation.index], site))
        found[computation.index] = _sum(addends)
    return found


def _addend(
    nesting: Nesting, caller: Executions, site: CallSite
) -> tuple[Bounds | None, TripsKind | None]:
    kind = caller.trips_kind
    trips = nesting.trips.get(site.caller) if site.kind in ("body", "condition") else None
    if trips is not None:
        kind = max(kind, trips.kind, key=_KINDS.index)
    times = multiplicity(nesting, site)
    if times is None or caller.minimum is None:
        return None, kind
    # No bound times zero runs is zero runs.
    if caller.maximum == 0 or times[1] == 0:
        most: int | None = 0
    else:
        known = caller.maximum is not None and times[1] is not None
        most = caller.maximum * times[1] if known else None  # type: ignore[operator]
    return (caller.minimum * times[0], most), kind


def _sum(addends: list[tuple[Bounds | None, TripsKind | None]]) -> Executions:
    kind = max((kind for _, kind in addends), key=_KINDS.index, default=None)
    known = [bounds for bounds, _ in addends if bounds is not None]
    if not known:
        return Executions(None, None, None, kind)
    least = sum(bounds[0] for bounds in known)
    most: int | None = 0
    for bounds in known:
        most = None if most is None or bounds[1] is None else most + bounds[1]
    if len(known) < len(addends) or (most is not None and most > MOST):
        most = None
    least = min(least, MOST)
    return Executions(least if least == most else None, least, most, kind)
