"""What a collective is estimated to take, worked out by hand, and which one stands first."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

import pytest
from hlo_lens_passes._catalogue import CatalogueError
from hlo_lens_passes._device_specs import Fabric, estimate, find, known_specs, read_specs

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from tests.mutate import check_table
from tests.passes.asking import ask, ask_file, findings
from tests.passes.test_collectives import ADD

# Numbers to calculate with: 1 GB/s within 4 devices, 0.1 GB/s a device between them.
TOY = """
[[device]]
name = "toy"
names = ["Toy *", "sm_9.9"]
devices = 4
[device.fast]
link_bandwidth = 1e9
step_us = 2
launch_us = 10
[device.slow]
link_bandwidth = 1e8
step_us = 20
launch_us = 100
"""
TIMES = "select domain, bandwidth_us, latency_us, estimate_us from collective_costs"


@pytest.fixture(autouse=True)
def _nobody_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HLOLENS_SPEC", raising=False)
    monkeypatch.delenv("HLOLENS_CATALOGUE", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The toy spec is asked for."""
    file = tmp_path / "toy.toml"
    file.write_text(TOY)
    monkeypatch.setenv("HLOLENS_SPEC", str(file))
    return file


def one(operation: str, shape: str = "f32[250]", partitions: int = 8) -> str:
    """A scheduled module with one collective, which takes 1,000 bytes."""
    return f"""HloModule m, is_scheduled=true, num_partitions={partitions}

{ADD}

ENTRY main {{
  p = f32[250] parameter(0)
  ROOT c = {shape} {operation}
}}
"""


def gather(groups: str, size: int) -> str:
    attributes = "channel_id=1, dimensions={0}, use_global_device_ids=true"
    shape = f"f32[{250 * size}]"
    return one(f"all-gather(p), {attributes}, replica_groups={groups}", shape)


# ---------------------------------------------------------------------------- the estimate


def test_a_ring_sends_its_bytes_and_takes_a_step_for_each_other_device(toy: Path) -> None:
    # 3 × 1,000 B at 1 GB/s; launch 10 and 3 steps of 2.
    assert ask(gather("{{0,1,2,3},{4,5,6,7}}", 4), TIMES) == [("fast", 3.0, 16.0, 19.0)]


def test_an_all_reduce_goes_round_twice(toy: Path) -> None:
    groups = "replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true"
    text = one(f"all-reduce(p), channel_id=1, {groups}, to_apply=add")
    # 2 × 3/4 × 1,000 B; 6 steps.
    assert ask(text, TIMES) == [("fast", 1.5, 22.0, 23.5)]


def test_between_domains_the_devices_of_each_share_the_work(toy: Path) -> None:
    # Two domains of 4: 7,000 B through 4 NICs, 7 steps of which 4 go on at once.
    assert ask(gather("{}", 8), TIMES) == [("slow", 17.5, 135.0, 152.5)]
    # One device of each: 1,000 B through its NIC, one step.
    assert ask(gather("{{0,4},{1,5},{2,6},{3,7}}", 2), TIMES) == [("slow", 10.0, 120.0, 130.0)]


def test_groups_of_one_form_or_another_are_in_one_domain_or_in_two(toy: Path) -> None:
    domains = [
        ask(gather(groups, 2), "select domain from collective_costs")[0][0]
        for groups in ("[4,2]<=[8]", "[4,2]<=[2,4]T(1,0)", "mesh['a'=4,'b'=2] {'b'}")
    ]
    assert domains == ["fast", "slow", "fast"]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("{{0,1},{1,0}}", ("fast", 1.0, 12.0)),
        ("{{3,4},{1,1}}", ("slow", 10.0, 120.0)),
        ("{{3,3},{4,4}}", ("fast", 0.0, 12.0)),  # nobody sends anything
    ],
)
def test_a_permute_is_one_step_to_one_device(
    toy: Path, pairs: str, expected: tuple[object, ...]
) -> None:
    text = one(f"collective-permute(p), channel_id=1, source_target_pairs={pairs}")
    assert ask(text, TIMES.replace(", estimate_us", "")) == [expected]


