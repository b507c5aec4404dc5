"""The checkpointed regions of a function, and what their policies answer, read from the jaxpr.

HLO text has neither the policy nor the names of values. The jaxpr has an equation for each region.
In a gradient it is the one of the backward: its jaxpr is what the region runs again, its operands
are what the forward kept for it. A policy is a function: what it saves, it is asked.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from hlo_lens.aot.jaxprs import Level, checkpoint_name, source, sub_jaxprs, trace_back

__all__ = ["checkpoints"]

_REPLAYED = "rematted_computation"
_HIDDEN = "a region is replayed without an equation that says which policy it has"
_READ = "the checkpoint equations of the jaxpr"
# What a policy saves within these becomes one of their results: who made it cannot be seen.
_OPAQUE = ("cond", "while")
# Where a policy that jax made holds the names that it was made with; one of exceptions is no such.
_NAMES = ("saveable_names", "names_which_can_be_saved", "names_which_can_be_offloaded")
_ANSWERS = {"SaveableType": "saved", "Offloadable": "offloaded", "RecomputeType": "recomputed"}
_KEPT = ("saved", "offloaded")


def checkpoints(closed_jaxpr: Any) -> dict[str, Any]:
    """The regions under `jax.checkpoint` in `closed_jaxpr`, as JSON.

    `{"checkpoints_known": bool, "checkpoints_how": str, "checkpoint_names": [...], "checkpoints":
    [...]}`: every name that `checkpoint_name` gave in the jaxpr, and a dictionary a region. Those
    of one call and one policy, in a loop or unrolled, are one. It has `function`, `scopes`,
    `source` (of the call), `count` (how often its backward runs, or it where there is none),
    `prevent_cse`, `policy`, `policy_names` (those that the policy was made with; None: not known),
    `names` (what the policy answers for each name that the backward needs), `saves` (whether the
    backward takes a value that the policy keeps for it; None: not known) and `offloads` (the
    memories that the policy answers with).
    """
    level = Level(closed_jaxpr.jaxpr)
    names = sorted({name for eqn in _equations(level.jaxpr) if (name := checkpoint_name(eqn))})
    found = list(_regions(level))
    hidden = None in found
    return {
        "checkpoints_known": not hidden,
        "checkpoints_how": _HIDDEN if hidden else _READ,
        "checkpoint_names": names,
        "checkpoints": [] if hidden else [_told(group) for group in _groups(found)],
    }


@dataclass(slots=True)
class _Region:
    """One checkpoint equation, and what its policy answers."""

    function: str | None
    source: str | None
    policy: Callable[..., Any] | None
    prevent_cse: bool
    scope: str
    backward: bool
    repeats: int
    names: dict[str, str | None] = field(default_factory=dict)
    saves: bool | None = False
    offloads: set[str] = field(default_factory=set)

    def is_like(self, other: _Region) -> bool:
        """Whether both are the same region, elsewhere or in the other direction."""
        mine, its = ((r.function, r.source, r.prevent_cse) for r in (self, other))
        return mine == its and _same(self.policy, other.policy)


def _same(policy: Any, other: Any) -> bool:
    try:
        return policy is other or bool(policy == other)
    except Exception:  # a policy is the user's: it may compare as it likes
        return False


# -- the regions ----------------------------------------------------------------------------------


def _regions(
    level: Level, repeats: int = 1, stacks: tuple[str, ...] = ()
) -> Iterator[_Region | None]:
    """The regions within; None for one of which there is no equation.

    `stacks` are the name stacks of the equations around, each of which goes on from the last.
    """
    for eqn in level.jaxpr.eqns:
        own = (*stacks, str(eqn.source_info.name_stack))
        if _is_region(eqn):
            yield _region(eqn, level, repeats, own)
        elif _is_newer_region(eqn) or (_REPLAYED in own[-1] and not _within_region(level)):
            yield None
        times = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
        for inner in sub_jaxprs(eqn):
            yield from _regions(Level(inner, eqn, level), repeats * times, own)


def _is_region(eqn: Any) -> bool:
    return {"jaxpr", "policy", "prevent_cse", "differentiated"} <= set(eqn.params)


def _is_newer_region(eqn: Any) -> bool:
    return type(eqn.params.get("_prim")).__name__ == "RematTraced"


def _within_region(level: Level | None) -> bool:
    while level is not None and level.equation is not None:
        if _is_region(level.equation):
            return True
        level = level.outer
    return False


def _region(eqn: Any, level: Level, repeats: int, stacks: tuple[str, ...]) -> _Region:
    jaxpr, prevent_cse = eqn.params["jaxpr"], eqn.params["prevent_cse"]
    region = _Region(
        function=getattr(getattr(jaxpr, "debug_info", None), "func_name", None),
        source=source(eqn),
        policy=eqn.params["policy"],
        prevent_cse=any(prevent_cse) if isinstance(prevent_cse, tuple) else bool(prevent_cse),
        scope="/".join(part for stack in stacks for part in _scopes(stack)),
        backward="transpose(" in "/".join(stacks) and _REPLAYED not in "/".join(stacks),
        repeats=repeats,
    )
    made_within = list(_equations(jaxpr))
    for each in made_within:
        _note(region, each)
    if region.backward:
        _look_at_operands(region, eqn, level)
    else:
        answers = [_answer(region.policy, each)[0] for each in made_within]
        region.saves = any(answer in _KEPT for answer in answers)
    return region


def _look_at_operands(region: _Region, eqn: Any, level: Level) -> None:
    """Of what the backward takes from outside, what the policy keeps was kept for it."""
    for variable in eqn.invars:
        if hasattr(variable, "val"):
            continue
        origin = trace_back(variable, level)
        kept = [each for each in origin.made_by if _answer(region.policy, each)[0] in _KEPT]
        for each in kept:
            _note(region, each)
        if kept:
            region.saves = True
        elif origin.kind in _OPAQUE and region.policy is not None and not region.saves:
            region.saves = None


def _note(region: _Region, eqn: Any) -> None:
    name = checkpoint_name(eqn)
    answer, memory = _answer(region.policy, eqn)
    if name is not None:
        region.names[name] = answer
    if memory is not None:
        region.offloads.add(memory)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of those within."""
    pending = list(jaxpr.eqns)
    while pending:
        eqn = pending.pop()
        yield eqn
        for inner in sub_jaxprs(eqn):
            pending.extend(inner.eqns)


