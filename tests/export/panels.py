"""A small program and a panel of it made by hand, for the tests of every format."""

from __future__ import annotations

from hlo_lens.figure.model import Cluster, Edge, Node, Panel
from hlo_lens.hlo import Instruction, Module, parse
from hlo_lens.program import Program

# A loop of three iterations whose body has a fusion; a reducer that two instructions share.
TEXT = """HloModule step, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%fused (p: f32[8,8], q: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8] parameter(0)
  %q = f32[8,8] parameter(1)
  ROOT %d = f32[8,8] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (t: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %t = (s32[], f32[8,8]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8,8] get-tuple-element(%t), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[8,8] fusion(%x, %x), kind=kOutput, calls=%fused, metadata={op_name="jit(f)/jvp(layer)/dot_general" source_file="layer.py" source_line=7}
  ROOT %r = (s32[], f32[8,8]) tuple(%next, %y)
}

%cond (t: (s32[], f32[8,8])) -> pred[] {
  %t = (s32[], f32[8,8]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant(3)
  ROOT %go = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (p: f32[8,8]) -> f32[] {
  %p = f32[8,8] parameter(0)
  %zero = s32[] constant(0)
  %init = (s32[], f32[8,8]) tuple(%zero, %p)
  %loop = (s32[], f32[8,8]) while(%init), condition=%cond, body=%body
  %out = f32[8,8] get-tuple-element(%loop), index=1
  %f = f32[] constant(0)
  %row = f32[8] reduce(%out, %f), dimensions={1}, to_apply=%sum
  %all = f32[8] all-reduce(%row), replica_groups={{0,1}}, to_apply=%sum
  ROOT %total = f32[] reduce(%all, %f), dimensions={0}, to_apply=%sum, control-predecessors={%out}
}
"""  # noqa: E501


def program(text: str = TEXT, name: str | None = None) -> Program:
    return Program([parse(text)], name=name)


def named(module: Module, computation: str, name: str) -> Instruction:
    return module.computations[computation].instructions[name]


def panel(module: Module) -> Panel:
    """The fusion in its loop, the reduction of the loop's result, and the way between them."""
    y = Node("n0", named(module, "body", "y"), ("dot", "kernel"), phase="fwd", family="matmul")
    row = Node("n1", named(module, "main", "row"), notes=("a note",))
    loop, out = named(module, "main", "loop"), named(module, "main", "out")
    r, x = named(module, "body", "r"), named(module, "body", "x")
    fusion = Cluster("c1", "fusion", ("loop × 3",), (y.id,))
    return Panel(
        title="one of two",
        name=module.name,
        stage="after_optimizations",
        file="step.hlo",
        nodes=(y, row),
        edges=(
            Edge(y.id, y.id, 0, through=(r, x), next_iteration=True, also=1),
            Edge(y.id, row.id, 0, through=(r, loop, out)),
        ),
        clusters=(Cluster("c0", "loop", ("while", "a/b; c"), (), (fusion,)),),
        about=("jax 0.11", "v6e"),
        total=module.instruction_count,
        left_out={"scalar constants": 2},
        sha256="ab" * 32,
    )