def test_each_device_of_an_all_to_all_has_its_own_nic_only(toy: Path) -> None:
    text = one("all-to-all(p), channel_id=1, dimensions={0}, replica_groups={}")
    # 7/8 × 1,000 B through one NIC; 7 steps.
    assert ask(text, TIMES) == [("slow", 8.75, 240.0, 248.75)]


def test_replicas_are_told_apart_by_their_partitions(toy: Path) -> None:
    lines = "all-gather(p), dimensions={0}, replica_groups={{0,1}}"
    text = one(lines, "f32[500]", 4).replace(
        "num_partitions=4", "num_partitions=4, replica_count=2"
    )
    # Replicas 0 and 1 are devices 0 and 4.
    assert ask(text, "select domain from collective_costs") == [("slow",)]
    assert ask(text.replace("num_partitions=4", "num_partitions=2"), TIMES)[0][0] == "fast"


def test_what_is_not_known_is_not_estimated(toy: Path) -> None:
    offsets = "  z = s32[8] parameter(1)\n"
    text = gather("{}", 8).replace(", num_partitions=8", "")
    assert ask(text, TIMES) == [(None, None, None, None)]
    ragged = one(
        "ragged-all-to-all(p, p, z, z, z, z), channel_id=1, replica_groups={{0,1,2,3}}"
    ).replace("  ROOT", f"{offsets}  ROOT")
    assert ask(ragged, TIMES) == [("fast", None, None, None)]


def test_without_latencies_bandwidth_counts_alone(toy: Path) -> None:
    lines = [line for line in TOY.splitlines() if "_us" not in line]
    toy.write_text("\n".join(lines))
    text = gather("{{0,1,2,3},{4,5,6,7}}", 4)
    assert ask(text, TIMES) == [("fast", 3.0, None, 3.0)]
    toy.write_text("\n".join(lines).replace("link_bandwidth = 1e8", ""))
    assert ask(gather("{}", 8), TIMES) == [("slow", None, None, None)]


def test_links_of_a_switch_a_mesh_and_a_ring() -> None:
    def bandwidths(shape: str, links: int) -> list[float | None]:
        fabric = Fabric(shape, 1.0, links)
        asked = (("all-gather", 8), ("all-gather", 4), ("all-gather", 2), ("send", None))
        return [fabric.bandwidth(kind, size) for kind, size in asked]

    assert bandwidths("switch", 18) == [18, 18, 18, 18]
    assert bandwidths("mesh", 7) == [7, 3, 1, 1]
    assert bandwidths("ring", 2) == [2, 2, 1, 1]
    assert Fabric("switch", 4.0, 2, share=0.5).bandwidth("all-gather", 2) == 4.0


# ---------------------------------------------------------------------------- a step, and hiding

LOOP = """HloModule m, is_scheduled=true, num_partitions=4

body {
  s = (s32[], f32[250], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[250] get-tuple-element(s), index=1
  w = f32[16,16] get-tuple-element(s), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  heavy = (f32[250], f32[1000]) all-gather-start(x), channel_id=1, replica_groups={}, dimensions={0}, use_global_device_ids=true
  light = (f32[250], f32[1000]) all-gather-start(x), channel_id=2, replica_groups={}, dimensions={0}, use_global_device_ids=true
  y = f32[250] negate(x)
  light.done = f32[1000] all-gather-done(light)
  d = f32[16,16] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  heavy.done = f32[1000] all-gather-done(heavy)
  bare = (f32[250], f32[1000]) all-gather-start(y), channel_id=3, replica_groups={}, dimensions={0}, use_global_device_ids=true
  bare.done = f32[1000] all-gather-done(bare)
  sync = (f32[250], f32[1000]) all-gather-start(y), channel_id=4, replica_groups={}, dimensions={0}, use_global_device_ids=true, backend_config={"collective_backend_config":{"is_sync":true}}
  z = f32[250] negate(y)
  sync.done = f32[1000] all-gather-done(sync)
  all = f32[1000] add(heavy.done, light.done)
  more = f32[1000] add(bare.done, sync.done)
  sum = f32[1000] add(all, more)
  cut = f32[250] slice(sum), slice={[0:250]}
  new = f32[250] add(cut, z)
  ROOT t = (s32[], f32[250], f32[16,16]) tuple(n, new, d)
}

condition {
  s = (s32[], f32[250], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(i, five), direction=LT
}

ENTRY main {
  x = f32[250] parameter(0)
  w = f32[16,16] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[250], f32[16,16]) tuple(zero, x, w)
  loop = (s32[], f32[250], f32[16,16]) while(t), condition=condition, body=body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT r = f32[250] get-tuple-element(loop), index=1
}
"""  # noqa: E501
HIDING = "select name, hidden_by, exposed from collective_costs order by id"


