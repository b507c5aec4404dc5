"""The fast path gives what the full scanner gives, on every text."""
# ruff: noqa: E501 (texts stay as they are written)

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hlo_lens.hlo import HloParseError, Instruction, Module, parse
from tests.hlo.features import FEATURES
from tests.hlo.module_generator import module_text
from tests.hlo.test_property import damaged
from tests.shared import needs_shared, texts, unpacked


def columns(module: Module) -> list[object]:
    """Everything that the reader itself decides."""
    rows: list[object] = [module.name, dict(module.header), module.frames_text, module.repairs]
    for computation in module.computations:
        rows.append(
            [
                (computation.name, computation.text_line, computation.execution_thread),
                (computation.is_entry, computation.root_index, computation.first_id),
            ]
        )
        rows += [
            (
                instruction.name,
                instruction.opcode,
                instruction.shape_text,
                instruction.argument_text,
                attributes(instruction),
                [(operand.index, operand.name) for operand in instruction.operands],
                calls(instruction),
                instruction.text_line,
            )
            for instruction in computation.instructions
        ]
    return rows


def attributes(instruction: Instruction) -> dict[str, str] | None:
    try:
        return dict(instruction.attributes)
    except ValueError:  # a broken value, which only shows when it is asked for
        return None


def calls(instruction: Instruction) -> list[tuple[str, list[str]]]:
    return [(key, [each.name for each in found]) for key, found in instruction.called_by.items()]


def agree(text: str) -> None:
    """Where the full scanner reads, the fast path gives the same; else nothing but HloParseError.

    Values are read when asked for. So the fast path may leave a broken one for then.
    """
    try:
        expected = parse(text, fast=False)
    except HloParseError:
        with suppress(HloParseError):
            parse(text)
        return
    assert columns(parse(text)) == columns(expected)


@pytest.mark.parametrize("name", FEATURES)
def test_features(name: str) -> None:
    agree(FEATURES[name].text)


@pytest.mark.parametrize("seed", range(200))
def test_random_modules(seed: int) -> None:
    agree(module_text(random.Random(seed)))


@pytest.mark.parametrize("seed", range(100))
def test_printed_random_modules(seed: int) -> None:
    agree(parse(module_text(random.Random(seed)), fast=False).to_text())


# What opens a string, a comment or a body reaches over lines, where it is damaged: the fast path
# then gives the lines behind it, the full scanner what the damage has made of them.
OPENING = "{}\"'\\/*"


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_damaged_modules(r: random.Random) -> None:
    text = parse(module_text(r, instructions=5), fast=False).to_text()
    agree(damaged(text, r, keep=OPENING))


