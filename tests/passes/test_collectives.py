"""Every logical collective once, in any spelling, with bytes, groups, phase and overlap."""

from __future__ import annotations

import pytest

from tests import shared
from tests.mutate import FROM_METADATA, check_table
from tests.passes.asking import ask, ask_file

LOGICAL = (
    "select logical_kind, dtype, operand_bytes, result_bytes, wire_bytes, group_size, groups,"
    " executions from collectives order by 1"
)


def module(entry: str, *computations: str, header: str = "num_partitions=4") -> str:
    """A module of small computations and an ENTRY with these lines."""
    blocks = "\n\n".join(computations)
    return f"HloModule m, {header}\n\n{blocks}\n\nENTRY main {{\n{entry}\n}}\n"


ADD = """add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}"""

# ---------------------------------------------------------------------------- spellings

GATHER = "channel_id=1, replica_groups={{0,1},{2,3}}, dimensions={0}, use_global_device_ids=true"
WRAPPED_GATHER = f"""wrapped {{
  q = f32[8,4] parameter(0)
  ROOT ag = f32[16,4] all-gather(q), {GATHER}
}}"""
FUSED_GATHER = WRAPPED_GATHER.replace("wrapped", "fused")
CALLED_GATHER = WRAPPED_GATHER.replace("wrapped", "called")

GATHERS = {
    "sync": module(f"  p = f32[8,4] parameter(0)\n  ROOT ag = f32[16,4] all-gather(p), {GATHER}"),
    "own start": module(
        f"""  p = f32[8,4] parameter(0)
  s = (f32[8,4], f32[16,4]) all-gather-start(p), {GATHER}
  ROOT d = f32[16,4] all-gather-done(s)"""
    ),
    "wrapper": module(
        """  p = f32[8,4] parameter(0)
  s = ((f32[8,4]), f32[16,4]) async-start(p), calls=wrapped
  ROOT d = f32[16,4] async-done(s)""",
        WRAPPED_GATHER,
    ),
    "wrapper with update": module(
        """  p = f32[8,4] parameter(0)
  s = ((f32[8,4]), f32[16,4], s32[]) async-start(p), calls=wrapped
  u = ((f32[8,4]), f32[16,4], s32[]) async-update(s)
  ROOT d = f32[16,4] async-done(u)""",
        WRAPPED_GATHER,
    ),
    "call sugar": module(
        """  p = f32[8,4] parameter(0)
  s = ((f32[8,4]), f32[16,4], s32[]) call-start(p), to_apply=called
  ROOT d = f32[16,4] call-done(s)""",
        CALLED_GATHER,
    ),
    "call on a sparse core": module(
        """  p = f32[8,4] parameter(0)
  s = ((), (), s32[2]) custom-call-start(), async_execution_thread="sparsecore",
      custom_call_target="call", called_computations={called}
  u = ((f32[8,4]), f32[16,4], s32[2]) custom-call-update(s, p)
  ROOT d = f32[16,4] custom-call-done(u)""",
        CALLED_GATHER + ', execution_thread="sparsecore"',
    ),
    "fusion": module(
        """  p = f32[8,4] parameter(0)
  ROOT f = f32[16,4] fusion(p), kind=kCustom, calls=fused""",
        FUSED_GATHER,
    ),
    "fusion in a wrapper": module(
        """  p = f32[8,4] parameter(0)
  s = ((f32[8,4]), f32[16,4]) fusion-start(p), kind=kCustom, calls=fused
  ROOT d = f32[16,4] fusion-done(s)""",
        FUSED_GATHER,
    ),
    "called": module(
        """  p = f32[8,4] parameter(0)
  ROOT c = f32[16,4] call(p), to_apply=called""",
        CALLED_GATHER,
    ),
    "iota groups": module(
        "  p = f32[8,4] parameter(0)\n  ROOT ag = f32[16,4] all-gather(p), "
        + GATHER.replace("{{0,1},{2,3}}", "[2,2]<=[4]")
    ),
    "mesh groups": module(
        "  p = f32[8,4] parameter(0)\n  ROOT ag = f32[16,4] all-gather(p), "
        + GATHER.replace("{{0,1},{2,3}}", "mesh['x'=2,'y'=2] {'y'}")
    ),
    "async fusions": module(
        """  p = f32[8,4] parameter(0)
  h = f32[4,4] parameter(1)
  begin = (f32[8,4], f32[16,4], u32[]) fusion(p), kind=kCustom, calls=begin
  b0 = f32[8,4] get-tuple-element(begin), index=0
  b1 = f32[16,4] get-tuple-element(begin), index=1
  carry = (f32[4,4], f32[8,4], f32[16,4]) fusion(b0, b1, h), kind=kOutput, calls=carry
  c1 = f32[8,4] get-tuple-element(carry), index=1
  c2 = f32[16,4] get-tuple-element(carry), index=2
  ROOT end = f32[16,4] fusion(c1, c2), kind=kCustom, calls=end""",
        f"""begin {{
  q = f32[8,4] parameter(0)
  ag = f32[16,4] all-gather(q), {GATHER}, frontend_attributes={{chain_id="0"}},
      backend_config={{"async_collective_fusion_config":{{"flag_start":"-1","flag_end":"-1"}}}}
  ROOT c = (f32[8,4], f32[16,4], u32[]) custom-call(ag), custom_call_target="AsyncCollectiveStart"
}}""",
        f"""carry {{
  q = f32[8,4] parameter(0)
  r = f32[16,4] parameter(1)
  h = f32[4,4] parameter(2)
  ag = f32[16,4] all-gather(q), {GATHER}, frontend_attributes={{chain_id="0"}},
      backend_config={{"async_collective_fusion_config":{{"flag_start":"2","flag_end":"8"}}}}
  d = f32[4,4] dot(h, h), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = (f32[4,4], f32[8,4], f32[16,4]) tuple(d, q, ag)
}}""",
        f"""end {{
  q = f32[8,4] parameter(0)
  r = f32[16,4] parameter(1)
  ag = f32[16,4] all-gather(q), {GATHER}, frontend_attributes={{chain_id="0"}},
      backend_config={{"async_collective_fusion_config":{{"flag_start":"2","flag_end":"8"}}}}
  ROOT c = f32[16,4] custom-call(q, r, ag), custom_call_target="AsyncCollectiveDone"
}}""",
    ),
}
FORMS = {
    "sync": "sync",
    "own start": "start-done",
    "wrapper": "async-wrapper",
    "wrapper with update": "async-wrapper",
    "call sugar": "sugar",
    "call on a sparse core": "sparsecore-call",
    "fusion": "fusion",
    "fusion in a wrapper": "sugar",
    "called": "sync",
    "iota groups": "sync",
    "mesh groups": "sync",
    "async fusions": "async-fusion",
}


@pytest.mark.parametrize("spelling", GATHERS)
def test_a_gather_is_one_row_in_any_spelling(spelling: str) -> None:
    # From the operand of the gather, 8·4·4 bytes: the start's tuple lists the operand as well.
    text = GATHERS[spelling]
    assert ask(text, LOGICAL) == [("all-gather", "f32", 128, 256, 128, 2, 2, 1)]
    assert ask(text, "select form from collectives") == [(FORMS[spelling],)]


REDUCES = {
    kind: (
        module(
            f"  p = f32[8,4] parameter(0)\n  ROOT r = f32{small} {kind}(p), {more}",
            ADD,
        ),
        module(
            f"""  p = f32[8,4] parameter(0)
  s = ((f32[8,4]), f32{small}) {kind}-start(p), {more}
  ROOT d = f32{small} {kind}-done(s)""",
            ADD,
        ),
    )
    for kind, small, more in (
        ("reduce-scatter", "[2,4]", "channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},"
         " use_global_device_ids=true, to_apply=add"),
        ("all-to-all", "[8,4]", "channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}"),
        ("collective-broadcast", "[8,4]", "channel_id=1, replica_groups={{0,1,2,3}}"),
    )
}  # fmt: skip