def test_what_hides_a_collective() -> None:
    assert ask(LOOP, HIDING) == [
        ("heavy", "heavy", 0),
        ("light", "light", 0),
        ("bare", "nothing", 1),
        ("sync", "nothing", 1),
    ]


def test_a_text_that_is_no_schedule_tells_only_what_is_synchronous() -> None:
    text = LOOP.replace(" is_scheduled=true,", "")
    assert [row[1:] for row in ask(text, HIDING)] == [(None, None)] * 3 + [("nothing", 1)]
    assert ask(text, "select distinct queue_before from collective_costs") == [(None,)]


def test_a_step_counts_every_iteration_and_says_what_may_hide(toy: Path) -> None:
    sql = (
        "select name, estimate_step_us, exposed_us, hidden_us_max, exposed_bytes"
        " from collective_costs order by id"
    )
    # One run: 3,000 B and 16 µs of latency; five runs.
    assert ask(LOOP, sql) == [
        ("heavy", 95.0, None, 95.0, 0),
        ("light", 95.0, None, 95.0, 0),
        ("bare", 95.0, 95.0, 0.0, 15000),
        ("sync", 95.0, 95.0, 0.0, 15000),
    ]


def test_an_unknown_trip_count_leaves_the_step_open_and_ranks_by_one_run(toy: Path) -> None:
    text = LOOP.replace(', backend_config={"known_trip_count":{"n":"5"}}', "").replace(
        "ROOT c = pred[] compare(i, five), direction=LT",
        'ROOT c = pred[] custom-call(i, five), custom_call_target="go_on"',
    )
    sql = "select estimate_us, estimate_step_us, exposed_bytes, weight from collective_costs"
    assert ask(text, f"{sql} where name = 'bare'") == [(19.0, None, None, 19.0)]


def test_what_no_heavy_work_hides_stands_first_and_more_of_it_before_less(toy: Path) -> None:
    ranks = "select name from collective_costs order by rank"
    assert [row[0] for row in ask(LOOP, ranks)] == ["light", "bare", "sync", "heavy"]
    smaller = LOOP.replace("light = (f32[250]", "light = (f32[125]").replace(
        "all-gather-start(x), channel_id=2", "all-gather-start(half), channel_id=2"
    )
    smaller = smaller.replace(
        "  y = f32[250] negate(x)\n  light.done = f32[1000]",
        "  y = f32[250] negate(x)\n  light.done = f32[500]",
    ).replace("(f32[125], f32[1000])", "(f32[125], f32[500])")
    smaller = smaller.replace("  heavy =", "  half = f32[125] slice(x), slice={[0:125]}\n  heavy =")
    smaller = smaller.replace("add(heavy.done, light.done)", "add(heavy.done, heavy.done)")
    assert [row[0] for row in ask(smaller, ranks)] == ["bare", "sync", "light", "heavy"]


def test_without_a_spec_it_ranks_by_bytes_and_estimates_nothing() -> None:
    columns = "spec, spec_from, domain, estimate_us, estimate_step_us, exposed_us, hidden_us_max"
    assert ask(LOOP, f"select distinct {columns} from collective_costs") == [(None,) * 7]
    rows = ask(LOOP, "select name, weight from collective_costs order by rank")
    assert rows == [("light", 15000), ("bare", 15000), ("sync", 15000), ("heavy", 15000)]


def test_it_is_the_program_and_not_its_spelling(toy: Path) -> None:
    check_table(LOOP, "collective_costs")
    check_table(
        LOOP,
        "select domain, estimate_us, estimate_step_us, exposed_us, hidden_us_max, hidden_by,"
        " queue_before from collective_costs order by 6, 7",
    )


