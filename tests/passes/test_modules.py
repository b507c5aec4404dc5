"""The modules table: platform, scope of sizes and how whole a text is, each with its evidence."""

from __future__ import annotations

import pytest

from tests.passes.asking import ask, ask_file, findings
from tests.shared import SHARED, needs_shared

PLAIN = """\
HloModule plain
ENTRY main {
  a = f32[8]{0} parameter(0), metadata={op_name="a"}
  ROOT b = f32[8]{0} negate(a)
}
"""


def platform(text: str) -> tuple[object, object]:
    """(platform, platform_from) of a text."""
    ((found, evidence),) = ask(text, "select platform, platform_from from modules")
    return found, evidence


def scope(text: str, stage: str = "unknown") -> tuple[object, object]:
    """(size_scope, size_scope_from) of a text at a stage."""
    ((found, evidence),) = ask(text, "select size_scope, size_scope_from from modules", stage=stage)
    return found, evidence


def test_a_row_says_what_the_text_is() -> None:
    text = PLAIN.replace("HloModule plain", "HloModule plain, num_partitions=4, replica_count=2")
    columns = (
        "id, module, name, stage, is_scheduled, num_partitions, replica_count, computations,"
        " instructions, text_bytes, truncated, has_metadata, metadata_share"
    )
    assert ask(text, f"select {columns} from modules") == [
        (0, 0, "plain", "unknown", 0, 4, 2, 1, 2, len(text), 0, 1, 0.5)
    ]


def test_what_the_header_does_not_say_is_null() -> None:
    assert ask(PLAIN, "select num_partitions, replica_count from modules") == [(None, None)]


# -- platform


def called(target: str) -> str:
    return f"""\
HloModule m
ENTRY main {{
  a = f32[8]{{0}} parameter(0)
  ROOT b = f32[8]{{0}} custom-call(a), custom_call_target="{target}"
}}
"""


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("__cublas$gemm", "gpu"),
        ("te_gemm_ffi", "gpu"),
        ("tpu_custom_call", "tpu"),
        ("lapack_spotrf_ffi", "cpu"),
        ("AwsNeuronRmsNorm", "neuron"),
        ("xla_ffi_python_cpu_callback", "cpu"),
        ("xla_python_gpu_callback", "gpu"),
    ],
)
def test_a_custom_call_shows_the_platform(target: str, expected: str) -> None:
    assert platform(called(target)) == (expected, f"custom call {target}")


@pytest.mark.parametrize("target", ["Sharding", "MoveToHost", "my_kernel"])
def test_a_target_that_every_platform_has_shows_nothing(target: str) -> None:
    assert platform(called(target)) == (None, None)


def test_tiled_layouts_show_a_tpu() -> None:
    assert platform(PLAIN.replace("f32[8]{0}", "f32[8]{0:T(256)}")) == ("tpu", "tiled layouts")


def test_a_field_of_one_compilers_config_shows_the_platform() -> None:
    config = 'backend_config={"operation_queue_id":"0","wait_on_operation_queues":[]}'
    text = PLAIN.replace("negate(a)", f"negate(a), {config}")
    assert platform(text) == ("gpu", "backend_config operation_queue_id")


def test_a_config_quoted_in_an_op_name_shows_nothing() -> None:
    quoted = r'metadata={op_name="backend_config={\"operation_queue_id\":1}"}'
    assert platform(PLAIN.replace("negate(a)", f"negate(a), {quoted}")) == (None, None)


def test_contradicting_evidence_is_no_platform_and_is_shown() -> None:
    text = called("__cublas$gemm").replace("f32[8]{0}", "f32[8]{0:T(256)}")
    assert platform(text) == (None, "gpu: custom call __cublas$gemm; tpu: tiled layouts")


def test_nothing_shown_is_null() -> None:
    assert platform(PLAIN) == (None, None)


# -- scope of sizes

SHARDED = """\
HloModule sharded, num_partitions=8
ENTRY main {
  a = f32[64]{0} parameter(0), sharding={devices=[8]<=[8]}
  b = f32[64]{0} custom-call(a), custom_call_target="Sharding", sharding={devices=[8]<=[8]}
  ROOT c = f32[64]{0} negate(b)
}
"""
PARTITIONED = """\
HloModule partitioned, num_partitions=8
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }
ENTRY main {
  a = f32[8]{0} parameter(0), sharding={devices=[8]<=[8]}
  ROOT b = f32[8]{0} all-reduce(a), channel_id=1, replica_groups=[1,8]<=[8], to_apply=add
}
"""


