"""Products of an attention that the program issues more than once: all of them, and how often.

A compiler may copy a product into each fusion that takes it, as that of TPUs does with Q·Kᵀ for the
maximum of a softmax and for its exponential. Two products are the same where their values have the
same number in `hlo_lens.analysis.congruence`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import Computation, Instruction
    from hlo_lens_passes._attention_exposed import Exposed
    from hlo_lens_passes._attention_products import Products
    from hlo_lens_passes._attention_saved import Saved

PRODUCTS: Final = {
    "qk": "Q·Kᵀ", "pv": "P·V", "dp": "dO·Vᵀ", "dv": "Pᵀ·dO", "dq": "dS·K", "dk": "dSᵀ·Q",
}  # fmt: skip
"""The products of a site by their roles."""


class Repeated(NamedTuple):
    """A product that one site computes more than once in one phase; fusions: in how many it does,
    0 where it is in none; inside: the one instruction of which all of these are a part."""

    role: str
    instrs: tuple[Instruction, ...]
    fusions: int
    inside: Instruction | None

    def __str__(self) -> str:
        text = f"{PRODUCTS[self.role]} is computed {len(self.instrs)} times"
        if self.fusions:
            text += f", in {self.fusions} fusion{'s' * (self.fusions > 1)}"
        if self.fusions > 1 and self.inside is not None:
            text += f" inside %{self.inside.name}"
        return text


class Repeats:
    """The repeated products of one module."""

    def __init__(self, analysis: ModuleAnalysis, products: Products, saved: Saved) -> None:
        self._analysis = analysis
        self._products = products
        self._saved = saved

    def claim(self, sites: Sequence[Exposed]) -> None:
        """Give each site the products that are its own once more: of the same value and loop, and
        of the same phase where a site is there."""
        mine = {
            instr: (site, role) for site in sites for role in PRODUCTS for instr in site.of(role)
        }
        sizes = {self._sizes(instr) for instr in mine}
        others = [one for one in self._products if one not in mine and self._sizes(one) in sizes]
        if not others:
            return
        found: dict[tuple[object, ...], tuple[Exposed, str]] = {}
        for instr, its in mine.items():
            value, phase = self._value(instr), self._analysis.phase(instr).phase
            found.setdefault((*value, phase), its)
            found.setdefault(value, its)
        for one in others:
            value, phase = self._value(one), self._analysis.phase(one).phase
            its_own = found.get((*value, phase)) or found.get(value)
            if its_own is not None:
                site, role = its_own
                site.add(role, one)

    def of(self, site: Exposed) -> Iterator[Repeated]:
        """What a site computes more than once."""
        for role in PRODUCTS:
            instrs = site.of(role)
            if len(instrs) < 2:
                continue
            same: dict[tuple[object, ...], list[Instruction]] = {}
            for one in instrs:
                key = (*self._value(one), self._analysis.phase(one).phase)
                same.setdefault(key, []).append(one)
            for group in same.values():
                if len(group) > 1:
                    yield self._told(role, group)

    def _told(self, role: str, group: Sequence[Instruction]) -> Repeated:
        fused: set[Computation] = set()
        outer: set[Instruction | None] = set()
        for one in group:
            site = self._analysis.graph.only_caller(one.computation)
            inside = None
            if site is not None and site.kind == "fusion":
                fused.add(one.computation)
            while site is not None and site.kind == "fusion":
                inside = site.caller
                site = self._analysis.graph.only_caller(inside.computation)
            outer.add(inside)
        return Repeated(role, tuple(group), len(fused), outer.pop() if len(outer) == 1 else None)

    def _value(self, instr: Instruction) -> tuple[object, ...]:
        """What stands for a value and the loop that computes it."""
        loop = self._analysis.loop(instr.computation)
        return self._saved.number(instr), None if loop is None else loop.instr

    def _sizes(self, instr: Instruction) -> object:
        product = self._products.matrices(instr)
        if product is None:
            return None
        batch, rows, columns, summed = product.sizes
        return batch, frozenset((rows, columns)), summed
