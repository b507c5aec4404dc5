"""`hlolens collectives`: groups, what stands first, filters, specs, formats, and the page on it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hlo_lens.collectives import (
    Filters,
    NoSuchNameError,
    NotReadError,
    collectives_report,
    keys_named,
)
from hlo_lens.collectives.rows import time_text
from hlo_lens.facts import Cell, Column, Facts, Finding, PassResult, Rule, Table, discover_passes
from hlo_lens.hlo import parse
from hlo_lens.present.page import plain
from hlo_lens.present.terminal import as_lines
from hlo_lens.program import Program
from tests import shared
from tests.cli.test_hostile_text import ACTS, PAYLOADS, TEXT
from tests.conftest import Ran
from tests.facts.toys import Toy
from tests.facts.toys import table as toy_table
from tests.passes.test_collective_costs import LOOP, TOY
from tests.test_readme import BLOCK, at_root, output_of

Cli = Callable[..., Ran]

ROOT = Path(__file__).resolve().parents[2]
LLAMA = ROOT / "fixtures" / "hlo" / "llama"
PAGE = ROOT / "docs" / "ranking.md"
PRICED = ("collectives", "collective_costs")  # the passes whose tables are shown


@pytest.fixture(autouse=True)
def _nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOLENS_SPEC", raising=False)
    monkeypatch.delenv("HLOLENS_CATALOGUE", raising=False)


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    """A loop of five iterations with four all-gathers, over heavy, light and no work."""
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP)
    return path


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(TOY)
    return path


def data(cli: Cli, *args: object) -> dict[str, object]:
    ran = cli("collectives", *args, "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, object] = json.loads(ran.out)
    return found


# ---------------------------------------------------------------------------------- what it says


def test_it_begins_with_how_much_how_long_and_what_is_first(
    cli: Cli, loop: Path, toy: Path
) -> None:
    ran = cli("collectives", loop, "--spec", toy)
    assert (ran.code, ran.err) == (0, "")
    head = " ".join(ran.out.split("\n\n")[0].split())
    # 4 × 5 runs of 3,000 B; 19 µs each.
    assert "sends 58.6 KiB per device and step in 4 collectives, 20 runs:" in head
    assert "50% exposed, 25% over light work, 25% over heavy work" in head
    assert "estimate 380.0 µs per step, exposed 190.0 µs – 380.0 µs; a ring on idle" in head
    assert "of toy (as asked)" in head
    assert "first light, all-gather in loop ×5: sends 14.6 KiB in 5 runs, about 95.0 µs;" in head
    assert "only light work may hide it" in head


def test_the_groups_have_bytes_and_times_of_a_step(cli: Cli, loop: Path, toy: Path) -> None:
    out = cli("collectives", loop, "--spec", toy, "--by", "loop,kind").out
    section = out.split("\n\n")[1]
    assert section.splitlines()[0].startswith("by loop, operation")
    cells = re.split(r"  +", section.splitlines()[2].strip())
    assert cells == [
        "loop ×5", "all-gather", "4", "20", "58.6 KiB", "29.3 KiB", "380.0 µs",
        "190.0 µs – 380.0 µs",
    ]  # fmt: skip


def test_the_second_section_sets_exposed_against_overlapped(cli: Cli, loop: Path) -> None:
    section = cli("collectives", loop).out.split("\n\n")[2]
    assert section.startswith("exposed and overlapped")
    assert re.split(r"  +", section.splitlines()[2].strip()) == [
        "loop ×5", "–", "4", "29.3 KiB", "14.6 KiB", "14.6 KiB",
    ]  # fmt: skip


def test_single_collectives_stand_in_order_of_rank(cli: Cli, loop: Path) -> None:
    def names(*args: object) -> list[str]:
        out = cli("collectives", loop, *args).out
        return re.findall(r"^  +\d+  (\w+) ", out, re.MULTILINE)

    assert names() == ["light", "bare", "sync", "heavy"]
    assert names("--top", "2") == ["light", "bare"]
    assert "2 more; --top 4 shows all" in cli("collectives", loop, "--top", "2").out
    assert names("--top", "0") == []


def test_what_is_asked_of_a_single_one_stands_below_it(cli: Cli, loop: Path) -> None:
    out = cli("collectives", loop, "--top", "4").out
    lines = out.splitlines()
    below = {line.split()[1]: lines[at + 1].strip() for at, line in enumerate(lines)
             if re.match(r"  +\d+  \w+ +all-gather ", line)}  # fmt: skip
    for text in ("f32[250] · ", "1×4 devices", "queued behind 1"):
        assert text in below["light"]
    assert below["sync"].endswith(" · synchronous")
    assert "queued" not in below["sync"]


def test_without_a_spec_it_says_how_to_get_times(cli: Cli, loop: Path) -> None:
    out = cli("collectives", loop).out
    assert "estimate  none: a spec of the device is not known; --spec NAME" in out
    assert "µs" not in out


def test_a_text_that_is_not_scheduled_says_nothing_of_hiding(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "loop.hlo"
    text = LOOP.replace(" is_scheduled=true,", "").replace('"is_sync":true', '"is_sync":false')
    path.write_text(text)
    out = cli("collectives", path).out
    head = " ".join(out.split("\n\n")[0].split())
    assert "what hides them is not known, as the text is not scheduled" in head
    assert "exposed" not in out
    assert "hidden by" not in out


def test_groups_stand_by_what_no_heavy_work_hides(cli: Cli, loop: Path) -> None:
    groups = data(cli, loop, "--by", "name")["groups"]
    assert isinstance(groups, list)
    assert [group["name"] for group in groups] == ["light", "bare", "sync", "heavy"]


def test_a_program_without_collectives_says_so(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "none.hlo"
    path.write_text("HloModule m\n\nENTRY main {\n  ROOT p = f32[4] parameter(0)\n}\n")
    ran = cli("collectives", path)
    assert (ran.code, ran.err) == (0, "")
    assert "sends  nothing: there are no collectives\n" in ran.out
    assert data(cli, path)["groups"] == []


def test_it_is_about_the_stage_that_runs(cli: Cli) -> None:
    folder = ROOT / "fixtures" / "hlo" / "plain" / "fsdp" / "cpu-8"
    assert (
        "stage     after_optimizations; --stage chooses another" in cli("collectives", folder).out
    )
    before = data(cli, folder, "--stage", "before")
    assert (before["stage"], before["collectives"]) == ("before_optimizations", [])


def test_a_cut_off_text_is_marked(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cut.hlo"
    path.write_text(LOOP[: LOOP.index("ROOT r =")])
    assert "cut off; what follows is of the part that is there" in cli("collectives", path).out


def test_a_failed_pass_is_no_empty_answer(cli: Cli, loop: Path) -> None:
    def crash(*_: object) -> PassResult:
        raise RuntimeError("cannot cope")

    broken = Toy("collectives", (discover_passes().table("collectives"),), crash)
    costs = next(one for one in discover_passes().passes if one.name == "collective_costs")
    facts = Facts(Program([parse(LOOP)]), [broken, costs])
    with pytest.raises(NotReadError, match="pass collectives: RuntimeError"):
        collectives_report(facts)
    alone = Facts(Program([parse(LOOP)]), [costs])
    with pytest.raises(NotReadError, match="pass collective_costs: it requires table collectives"):
        collectives_report(alone)


# ---------------------------------------------------------------------------------- what is picked


def table() -> Table:
    return discover_passes().table("collectives")


def test_every_column_can_be_grouped_by_and_what_people_call_them() -> None:
    assert [cell.columns for cell in keys_named(table(), ("kind", "axis", "group", "dtype"))] == [
        ("logical_kind",), ("axes",), ("groups", "group_size"), ("dtype",),
    ]  # fmt: skip
    facts = Facts(Program([parse(LOOP)]))
    for name in table().names:
        assert collectives_report(facts, (name,)).groups, name


def test_a_column_that_this_table_lacks_is_an_error_and_one_that_it_has_is_not() -> None:
    less = replace(
        table(),
        columns=tuple(one for one in table().columns if one.name != "source"),
        summary=None,
    )
    with pytest.raises(NoSuchNameError, match="no column 'source' to group by"):
        keys_named(less, ("source",))
    assert keys_named(table(), ("source",)) == (Cell("source"),)


COMBINED = """HloModule m, is_scheduled=true, num_partitions=4