# ---------------------------------------------------------------------------- the queue

QUEUE = "select name, queue_before from collective_costs order by id"


def test_the_queue_holds_what_is_started_and_not_done() -> None:
    # light is started behind heavy; bare and sync when both are done.
    assert ask(LOOP, QUEUE) == [("heavy", 0), ("light", 1), ("bare", 0), ("sync", 0)]


def test_what_a_caller_has_under_way_is_in_front_of_what_its_loop_starts() -> None:
    around = LOOP.replace(
        "  loop = ",
        "  first = (f32[250], f32[1000]) all-gather-start(x), channel_id=9, replica_groups={},"
        " dimensions={0}, use_global_device_ids=true\n  loop = ",
    ).replace(
        "  ROOT r =",
        "  first.done = f32[1000] all-gather-done(first)\n  ROOT r =",
    )
    assert dict(ask(around, QUEUE)) == {"heavy": 1, "light": 2, "bare": 1, "sync": 1, "first": 0}
    before = around.replace("  first.done = f32[1000] all-gather-done(first)\n", "").replace(
        "  loop = ", "  first.done = f32[1000] all-gather-done(first)\n  loop = "
    )
    assert dict(ask(before, QUEUE))["light"] == 1


def test_a_synchronous_one_is_never_in_front_of_another() -> None:
    text = LOOP.replace(
        "  z = f32[250] negate(y)",
        "  next = (f32[250], f32[1000]) all-gather-start(y), channel_id=5, replica_groups={},"
        " dimensions={0}, use_global_device_ids=true\n  z = f32[250] negate(y)",
    ).replace("  all = ", "  next.done = f32[1000] all-gather-done(next)\n  all = ")
    assert dict(ask(text, QUEUE))["next"] == 0


def test_sends_have_a_stream_of_their_own() -> None:
    text = """HloModule m, is_scheduled=true, num_partitions=2

ENTRY main {
  p = f32[250] parameter(0)
  t = token[] after-all()
  s = (f32[250], u32[], token[]) send(p, t), channel_id=1
  g = (f32[250], f32[500]) all-gather-start(p), channel_id=2, replica_groups={}, dimensions={0}, use_global_device_ids=true
  s2 = (f32[250], u32[], token[]) send(p, t), channel_id=3
  g.done = f32[500] all-gather-done(g)
  s.done = token[] send-done(s), channel_id=1
  s2.done = token[] send-done(s2), channel_id=3
  ROOT r = f32[500] copy(g.done)
}
"""  # noqa: E501
    assert ask(text, QUEUE) == [("s", 0), ("g", 0), ("s2", 1)]


def test_a_core_is_no_queue_of_the_other() -> None:
    sparse = """gathers {
  q = f32[250]{0:T(256)} parameter(0)
  ROOT ag = f32[500]{0:T(256)} all-gather(q), channel_id=1, replica_groups={}, dimensions={0}, use_global_device_ids=true
}, execution_thread="sparsecore"
"""  # noqa: E501
    text = f"""HloModule m, is_scheduled=true, num_partitions=2

{sparse}
ENTRY main {{
  p = f32[250]{{0:T(256)}} parameter(0)
  s = ((f32[250]{{0:T(256)}}), f32[500]{{0:T(256)}}, s32[]) async-start(p), async_execution_thread="sparsecore", calls=gathers
  ag.2 = f32[500]{{0:T(256)}} all-gather(p), channel_id=2, replica_groups={{}}, dimensions={{0}}, use_global_device_ids=true
  d = f32[500]{{0:T(256)}} async-done(s)
  ROOT r = f32[500]{{0:T(256)}} add(d, ag.2)
}}
"""  # noqa: E501
    sql = (
        "select c.core, q.queue_before from collectives c"
        " join collective_costs q using (module, id)"
    )
    assert sorted(ask(text, sql)) == [("sparsecore", 0), ("tensorcore", 0)]
    on_tensorcore = text.replace(', execution_thread="sparsecore"', "")
    on_tensorcore = on_tensorcore.replace('async_execution_thread="sparsecore", ', "")
    assert sorted(ask(on_tensorcore, sql)) == [("tensorcore", 0), ("tensorcore", 1)]


