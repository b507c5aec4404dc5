"""A small program with names that would act if they were not shown as text."""

from __future__ import annotations

from functools import cache

from hlo_lens.hlo import parse
from hlo_lens.program import Program

# As they are in the text, where a quote is escaped.
HOSTILE = 'jit(f)/</td><script>alert(1)</script>/<img src=x onerror=alert(2)>/\\"q\\"/$x^2$'
SHOWN = 'jit(f)/</td><script>alert(1)</script>/<img src=x onerror=alert(2)>/"q"/$x^2$'
TARGET = "</code><script>alert(3)</script>"
FILE = 'dir/</script>"><b>\n\x1b[31m\u202e.hlo'
FILE_SHOWN = 'dir/</script>"><b>\\n\\x1b[31m\\u202e.hlo'

TEXT = f"""\
HloModule jit_f, is_scheduled=true, num_partitions=2

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8] get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  %start = f32[8] all-reduce-start(%x), channel_id=1, replica_groups={{{{0,1}}}}, \
use_global_device_ids=true, to_apply=%sum, metadata={{op_name="{HOSTILE}"}}
  %done = f32[8] all-reduce-done(%start)
  ROOT %t = (s32[], f32[8]) tuple(%j, %done)
}}

%cond (p: (s32[], f32[8])) -> pred[] {{
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant(4)
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}}

%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %zero = s32[] constant(0)
  %init = (s32[], f32[8]) tuple(%zero, %x)
  %while = (s32[], f32[8]) while(%init), condition=%cond, body=%body
  %r = f32[8] get-tuple-element(%while), index=1
  %all = f32[16] all-gather(%r), channel_id=2, replica_groups={{{{0,1}}}}, dimensions={{0}}, \
use_global_device_ids=true
  %cc = f32[8] custom-call(%all), custom_call_target="{TARGET}"
  ROOT %neg = f32[8] negate(%cc)
}}
"""


@cache
def program() -> Program:
    """The program: an all-reduce in a loop of 4, an all-gather, a custom call."""
    return Program([parse(TEXT, filename=FILE)])
