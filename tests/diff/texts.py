"""Small programs that the tests of diff change."""

from __future__ import annotations


def unrolled(layers: int, *, without: tuple[int, ...] = (), extra: tuple[int, ...] = ()) -> str:
    """Layers that are all alike; those in `without` lack their tanh, those in `extra` have two."""
    lines = ["HloModule unrolled", "ENTRY main {", "  x0 = f32[8,8] parameter(0)"]
    lines += [f"  w{k} = f32[8,8] parameter({k + 1})" for k in range(layers)]
    for k in range(layers):
        lines.append(
            f"  d{k} = f32[8,8] dot(x{k}, w{k}), lhs_contracting_dims={{1}},"
            " rhs_contracting_dims={0}"
        )
        last = f"d{k}"
        if k not in without:
            lines.append(f"  t{k} = f32[8,8] tanh({last})")
            last = f"t{k}"
        if k in extra:
            lines.append(f"  e{k} = f32[8,8] tanh({last})")
            last = f"e{k}"
        lines.append(f"  x{k + 1} = f32[8,8] add({last}, x{k})")
    lines += [f"  ROOT out = (f32[8,8]) tuple(x{layers})", "}"]
    return "\n".join(lines) + "\n"


# A weight is gathered in each of four iterations, or once in front of them.
GATHERED_INSIDE = """HloModule m
body {
  p = (s32[], f32[8,8], f32[2,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8,8] get-tuple-element(p), index=1
  w = f32[2,8] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  all = f32[8,8] all-gather(w), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},
    use_global_device_ids=true
  d = f32[8,8] dot(h, all), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,8] tanh(d)
  ROOT r = (s32[], f32[8,8], f32[2,8]) tuple(next, t, w)
}
go {
  p = (s32[], f32[8,8], f32[2,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8,8] parameter(0)
  shard = f32[2,8] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], f32[8,8], f32[2,8]) tuple(zero, x, shard)
  loop = (s32[], f32[8,8], f32[2,8]) while(init), condition=go, body=body
  ROOT y = f32[8,8] get-tuple-element(loop), index=1
}
"""
GATHERED_ONCE = """HloModule m
body {
  p = (s32[], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8,8] get-tuple-element(p), index=1
  all = f32[8,8] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  d = f32[8,8] dot(h, all), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,8] tanh(d)
  ROOT r = (s32[], f32[8,8], f32[8,8]) tuple(next, t, all)
}
go {
  p = (s32[], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8,8] parameter(0)
  shard = f32[2,8] parameter(1)
  zero = s32[] constant(0)
  whole = f32[8,8] all-gather(shard), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},
    use_global_device_ids=true
  init = (s32[], f32[8,8], f32[8,8]) tuple(zero, x, whole)
  loop = (s32[], f32[8,8], f32[8,8]) while(init), condition=go, body=body
  ROOT y = f32[8,8] get-tuple-element(loop), index=1
}
"""

# Everything that may be spelled in several ways: async operations, elements, fusions, calls.
SPELLED = """HloModule spelled, is_scheduled=true
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
fused {
  a = f32[8] parameter(0)
  b = f32[8] parameter(1)
  m = f32[8] multiply(a, b)
  ROOT both = (f32[8], f32[8]) tuple(m, b)
}
ENTRY main {
  x = f32[8] parameter(0)
  w = f32[16] parameter(1)
  pair = (f32[8], f32[8]) fusion(x, x), kind=kLoop, calls=fused
  first = f32[8] get-tuple-element(pair), index=0
  second = f32[8] get-tuple-element(pair), index=1
  start = (f32[8], f32[32]) all-gather-start(first), channel_id=3, replica_groups=[1,4]<=[4],
    dimensions={0},    use_global_device_ids=true
  cut = ((f32[16]), f32[4], u32[]) slice-start(w), slice={[4:8]}
  more = f32[8] negate(second)
  done = f32[32] all-gather-done(start)
  part = f32[4] slice-done(cut)
  red = f32[8] all-reduce(more), channel_id=4, replica_groups={{0,1},{2,3}}, to_apply=sum,
    use_global_device_ids=true
  ROOT out = (f32[32], f32[4], f32[8]) tuple(done, part, red)
}
"""
