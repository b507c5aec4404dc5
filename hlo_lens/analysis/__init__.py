"""Analysis of a module: calls and multiplicity, loops, names and phases, where values come from."""

from hlo_lens.analysis.calls import CallGraph, CallKind, CallSite
from hlo_lens.analysis.dataflow import (
    MOVES,
    Source,
    Value,
    constant_value,
    consumers,
    is_invariant,
    producer,
    through,
    trace,
    value_source,
)
from hlo_lens.analysis.loops import Loop, Origin, Stacked, origin, stacked
from hlo_lens.analysis.module_analysis import ModuleAnalysis
from hlo_lens.analysis.multiplicity import Executions
from hlo_lens.analysis.names import last_component, split_path
from hlo_lens.analysis.phase import Phase
from hlo_lens.analysis.trips import Trips, TripsKind

__all__ = [
    "MOVES",
    "CallGraph",
    "CallKind",
    "CallSite",
    "Executions",
    "Loop",
    "ModuleAnalysis",
    "Origin",
    "Phase",
    "Source",
    "Stacked",
    "Trips",
    "TripsKind",
    "Value",
    "constant_value",
    "consumers",
    "is_invariant",
    "last_component",
    "origin",
    "producer",
    "split_path",
    "stacked",
    "through",
    "trace",
    "value_source",
]