def test_a_scheduled_text_has_the_sizes_of_a_device() -> None:
    scheduled = SHARDED.replace("HloModule sharded", "HloModule sharded, is_scheduled=true")
    assert scope(scheduled) == ("device", "is_scheduled")


def test_the_stage_decides_where_it_is_known() -> None:
    assert scope(SHARDED, "after_spmd_partitioner")[0] == "device"
    assert scope(SHARDED, "before_optimizations") == ("global", "stage before_optimizations")


def test_a_sharded_value_inside_shows_a_text_before_partitioning() -> None:
    assert scope(SHARDED) == ("global", "shardings of intermediate values")


def test_shardings_of_parameters_alone_are_left_after_partitioning_too() -> None:
    text = SHARDED.replace(
        '  b = f32[64]{0} custom-call(a), custom_call_target="Sharding",'
        " sharding={devices=[8]<=[8]}\n",
        "  b = f32[64]{0} tanh(a)\n",
    )
    assert scope(text) == (None, None)
    assert scope(PARTITIONED)[0] == "device"


def test_partition_id_and_the_partitioners_name_show_a_device() -> None:
    text = SHARDED.replace("ROOT c", "p = u32[] partition-id()\n  ROOT c")
    assert scope(text) == ("device", "partition-id")
    assert scope(SHARDED.replace("ENTRY main", "ENTRY main_spmd"))[0] == "device"


def test_shardy_meshes_show_a_text_before_partitioning() -> None:
    text = """\
HloModule sdy, num_partitions=8, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["d"=8]>}}
ENTRY main {
  ROOT a = f32[64]{0} parameter(0),
      frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"d\\"}]>"}
}
"""
    assert scope(text) == ("global", "Shardy meshes")


@pytest.mark.parametrize("sharding", ["{replicated}", "{devices=[1]0}", "{mesh['d'=1], [{'d'}]}"])
def test_where_nothing_is_spread_a_device_has_it_all(sharding: str) -> None:
    text = PLAIN.replace("parameter(0)", f"parameter(0), sharding={sharding}")
    assert scope(text, "before_optimizations") == ("device", "nothing is sharded")


# -- what a text lacks


def test_a_cut_off_text_is_marked_and_found() -> None:
    text = PLAIN[: PLAIN.index("negate(") + 4]
    assert ask(text, "select truncated from modules") == [(1,)]
    assert "truncated" in [rule for rule, _ in findings(text, "modules")]


def test_a_missing_computation_is_found() -> None:
    text = PLAIN.replace("negate(a)", "call(a), to_apply=gone")
    ((rule, message),) = findings(text, "modules")
    assert rule == "missing-computation"
    assert message.startswith("plain, line 4: ")
    assert "gone" in message


def test_a_text_without_metadata_says_so() -> None:
    text = PLAIN.replace(', metadata={op_name="a"}', "")
    ((rule, message),) = findings(text, "modules")
    assert rule == "no-metadata"
    assert "phases and sources cannot be told" in message
    assert ask(text, "select has_metadata, metadata_share from modules") == [(0, 0.0)]


def test_a_whole_text_with_names_has_no_finding() -> None:
    assert findings(PLAIN, "modules") == []


@needs_shared
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("cases/03-fsdp-dup-all-gather-tpu.hlo", ("tpu", "device", 8)),
        ("cases/05-grad-accum-allreduce-in-loop.hlo", (None, "device", 8)),
        ("cases/11-cudnn-fmha-fwd-bwd.hlo", ("gpu", "device", None)),
        ("cases/33a-named-policy-honoured.hlo", ("cpu", "device", None)),
        ("dumps/gpu-aot/rocm_gfx950.fsdp.before_optimizations.txt", (None, "global", 8)),
        ("dumps/gpu-aot/rocm_gfx950.fsdp.after_optimizations.txt", ("gpu", "device", 8)),
        ("gfx950/sharding/fsdp/after_spmd_partitioner.txt", (None, "device", 8)),
    ],
)
def test_real_texts(file: str, expected: tuple[object, ...]) -> None:
    assert SHARED is not None
    sql = "select platform, size_scope, num_partitions from modules"
    assert ask_file(SHARED / file, sql) == [expected]