ENTRY main {
  up = f32[250] parameter(0), metadata={op_name="params['up']"}
  down = f32[750] parameter(1), metadata={op_name="params['down']"}
  ag = (f32[1000], f32[3000]) all-gather(up, down), channel_id=1, replica_groups={}, dimensions={0}, use_global_device_ids=true
  u = f32[1000] get-tuple-element(ag), index=0
  d = f32[3000] get-tuple-element(ag), index=1
  ROOT r = f32[3000] copy(d)
}
"""  # noqa: E501


def test_by_what_is_of_one_array_each_array_counts_for_itself(
    cli: Cli, tmp_path: Path, toy: Path
) -> None:
    path = tmp_path / "combined.hlo"
    path.write_text(COMBINED)
    columns = ("parameter", "count", "sent_bytes", "exposed_bytes", "estimate_us")

    def groups(*args: object) -> tuple[object, list[tuple[object, ...]]]:
        found = data(cli, path, "--spec", toy, *args)
        listed = found["groups"]
        assert isinstance(listed, list)
        return found["groups_of"], [tuple(one.get(name) for name in columns) for one in listed]

    # 3 × 4,000 B at 1 GB/s and 16 µs, shared out by bytes.
    assert groups("--by", "parameter") == (
        "arrays",
        [("params['down']", 1, 9000, 9000, 21.0), ("params['up']", 1, 3000, 3000, 7.0)],
    )
    assert groups() == ("collectives", [(None, 1, 12000, 12000, 28.0)])
    out = cli("collectives", path).out
    assert "params['up'], params['down']" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--by", ","], "--by names nothing to group by"),
        (["--by", "lop"], "no column 'lop' to group by; did you mean 'loop'?"),
        (["--by", "xyzzy"], "no column 'xyzzy' to group by; there are loop, phase, kind, axis,"),
        (["--kind", "all-gether"], "no kind 'all-gether'; did you mean 'all-gather'?"),
        (["--phase", "back"], "no phase 'back'; there are fwd, bwd, remat, other"),
        (["--loop", "lop"], "no collective is in a loop 'lop'; did you mean 'loop'?"),
        (["--loop", "xyzzy"], "no collective is in a loop 'xyzzy'; there are loop"),
        (["--spec", "h110"], "no device spec h110; did you mean h100?"),
        (["--spec", "none.toml"], "spec none.toml: No such file or directory"),
    ],
)
def test_what_is_not_there_is_an_error_that_says_what_is(
    cli: Cli, loop: Path, args: list[str], said: str
) -> None:
    ran = cli("collectives", loop, *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"hlolens: error: {said}")


def test_filters_leave_out_and_say_of_how_many(cli: Cli) -> None:
    folder = LLAMA / "full-published" / "rocm-gfx950-8"
    everything = data(cli, folder)["collectives"]
    assert isinstance(everything, list)

    def names(*args: str) -> list[object]:
        found = data(cli, folder, *args)["collectives"]
        assert isinstance(found, list)
        return [row["name"] for row in found]

    def having(**values: object) -> list[object]:
        return [row["name"] for row in everything if values.items() <= row.items()]

    assert names("--kind", "AG") == having(logical_kind="all-gather") != having()
    assert names("--phase", "remat") == having(phase="remat") != []
    assert names("--loop", "while.37") == having(loop_name="while.37") != []
    assert names("--loop", "while*") == [
        row["name"] for row in everything if row["loop"] is not None
    ]
    assert names("--loop", "none") == having(loop=None) != []
    assert names("--phase", "none") == having(phase=None) != []
    assert set(names("--phase", "fwd,bwd")) == {*having(phase="fwd"), *having(phase="bwd")}
    out = cli("collectives", folder, "--kind", "all-gather").out
    assert re.search(r"in 3 of 9\s+collectives", out)
    out = cli("collectives", folder, "--kind", "cp").out
    assert "nothing: there are no collectives like that; 9 are left out" in out


def test_a_loop_holds_what_is_in_the_loops_in_it(cli: Cli) -> None:
    folder = LLAMA / "full-accumulated" / "rocm-gfx950-8"
    rows = data(cli, folder)["collectives"]
    assert isinstance(rows, list)
    deep = next(row for row in rows if row["loop_depth"] == 2)
    groups = data(cli, folder, "--by", "loop")["groups"]
    assert isinstance(groups, list)
    outer = next(group["loop"] for group in groups if "›" in str(group["loop"])).split(" ×")[0]
    found = data(cli, folder, "--loop", outer)["collectives"]
    assert isinstance(found, list)
    assert deep["name"] in {row["name"] for row in found}
    assert len(found) < len(rows)


# ---------------------------------------------------------------------------------- specs


def test_the_compile_says_for_which_device(cli: Cli) -> None:
    folder = LLAMA / "none-v6e" / "tpu-v6e-8"
    assert data(cli, folder)["spec"] == {"name": "v6e", "from": "side_file"}
    assert data(cli, folder, "--spec", "v5p")["spec"] == {"name": "v5p", "from": "user"}


def test_a_spec_is_asked_for_in_the_environment_too_and_is_left_as_it_was(
    cli: Cli, loop: Path, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOLENS_SPEC", "v6e")
    assert data(cli, loop)["spec"] == {"name": "v6e", "from": "user"}
    assert data(cli, loop, "--spec", str(toy))["spec"] == {"name": "toy", "from": "user"}
    assert os.environ["HLOLENS_SPEC"] == "v6e"
    monkeypatch.delenv("HLOLENS_SPEC")
    data(cli, loop, "--spec", "v6e")
    assert "HLOLENS_SPEC" not in os.environ


def test_an_unknown_spec_of_the_environment_is_told_among_the_findings(
    cli: Cli, loop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOLENS_SPEC", "h110")
    ran = cli("collectives", loop)
    assert ran.code == 0
    assert "estimate  none: the spec that is asked for is not known" in ran.out
    assert "warning spec-broken  no device spec h110; did you mean h100?" in ran.out


def test_the_config_holds_a_spec_for_all_verbs_or_for_this_one(
    cli: Cli, loop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(loop.parent)
    config = loop.parent / "hlolens.toml"
    config.write_text('spec = "b200"\n')
    assert data(cli, loop)["spec"] == {"name": "b200", "from": "user"}
    assert cli("query", loop, "select distinct spec from collective_costs").out.endswith("b200\n")
    config.write_text('[collectives]\nspec = "h200"\nby = "dtype"\n')
    found = data(cli, loop)
    assert (found["spec"], found["by"]) == ({"name": "h200", "from": "user"}, ["dtype"])


# ---------------------------------------------------------------------------------- findings


def test_findings_about_collectives_stand_last_and_those_of_others_do_not(loop: Path) -> None:
    rule = Rule("gather-twice", "warning", "It gathers twice.", "Once would do.")
    other = Rule("not-about-it", "error", "Something else.", "Something else.")
    about = [
        Finding(rule.id, "warning", "light is gathered twice", 0, 0, (("collectives", 1),)),
        Finding(rule.id, "warning", "sync is gathered twice", 0, 0, (("collectives", 3),)),
        Finding(other.id, "error", "a loop is slow", 0, 0, (("loops", 0),)),
    ]
    own = toy_table("twice", Column("collective", "int", "volatile", "id of a collective"))
    rows: list[dict[str, object]] = [{"module": 0, "instr": 0, "collective": 2}]
    about.append(Finding(rule.id, "note", "bare is gathered twice", 0, 0, (("twice", 0),)))
    toy = Toy(
        "toy",
        (own,),
        lambda *_: PassResult({"twice": rows}, (), about),
        ("collectives",),
        (rule, other),
    )
    built_in = [one for one in discover_passes().passes if one.name in PRICED]
    passes = [*built_in, toy]
    text = plain(as_lines(collectives_report(Facts(Program([parse(LOOP)]), passes))))
    assert text.splitlines()[-3:] == [
        "warning gather-twice  light is gathered twice",
        "warning gather-twice  sync is gathered twice",
        "note gather-twice  bare is gathered twice",
    ]
    assert "a loop is slow" not in text
    none = collectives_report(
        Facts(Program([parse(LOOP)]), passes), filters=Filters(kinds=("all-reduce",))
    )
    assert none.findings == ()


# ---------------------------------------------------------------------------------- formats


def test_json_has_exact_numbers_and_bounds(cli: Cli, loop: Path, toy: Path) -> None:
    found = data(cli, loop, "--spec", str(toy), "--top", "1")
    assert found["schema_version"] == 1
    assert (found["name"], found["stage"]) == ("m", "after_optimizations")
    assert found["by"] == ["loop", "phase", "logical_kind"]
    assert found["groups"] == [
        {
            "loop": "loop ×5",
            "phase": None,
            "logical_kind": "all-gather",
            "count": 4,
            "runs": 20,
            "sent_bytes": 60000,
            "exposed_bytes": 30000,
            "over_light_work_bytes": 15000,
            "over_heavy_work_bytes": 15000,
            "estimate_us": 380.0,
            "exposed_us": {"min": 190.0, "max": 380.0},
        }
    ]
    rows = found["collectives"]
    assert isinstance(rows, list)
    assert [(row["name"], row["rank"], row["wire_bytes"]) for row in rows] == [
        ("light", 1, 3000), ("bare", 2, 3000), ("sync", 3, 3000), ("heavy", 4, 3000),
    ]  # fmt: skip
    costs = set(discover_passes().table("collective_costs").names)
    assert set(rows[0]) == costs | set(table().names)
    assert isinstance(found["findings"], list)


def test_csv_has_the_groups(cli: Cli, loop: Path, toy: Path) -> None:
    ran = cli("collectives", loop, "--spec", toy, "--format", "csv", "--by", "name,is_sync")
    assert (ran.code, ran.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [row["name"] for row in rows] == ["light", "bare", "sync", "heavy"]
    assert [row["is_sync"] for row in rows] == ["", "", "1", ""]
    one = rows[0]
    assert (one["sent_bytes_min"], one["sent_bytes_max"]) == ("15000", "15000")
    assert (one["exposed_us_min"], one["exposed_us_max"]) == ("0.0", "95.0")


def test_markdown_has_the_same_and_a_file_takes_it(cli: Cli, loop: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.md"
    ran = cli("collectives", loop, "--format", "markdown", "-o", path)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    text = path.read_text()
    assert text.startswith("## m: collectives\n")
    for title in ("### By loop, phase, operation", "### Exposed and overlapped", "### Look at"):
        assert title in text
    widths = {
        len(re.findall(r"(?<!\\)\|", line))
        for line in text.split("### Look at")[1].splitlines()
        if line.startswith("|")
    }
    assert len(widths) == 1


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_number_is_cut_where_it_is_narrow(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = cli("collectives", LLAMA / "full-published" / "rocm-gfx950-8").out
    for text in ("10.6 GiB", "437.9 MiB", "551.3 MiB", "32.2 GiB"):
        assert text in out
    if width >= 80:
        assert max(map(len, out.splitlines()[1:])) <= width


def test_bad_input_is_a_sentence(cli: Cli, tmp_path: Path) -> None:
    ran = cli("collectives", tmp_path / "none.hlo")
    assert (ran.code, ran.out) == (2, "")
    assert "no such file or folder" in ran.err
    assert cli("collectives", tmp_path, "--top", "-1").code == 2


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_file_holds_does_not_act(cli: Cli, tmp_path: Path, payload: str) -> None:
    path = tmp_path / "hostile.hlo"
    path.write_bytes(TEXT.replace("@", PAYLOADS[payload]).encode())
    for form in ("text", "markdown", "json", "csv"):
        ran = cli("collectives", path, "--by", "name,source", "--format", form)
        assert ran.code == 0
        assert form in ("json", "csv") or ACTS.search(ran.out) is None
        assert "<script" not in ran.out or form in ("json", "csv", "text")


def test_times_for_people() -> None:
    assert [time_text(n) for n in (0, 999, 1000, 1_500_000, 999_949_000, 999_950_000)] == [
        "0 ns", "999 ns", "1.0 µs", "1.5 ms", "999.9 ms", "1.0 s",
    ]  # fmt: skip


def test_the_shell_completes_keys_behind_a_comma(tmp_path: Path) -> None:
    def offered(begun: str) -> list[str]:
        environment = {
            **os.environ,
            "_HLOLENS_COMPLETE": "bash_complete",
            "COMP_WORDS": f"hlolens collectives x --by {begun}",
            "COMP_CWORD": "4",
        }
        done = subprocess.run(
            [sys.executable, "-m", "hlo_lens"],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return [line.partition(",")[2] for line in done.stdout.split()]

    assert "phase" in offered("ph")
    assert "loop,kind" in offered("loop,ki")
    assert offered("loop,zz") == []


# ---------------------------------------------------------------------------------- real texts


@shared.needs_shared
@pytest.mark.parametrize("name", ["cuda_h100_fullspec.fsdp", "rocm_gfx950.fsdp"])
def test_the_bytes_of_a_step_are_those_of_the_table(cli: Cli, name: str) -> None:
    (path,) = shared.texts(f"dumps/gpu-aot/{name}.after_optimizations.txt")
    found = data(cli, path, "--spec", "h100")
    rows, total = found["collectives"], found["total"]
    assert isinstance(rows, list)
    assert isinstance(total, dict)
    assert total["sent_bytes"] == sum(row["wire_bytes"] * row["executions"] for row in rows)
    parts = ("exposed_bytes", "over_light_work_bytes", "over_heavy_work_bytes")
    assert sum(total[part] for part in parts) == total["sent_bytes"]


# ---------------------------------------------------------------------------------- the page


@pytest.mark.parametrize(
    "block", list(BLOCK.finditer(PAGE.read_text())), ids=lambda block: block["command"]
)
def test_an_output_on_the_page_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        assert block["output"] == output_of(block["command"], block["lines"], block["code"]), (
            "`python -m tests.test_readme docs/ranking.md` puts it in place; look at what changed"
        )


def test_the_page_names_every_built_in_spec_with_its_numbers() -> None:
    from hlo_lens_passes._device_specs import known_specs

    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    found = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    for spec in known_specs()[0]:
        assert spec.fast is not None
        fast = spec.fast.link_bandwidth or 0
        slow = spec.slow.link_bandwidth if spec.slow else None
        assert found[spec.name][0] == f"{spec.devices:,}"
        assert found[spec.name][1] == f"{spec.fast.links} × {fast / 1e9:g} GB/s"
        assert found[spec.name][2] == ("–" if slow is None else f"{slow / 1e9:g} GB/s")
