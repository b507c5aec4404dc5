"""The collective_costs table: what each collective takes by a device spec, and which to look at.

An estimate, not a measurement: a ring over connections that nothing else uses. `_device_specs` has
the model; its numbers and their sources are `catalogues/devices.toml`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Column, PassResult, Rule, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

_HIDING: Final = ("nothing", "light", "heavy")

TABLE = Table(
    "collective_costs",
    "what a logical collective is estimated to take, and its place among all of its module; the row"
    " has the id of its row in collectives",
    (
        *COMMON,
        Column("spec", "text", "volatile", "device spec of the estimates; NULL: none is known"),
        Column(
            "spec_from",
            "enum",
            "volatile",
            "what told the spec: the user (--spec, HLOLENS_SPEC, the config), the provenance.json"
            " of the compile, or the device in the file name of XLA's dump",
            values=("user", "side_file", "platform"),
        ),
        Column(
            "domain",
            "enum",
            "structural",
            "connections that its groups use: fast within one domain of the spec (NVLink, xGMI,"
            " ICI), slow between several; NULL without a spec, and where the text does not say who"
            " takes part",
            values=("fast", "slow"),
        ),
        Column(
            "bandwidth_us",
            "float",
            "volatile",
            "estimate of one run: wire_bytes ÷ bandwidth of these connections",
            unit="µs",
        ),
        Column(
            "latency_us",
            "float",
            "volatile",
            "estimate of one run: launch and steps of the ring, as far as the spec has them; NULL"
            " where it has neither",
            unit="µs",
        ),
        Column(
            "estimate_us",
            "float",
            "volatile",
            "estimate of one run, both together; NULL without a spec or without its bandwidth",
            unit="µs",
        ),
        Column(
            "estimate_step_us",
            "float",
            "volatile",
            "estimate_us × executions; NULL where one of them is",
            unit="µs",
        ),
        Column(
            "exposed",
            "bool",
            "structural",
            "is_sync, or nothing computes between start and done; NULL where the text is not"
            " scheduled",
        ),
        Column(
            "hidden_by",
            "enum",
            "structural",
            "what computes between start and done: nothing where it is exposed, light work, or"
            " heavy work (matmuls, kernels, …: heavy_between); NULL where exposed is",
            values=_HIDING,
        ),
        Column(
            "exposed_us",
            "float",
            "volatile",
            "estimate_step_us of one that is exposed; NULL of one that overlaps, as how long that"
            " compute takes is not known",
            unit="µs",
        ),
        Column(
            "hidden_us_max",
            "float",
            "volatile",
            "upper bound of what compute hides of estimate_step_us: all of it where it overlaps, 0"
            " where it is exposed",
            unit="µs",
        ),
        Column(
            "exposed_bytes",
            "bytes",
            "measure",
            "wire_bytes × executions of one that is exposed, 0 of one that overlaps",
        ),
        Column(
            "queue_before",
            "int",
            "measure",
            "other collectives that are started and not done on the same core (of a GPU: stream)"
            " where this one is started, in loops and calls around it too; NULL where the text is"
            " not scheduled",
            unit="collectives",
        ),
        Column(
            "weight",
            "float",
            "volatile",
            "what rank goes by: estimate_us, where the module has no estimates wire_bytes or their"
            " bound, × executions; of an unknown trip count its bound, else one run",
        ),
        Column(
            "rank",
            "int",
            "volatile",
            "place among the collectives of the module, 1 to look at first: by weight, those in"
            " front that no heavy work hides (light work is short); then those that it may hide",
        ),
    ),
)

SPEC_BROKEN: Final = Rule(
    "spec-broken",
    "warning",
    "A device spec of the user cannot be used.",
    "What --spec, HLOLENS_SPEC or `spec` in the config names is no known device and no TOML file of"
    " the form of hlo_lens_passes/catalogues/devices.toml, or a catalogue has a [[device]] that"
    " cannot be read. The message says what is wrong. Where the named spec is unknown, nothing is"
    " estimated.",
)


class CollectiveCostsPass:
    """One row a row of collectives, with its id."""

    __slots__ = ()

    name: Final = "collective_costs"
    tables: Final = (TABLE,)
    requires: Final = ("collectives",)
    rules: Final = (SPEC_BROKEN,)

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._collective_costs_run import run

        return run(program, facts)


PASS = CollectiveCostsPass()