# ---------------------------------------------------------------------------- which spec

SPEC = "select distinct spec, spec_from from collective_costs"
DUMPED = "module_0001.jit_f.{}_after_optimizations.txt"


def dumped(folder: Path, device: str, provenance: str | None = None) -> Path:
    """LOOP as XLA dumps it for a device, perhaps with a provenance.json beside it."""
    folder.mkdir(exist_ok=True)
    if provenance is not None:
        (folder / "provenance.json").write_text(provenance)
    path = folder / DUMPED.format(device)
    path.write_text(LOOP)
    return path


def test_the_user_is_asked_first_then_the_compile_then_the_name_of_the_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = '{"target": {"name": "rocm:gfx950-8", "chip": "gfx950", "device_kind": "MI350X"}}'
    compiled = dumped(tmp_path / "compiled", "sm_9.0_gpu", target)
    plain = dumped(tmp_path / "plain", "sm_9.0_gpu")
    assert ask_file(compiled, SPEC) == [("mi355x", "side_file")]
    assert ask_file(plain, SPEC) == [("h100", "platform")]
    monkeypatch.setenv("HLOLENS_SPEC", "v6e")
    assert ask_file(compiled, SPEC) == ask_file(plain, SPEC) == [("v6e", "user")]


@pytest.mark.parametrize("device", ["sm_10.0_gpu", "gpu", "tpu", "cpu"])
def test_a_dump_that_names_no_single_kind_of_device_has_no_spec(
    tmp_path: Path, device: str
) -> None:
    assert ask_file(dumped(tmp_path / "dump", device), SPEC) == [(None, None)]


@pytest.mark.parametrize("provenance", ["", "[]", '{"target": null}', '{"target": {"chip": 5}}'])
def test_a_provenance_that_says_nothing_is_passed_over(tmp_path: Path, provenance: str) -> None:
    assert ask_file(dumped(tmp_path / "d", "gfx942_gpu", provenance), SPEC) == [
        ("mi300x", "platform")
    ]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v6 lite", "v6e"),
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU7x", "tpu7x"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA B200", "b200"),
        ("AMD Instinct MI300X", "mi300x"),
        ("MI350X", "mi355x"),
    ],
)
def test_what_a_runtime_calls_a_device(tmp_path: Path, kind: str, name: str) -> None:
    told = f'{{"target": {{"device_kind": "{kind}"}}}}'
    assert ask_file(dumped(tmp_path / "d", "gpu", told), SPEC) == [(name, "side_file")]


def test_a_config_names_a_spec_or_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "hlolens.toml").write_text('spec = "b200"\n')
    assert ask(LOOP, SPEC) == [("b200", "user")]
    (tmp_path / "toy.toml").write_text(TOY)
    (tmp_path / "hlolens.toml").write_text('spec = "toy.toml"\n')
    assert ask(LOOP, SPEC) == [("toy", "user")]


def test_a_users_catalogue_adds_devices_and_beats_the_built_in_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(f'{TOY}\n[[target]]\nnames = ["mine"]\nfamily = "ours"\n')
    monkeypatch.setenv("HLOLENS_CATALOGUE", str(own))
    assert ask_file(dumped(tmp_path / "d", "sm_9.9_gpu"), SPEC) == [("toy", "platform")]
    own.write_text(TOY.replace("sm_9.9", "sm_9.0"))
    assert ask_file(dumped(tmp_path / "d", "sm_9.0_gpu"), SPEC) == [("toy", "platform")]
    assert findings(LOOP, "custom_calls") == []