@pytest.mark.parametrize("kind", REDUCES)
def test_sugar_is_the_operation_it_starts(kind: str) -> None:
    sync, sugar = REDUCES[kind]
    assert ask(sugar, LOGICAL) == ask(sync, LOGICAL)
    assert ask(sugar, "select kind, form from collectives") == [(kind, "sugar")]


def test_an_operation_that_wraps_no_collective_is_none() -> None:
    text = module(
        """  p = f32[8,4] parameter(0)
  s = ((f32[8,4]), f32[8,4]) async-start(p), calls=w
  d = f32[8,4] async-done(s)
  c = (f32[8,4], f32[8,4], u32[]) copy-start(d)
  ROOT cd = f32[8,4] copy-done(c)""",
        "w {\n  q = f32[8,4] parameter(0)\n  ROOT n = f32[8,4] negate(q)\n}",
    )
    assert ask(text, "select * from collectives") == []


def test_a_shared_computation_is_one_row_run_by_every_caller() -> None:
    text = module(
        """  p = f32[8,4] parameter(0)
  a = f32[16,4] call(p), to_apply=called
  b = f32[16,4] call(p), to_apply=called
  ROOT t = (f32[16,4], f32[16,4]) tuple(a, b)""",
        CALLED_GATHER,
    )
    assert ask(text, "select static_ops, executions from collectives") == [(1, 2)]


def test_a_loop_in_a_wrapper_runs_its_collective_in_every_iteration() -> None:
    carry = "(s32[], f32[8])"
    text = module(
        f"""  z = s32[] constant(0)
  p = f32[8] parameter(0)
  t = {carry} tuple(z, p)
  s = (({carry}), {carry}) async-start(t), calls=wrapped
  ROOT d = {carry} async-done(s)""",
        ADD,
        f"""body {{
  s = {carry} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  r = f32[8] all-reduce(x), replica_groups={{}}, to_apply=add
  ROOT t = {carry} tuple(j, r)
}}""",
        CONDITION.format(carry=carry),
        f"""wrapped {{
  q = {carry} parameter(0)
  ROOT l = {carry} while(q), condition=cond, body=body,
      backend_config={{"known_trip_count":{{"n":"4"}}}}
}}""",
    )
    question = "select name, form, executions, loop is not null from collectives"
    assert ask(text, question) == [("r", "sync", 4, 1)]


def test_a_branch_may_run() -> None:
    text = module(
        """  i = pred[] parameter(0)
  p = f32[8,4] parameter(1)
  ROOT c = f32[16,4] conditional(i, p, p), true_computation=called, false_computation=other""",
        CALLED_GATHER,
        "other {\n  q = f32[8,4] parameter(0)\n  z = f32[] constant(0)\n"
        "  ROOT b = f32[16,4] broadcast(z), dimensions={}\n}",
    )
    assert ask(text, "select executions, executions_min, executions_max from collectives") == [
        (None, 0, 1)
    ]


def test_transfers_to_the_host_are_none_and_sends_between_devices_are() -> None:
    text = module(
        """  p = f32[8] parameter(0)
  t = token[] after-all()
  s = (f32[8], u32[], token[]) send(p, t), channel_id=1{host}
  sd = token[] send-done(s), channel_id=1{host}
  r = (f32[8], u32[], token[]) recv(sd), channel_id=2{host}
  rd = (f32[8], token[]) recv-done(r), channel_id=2{host}
  ROOT x = f32[8] get-tuple-element(rd), index=0"""
    )
    question = "select kind, operand_bytes, result_bytes, wire_bytes from collectives"
    assert ask(text.replace("{host}", ", is_host_transfer=true"), question) == []
    assert ask(text.replace("{host}", ""), question) == [("send", 32, 0, 32), ("recv", 0, 32, 0)]


def test_the_all_reduce_of_2018() -> None:
    text = module(
        "  p = f32[8] parameter(0)\n  ROOT c = f32[8] cross-replica-sum(p), to_apply=add", ADD
    )
    assert ask(text, "select kind, operand_bytes from collectives") == [("all-reduce", 32)]


def test_members_are_what_the_row_is_made_of() -> None:
    roles = (
        "select m.role, i.name from members m join instructions i"
        " on i.instr = m.instr where m.\"table\" = 'collectives' order by m.instr"
    )
    assert ask(GATHERS["wrapper with update"], roles) == [
        ("operation", "ag"), ("start", "s"), ("update", "u"), ("done", "d"),
    ]  # fmt: skip
    assert ask(GATHERS["async fusions"], roles) == [
        ("operation", "ag"), ("operation", "ag"), ("operation", "ag"),
        ("start", "begin"), ("update", "carry"), ("done", "end"),
    ]  # fmt: skip


# ---------------------------------------------------------------------------- groups and bytes


@pytest.mark.parametrize(
    ("kind", "attributes", "header", "size"),
    [
        # No channel: the ids are replicas.
        ("all-reduce", "replica_groups={{0,1},{2,3}}", "replica_count=4", 2),
        ("all-reduce", "replica_groups={}", "replica_count=4, num_partitions=2", 4),
        # A channel and global ids: the ids are devices.
        (
            "all-reduce",
            "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true",
            "num_partitions=2",
            2,
        ),
        ("all-reduce", "channel_id=1, replica_groups={}, use_global_device_ids=true",
         "replica_count=2, num_partitions=3", 6),
        # A channel alone: these replicas, on all partitions.
        ("all-reduce", "channel_id=1, replica_groups={{0,1}}",
         "replica_count=2, num_partitions=4", 8),
        ("all-reduce", "channel_id=1, replica_groups={{0}}", "num_partitions=4", 4),
        # All-to-all with a channel: the ids are partitions.
        ("all-to-all", "channel_id=1, replica_groups={{0,1}}, dimensions={0}",
         "replica_count=2, num_partitions=4", 2),
        ("all-to-all", "channel_id=1, replica_groups={}, dimensions={0}",
         "replica_count=2, num_partitions=4", 4),
        ("all-to-all", "replica_groups={}, dimensions={0}", "replica_count=2", 2),
        # A mode that the text states.
        ("all-reduce", "channel_id=1, replica_groups={}, mode=cross_partition",
         "replica_count=2, num_partitions=4", 4),
        # The module says neither count: not known.
        ("all-reduce", "replica_groups={}", "is_scheduled=false", None),
        ("all-reduce", "channel_id=1, replica_groups={{0,1}}", "is_scheduled=false", None),
    ],
)  # fmt: skip
def test_group_size_as_xla_reads_it(
    kind: str, attributes: str, header: str, size: int | None
) -> None:
    reducer = ", to_apply=add" if kind == "all-reduce" else ""
    text = module(
        f"  p = f32[8] parameter(0)\n  ROOT r = f32[8] {kind}(p), {attributes}{reducer}",
        ADD,
        header=header,
    )
    assert ask(text, "select group_size from collectives") == [(size,)]


def test_uneven_groups_count_as_the_largest() -> None:
    text = module(
        "  p = f32[8] parameter(0)\n"
        "  ROOT r = f32[8] all-reduce(p), replica_groups={{0,1,2},{3}}, to_apply=add",
        ADD,
        header="replica_count=4",
    )
    assert ask(text, "select group_size, groups, uneven_groups from collectives") == [(3, 2, 1)]


def test_mesh_form_gives_axes() -> None:
    axes = "select axes from collectives"
    assert ask(GATHERS["mesh groups"], axes) == [('["y"]',)]
    assert ask(GATHERS["sync"], axes) == [(None,)]


HEADER_MESH = (
    "num_partitions=4, frontend_attributes={xla.sdy.meshes={empty = #sdy.mesh<[]>,"
    ' mesh = #sdy.mesh<["data"=2, "one"=1, "model"=2]>}}'
)


