"""The incumbents recast in `examples/gate/`: each file holds of the program that it is for, fails
where the thing is broken, and is not moved by how the text is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from hlo_lens.check.judging import judge
from hlo_lens.check.model import Expectation, Outcome
from hlo_lens.check.reading import read_file
from hlo_lens.facts import Facts, discover_passes
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests.mutate import harmful, harmless
from tests.test_readme import BLOCK, at_root, output_of

ROOT = Path(__file__).resolve().parents[1]
GATE = ROOT / "examples" / "gate"
HLO = ROOT / "fixtures" / "hlo"
AFTER = "after_optimizations"

# Of a large text these are tried: the others cost seconds each, and rewrite what the gate does not
# read.
ABOUT_GROUPS = ("rename", "groups-as-lists", "groups-as-iotas", "groups-as-meshes")


@dataclass(frozen=True)
class Recast:
    """What a file of `examples/gate` says of programs.

    passes: programs of which all of it holds; the first is rewritten. fails: a program and an id
    that fails on it. harmful: a rewrite of tests/mutate.py and an id that fails after it.
    needs_metadata: the ids that are not judged without op_names. harmless: the rewrites tried, ()
    for all.
    """

    passes: tuple[str, ...]
    fails: Mapping[str, str]
    harmful: Mapping[str, str] = field(default_factory=dict)
    needs_metadata: frozenset[str] = frozenset()
    harmless: tuple[str, ...] = ()


def on(path: str, *targets: str) -> tuple[str, ...]:
    return tuple(f"{path}/{target}" for target in targets)


def of(path: str, said: str, *targets: str) -> dict[str, str]:
    return dict.fromkeys(on(path, *targets), said)


EIGHT = ("cuda-h100-8", "rocm-gfx950-8", "tpu-v6e-8")
SINGLE = ("cuda-h100", "rocm-gfx950", "tpu-v6e-1", "cpu")
V6E, V7X, ROCM, CUDA, HAND = "tpu-v6e-1", "tpu-tpu7x-8", "rocm-gfx950", "cuda-h100", "hand-made"

RECAST = {
    "maxtext_identity": Recast(
        passes=("../demo/fsdp_train_step.opt.hlo",),
        fails=of("llama/full-tensor", "work of a step", "rocm-gfx950-8"),
        harmful={
            "change-trip-counts": "work of a step",
            "change-groups": "traffic of a step",
            "change-dtypes": "kept for the backward",
        },
        needs_metadata=frozenset(
            ("attention forward, its replay", "attention backward", "kept for the backward")
        ),
    ),
    "maxtext_all_gather": Recast(
        passes=on("moe/expert-parallel-train", "rocm-gfx950-8", "tpu-v6e-8"),
        fails={
            **of("llama/full-tensor", "activations are not gathered", "rocm-gfx950-8"),
            **of("llama/full-accumulated", "no ring", "rocm-gfx950-8"),
            **of("plain/fsdp", "activations travel by all-to-all", *EIGHT),
        },
        needs_metadata=frozenset(
            ("activations are not gathered", "activations travel by all-to-all")
        ),
    ),
    "maxtext_gradient_accumulation": Recast(
        passes=on("plain/accumulation-reduced-once", "rocm-gfx950-8", "cuda-h100-8", "tpu-v6e-8"),
        fails={
            **of("plain/accumulation-reduced-each", "gradients are reduced once a step", *EIGHT),
            **of("llama/full-accumulated", "gradients are reduced once a step", "rocm-gfx950-8"),
            # no device to sum over: nothing is selected, and that does not pass
            **of("plain/accumulation-scanned", "gradients are reduced once a step", *SINGLE),
        },
        harmful={
            "into-loop psum.7.1": "gradients are reduced once a step",
            "change-trip-counts": "there is a loop over the microbatches",
        },
    ),
    "maxtext_5799_query_gather": Recast(
        passes=(
            *on("pairs/hand-query-gather-once", HAND),
            *on("pairs/hand-query-queue-once", HAND),
        ),
        fails={
            **of("pairs/hand-query-gather-twice", "nothing is gathered twice in one pass", HAND),
            **of("pairs/hand-query-gather-constrained", "the gradient stays scattered", HAND),
            **of("pairs/hand-query-queue-twice", "the gather waits for no other collective", HAND),
            **of("pairs/query-gather-twice", "nothing is gathered twice in one pass", V7X),
        },
        harmful={
            "into-loop gathered": "and in each of the four layers",
            "change-trip-counts": "and in each of the four layers",
            "drop-edge part 0": "the gradient stays scattered",
        },
        needs_metadata=frozenset(
            (
                "one gather of the query weight in a layer's backward",
                "and in each of the four layers",
                "the gradient stays scattered",
                "nothing is gathered twice in one pass",
            )
        ),
    ),
    "maxtext_5799_fake_quant": Recast(
        passes=on("pairs/fake-quant-gather8", V7X),
        fails={
            **of("pairs/fake-quant-in-loop", "absmax is reduced in front of the layers", V7X),
            **of("pairs/fake-quant-absmax", "bytes that are gathered in a step", V7X),
            **of("pairs/fake-quant-late", "codes are gathered", V7X),
            **of("pairs/fake-quant-uint8", "by the SparseCore", V7X),
        },
        harmful={
            "change-dtypes": "codes are gathered",
            "change-trip-counts": "bytes that are gathered in a step",
        },
    ),
    "maxtext_5799_positions": Recast(
        passes=on("pairs/positions-saved", V7X),
        fails={
            **of("pairs/positions-replayed", "the backward exchanges no ids", V7X),
            **of("pairs/positions-natural", "the backward reorders no ids", V7X),
        },
        needs_metadata=frozenset(("the backward exchanges no ids", "the backward reorders no ids")),
    ),
    "maxtext_5799_kernels": Recast(
        passes=on("moe/megablox-layer", V6E),
        fails={
            **of("moe/ragged-layer", "each grouped product is a kernel", V6E, ROCM, CUDA, "cpu"),
            **of("moe/ragged-layer-fused", "no other kernel", V6E),
        },
        needs_metadata=frozenset(
            (
                "each grouped product is a kernel",
                "forward, one for each projection",
                "gradients of the rows, one for each projection",
                "gradients of the weights, one for each projection",
            )
        ),
    ),
    "maxtext_5474_norm_scales": Recast(
        passes=(
            *on("pairs/hand-norm-scale-hoisted", HAND),
            *on("pairs/norm-scale-f32", "tpu-v6e-8"),
        ),
        fails={
            **of("pairs/hand-norm-scale-in-loop", "reduced behind the layers", HAND),
            **of("pairs/hand-norm-scale-wrong", "reduced behind the layers", HAND),
            **of("pairs/norm-scale-sharded", "reduced behind the layers", "tpu-v6e-8"),
            **of("pairs/norm-scale-bf16", "in f32", "tpu-v6e-8"),
        },
        harmful={"into-loop gradient": "reduced behind the layers", "change-dtypes": "in f32"},
    ),
    "maxtext_5474_routing_sort": Recast(
        # XLA for GPUs makes a scatter of the second argsort itself
        passes=(
            *on("pairs/unsort-scatter", V6E, ROCM),
            *on("pairs/unsort-argsort", ROCM),
        ),
        fails={
            **of("pairs/unsort-argsort", "no sort of a sorted order", V6E),
            **of("pairs/unsort-same", "rows go back by a scatter", V6E, ROCM),
        },
        needs_metadata=frozenset(("rows go back by a scatter", "no sort of a sorted order")),
    ),
    "maxtext_5474_backward_weight": Recast(
        passes=on("pairs/backward-weight-native-f16", ROCM),
        fails={
            **of("pairs/backward-weight-transposed-f16", "no copy of a weight", ROCM),
            # the TPU kernel has the weight copied either way
            **of("pairs/backward-weight-native", "no copy of a weight", V6E),
        },
        needs_metadata=frozenset(("the product is grouped",)),
    ),
    "maxtext_5474_fused_weight": Recast(
        passes=(
            *on("pairs/fused-weight-split", ROCM, V6E),
            *on("pairs/fused-weight-whole", ROCM, V6E),
        ),
        fails=of("pairs/fused-weight-sliced", "no copy of the fused weight", ROCM, V6E),
        harmful={"change-trip-counts": "there are layers in a loop"},
        needs_metadata=frozenset(("no copy of the fused weight",)),
    ),
    "maxtext_5474_gate_split": Recast(
        passes=on("pairs/gate-split-concat", ROCM),
        fails={
            **of("pairs/gate-split-pad", "no padded gradients", ROCM, V6E),
            # a TPU writes a concatenation as pads
            **of("pairs/gate-split-concat", "no padded gradients", V6E),
        },
        needs_metadata=frozenset(("one array is joined",)),
    ),
    "maxtext_5474_embedding": Recast(
        passes=on("pairs/embedding-gather", ROCM, V6E),
        fails=of("pairs/embedding-one-hot", "no one-hot product", ROCM, V6E),
        needs_metadata=frozenset(("rows are gathered", "their gradients are scattered")),
    ),
    "transformer_engine_collective_bytes": Recast(
        # one all-reduce of a tuple, of one array, in an async wrapper: the bytes are the same
        passes=on("plain/layer-norm", "cuda-h100-8", "cpu-8", "rocm-gfx950-8", "tpu-v6e-8"),
        fails={
            **of("plain/fsdp", "nothing is gathered", *EIGHT),
            **of("plain/tensor-parallel", "bytes that are reduced", *EIGHT),
            **of("plain/data-parallel", "bytes that are reduced", *EIGHT),
            **of("moe/expert-parallel-train", "nothing else is sent", "rocm-gfx950-8"),
        },
        harmful={"change-dtypes": "bytes that are reduced", "change-groups": "over all devices"},
    ),
    "axlearn_attention_once": Recast(
        passes=(
            *on("attention/cudnn-saved", CUDA),
            *on("attention/splash-saved", V6E),
            *on("attention/triton-train", CUDA),
            *on("attention/triton-train-gfx950", ROCM),
            *on("attention/te-train", ROCM),
        ),
        fails={
            **of("attention/cudnn-full-remat", "its forward is not replayed", CUDA),
            **of("attention/cudnn-context", "its forward is not replayed", CUDA),
            **of("attention/triton-full-remat", "its forward is not replayed", CUDA),
            **of("attention/triton-full-remat-gfx950", "its forward is not replayed", ROCM),
            **of("attention/splash-full-remat", "its forward is not replayed", V6E),
            **of("attention/xla-train", "attention is a kernel", *SINGLE),
            **of("attention/cudnn", "there is a backward kernel", CUDA),
            # no attention at all: nothing is selected, and that does not pass
            **of("remat/full", "its forward is not replayed", *SINGLE),
        },
        needs_metadata=frozenset(
            ("attention is a kernel", "its forward is not replayed", "there is a backward kernel")
        ),
    ),
    "axlearn_dots_saved": Recast(
        passes=(
            *on("remat/dots-saveable", *SINGLE),
            *on("remat/dots-saveable-scanned", *SINGLE),
            *on("remat/named-scanned", *SINGLE),
        ),
        fails={
            **of("remat/full", "no matmul is replayed", *SINGLE),
            **of("remat/full-scanned", "no matmul is replayed", *SINGLE),
            **of("remat/mistyped-scanned", "no matmul is replayed", *SINGLE),
            **of("plain/scanned", "there is a backward", *SINGLE),
        },
        needs_metadata=frozenset(("no matmul is replayed", "there is a backward")),
    ),
    "jax_aiter_calls": Recast(
        passes=on("attention/aiter-train", ROCM),
        fails={
            **of("attention/aiter", "one backward call", ROCM),
            **of("attention/te-train", "one forward call", ROCM),
            **of("attention/xla-train", "every attention is a call", ROCM),
        },
        needs_metadata=frozenset(("every attention is a call",)),
    ),
    "jax_aiter_gate_up": Recast(
        passes=("../../examples/gate/hlo/gate_up_fused.hlo",),
        fails={
            "../../examples/gate/hlo/gate_up_apart.hlo": "products",
            **of("remat/none", "no product is elsewhere", *SINGLE),
        },
        harmful={"into-loop y": "products"},
    ),
    "jax_collective_groups": Recast(
        passes=on("llama/full-tensor", "rocm-gfx950-8"),
        fails=of("llama/full-accumulated", "weights are gathered over fsdp", "rocm-gfx950-8"),
        harmful={
            "change-groups": "activations are summed over tensor",
            "change-trip-counts": "twice forward, once in the replay, twice backward",
        },
        harmless=ABOUT_GROUPS,
    ),
}

by_name = pytest.mark.parametrize("name", RECAST)


@cache
def expectations(name: str) -> tuple[Expectation, ...]:
    return tuple(read_file(GATE / f"{name}.toml", discover_passes()))


def outcomes(name: str, program: Program) -> dict[str, Outcome]:
    return {one.id: one.outcome for one in judge(Facts(program), expectations(name))}


def first_texts(name: str) -> dict[str, str]:
    """The texts that are rewritten, by stage: those of the first program that the file reads."""
    path = HLO / RECAST[name].passes[0]
    if path.is_file():
        return {AFTER: path.read_text()}
    stages = sorted({one.stage or AFTER for one in expectations(name)}, reverse=True)
    return {stage: (path / f"{stage}.txt").read_text() for stage in stages}


def harmless_programs(name: str) -> Iterator[tuple[str, Program]]:
    """(rewrite, the program with every stage rewritten so) for each rewrite that applies to all."""
    texts = first_texts(name)
    rewritten = {stage: dict(harmless(text)) for stage, text in texts.items()}
    for rewrite in set.intersection(*map(set, rewritten.values())):
        modules = [parse(each[rewrite]) for each in rewritten.values()]
        yield rewrite, Program(modules, list(rewritten))


def test_every_file_is_here_and_in_the_readme() -> None:
    files = {path.stem for path in GATE.glob("*.toml")}
    assert files == set(RECAST)
    readme = (GATE / "README.md").read_text()
    assert [name for name in files if f"({name}.toml)" not in readme] == []


@pytest.mark.parametrize(
    "block", list(BLOCK.finditer((GATE / "README.md").read_text())), ids=lambda one: one["command"]
)
def test_what_the_readme_shows_is_printed(block: re.Match[str]) -> None:
    with at_root():
        assert block["output"] == output_of(block["command"], block["lines"], block["code"])


def test_programs_that_the_readme_names_are_those_tried_here() -> None:
    """`pairs/positions-saved`, and `-replayed` for what has another end."""
    tried = {path for one in RECAST.values() for path in (*one.passes, *one.fails)}
    cases = {path.rpartition("/")[0] for path in tried}
    named = set(re.findall(r"`((?:\w+/)?[\w-]*[a-z0-9])`", table_and_lists()))
    unknown = {
        name
        for name in named
        if ("/" in name or name.startswith("-")) and not any(one.endswith(name) for one in cases)
    }
    assert unknown == set()


def table_and_lists() -> str:
    """The lines of the README that say what a file holds of and fails on."""
    text = (GATE / "README.md").read_text()
    return text[text.index("### MaxText: is it") : text.index("What a text cannot show")]


@by_name
def test_all_of_it_holds_of_the_programs_it_is_for(name: str) -> None:
    for path in RECAST[name].passes:
        found = outcomes(name, load(str(HLO / path)))
        assert set(found.values()) == {"passed"}, (path, found)


@by_name
def test_where_the_thing_is_broken_it_fails(name: str) -> None:
    for path, said in RECAST[name].fails.items():
        assert outcomes(name, load(str(HLO / path)))[said] == "failed", path


@by_name
def test_how_the_text_is_written_moves_no_verdict(name: str) -> None:
    """Without metadata what needs it is not judged, and nothing fails."""
    recast = RECAST[name]
    tried = 0
    for rewrite, program in harmless_programs(name):
        if recast.harmless and rewrite not in recast.harmless:
            continue
        wanted = dict.fromkeys((one.id for one in expectations(name)), "passed")
        if rewrite == "strip-metadata":
            wanted |= dict.fromkeys(recast.needs_metadata, "not judged")
        assert outcomes(name, program) == wanted, rewrite
        tried += 1
    assert tried >= 4


@pytest.mark.parametrize("name", [name for name in RECAST if RECAST[name].harmful])
def test_a_harmful_rewrite_fails(name: str) -> None:
    missing = dict(RECAST[name].harmful)
    ((_, first),) = first_texts(name).items()
    for rewrite, text in harmful(first):
        if (said := missing.pop(rewrite, None)) is not None:
            assert outcomes(name, Program([parse(text)]))[said] == "failed", rewrite
        if not missing:
            break
    assert missing == {}, "no such rewrite of this text"


@by_name
def test_what_is_expected_is_said_once_and_why(name: str) -> None:
    """A few lines each: no file is a golden text, and each says why it is there."""
    lines = (GATE / f"{name}.toml").read_text().splitlines()
    assert lines[0].startswith("# ")
    assert any(one.because for one in expectations(name))
    assert len(expectations(name)) <= 8