def test_a_spec_that_is_unknown_is_told_and_no_other_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dumped(tmp_path / "d", "sm_9.0_gpu")
    monkeypatch.setenv("HLOLENS_SPEC", "h110")
    assert ask_file(path, SPEC) == [(None, None)]
    assert findings(LOOP, "collective_costs") == [
        ("spec-broken", "no device spec h110; did you mean h100? (or a TOML file)")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[device", "not TOML"),
        ("", "one [[device]] is wanted, it has 0"),
        (TOY + TOY.replace("toy", "toys"), "one [[device]] is wanted, it has 2"),
        ("device = 1", "entries are written [[device]]"),
        ('[[device]]\nname = "x"\n', "[device.fast] is missing"),
        (TOY.replace('"toy"', "5"), "name and about are texts"),
        (TOY.replace("devices = 4", "devices = 4.5"), "devices is a whole number, not 4.5"),
        (TOY.replace("devices = 4", "devices = true"), "devices is a number above 0, not True"),
        (TOY.replace("devices = 4", "peak_flops = 0"), "peak_flops is a number above 0, not 0"),
        (TOY.replace("devices = 4", "peak = 1"), "there are name, about, names, devices, memory_"),
        (TOY.replace("1e9", "-1e9"), "link_bandwidth is a number above 0"),
        (TOY.replace("1e9", "nan"), "link_bandwidth is a number above 0"),
        (TOY.replace("step_us = 2\n", "steps_us = 2\n"), "no key 'steps_us'"),
        (TOY.replace("step_us = 2\n", 'shape = "torus"\n'), "shape is switch, mesh, ring"),
        (TOY.replace("step_us = 2\n", "step_us = { value = 2, unit = 1 }\n"), "no key 'unit'"),
        (TOY.replace("step_us = 2\n", "step_us = { value = 2, source = 1 }\n"), "source is a text"),
        (TOY.replace("step_us = 2\n", 'step_us = { source = "here" }\n'), "is a number above 0"),
    ],
)
def test_a_spec_that_cannot_be_read_says_what_is_wrong(toy: Path, text: str, said: str) -> None:
    toy.write_text(text)
    ((rule, message),) = findings(LOOP, "collective_costs")
    assert rule == "spec-broken"
    assert message.startswith(f"spec {toy}: ")
    assert said in message


# ---------------------------------------------------------------------------- the built-in specs


def test_every_number_of_the_built_in_specs_has_its_source() -> None:
    specs, broken = known_specs()
    assert broken == ()
    assert len({spec.name for spec in specs}) == len(specs)
    for spec in specs:
        assert spec.about
        for domain, fabric in (("fast", spec.fast), ("slow", spec.slow)):
            if fabric is None:
                continue
            assert fabric.link_bandwidth, spec.name
            given = ["link_bandwidth"]
            given += ["links"] if fabric.links != 1 else []
            given += ["share"] if fabric.share != 1 else []
            given += [key for key in ("step_us", "launch_us") if getattr(fabric, key) is not None]
            for key in given:
                assert spec.sources[f"{domain}.{key}"], (spec.name, domain, key)
        for key in ("devices", "memory_bandwidth", "peak_flops"):
            assert getattr(spec, key) is not None, (spec.name, key)
            assert spec.sources[key], (spec.name, key)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("h100", "h100"),
        ("h200", "h200"),
        ("b200", "b200"),
        ("gb200", "gb300"),
        ("mi300x", "gfx942"),
    ],
)
def test_peaks_are_those_of_the_configs_that_xla_compiles_with(name: str, target: str) -> None:
    spec = find(name, known_specs()[0])
    text = resources.files("hlo_lens.aot").joinpath("gpus.toml").read_text(encoding="utf-8")
    info = tomllib.loads(text)[target]["gpu_device_info"]
    assert spec.memory_bandwidth == info["memory_bandwidth"]
    bf16 = 16  # of xla's PrimitiveType
    for dtype, clock, units, operations in info.get("matrix_unit_description", ()):
        if dtype == bf16:  # a multiply-add is one operation of these
            peak = info["core_count"] * units * operations * 2 * clock * 1e9
            # The clock of a GB300 is 0.4% above that of a GB200.
            assert spec.peak_flops == pytest.approx(peak, rel=5e-3 if name == "gb200" else 1e-4)


def test_peaks_of_a_tpu_are_those_of_a_device_of_jax() -> None:
    specs, _ = known_specs()
    # One device a chip, with both cores of a v5p; two devices a TPU7x: 7,380 GB/s, 2,307 TFLOP/s.
    v5p, tpu7x = find("TPU v5p", specs), find("TPU7x", specs)
    assert (v5p.memory_bandwidth, v5p.peak_flops) == (2765e9, 459e12)
    assert (tpu7x.memory_bandwidth, tpu7x.peak_flops) == (7380e9 / 2, 2307e12 / 2)