@pytest.mark.parametrize(
    "line",
    [
        "  ROOT %r = f32[4]{0} reduce(%p, %p), to_apply={\n  %a = f32[] parameter(0)\n}",
        "  ROOT %r = f32[4]{0} map(%p), to_apply={ // ( comment\n  %a = f32[] parameter(0)\n}",
        '  ROOT %r = f32[4]{0} copy(%p), metadata={op_name="\n}\n\n%f {\n"}',
        '  ROOT %r = f32[4]{0} copy(%p), metadata={op_name="\\"\n}\n\n%f {\n  %x = f32[] copy(%y)"}',
        "  ROOT %r = f32[4]{0} copy(%p) /*\n  %x = f32[] copy(%p)\n*/",
        "  ROOT %r = f32[4]{0} copy(%p) // %x = f32[] copy(%p)",
        "  ROOT %r = f32[4]{0} copy(%p), metadata={op_name=\"a = b\"} %s = f32[4]{0} copy(%p)",
        "  ROOT %r = f32[4]{0} copy(%p) %s = f32[4]{0} copy(%p)",
        "  %q = f32[4]{0} add(%p, f32[4]{0} negate(%p))\n  ROOT %r = f32[4]{0} copy(%q)",
        "  %q = (f32[4]{0}, f32[4]{0}) tuple(%p, %p)\n  ROOT %r = f32[4]{0} copy(%q#1)",
        "  %q = f32[4]{0} copy(%r)\n  ROOT %r = f32[4]{0} copy(%p)",
        "  ROOT %r = f32[4]{0} copy(null)",
        "  ROOT %r = f32[4]{0} add(%p, ...(+12))",
        "  ROOT %r = f32[4]{0} add(f32[4]{0} %p, p)",
        "  ROOT %r = f32[4]{0} add(%p %p)",
        "  ROOT %r = f32[4]{0} add(%p,, %p)",
        "  ROOT %r = f32[4]{0} add(%p, %p,)",
        "  ROOT %r = f32[4]{0} add(,%p)",
        "  %p = f32[4]{0} copy(%p)",
        "  ROOT %q = f32[4]{0} copy(%p)\n  ROOT %r = f32[4]{0} copy(%p)",
        "  ROOT %r = f32[4]{0} copy(%p), metadata={op_name=\"x\"",
        "  ROOT %r = f32[4]{0} copy(%p), metadata=",
        "  ROOT %r = f32[4]{0} copy(%p),",
        "  ROOT %r = f32[4]{0} copy(%p) metadata={}",
        "  ROOT %r = f32[4]{0} copy(%p), a=1, a=2",
        '  ROOT %r = s8[] constant("}")',
        "  ROOT %r = f32[4]{0} constant({1, 2, 3, 4})",
        "  ROOT %r = f32[2,2]{1,0} constant({ { 1, 2 },\n    { 3, 4 } })",
        "  ROOT %r = (f32[4]{0:T(8)S(1)}, /*index=1*/ s32[]{:T(128)}) custom-call(%p), a=(b, [c])",
        "  ROOT %r = f32[4] {0} copy(%p)",
        "  ROOT %r = copy(%p)",
        "  ROOT %r = f32[4]{0} copy(%p), calls=%f, %g",
        "  ROOT %r = f32[4]{0} copy(%p), x='a, \"b', y=1",
        "  ROOT %r = f32[4]{0} copy(%p), control-predecessors={%p}\r",
        "\n  ROOT %r = f32[4]{0} copy(%p)\n",
        "\tROOT %r = f32[4]{0} copy(%p)",
        "  ROOT %r = f32[4]{0} copy(%p);",
        "ROOT %r = f32[4]{0} copy(%p)",
    ],
)  # fmt: skip
def test_lines_that_are_nearly_in_printed_form(line: str) -> None:
    for end in ("\n}\n", "\n}", "\n}\n\n", "\n} // e\n", "}\n", "\n", ""):
        agree(
            "HloModule m\n\nENTRY %e (p: f32[4]) -> f32[4] {\n"
            f"  %p = f32[4]{{0}} parameter(0)\n{line}{end}"
        )


@needs_shared
def test_real_texts() -> None:
    paths = [*texts("cases/*.hlo", "dumps/gpu-aot/*.txt"), *texts("gfx950/**/*.txt")[::9]]
    assert len(paths) > 40
    for path in paths:
        agree(path.read_text())


@needs_shared
def test_a_sample_of_the_corpus() -> None:
    folder = unpacked("corpus/hlo-corpus.tar.xz")
    paths = sorted((folder / "valid").iterdir())[::40] + sorted((folder / "other").iterdir())
    for path in paths:
        agree(path.read_bytes().decode("utf-8", "surrogateescape"))


@needs_shared
def test_a_tpu_dump() -> None:
    folder = unpacked("dumps/tpu-maxtext.tar.xz")
    for path in sorted(folder.rglob("*.hlo")):
        if path.stat().st_size < 500_000:
            agree(path.read_text())


@needs_shared
def test_damaged_real_texts() -> None:
    r = random.Random(0)
    for path in texts("cases/*.hlo"):
        text = path.read_text()
        for _ in range(6):
            agree(damaged(text, r, keep=OPENING))


OPENED = {
    "a string": ('backend_config="x', 'y="'),
    "a string at its end": ('backend_config="', 'y=z"'),
    "a configuration": ("backend_config={x", "y=z}"),
    "a comment": ("a=1 /* c", "b=1 */"),
    "a comment in braces": ("a={1 /* c", "b=1 */}"),
}


@pytest.mark.parametrize("what", OPENED)
def test_what_goes_on_behind_its_line_hides_what_looks_like_instructions(what: str) -> None:
    first, last = OPENED[what]
    text = f"""HloModule m

ENTRY %e (p: f32[2]) -> f32[2] {{
  %p = f32[2] parameter(0)
  %a = f32[2] custom-call(%p), {first}
  %hidden = f32[2] negate(%p), {last}
  ROOT %r = f32[2] add(%p, %p)
}}
"""
    agree(text)
    assert list(parse(text).entry.names) == ["p", "a", "r"]