def _scopes(stack: str) -> list[str]:
    """The user's scopes in a name stack: "jvp(decoder)/mlp" -> ["decoder", "mlp"].

    The backward of a region says them twice: "transpose(jvp(decoder))/mlp/jvp(decoder)/mlp".
    """
    bare, before = stack, ""
    while bare != before:
        before, bare = bare, re.sub(r"\b(?:transpose|jvp|vmap)\(([^()]*)\)", r"\1", bare)
    scopes = [part for part in bare.split("/") if part not in ("", _REPLAYED)]
    half = len(scopes) // 2
    twice = "transpose(" in stack and scopes == scopes[:half] * 2
    return scopes[:half] if twice else scopes


# -- what is told ---------------------------------------------------------------------------------


def _groups(found: list[_Region | None]) -> list[list[_Region]]:
    groups: list[list[_Region]] = []
    for region in found:
        if region is None:
            continue
        for group in groups:
            if region.is_like(group[0]):
                group.append(region)
                break
        else:
            groups.append([region])
    return groups


def _told(group: list[_Region]) -> dict[str, Any]:
    first = group[0]
    shown = [region for region in group if region.backward] or group
    saves = [region.saves for region in shown]
    names = {name: answer for region in group for name, answer in region.names.items()}
    return {
        "function": first.function,
        "scopes": list(dict.fromkeys(region.scope for region in shown)),
        "source": first.source,
        "count": sum(region.repeats for region in shown),
        "prevent_cse": first.prevent_cse,
        "policy": _policy_name(first.policy),
        "policy_names": _policy_names(first.policy),
        "names": dict(sorted(names.items())),
        "saves": True if True in saves else None if None in saves else False,
        "offloads": sorted({memory for region in group for memory in region.offloads}),
    }


# -- policies -------------------------------------------------------------------------------------


def _answer(policy: Any, eqn: Any) -> tuple[str | None, str | None]:
    """What a policy says of an equation, asked as jax asks it, and the memory it offloads to.

    (None, None) where it fails, or says what jax would not accept. No policy saves nothing.
    """
    if policy is None:
        return "recomputed", None
    try:
        said = policy(eqn.primitive, *(each.aval for each in eqn.invars), **eqn.params)
    except Exception:  # the user's own code; jax may never have asked it about this one
        return None, None
    if isinstance(said, bool):
        return ("saved" if said else "recomputed"), None
    answer = _ANSWERS.get(type(said).__name__)
    return answer, str(said.dst) if answer == "offloaded" else None


def _policy_name(policy: Any) -> str | None:
    """The name of one of jax's own, else of the function or class; None for no policy."""
    import jax

    if policy is None:
        return None
    for name, known in vars(jax.checkpoint_policies).items():
        if known is policy:
            return str(name)
    while isinstance(policy, functools.partial):
        policy = policy.func
    name = getattr(policy, "__qualname__", None) or type(policy).__qualname__
    return str(name).replace(".<locals>", "")


def _policy_names(policy: Any) -> list[str] | None:
    """The names that a policy of jax's own was made with; None where it is another kind."""
    found: set[str] | None = None
    pending = [policy]
    while pending:
        for key, value in _held(pending.pop()).items():
            if key in _NAMES:
                found = (found or set()) | {str(name) for name in value}
            elif callable(value):  # one of the two that save_from_both_policies joins
                pending.append(value)
    return None if found is None else sorted(found)


def _held(policy: Any) -> Mapping[str, Any]:
    """What a policy that jax made holds: the fields of an object, or what a function closes on."""
    made_by = policy if isinstance(policy, FunctionType) else type(policy)
    if not str(made_by.__module__).startswith("jax."):
        return {}
    if isinstance(policy, FunctionType):
        return inspect.getclosurevars(policy).nonlocals
    fields = getattr(policy, "__dataclass_fields__", ())
    return {name: getattr(policy, name) for name in fields}