def test_the_families_that_people_compile_for_have_specs() -> None:
    specs, _ = known_specs()
    for name in ("h100", "h200", "b200", "gb200", "mi300x", "mi355x"):
        assert find(name, specs).name == name
    for name in ("v4", "v5e", "v5p", "v6e", "tpu7x"):
        assert find(name, specs).name == name
    assert find("MI300X", specs).name == "mi300x"
    with pytest.raises(CatalogueError, match="no device spec cpu; there are h100, "):
        find("cpu", specs)


# Of default_collective_perf_table.txtpb, which XLA measured with NCCL: bytes of the whole array,
# and bytes of it per second.
MEASURED = [
    ("h100", "all-gather", 8, 2**31, 401.9e9),
    ("h100", "all-gather", 8, 2**25, 259.4e9),
    ("h100", "reduce-scatter", 8, 2**31, 376.1e9),
    ("h100", "all-reduce", 4, 2**28, 189.1e9),
    ("h100", "all-to-all", 8, 2**31, 388.1e9),
    ("b200", "all-gather", 8, 2**31, 704.5e9),
    ("b200", "reduce-scatter", 8, 2**31, 733.5e9),
    ("b200", "all-reduce", 8, 2**31, 350.8e9),
    ("gb200", "all-gather", 72, 18_432 * 4, 0.70e9),
    ("gb200", "all-gather", 72, 75_497_472 * 4, 508.9e9),
    ("gb200", "reduce-scatter", 64, 2**32, 685.0e9),
]


@pytest.mark.parametrize(("name", "kind", "size", "whole", "speed"), MEASURED)
def test_the_estimate_is_near_what_xla_measured(
    name: str, kind: str, size: int, whole: int, speed: float
) -> None:
    wire = whole * (size - 1) // size * (2 if kind == "all-reduce" else 1)
    found = estimate(find(name, known_specs()[0]), "fast", kind, wire, size)
    assert found is not None
    assert found.total == pytest.approx(whole / speed * 1e6, rel=0.25)


def test_a_spec_is_read_with_and_without_sources() -> None:
    (spec,) = read_specs("t", TOY.replace("devices = 4", 'devices = {value = 4, source = "s"}'))
    assert (spec.devices, dict(spec.sources)) == (4, {"devices": "s"})
    (spec,) = read_specs("t", '[[device]]\nname = "x"\n[device.fast]\nlink_bandwidth = 1\n')
    assert spec.devices is None
    assert spec.slow is None
    assert (spec.memory_bandwidth, spec.peak_flops) == (None, None)
    peaks = 'memory_bandwidth = 2e12\npeak_flops = {value = 3e14, source = "s"}\n[device.fast]'
    (spec,) = read_specs("t", TOY.replace("[device.fast]", peaks))
    assert (spec.memory_bandwidth, spec.peak_flops) == (2e12, 3e14)
    assert dict(spec.sources) == {"peak_flops": "s"}


def test_a_spec_without_domains_is_all_fast(toy: Path) -> None:
    toy.write_text('[[device]]\nname = "x"\n[device.fast]\nlink_bandwidth = 1e9\n')
    assert ask(gather("{}", 8), TIMES) == [("fast", 7.0, None, 7.0)]


def test_a_row_has_the_id_of_its_collective() -> None:
    sql = (
        "select count(*), sum(c.name = q.name and c.instr = q.instr) from collectives c"
        " join collective_costs q using (module, id)"
    )
    assert ask(LOOP, sql) == [(4, 4)]
    rows = run_query([Facts(_two_stages())], sql).rows
    assert rows == [(8, 8)]


def _two_stages() -> object:
    from hlo_lens.hlo import parse
    from hlo_lens.program import AFTER, PARTITIONED, Program

    unscheduled = LOOP.replace(" is_scheduled=true,", "")
    return Program([parse(unscheduled), parse(LOOP)], [PARTITIONED, AFTER])