@pytest.mark.parametrize(
    ("operation", "axes"),
    [
        ("all-gather(p), replica_groups={{0,1},{2,3}}", '["model"]'),
        ("all-gather(p), replica_groups=[2,2]<=[2,2]T(1,0)", '["data"]'),
        ("all-gather(p), replica_groups={{3,2,1,0}}", '["data","model"]'),
        ("all-gather(p), replica_groups={}", '["data","model"]'),
        ("all-gather(p), replica_groups=mesh['axis_0'=4] {'axis_0'}", '["data","model"]'),
        ("all-gather(p), replica_groups=mesh['a'=2,'b'=2] {'b'}", '["b"]'),
        ("collective-permute(p), source_target_pairs={{0,2},{2,0},{1,3},{3,1}}", '["data"]'),
        # No axis of the mesh makes these groups.
        ("all-gather(p), replica_groups={{0,3},{1,2}}", None),
        ("collective-permute(p), source_target_pairs={{0,1},{1,2}}", None),
    ],
)
def test_a_mesh_in_the_header_names_the_axes(operation: str, axes: str | None) -> None:
    more = ", dimensions={0}, use_global_device_ids=true" if "gather" in operation else ""
    text = module(
        f"  p = f32[8] parameter(0)\n  ROOT r = f32[16] {operation}, channel_id=1{more}",
        header=HEADER_MESH,
    )
    assert ask(text, "select axes from collectives") == [(axes,)]


