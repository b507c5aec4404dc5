"""Small whiles to ask about: parts of a text around one loop of `(s32[] i, f32[] x)`."""

from __future__ import annotations

from hlo_lens.analysis import Loop, ModuleAnalysis
from hlo_lens.hlo import parse

CONDITION = """
  n = s32[] constant(10)
  ROOT go = pred[] compare(i, n), direction=LT
"""
STEP = """
  one = s32[] constant(1)
  next = s32[] add(i, one)
"""


def loop_text(
    condition: str = CONDITION,
    step: str = STEP,
    init: str = "constant(0)",
    *,
    dtype: str = "s32",
    before: str = "",
    attributes: str = "",
) -> str:
    """A module with one while; `condition` and `step` see the induction variable as `i`.

    `step` gives the next one as `next`; `before` are computations in front.
    """
    shape = f"({dtype}[], f32[])"
    return f"""HloModule m
{before}
body {{
  p = {shape} parameter(0)
  i = {dtype}[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1
{step.replace("s32", dtype)}
  y = f32[] negate(x)
  ROOT r = {shape} tuple(next, y)
}}

cond {{
  p = {shape} parameter(0)
  i = {dtype}[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1
{condition.replace("s32", dtype)}
}}

ENTRY main {{
  a = f32[] parameter(0)
  b = s32[] parameter(1)
  z = {dtype}[] {init}
  t = {shape} tuple(z, a)
  ROOT w = {shape} while(t), condition=cond, body=body{attributes}
}}
"""


def only_loop(text: str) -> Loop:
    """The one loop of a text."""
    (loop,) = ModuleAnalysis(parse(text)).loops
    return loop