@pytest.mark.parametrize(
    ("operation", "wire", "most"),
    [
        ("f32[16] all-gather(p), {four}, dimensions={0}", 3 * 16, 48),
        ("f32[1] reduce-scatter(p), {four}, dimensions={0}, to_apply=add", 3 * 16 // 4, 12),
        ("f32[4] all-reduce(p), {four}, to_apply=add", 2 * 3 * 16 // 4, 24),
        ("f32[4] all-to-all(p), {four}, dimensions={0}", 3 * 16 // 4, 12),
        ("f32[4] collective-broadcast(p), {four}", 16, 16),
        ("f32[4] all-reduce(p), replica_groups={{0},{1},{2},{3}}, to_apply=add", 0, 0),
        ("f32[4] collective-permute(p), source_target_pairs={{0,1},{1,0}}", 16, 16),
        ("f32[4] collective-permute(p), source_target_pairs={{0,0},{1,1}}", 0, 0),
        (
            "f32[4] ragged-all-to-all(p, p, i, i, i, i), {four}",
            None,  # how much goes is known when it runs
            16,
        ),
    ],
)
def test_wire_bytes_of_a_ring_from_the_operand(operation: str, wire: int | None, most: int) -> None:
    operation = operation.replace("{four}", "replica_groups={{0,1,2,3}}")
    text = module(
        f"  p = f32[4] parameter(0)\n  i = s32[4] parameter(1)\n  ROOT r = {operation}",
        ADD,
        header="replica_count=4",
    )
    question = "select wire_bytes, wire_bytes_max, algorithm from collectives"
    assert ask(text, question) == [(wire, most, "ring")]


def test_every_operand_of_a_combined_one_counts() -> None:
    text = module(
        """  p = f32[8] parameter(0)
  q = bf16[8] parameter(1)
  s = ((f32[8], bf16[8]), (f32[32], bf16[32])) all-gather-start(p, q),
      replica_groups={{0,1,2,3}}, dimensions={0}
  ROOT d = (f32[32], bf16[32]) all-gather-done(s)""",
        header="replica_count=4",
    )
    question = "select dtype, operand_shape, operand_bytes, result_bytes from collectives"
    assert ask(text, question) == [("bf16,f32", "f32[8], bf16[8]", 48, 192)]


def test_a_permute_connects_devices() -> None:
    text = module(
        "  p = f32[4] parameter(0)\n  ROOT r = f32[4] collective-permute(p), channel_id=1,"
        " source_target_pairs={{0,1},{1,0},{2,3},{3,2}}"
    )
    assert ask(text, "select group_size, groups from collectives") == [(2, 2)]


# ---------------------------------------------------------------------------- what it amounts to

SCATTER_FUSION = """scatter {
  q = f32[8,4] parameter(0)
  r = f32[4,4] parameter(1)
  ar = (f32[8,4], f32[4,4]) all-reduce(q, r), channel_id=1, replica_groups={{0,1,2,3}},
      use_global_device_ids=true, to_apply=add
  g0 = f32[8,4] get-tuple-element(ar), index=0
  g1 = f32[4,4] get-tuple-element(ar), index=1
  z = u32[] constant(0)
  id = u32[] partition-id()
  two = u32[] constant(2)
  at = u32[] multiply(id, two)
  s0 = f32[2,4] dynamic-slice(g0, at, z), dynamic_slice_sizes={2,4}
  s1 = f32[1,4] dynamic-slice(g1, id, z), dynamic_slice_sizes={1,4}
  ROOT t = (f32[2,4], f32[1,4]) tuple(s0, s1)
}"""
SCATTER = module(
    """  p = f32[8,4] parameter(0)
  q = f32[4,4] parameter(1)
  ROOT f = (f32[2,4], f32[1,4]) fusion(p, q), kind=kCustom, calls=scatter""",
    ADD,
    SCATTER_FUSION,
)
KINDS = "select kind, logical_kind, form, result_bytes, wire_bytes from collectives"


def test_a_fused_all_reduce_and_slice_is_a_reduce_scatter() -> None:
    operand = (8 * 4 + 4 * 4) * 4
    assert ask(SCATTER, KINDS) == [
        ("all-reduce", "reduce-scatter", "fusion", operand // 4, 3 * operand // 4)
    ]


def test_a_fused_all_reduce_that_is_sliced_elsewhere_is_none() -> None:
    # At a place that does not depend on the device: everybody keeps the same part.
    assert ask(SCATTER.replace("id = u32[] partition-id()", "id = u32[] constant(1)"), KINDS)[0][
        :2
    ] == ("all-reduce", "all-reduce")
    # Half of one result is kept, where a quarter would be.
    wider = SCATTER.replace("f32[2,4]", "f32[4,4]").replace("sizes={2,4}", "sizes={4,4}")
    assert ask(wider, KINDS)[0][1] == "all-reduce"


def test_an_all_reduce_that_is_sliced_behind_it_is_an_all_reduce() -> None:
    text = module(
        """  p = f32[8,4] parameter(0)
  ar = f32[8,4] all-reduce(p), channel_id=1, replica_groups={{0,1,2,3}},
      use_global_device_ids=true, to_apply=add
  z = u32[] constant(0)
  id = u32[] partition-id()
  two = u32[] constant(2)
  at = u32[] multiply(id, two)
  ROOT s = f32[2,4] dynamic-slice(ar, at, z), dynamic_slice_sizes={2,4}""",
        ADD,
    )
    assert ask(text, "select logical_kind, wire_bytes from collectives") == [("all-reduce", 192)]


def test_two_chains_of_async_fusions_are_two_rows() -> None:
    text = GATHERS["async fusions"]
    other = text.replace('chain_id="0"', 'chain_id="1"', 1)
    assert ask(other, "select static_ops from collectives order by 1") == [(1,), (2,)]
    # Without the mark each fusion runs a gather of its own.
    bare = text.replace('frontend_attributes={chain_id="0"},', "")
    assert ask(bare, "select form, static_ops from collectives") == [("fusion", 1)] * 3


# ---------------------------------------------------------------------------- windowed einsum

RING = "channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"
BACK = "channel_id=2, source_target_pairs={{1,0},{2,1},{3,2},{0,3}}"
CONDITION = """cond {{
  s = {carry} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT lt = pred[] compare(i, n), direction=LT
}}"""


def loop(carry: str, body: str, entry: str, header: str = "num_partitions=4") -> str:
    return module(entry, ADD, body, CONDITION.format(carry=carry), header=header)


AG_CARRY = "(s32[], f32[8,4], f32[2,4], f32[8,2])"
GATHER_LOOP = loop(
    AG_CARRY,
    f"""body {{
  s = {AG_CARRY} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,4] get-tuple-element(s), index=1
  w = f32[2,4] get-tuple-element(s), index=2
  acc = f32[8,2] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  next = f32[2,4] collective-permute(w), {RING}
  part = f32[8,2] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  sum = f32[8,2] add(acc, part)
  ROOT t = {AG_CARRY} tuple(j, x, next, sum)
}}""",
    f"""  x = f32[8,4] parameter(0)
  w = f32[2,4] parameter(1)
  z = s32[] constant(0)
  f = f32[] constant(0)
  b = f32[8,2] broadcast(f), dimensions={{}}
  t = {AG_CARRY} tuple(z, x, w, b)
  loop = {AG_CARRY} while(t), condition=cond, body=body
  ROOT r = f32[8,2] get-tuple-element(loop), index=3""",
)
RS_CARRY = "(s32[], f32[8,4], f32[4,2], f32[2,2])"
SCATTER_LOOP = loop(
    RS_CARRY,
    f"""body {{
  s = {RS_CARRY} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,4] get-tuple-element(s), index=1
  w = f32[4,2] get-tuple-element(s), index=2
  acc = f32[2,2] get-tuple-element(s), index=3
  one = s32[] constant(1)
  z = s32[] constant(0)
  j = s32[] add(i, one)
  came = f32[2,2] collective-permute(acc), {RING}
  rows = f32[2,4] dynamic-slice(x, i, z), dynamic_slice_sizes={{2,4}}
  part = f32[2,2] dot(rows, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  sum = f32[2,2] add(came, part)
  ROOT t = {RS_CARRY} tuple(j, x, w, sum)
}}""",
    f"""  x = f32[8,4] parameter(0)
  w = f32[4,2] parameter(1)
  z = s32[] constant(0)
  f = f32[] constant(0)
  b = f32[2,2] broadcast(f), dimensions={{}}
  t = {RS_CARRY} tuple(z, x, w, b)
  loop = {RS_CARRY} while(t), condition=cond, body=body
  ROOT r = f32[2,2] get-tuple-element(loop), index=3""",
)
WINDOWED = (
    "select name, kind, logical_kind, form, static_ops, operand_bytes, result_bytes, wire_bytes,"
    " logical_wire_bytes, group_size, executions from collectives"
)


def test_a_ring_that_feeds_partial_dots_is_an_all_gather() -> None:
    assert ask(GATHER_LOOP, WINDOWED) == [
        ("loop", "collective-permute", "all-gather", "windowed-loop", 1,
         32, 128, 4 * 32, 3 * 32, 4, 1)
    ]  # fmt: skip


def test_a_ring_that_gathers_partial_dots_is_a_reduce_scatter() -> None:
    assert ask(SCATTER_LOOP, WINDOWED) == [
        ("loop", "collective-permute", "reduce-scatter", "windowed-loop", 1,
         64, 16, 4 * 16, 3 * 16, 4, 1)
    ]  # fmt: skip


def test_a_pipeline_that_passes_products_on_stays_a_permute() -> None:
    # What goes round is multiplied in each stage: nothing is gathered, nothing is reduced.
    text = GATHER_LOOP.replace("f32[8,4]", "f32[4,4]").replace("f32[2,4]", "f32[4,4]")
    text = text.replace("f32[8,2]", "f32[4,4]")
    text = text.replace("collective-permute(w)", "collective-permute(sum)").replace(
        f"tuple(j, x, next, sum)\n}}\n\n{CONDITION[:4]}",
        f"tuple(j, x, w, next)\n}}\n\n{CONDITION[:4]}",
    )
    text = text.replace("dot(x, w)", "dot(x, acc)")
    text = text.replace("next = f32[4,4] collective-permute(sum), " + RING, "").replace(
        "sum = f32[4,4] add(acc, part)",
        f"sum = f32[4,4] add(part, part)\n  next = f32[4,4] collective-permute(sum), {RING}",
    )
    assert ask(text, "select logical_kind, form, executions from collectives") == [
        ("collective-permute", "sync", 4)
    ]


def test_a_permute_that_is_no_ring_stays_a_permute() -> None:
    shift = GATHER_LOOP.replace("{{0,1},{1,2},{2,3},{3,0}}", "{{0,1},{1,2},{2,3}}")
    assert ask(shift, "select logical_kind, form from collectives") == [
        ("collective-permute", "sync")
    ]


def test_a_ring_whose_value_no_dot_takes_stays_a_permute() -> None:
    text = GATHER_LOOP.replace("dot(x, w)", "dot(x, v)").replace(
        "  acc = f32[8,2]", "  f = f32[] constant(1)\n  v = f32[2,4] broadcast(f), dimensions={}\n"
        "  acc = f32[8,2]"
    )  # fmt: skip
    assert ask(text, "select logical_kind from collectives") == [("collective-permute",)]


def test_what_is_peeled_off_a_ring_belongs_to_it() -> None:
    # Both ways round: one shard starts here, the neighbour's is brought in front of the loop.
    carry = "(s32[], f32[8,4], f32[2,4], f32[8,2], f32[2,4])"
    text = GATHER_LOOP.replace(AG_CARRY, carry)
    text = text.replace(
        "  part = ",
        f"  v = f32[2,4] get-tuple-element(s), index=4\n"
        f"  left = f32[2,4] collective-permute(v), {BACK}\n"
        "  both = f32[2,4] add(v, w)\n  part = ",
    )
    text = text.replace("dot(x, w)", "dot(x, both)").replace(
        "tuple(j, x, next, sum)", "tuple(j, x, next, sum, left)"
    )
    text = text.replace(
        "tuple(z, x, w, b)",
        "tuple(z, x, w, b, far)",
    ).replace("  b = f32[8,2]", f"  far = f32[2,4] collective-permute(w), {BACK}\n  b = f32[8,2]")
    question = "select name, static_ops, operand_bytes, wire_bytes from collectives"
    assert ask(text, question) == [("loop", 3, 32, 4 * 2 * 32 + 32)]
    roles = "select role, count(*) from members where \"table\" = 'collectives' group by 1"
    assert ask(text, roles) == [("loop", 1), ("permute", 3)]


def test_two_accumulators_that_meet_behind_the_loop_are_one_value() -> None:
    carry = "(s32[], f32[8,4], f32[4,2], f32[2,2], f32[2,2])"
    text = SCATTER_LOOP.replace(RS_CARRY, carry)
    text = text.replace(
        "  sum = ",
        "  acc2 = f32[2,2] get-tuple-element(s), index=4\n"
        f"  came2 = f32[2,2] collective-permute(acc2), {BACK}\n"
        "  sum2 = f32[2,2] add(came2, part)\n  sum = ",
    ).replace("tuple(j, x, w, sum)", "tuple(j, x, w, sum, sum2)")
    text = text.replace("tuple(z, x, w, b)", "tuple(z, x, w, b, b)")
    question = "select logical_kind, operand_bytes, result_bytes from collectives"
    met = text.replace(
        "  ROOT r = f32[2,2] get-tuple-element(loop), index=3",
        "  r0 = f32[2,2] get-tuple-element(loop), index=3\n"
        "  r1 = f32[2,2] get-tuple-element(loop), index=4\n"
        f"  r2 = f32[2,2] collective-permute(r1), {BACK}\n  ROOT r = f32[2,2] add(r0, r2)",
    )
    assert ask(met, question) == [("reduce-scatter", 64, 16)]
    assert ask(met, "select static_ops, wire_bytes from collectives") == [(3, 4 * 2 * 16 + 16)]
    apart = met.replace(
        "  ROOT r = f32[2,2] add(r0, r2)",
        """  n0 = f32[2,2] negate(r0)
  n2 = f32[2,2] negate(r2)
  ROOT r = (f32[2,2], f32[2,2]) tuple(n0, n2)""",
    )
    assert ask(apart, question) == [("reduce-scatter", 128, 32)]


def test_a_permute_peeled_off_a_scatter_is_no_use_of_its_result() -> None:
    text = SCATTER_LOOP.replace("HloModule m, ", "HloModule m, is_scheduled=true, ")
    pair = "(f32[2,2], f32[2,2], u32[], u32[])"
    text = text.replace(
        "  ROOT r = f32[2,2] get-tuple-element(loop), index=3",
        f"""  r0 = f32[2,2] get-tuple-element(loop), index=3
  n1 = f32[4,2] negate(w)
  ps = {pair} collective-permute-start(r0), {BACK}
  n2 = f32[4,2] negate(n1)
  pd = f32[2,2] collective-permute-done(ps)
  n3 = f32[4,2] negate(n2)
  ROOT r = f32[2,2] negate(pd)""",
    )
    question = "select static_ops, issued_before_use, landed_before_use from collectives"
    assert ask(text, question) == [(2, 3, 1)]


def test_a_permute_that_a_branch_skips_is_sent_at_most_so_often() -> None:
    text = GATHER_LOOP.replace(
        f"  next = f32[2,4] collective-permute(w), {RING}",
        "  three = s32[] constant(3)\n  more = pred[] compare(i, three), direction=LT\n"
        "  next = f32[2,4] conditional(more, w, w), true_computation=send, false_computation=keep",
    ).replace(
        "body {",
        f"""send {{
  q = f32[2,4] parameter(0)
  ROOT moved = f32[2,4] collective-permute(q), {RING}
}}

keep {{
  ROOT q = f32[2,4] parameter(0)
}}

body {{""",
    )
    question = "select name, logical_kind, wire_bytes, wire_bytes_max from collectives"
    assert ask(text, question) == [("loop", "all-gather", None, 4 * 32)]


def test_without_a_trip_count_the_bytes_of_a_loop_are_not_known() -> None:
    text = GATHER_LOOP.replace("i = s32[] get-tuple-element(s), index=0\n  n = s32[] constant(4)",
        "i = s32[] get-tuple-element(s), index=0\n  n = s32[] custom-call(), "
        'custom_call_target="bound"')  # fmt: skip
    question = "select logical_kind, wire_bytes, wire_bytes_max, logical_wire_bytes"
    assert ask(text, question + " from collectives") == [("all-gather", None, None, 96)]


def test_the_shape_of_the_loop_tells_not_its_name() -> None:
    renamed = GATHER_LOOP.replace("body {", "windowed_dot_general_body_rs {")
    renamed = renamed.replace("body=body", "body=windowed_dot_general_body_rs")
    assert ask(renamed, "select logical_kind from collectives") == [("all-gather",)]


# ---------------------------------------------------------------------------- overlap

OVERLAP = module(
    """  p = f32[8,4] parameter(0)
  h = f32[4,4] parameter(1)
  s = (f32[8,4], f32[16,4]) all-gather-start(p), channel_id=1, replica_groups={{0,1},{2,3}},
      dimensions={0}, use_global_device_ids=true{config}
  b = f32[16] bitcast(h)
  c = f32[4,4] copy(h)
  k = f32[] constant(1)
  n = f32[4,4] negate(h)
  d = f32[4,4] dot(n, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  r = f32[] reduce(b, k), dimensions={0}, to_apply=add
  e = f32[16,4] all-gather-done(s)
  m = f32[4,4] multiply(n, n)
  f = f32[64] bitcast(e)
  g = f32[64] negate(f)
  ROOT t = (f32[64], f32[4,4], f32[4,4], f32[]) tuple(g, d, m, r)""",
    ADD,
    header="is_scheduled=true, num_partitions=4",
)
HIDDEN = (
    "select compute_between, heavy_between, overlapped, is_sync, issued_before_use,"
    " landed_before_use from collectives"
)


def test_what_stands_between_start_and_done_in_a_schedule() -> None:
    # negate and dot compute; bitcast, copy, constant and the scalar reduce do not count.
    text = OVERLAP.replace("{config}", "")
    assert ask(text, HIDDEN) == [(2, 1, 1, None, 3, 1)]


@pytest.mark.parametrize(
    ("config", "is_sync", "overlapped"),
    [
        ('{"collective_backend_config":{"is_sync":true}}', 1, 0),
        ('{"collective_backend_config":{"is_sync":false}}', 0, 1),
        ('"{\\"is_sync\\":true}"', 1, 0),
        ('{"flag_configs":[]}', None, 1),
    ],
)
def test_a_synchronous_start_hides_nothing(
    config: str, is_sync: int | None, overlapped: int
) -> None:
    text = OVERLAP.replace("{config}", f", backend_config={config}")
    assert ask(text, "select is_sync, overlapped from collectives") == [(is_sync, overlapped)]


def test_a_fusion_that_carries_a_gather_along_hides_it() -> None:
    text = GATHERS["async fusions"].replace("HloModule m,", "HloModule m, is_scheduled=true,")
    question = "select compute_between, heavy_between, overlapped from collectives"
    assert ask(text, question) == [(1, 1, 1)]
    pairs = "select wraps, collective, compute_between from async_pairs"
    assert ask(text, pairs) == [("all-gather", "all-gather", 1)]


def test_text_order_is_no_schedule_where_the_module_does_not_say_so() -> None:
    text = OVERLAP.replace("{config}", "").replace("is_scheduled=true, ", "")
    assert ask(text, HIDDEN) == [(None, None, None, None, None, None)]


# ---------------------------------------------------------------------------- training step


def named(name: str) -> str:
    return f'metadata={{op_name="jit(step)/{name}"}}'


REMAT = "transpose(jvp())/checkpoint/rematted_computation"
AGAIN = module(
    f"""  w = f32[8,4] parameter(0)
  x = f32[4,4] parameter(1)
  a = f32[16,4] all-gather(w), {GATHER}, {named("jvp()/gather")}
  t = (f32[8,4], f32[4,4]) tuple(w, x)
  o = (f32[8,4], f32[4,4]) opt-barrier(t)
  v = f32[8,4] get-tuple-element(o), index=0
  c = bf16[8,4] convert(v)
  b = bf16[16,4] all-gather(c), {GATHER}, {named(REMAT + "/gather")}
  n = f32[8,4] negate(w)
  d = f32[16,4] all-gather(n), {GATHER}, {named("transpose(jvp())/gather")}
  ROOT r = (f32[16,4], bf16[16,4], f32[16,4]) tuple(a, b, d)"""
)


def test_a_gather_of_the_same_source_value_is_a_regather() -> None:
    # Through a barrier and a convert; the negated value is another one.
    question = """select c.name, c.is_regather, first.name from collectives c
        left join instructions first on first.instr = c.regather_of order by c.instr"""
    assert ask(AGAIN, question) == [("a", 0, None), ("b", 1, "a"), ("d", 0, None)]


def test_gathers_of_two_layers_in_one_iteration_are_no_regather() -> None:
    carry = "(s32[], f32[4,8,4])"
    text = loop(
        carry,
        f"""body {{
  s = {carry} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ws = f32[4,8,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  z = s32[] constant(0)
  j = s32[] add(i, one)
  w0 = f32[1,8,4] dynamic-slice(ws, i, z, z), dynamic_slice_sizes={{1,8,4}}
  w1 = f32[1,8,4] dynamic-slice(ws, j, z, z), dynamic_slice_sizes={{1,8,4}}
  w2 = f32[1,8,4] dynamic-slice(ws, i, z, z), dynamic_slice_sizes={{1,8,4}}
  a = f32[1,16,4] all-gather(w0), {GATHER}
  b = f32[1,16,4] all-gather(w1), {GATHER}
  c = f32[1,16,4] all-gather(w2), {GATHER}
  ROOT t = {carry} tuple(j, ws)
}}""",
        f"""  ws = f32[4,8,4] parameter(0)
  z = s32[] constant(0)
  t = {carry} tuple(z, ws)
  ROOT l = {carry} while(t), condition=cond, body=body""",
    )
    question = "select name, is_regather, executions from collectives order by instr"
    assert ask(text, question) == [("a", 0, 4), ("b", 0, 4), ("c", 1, 4)]


def test_a_weight_that_the_forward_loop_stacks_for_the_backward_loop_is_the_same() -> None:
    carry = "(s32[], f32[4,8,4], f32[4,8,4])"
    body = f"""{{name}} {{{{
  s = {carry} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ws = f32[4,8,4] get-tuple-element(s), index=1
  kept = f32[4,8,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  z = s32[] constant(0)
  j = s32[] add(i, one)
  w = f32[1,8,4] dynamic-slice({{read}}, i, z, z), dynamic_slice_sizes={{{{1,8,4}}}}
  {{name}}_gather = f32[1,16,4] all-gather(w), {GATHER.replace("{", "{{").replace("}", "}}")}
  stacked = f32[4,8,4] dynamic-update-slice(kept, w, i, z, z)
  ROOT t = {carry} tuple(j, ws, {{out}})
}}}}"""
    text = module(
        f"""  ws = f32[4,8,4] parameter(0)
  z = s32[] constant(0)
  f = f32[] constant(0)
  b = f32[4,8,4] broadcast(f), dimensions={{}}
  t = {carry} tuple(z, ws, b)
  first = {carry} while(t), condition=cond, body=forward
  kept = f32[4,8,4] get-tuple-element(first), index=2
  u = {carry} tuple(z, b, kept)
  ROOT second = {carry} while(u), condition=cond, body=backward""",
        CONDITION.format(carry=carry),
        body.format(name="forward", read="ws", out="stacked"),
        body.format(name="backward", read="kept", out="kept"),
    )
    question = """select c.name, first.name from collectives c
        left join instructions first on first.instr = c.regather_of order by c.instr"""
    assert ask(text, question) == [("forward_gather", None), ("backward_gather", "forward_gather")]
    # What the loop computes before it stacks it is another value.
    other = text.replace("stacked = f32[4,8,4] dynamic-update-slice(kept, w,", "n = f32[1,8,4]"
        " negate(w)\n  stacked = f32[4,8,4] dynamic-update-slice(kept, n,")  # fmt: skip
    assert ask(other, question)[1] == ("backward_gather", None)


def peeled(*, first: int, begin: int, cut: str = "[3:4], [0:8], [0:4]") -> str:
    """A loop over slices of a weight, one gather behind it, and another loop from `first` on."""
    carry = "(s32[], f32[4,8,4])"
    body = f"""{{name}} {{{{
  s = {carry} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ws = f32[4,8,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  z = s32[] constant(0)
  j = s32[] add(i, one)
  w = f32[1,8,4] dynamic-slice(ws, i, z, z), dynamic_slice_sizes={{{{1,8,4}}}}
  {{name}}_gather = f32[1,16,4] all-gather(w), {GATHER.replace("{", "{{").replace("}", "}}")}
  ROOT t = {carry} tuple(j, ws)
}}}}"""
    return module(
        f"""  ws = f32[4,8,4] parameter(0)
  b = s32[] constant({begin})
  t = {carry} tuple(b, ws)
  one = {carry} while(t), condition=cond, body=forward
  w = f32[1,8,4] slice(ws), slice={{{cut}}}
  v = f32[8,1,4] transpose(w), dimensions={{1,0,2}}
  behind = f32[16,1,4] all-gather(v), {GATHER}
  f = s32[] constant({first})
  u = {carry} tuple(f, ws)
  ROOT two = {carry} while(u), condition=cond, body=backward""",
        CONDITION.format(carry=carry),
        body.format(name="forward"),
        body.format(name="backward"),
    )


@pytest.mark.parametrize(
    ("first", "begin", "cut", "numbers"),
    [
        # XLA takes the first iteration out of the second loop: each slice is gathered twice.
        (1, 0, "[3:4], [0:8], [0:4]", (1, 2, 2)),
        # The second loop takes all four slices, that of the one in front of it again.
        (0, 0, "[3:4], [0:8], [0:4]", (1, 2, 3)),
        # The first loop leaves one out, which may be this one.
        (1, 1, "[0:1], [0:8], [0:4]", (1, 1, 2)),
        # Another part is another value.
        (1, 0, "[0:4], [0:2], [0:4]", (1, 1, 2)),
    ],
)
def test_a_slice_in_front_of_a_loop_was_peeled_off_where_the_loop_lacks_one(
    first: int, begin: int, cut: str, numbers: tuple[int, ...]
) -> None:
    text = peeled(first=first, begin=begin, cut=cut)
    if "[0:2]" in cut:
        text = text.replace("w = f32[1,8,4] slice", "w = f32[4,2,4] slice")
        text = text.replace("v = f32[8,1,4] transpose", "v = f32[2,4,4] transpose")
        text = text.replace("behind = f32[16,1,4]", "behind = f32[4,4,4]")
    rows = ask(
        text,
        "select gather_number from collectives order by name = 'backward_gather', name = 'behind'",
    )
    assert tuple(number for (number,) in rows) == numbers


@pytest.mark.parametrize(("other", "again"), [("[0:2], [0:4]", 1), ("[2:4], [0:4]", 0)])
def test_only_the_same_part_of_a_weight_is_gathered_again(other: str, again: int) -> None:
    text = module(f"""  w = f32[8,4] parameter(0)
  s = f32[2,4] slice(w), slice={{[0:2], [0:4]}}
  a = f32[4,4] all-gather(s), {GATHER}
  t = f32[2,4] slice(w), slice={{{other}}}
  b = f32[4,4] all-gather(t), {GATHER}
  ROOT r = (f32[4,4], f32[4,4]) tuple(a, b)""")
    assert ask(text, "select name, is_regather from collectives") == [("a", 0), ("b", again)]


def test_a_square_weight_is_not_cut_along_another_dimension() -> None:
    text = module(f"""  w = f32[8,8] parameter(0)
  s = f32[2,8] slice(w), slice={{[0:2], [0:8]}}
  a = f32[4,8] all-gather(s), {GATHER}
  t = f32[8,2] slice(w), slice={{[0:8], [0:2]}}
  b = f32[16,2] all-gather(t), {GATHER}
  ROOT r = (f32[4,8], f32[16,2]) tuple(a, b)""")
    assert ask(text, "select name, is_regather from collectives") == [("a", 0), ("b", 0)]


@pytest.mark.parametrize(
    ("phase", "purpose"),
    [("jvp()/", None), (REMAT + "/", "replay"), ("transpose(jvp())/", "backward")],
)
def test_a_second_gather_of_the_forward_is_no_replay(phase: str, purpose: str | None) -> None:
    text = module(f"""  w = f32[4,4] parameter(0)
  x = f32[4,4] parameter(1)
  a = f32[8,4] all-gather(w), {GATHER}, {named("jvp()/gather")}
  k = f32[4,4] negate(x)
  b = f32[8,4] all-gather(w), {GATHER}, {named(phase + "gather")}
  d = f32[8,4] dot(b, k), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    {named(phase + "dot")}
  ROOT r = (f32[8,4], f32[8,4]) tuple(a, d)""")
    assert ask(text, "select regather_for from collectives where name = 'b'") == [(purpose,)]


@pytest.mark.parametrize("target", ["xla.sdy.GlobalToLocalShape", "SPMDFullToShardShape"])
def test_what_a_shard_map_takes_is_what_is_outside_of_it(target: str) -> None:
    several = target.startswith("xla.sdy")
    entry = (
        f"""  local = (f32[2,4], f32[4,4]) custom-call(w, x), custom_call_target="{target}"
  v = f32[2,4] get-tuple-element(local), index=0
  y = f32[4,4] get-tuple-element(local), index=1"""
        if several
        else f"""  v = f32[2,4] custom-call(w), custom_call_target="{target}"
  y = f32[4,4] custom-call(x), custom_call_target="{target}\""""
    )
    text = module(f"""  w = f32[4,4] parameter(0)
  x = f32[8,4] parameter(1)
{entry}
  a = f32[4,4] all-gather(v), {GATHER}
  b = f32[8,4] all-gather(y), {GATHER}
  ROOT r = (f32[4,4], f32[8,4]) tuple(a, b)""")
    question = "select name, moves, parameter_number from collectives"
    assert ask(text, question) == [("a", "parameter", 0), ("b", "parameter", 1)]
    other = text.replace(target, "Kernel")
    assert ask(other, question) == [("a", None, None), ("b", None, None)]


@pytest.mark.parametrize(("second", "again"), [("[16:32]", 1), ("[0:16]", 0)])
def test_a_weight_that_a_loop_copies_in_slices_is_the_same(second: str, again: int) -> None:
    # A TPU copies it to another memory in halves, and puts them together.
    carry = "(s32[], f32[8,4])"
    text = loop(
        carry,
        f"""body {{
  s = {carry} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  w = f32[8,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  b = f32[16,4] all-gather(w), {GATHER}
  f = f32[32] bitcast(w)
  s0 = ((f32[32]), f32[16], s32[]) slice-start(f), slice={{[0:16]}}
  s1 = ((f32[32]), f32[16], s32[]) slice-start(f), slice={{{second}}}
  d0 = f32[16] slice-done(s0)
  d1 = f32[16] slice-done(s1)
  c = f32[32] custom-call(d0, d1), custom_call_target="ConcatBitcast"
  v = f32[8,4] bitcast(c)
  ROOT t = {carry} tuple(j, v)
}}""",
        f"""  w = f32[8,4] parameter(0)
  a = f32[16,4] all-gather(w), {GATHER}
  z = s32[] constant(0)
  t = {carry} tuple(z, w)
  ROOT l = {carry} while(t), condition=cond, body=body""",
    )
    question = "select is_regather from collectives where name = 'b'"
    assert ask(text, question) == [(again,)]


def scanned(phase: str, dots: tuple[str, ...], scan: str = "while") -> str:
    """A loop whose body has a gather and a dot for each of these op_names."""
    carry = "(s32[], f32[4,4], f32[8,4])"
    lines = "\n".join(
        f"  d{n} = f32[4,4] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},"
        f" {named(name)}"
        for n, name in enumerate(dots)
    )
    return loop(
        carry,
        f"""body {{
  s = {carry} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,4] get-tuple-element(s), index=1
  w = f32[8,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  a = f32[16,4] all-gather(w), {GATHER}
{lines}
  ROOT t = {carry} tuple(j, d0, w)
}}""",
        f"""  x = f32[4,4] parameter(0)
  w = f32[8,4] parameter(1)
  z = s32[] constant(0)
  t = {carry} tuple(z, x, w)
  ROOT l = {carry} while(t), condition=cond, body=body, {named(phase + scan)}""",
    )


@pytest.mark.parametrize(
    ("text", "backward"),
    [
        (scanned("transpose(jvp())/", ("transpose(jvp())/while/body/dot",)), 1),
        (scanned("jvp()/", ("jvp()/while/body/dot",)), 0),
        # A while without a phase is what its matmuls are; one over microbatches holds both.
        (scanned("", ("transpose(jvp())/dot",)), 1),
        (scanned("", (REMAT + "/dot", "transpose(jvp())/dot")), 1),
        (scanned("", ("jvp()/dot", "transpose(jvp())/dot")), 0),
        (AGAIN, 0),
    ],
)
def test_a_backward_loop_is_told_by_its_while_or_its_matmuls(text: str, backward: int) -> None:
    rows = ask(text, "select distinct in_backward_loop from collectives")
    assert rows == [(backward,)]


def test_loop_membership_comes_from_the_call_graph() -> None:
    text = module(
        f"  p = f32[8,4] parameter(0)\n  ROOT ag = f32[16,4] all-gather(p), {GATHER},"
        f" {named('transpose(jvp())/while/body/dynamic_slice')}"
    )
    question = "select loop, in_backward_loop, phase from collectives"
    assert ask(text, question) == [(None, 0, "bwd")]


def test_under_a_checkpoint_by_its_label_or_by_what_it_feeds() -> None:
    text = module(
        f"""  w = f32[8,4] parameter(0)
  a = f32[16,4] all-gather(w), {GATHER}, {named("jvp()/gather")}
  b = f32[16,4] all-gather(w), {GATHER}, {named(REMAT + "/gather")}
  c = f32[16,4] all-gather(w), {GATHER}, {named("transpose(jvp())/while/body/gather")}
  d = f32[16,4] all-gather(w), {GATHER}, {named("transpose(jvp())/gather")}
  e = f32[16,4] copy(c)
  f = f32[16,4] negate(e), {named(REMAT + "/neg")}
  g = f32[16,4] negate(d), {named("transpose(jvp())/neg")}
  ROOT t = (f32[16,4], f32[16,4], f32[16,4], f32[16,4]) tuple(a, b, f, g)"""
    )
    question = "select name, under_checkpoint from collectives order by instr"
    assert ask(text, question) == [("a", 0), ("b", 1), ("c", 1), ("d", 0)]
    bare = "\n".join(line.partition(", metadata=")[0] for line in text.splitlines())
    assert ask(bare, "select distinct under_checkpoint from collectives") == [(None,)]


@pytest.mark.parametrize(("name", "under"), [(REMAT + "/dot", 1), ("transpose(jvp())/dot", 0)])
def test_a_fusion_that_only_converts_is_looked_through_for_a_checkpoint(
    name: str, under: int
) -> None:
    text = module(
        f"""  w = f32[8,4] parameter(0)
  a = f32[16,4] all-gather(w), {GATHER}, {named("transpose(jvp())/while/body/gather")}
  b = bf16[16,4] fusion(a), kind=kLoop, calls=narrowed
  c = bf16[16,16] dot(b, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}, {named(name)}
  d = bf16[16,16] negate(c), {named("transpose(jvp())/neg")}
  ROOT t = (bf16[16,4], bf16[16,16]) tuple(b, d)""",
        """narrowed {
  p = f32[16,4] parameter(0)
  ROOT c = bf16[16,4] convert(p)
}""",
    )
    assert ask(text, "select under_checkpoint from collectives") == [(under,)]


@pytest.mark.parametrize(
    ("target", "moves"), [("xla.sdy.FuncResultSharding", "gradient"), ("Kernel", "activation")]
)
def test_a_gradient_goes_out_through_the_marks_of_a_sharding(target: str, moves: str) -> None:
    text = module(
        f"""  w = f32[4,4] parameter(0)
  x = f32[4,4] parameter(1)
  d = f32[4,4] dot(w, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    {named("transpose(jvp())/dot")}
  a = f32[4,4] all-reduce(d), channel_id=1, replica_groups={{{{0,1}}}}, to_apply=add,
    {named("transpose(jvp())/psum")}
  o = f32[8,4] custom-call(a), custom_call_target="xla.sdy.LocalToGlobalShape"
  ROOT r = f32[8,4] custom-call(o), custom_call_target="{target}\"""",
        ADD,
    )
    assert ask(text, "select moves from collectives") == [(moves,)]


@pytest.mark.parametrize(("fed", "kinds"), [("one", ("matmul", None)), ("two", (None, "matmul"))])
def test_what_a_shared_function_takes_comes_out_where_it_was_called(
    fed: str, kinds: tuple[str | None, ...]
) -> None:
    text = module(
        f"""  w = f32[8,4] parameter(0)
  v = f32[8,4] parameter(1)
  a = f32[16,4] all-gather(w), {GATHER}
  b = f32[16,4] all-gather(v), {GATHER}
  one = bf16[16,4] call(a), to_apply=narrowed
  two = bf16[16,4] call(b), to_apply=narrowed
  d = bf16[16,16] dot({fed}, {fed}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  ROOT t = (bf16[16,4], bf16[16,4], bf16[16,16]) tuple(one, two, d)""",
        """narrowed {
  p = f32[16,4] parameter(0)
  ROOT c = bf16[16,4] convert(p)
}""",
    )
    rows = ask(text, "select feeds_kind from collectives order by name")
    assert tuple(kind for (kind,) in rows) == kinds


@pytest.mark.parametrize(
    ("kept", "feeds"),
    [
        ("reduce-precision(a), exponent_bits=8, mantissa_bits=7", "matmul"),  # by a policy
        ("negate(a)", None),
    ],
)
def test_a_gather_that_a_policy_keeps_feeds_its_matmul(kept: str, feeds: str | None) -> None:
    text = module(
        f"""  w = f32[8,4] parameter(0)
  a = f32[16,4] all-gather(w), {GATHER}
  k = f32[16,4] {kept}
  ROOT d = f32[16,16] dot(k, k), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"""
    )
    assert ask(text, "select feeds_kind from collectives") == [(feeds,)]


# ---------------------------------------------------------------------------- mutations

LABELLED = FROM_METADATA | {
    "in_backward_loop", "in_microbatch_loop", "moves", "regather_for", "under_checkpoint",
}  # fmt: skip


MUTATED = {
    **{name: GATHERS[name] for name in ("own start", "wrapper with update", "async fusions")},
    "sparse core": GATHERS["call on a sparse core"],
    "scatter": SCATTER,
    "gather loop": GATHER_LOOP,
    "scatter loop": SCATTER_LOOP,
    "schedule": OVERLAP.replace("{config}", ""),
    "again": AGAIN,
    "scan": scanned("", ("transpose(jvp())/dot",)),
}


@pytest.mark.parametrize("text", MUTATED.values(), ids=MUTATED)
def test_only_the_program_matters(text: str) -> None:
    check_table(text, "collectives", from_metadata=LABELLED)
    check_table(text, "collective_values", from_metadata=LABELLED)


# ---------------------------------------------------------------------------- published cases


def case(number: str, sql: str) -> list[tuple[object, ...]]:
    (path,) = shared.texts(f"cases/{number}-*.hlo")
    return ask_file(path, sql)


@shared.needs_shared
def test_case_03_the_weight_is_gathered_twice() -> None:
    question = """select c.logical_kind, c.form, c.phase, c.group_size, c.result_bytes, first.name
        from collectives c left join instructions first on first.instr = c.regather_of
        order by c.instr"""
    assert case("03", question) == [
        ("all-gather", "start-done", "fwd", 4, 131072, None),
        ("all-gather", "sync", "remat", 4, 131072, "all-gather-start.1"),
        ("reduce-scatter", "sync", "bwd", 4, 32768, None),
    ]


@shared.needs_shared
def test_case_05_the_gradient_is_reduced_in_every_microbatch() -> None:
    question = "select count(*), sum(executions), sum(executions * result_bytes) from collectives"
    assert case("05", question) == [(2, 16, 32800)]
    assert case("05", "select name, result_bytes, in_backward_loop from collectives") == [
        ("l.ar", 4, 0), ("g.ar", 4096, 0),
    ]  # fmt: skip


@shared.needs_shared
def test_case_07_one_of_four_hides() -> None:
    question = "select logical_kind, compute_between, overlapped from collectives order by instr"
    assert case("07", question) == [
        ("all-reduce", 0, 0), ("all-reduce", 0, 0), ("all-gather", 2, 1), ("reduce-scatter", 0, 0),
    ]  # fmt: skip


@shared.needs_shared
def test_case_09_an_all_reduce_that_could_be_a_reduce_scatter() -> None:
    question = "select logical_kind, result_bytes from collectives order by instr"
    assert case("09", question) == [("all-reduce", 8192), ("all-gather", 8192)]


@shared.needs_shared
def test_case_29_a_pipelined_gather_and_its_peeled_copy() -> None:
    question = "select name, executions, loop is not null, is_regather from collectives"
    assert case("29", question) == [("ags.1", 3, 1, 0), ("ag.3", 1, 0, 0)]
    assert case("29", "select sum(executions) from collectives") == [(4,)]


# ---------------------------------------------------------------------------- real dumps

SUMMARY = """select logical_kind, phase, loop is not null, count(*), sum(executions),
    sum(executions * logical_wire_bytes) from collectives group by 1, 2, 3 order by 1, 2, 3"""


@shared.needs_shared
@pytest.mark.parametrize("compiler", ["cuda_h100_fullspec", "rocm_gfx950"])
def test_fsdp_on_gpu_each_wrapper_once(compiler: str) -> None:
    (path,) = shared.texts(f"dumps/gpu-aot/{compiler}.fsdp.after_optimizations.txt")
    question = "select logical_kind, form, count(*) from collectives group by 1, 2 order by 1"
    assert ask_file(path, question) == [
        ("all-gather", "async-wrapper", 3),
        ("all-reduce", "async-wrapper", 1),
        ("all-to-all", "async-wrapper", 3),
        ("reduce-scatter", "async-wrapper", 1),
    ]
    # Both weights in one gather: 2 arrays f32[64,512] a device, to 7 others.
    weights = "select wire_bytes from collectives where operand_shape = 'f32[64,512], f32[64,512]'"
    assert ask_file(path, weights) == [(7 * 2 * 64 * 512 * 4,)]


@shared.needs_shared
@pytest.mark.parametrize(("switch", "between", "overlapped"), [("on", 1, 1), ("off", 0, 0)])
def test_the_latency_hiding_scheduler_hides_the_gather(
    switch: str, between: int, overlapped: int
) -> None:
    (path,) = shared.texts(f"gfx950/lhs/{switch}/*.txt")
    assert ask_file(path, "select compute_between, overlapped from collectives") == [
        (between, overlapped)
    ]


MAXTEXT = "dumps/tpu-maxtext.tar.xz"


@shared.needs_shared
def test_windowed_einsum_hides_the_gathers_of_seven_weights() -> None:
    # 4 layers, 7 weights of 16 MiB shards together: gathered in both passes, scattered in one.
    (path,) = shared.unpacked(MAXTEXT).rglob("v6e_2x4.none.opt.hlo")
    seven = 4 * 7 * (4 * 2048 * 256 + 3 * 8192 * 256) * 2
    rows = ask_file(path, SUMMARY)
    loops = [row for row in rows if row[2]]
    assert loops == [
        ("all-gather", "bwd", 1, 7, 28, seven),
        ("all-gather", "fwd", 1, 7, 28, seven),
        ("all-reduce", "bwd", 1, 1, 4, loops[2][5]),
        ("reduce-scatter", "bwd", 1, 7, 28, seven),
    ]
    # All 110 permutes of the text are in a row, none is one.
    permutes = "select sum(static_ops) from collectives where kind = 'collective-permute'"
    assert ask_file(path, permutes) == [(110,)]
    assert ask_file(path, "select distinct form from collectives where logical_kind <> kind") == [
        ("windowed-loop",)
    ]


@shared.needs_shared
def test_full_remat_gathers_again_in_the_backward_loop() -> None:
    (path,) = shared.unpacked(MAXTEXT).rglob("v6e_2x4.full.opt.hlo")
    question = """select phase, is_regather, in_backward_loop, sum(executions) from collectives
        where logical_kind = 'all-gather' and loop is not null group by 1, 2, 3 order by 1"""
    assert ask_file(path, question) == [
        ("bwd", 1, 1, 20), ("fwd", 0, 0, 28), ("remat", 1, 1, 24),
    ]  # fmt: skip


@shared.needs_shared
def test_sparse_core_calls_of_tpu7x() -> None:
    (path,) = shared.unpacked(MAXTEXT).rglob("gemma2-9b.full.tpu7x.opt.hlo")
    question = """select logical_kind, form, core, phase, count(*), sum(executions)
        from collectives where loop is not null group by 1, 2, 3, 4 order by 1, 4"""
    assert ask_file(path, question) == [
        ("all-gather", "sparsecore-call", "sparsecore", "fwd", 14, 294),
        ("all-gather", "sparsecore-call", "sparsecore", "remat", 24, 504),
        ("all-reduce", "sync", "tensorcore", "bwd", 1, 21),
        ("reduce-scatter", "sparsecore-call", "sparsecore", "bwd", 14, 294),
    ]
    again = "select count(*) from collectives where phase = 'remat' and not is_regather"
    assert ask_file(path, again) == [(0,)]


@shared.needs_shared
def test_combined_reduce_scatters_of_an_unrolled_model() -> None:
    (path,) = shared.unpacked(MAXTEXT).rglob("llama2-7b.unroll32.full.opt.hlo")
    question = """select logical_kind, kind, form, count(*), sum(static_ops) from collectives
        group by 1, 2, 3 order by 1"""
    assert ask_file(path, question) == [
        ("all-gather", "all-gather", "sync", 451, 451),
        ("all-reduce", "all-reduce", "sync", 37, 37),
        ("all-to-all", "all-to-all", "sync", 2, 2),
        ("reduce-scatter", "all-reduce", "fusion", 9, 9),
    ]
    layers = "select count(*) from collectives where phase = 'remat' and is_regather"
    assert ask_file(path, layers) == [(7 * 32,)]
