"""One small text for each feature of the HLO grammar, 2018 to 2026, and what it holds."""
# ruff: noqa: E501 (texts stay as they are written)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo_lens.hlo.module import Computation, Instruction, Module


@dataclass(frozen=True, slots=True)
class Feature:
    """A text and its outline; `xla` is False where the XLA of jaxlib 0.11 refuses the text."""

    text: str
    outline: tuple[str, ...]
    xla: bool = True


def outline(module: Module) -> tuple[str, ...]:
    """A line a computation: `NAME: a=parameter() *b=add(a,a){to_apply=f}`; `*` marks the root.

    An operand that nothing declares (single-instruction form) shows only where it is used.
    """
    return tuple(_computation_outline(computation) for computation in module.computations)


def _computation_outline(computation: Computation) -> str:
    entry = "ENTRY " if computation is computation.module.entry else ""
    lines = (_instruction_outline(each) for each in computation.instructions)
    return f"{entry}{computation.name}: {' '.join(lines)}"


def _instruction_outline(instruction: Instruction) -> str:
    operands = ",".join(_operand_outline(operand) for operand in instruction.operands)
    root = "*" if instruction.is_root else ""
    calls = [
        f"{key}={'+'.join(_callee_outline(callee) for callee in callees)}"
        for key, callees in instruction.called_by.items()
    ]
    called = f"{{{' '.join(calls)}}}" if calls else ""
    return f"{root}{instruction.name}={instruction.opcode}({operands}){called}"


def _operand_outline(operand: Instruction) -> str:
    if operand.implied and operand.operands:  # `p#1`
        return f"{_operand_outline(operand.operands[0])}#{operand.tuple_index}"
    return operand.name


def _callee_outline(callee: Computation) -> str:
    if callee.implied:  # only `OP-start` implies a computation
        return f"<{','.join(each.opcode for each in callee.instructions)}>"
    return callee.name


def _feature(text: str, *lines: str, xla: bool = True) -> Feature:
    return Feature(text, lines, xla)


SUM = """sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT add.1 = f32[] add(x, y)
}
"""
SUM_OUTLINE = "sum: x=parameter() y=parameter() *add.1=add(x,y)"

FEATURES: Mapping[str, Feature] = {
    # -- the frame of a text ---------------------------------------------------------------------
    "long form": _feature(
        """HloModule m, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %n = f32[2]{0} negate(%p)
}
""",
        "ENTRY main: p=parameter() *n=negate(p)",
    ),
    "short form": _feature(
        "HloModule m\nENTRY main {\n  p = f32[2] parameter(0)\n  ROOT n = f32[2] negate(p)\n}\n",
        "ENTRY main: p=parameter() *n=negate(p)",
    ),
    "no header, with ENTRY": _feature(
        "ENTRY %main (p: f32[2]) -> f32[2] { %p = f32[2] parameter(0) }",
        "ENTRY main: *p=parameter()",
    ),
    "no header, no ENTRY, no ROOT": _feature(
        "f { a = f32[] parameter(0) } g { b = f32[] parameter(0) c = f32[] call(b), to_apply=f }",
        "f: *a=parameter()",
        "ENTRY g: b=parameter() *c=call(b){to_apply=f}",
    ),
    "the last computation is the entry": _feature(
        f"HloModule m\n{SUM}other {{ ROOT z = f32[] constant(1) }}",
        SUM_OUTLINE,
        "ENTRY other: *z=constant()",
    ),
    "ENTRY before the last computation": _feature(
        "HloModule m\nENTRY a { ROOT x = f32[] constant(1) }\nb { ROOT y = f32[] constant(2) }",
        "ENTRY a: *x=constant()",
        "b: *y=constant()",
    ),
    "header with a colon": _feature(
        "HloModule m:\nENTRY e { ROOT x = f32[] constant(1) }",
        "ENTRY e: *x=constant()",
    ),
    "name after the closing brace": _feature(
        f"HloModule m\n{SUM.rstrip()} // sum\n\nENTRY e {{ ROOT x = f32[] constant(1) }} // e",
        SUM_OUTLINE,
        "ENTRY e: *x=constant()",
    ),
    "execution thread": _feature(
        'HloModule m\nhost { h = f32[] parameter(0) }, execution_thread="host"\n'
        "ENTRY e { p = f32[] parameter(0)\n"
        "  s = ((f32[]), f32[], u32[]) async-start(p),"
        ' async_execution_thread="host", calls=host\n'
        "  ROOT d = f32[] async-done(s) }",
        "host: *h=parameter()",
        "ENTRY e: p=parameter() s=async-start(p){calls=host} *d=async-done(s)",
    ),
    "ROOT in the middle": _feature(
        "ENTRY e { p = f32[] parameter(0)\n ROOT a = f32[] negate(p)\n b = f32[] negate(p) }",
        "ENTRY e: p=parameter() *a=negate(p) b=negate(p)",
    ),
    "stack-frame tables": _feature(
        """HloModule m, entry_computation_layout={(f32[])->f32[]}

FileNames
1 "a.py"
2 "dir with space/b.py"

FunctionNames
1 "main"
2 "Block.__call__"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=11 column=2 end_column=30}
2 {file_name_id=2 function_name_id=2 line=20 end_line=20 column=4 end_column=8}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}


ENTRY %e (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  ROOT %n = f32[] negate(%p), metadata={op_name="jit(f)/neg" stack_frame_id=2}
}
""",
        "ENTRY e: p=parameter() *n=negate(p)",
    ),
    "log prefixes": _feature(
        "I0521 12:04:45.883483    1509 service.cc:186] HloModule m\n"
        "I0521 12:04:45.883484    1509 service.cc:186] ENTRY e {\n"
        "I0521 12:04:45.883485    1509 service.cc:186]   p = f32[2] parameter(0)\n"
        "I0521 12:04:45.883486    1509 service.cc:186]   ROOT n = f32[2] negate(p)\n"
        "I0521 12:04:45.883487    1509 service.cc:186] }\n",
        "ENTRY e: p=parameter() *n=negate(p)",
        xla=False,
    ),
    "unknown header keys": _feature(
        "HloModule m, some_future_key={a={b}, c}, is_scheduled=true, other=7\n"
        "ENTRY e { ROOT x = f32[] constant(1) }",
        "ENTRY e: *x=constant()",
        xla=False,
    ),
    "header with aliases and donors": _feature(
        "HloModule m, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, must-alias) },"
        " buffer_donor={ (2, {}) }, replica_count=2, num_partitions=4\n"
        "ENTRY e { a = f32[2] parameter(0)\n b = f32[2] parameter(1)\n c = f32[2] parameter(2)\n"
        " ROOT t = (f32[2], f32[2]) tuple(a, b) }",
        "ENTRY e: a=parameter() b=parameter() c=parameter() *t=tuple(a,b)",
    ),
    "header over several lines": _feature(
        'HloModule m, is_scheduled=true,\n  frontend_attributes={a="x, {y}",\n  b={k="v"}},\n'
        "  allow_spmd_sharding_propagation_to_output={true,false}\n"
        "ENTRY e { x = f32[] constant(1) ROOT t = (f32[], f32[]) tuple(x, x) }",
        "ENTRY e: x=constant() *t=tuple(x,x)",
    ),
    # -- the form of instructions ----------------------------------------------------------------
    "operands with shapes": _feature(
        "ENTRY e { %p = f32[2,3]{1,0} parameter(0)\n"
        "  ROOT %a = f32[2,3]{1,0} add(f32[2,3]{1,0} %p, f32[2,3] %p) }",
        "ENTRY e: p=parameter() *a=add(p,p)",
    ),
    "tuple-shaped operands": _feature(
        "ENTRY e { %p = (f32[2,3]{1,0}, (s32[], pred[]{:T(512)})) parameter(0)\n"
        "  ROOT %a = f32[2,3]{1,0} get-tuple-element((f32[2,3]{1,0}, (s32[], pred[])) %p), index=0"
        " }",
        "ENTRY e: p=parameter() *a=get-tuple-element(p)",
    ),
    "several instructions on a line": _feature(
        "ENTRY e { p = f32[] parameter(0) n = f32[] negate(p) ROOT m = f32[] negate(n) }",
        "ENTRY e: p=parameter() n=negate(p) *m=negate(n)",
    ),
    "an instruction over several lines": _feature(
        "ENTRY e {\n  p\n  =\n  f32[]\n  parameter(0)\n  ROOT\n  %n = f32[]\n    negate(\n      p\n"
        '    ),\n    metadata={\n      op_name="x"\n    }\n}',
        "ENTRY e: p=parameter() *n=negate(p)",
    ),
    "comments anywhere": _feature(
        "// first\nHloModule /* a */ m // b\nENTRY /* c */ e /* { */ { // }\n"
        "  p = f32[/* d */ 2, /* e */ 3] /*f*/ parameter(/* g */ 0) // ) h\n"
        "  ROOT n = /*\n  z = f32[] parameter(1)\n */ f32[2,3] add(/*index=0*/ p, p /* , q */)\n}",
        "ENTRY e: p=parameter() *n=add(p,p)",
    ),
    "comment ended by a carriage return": _feature(
        "ENTRY e { // comment\r p = f32[] parameter(0)\r\n  ROOT n = f32[] negate(p)\r\n}\r\n",
        "ENTRY e: p=parameter() *n=negate(p)",
    ),
    "index comments": _feature(
        "ENTRY e { p = f32[] parameter(0)\n ROOT t = (f32[], f32[], f32[], f32[], f32[],"
        " /*index=5*/f32[]) tuple(p, p, p, p, p, /*index=5*/p) }",
        "ENTRY e: p=parameter() *t=tuple(p,p,p,p,p,p)",
    ),
    "no space after the equals sign": _feature(
        "ENTRY e { %p=f32[2]parameter(0)\n  ROOT %n=f32[2]{0}negate(%p) }",
        "ENTRY e: p=parameter() *n=negate(p)",
    ),
    "names with dots, dashes and digits": _feature(
        "ENTRY %e.1-x_ (P_0.1: f32[]) -> f32[] { %P_0.1 = f32[] parameter(0)\n"
        "  my-name.1.clone-x = f32[] negate(P_0.1)\n  trailing- = f32[] negate(my-name.1.clone-x)\n"
        "  ROOT %_ = f32[] negate(%trailing-) }",
        "ENTRY e.1-x_: P_0.1=parameter() my-name.1.clone-x=negate(P_0.1)"
        " trailing-=negate(my-name.1.clone-x) *_=negate(trailing-)",
    ),
    "names that are opcodes": _feature(
        "ENTRY add { parameter = f32[] parameter(0)\n add = f32[] add(parameter, parameter)\n"
        "  ROOT tuple = (f32[]) tuple(add) }",
        "ENTRY add: parameter=parameter() add=add(parameter,parameter) *tuple=tuple(add)",
    ),
    "reserved words as names": _feature(
        "ENTRY e { %inf = f32[] parameter(0)\n %true = f32[] negate(%inf)\n"
        " %ROOT = f32[] negate(%true)\n ROOT %manual = f32[] negate(%ROOT) }",
        "ENTRY e: inf=parameter() true=negate(inf) ROOT=negate(true) *manual=negate(ROOT)",
    ),
    "names like dtypes": _feature(
        "ENTRY e { f32.1 = f32[] parameter(0)\n bf16_x = f32[] negate(f32.1)\n"
        " ROOT s32-2 = f32[] negate(bf16_x) }",
        "ENTRY e: f32.1=parameter() bf16_x=negate(f32.1) *s32-2=negate(bf16_x)",
    ),
    "names named as dtypes": _feature(
        "ENTRY e { %f32 = f32[] parameter(0)\n ROOT %s8 = f32[] negate(%f32) }",
        "ENTRY e: f32=parameter() *s8=negate(f32)",
        xla=False,
    ),
    "the same name in two computations": _feature(
        "f { x = f32[] parameter(0) }\nENTRY e { x = f32[] parameter(0)\n"
        " ROOT y = f32[] call(x), to_apply=f }",
        "f: *x=parameter()",
        "ENTRY e: x=parameter() *y=call(x){to_apply=f}",
    ),
    "shape left out": _feature(
        "ENTRY e { p = f32[2] parameter(0)\n n = negate(p)\n ROOT a = add(n, p) }",
        "ENTRY e: p=parameter() n=negate(p) *a=add(n,p)",
    ),
    "operand with no name": _feature(
        "f32[10] add(f32[10], f32[10])",
        "ENTRY add: *add=add(parameter.0,parameter.1)",
    ),
    "single instruction": _feature(
        "%x = f32[2]{0} add(f32[2]{0} %a, f32[2]{0} %b)",
        "ENTRY x: *x=add(a,b)",
    ),
    "single instruction without a left side": _feature(
        "f32[2] add(f32[2] a, f32[2] a)",
        "ENTRY add: *add=add(a,a)",
    ),
    "anonymous operands": _feature(
        "ENTRY e { p = f32[] parameter(0)\n"
        "  ROOT a = f32[] add(negate(p), f32[] multiply(p, f32[] constant(1))) }",
        "ENTRY e: p=parameter() negate.anon=negate(p) constant.anon=constant()"
        " multiply.anon=multiply(p,constant.anon) *a=add(negate.anon,multiply.anon)",
    ),
    "tuple elements by #": _feature(
        "ENTRY e { p = (f32[2], (s32[], f32[2])) parameter(0)\n  ROOT a = f32[2] add(p#0, p#1#1) }",
        "ENTRY e: p=parameter() *a=add(p#0,p#1#1)",
    ),
    "control predecessors": _feature(
        "ENTRY e { p = f32[] parameter(0)\n a = f32[] negate(p)\n"
        " ROOT b = f32[] negate(p), control-predecessors={%a, p} }",
        "ENTRY e: p=parameter() a=negate(p) *b=negate(p)",
    ),
    # -- computations as values of attributes ----------------------------------------------------
    "reduce": _feature(
        f"HloModule m\n{SUM}ENTRY e {{ p = f32[4] parameter(0)\n z = f32[] constant(0)\n"
        "  ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply=%sum }",
        SUM_OUTLINE,
        "ENTRY e: p=parameter() z=constant() *r=reduce(p,z){to_apply=sum}",
    ),
    "inline computation": _feature(
        "HloModule m\nENTRY e { p = f32[4] parameter(0)\n z = f32[] constant(0)\n"
        "  ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply={ a = f32[] parameter(0)\n"
        "    b = f32[] parameter(1)\n    ROOT c = f32[] add(a, b) } }",
        "_: a=parameter() b=parameter() *c=add(a,b)",
        "ENTRY e: p=parameter() z=constant() *r=reduce(p,z){to_apply=_}",
    ),
    "inline branches": _feature(
        "HloModule m\nENTRY e { i = s32[] parameter(0)\n x = f32[] parameter(1)\n"
        "  ROOT c = f32[] conditional(i, x, x), branch_computations={"
        " { a = f32[] parameter(0)\n ROOT b = f32[] negate(a) }, { c = f32[] parameter(0) } } }",
        "_: a=parameter() *b=negate(a)",
        "_.1: *c=parameter()",
        "ENTRY e: i=parameter() x=parameter() *c=conditional(i,x,x){branch_computations=_+_.1}",
    ),
    "branch computations": _feature(
        "HloModule m\nf { a = f32[] parameter(0) }\ng { b = f32[] parameter(0) }\n"
        "ENTRY e { i = s32[] parameter(0)\n x = f32[] parameter(1)\n"
        "  ROOT c = f32[] conditional(i, x, x), branch_computations={%f, g} }",
        "f: *a=parameter()",
        "g: *b=parameter()",
        "ENTRY e: i=parameter() x=parameter() *c=conditional(i,x,x){branch_computations=f+g}",
    ),
    "true and false computation": _feature(
        "HloModule m\nf { a = f32[] parameter(0) }\ng { b = f32[] parameter(0) }\n"
        "ENTRY e { i = pred[] parameter(0)\n x = f32[] parameter(1)\n  ROOT c = f32[]"
        " conditional(i, x, x), true_computation=f, false_computation=g }",
        "f: *a=parameter()",
        "g: *b=parameter()",
        "ENTRY e: i=parameter() x=parameter()"
        " *c=conditional(i,x,x){true_computation=f false_computation=g}",
    ),
    "while": _feature(
        "HloModule m\nbody { s = (s32[], f32[]) parameter(0) }\n"
        "cond { s = (s32[], f32[]) parameter(0)\n ROOT t = pred[] constant(false) }\n"
        "ENTRY e { p = (s32[], f32[]) parameter(0)\n"
        "  ROOT w = (s32[], f32[]) while(p), condition=cond, body=%body,"
        ' backend_config={"known_trip_count":{"n":"3"}} }',
        "body: *s=parameter()",
        "cond: s=parameter() *t=constant()",
        "ENTRY e: p=parameter() *w=while(p){condition=cond body=body}",
    ),
    "select-and-scatter": _feature(
        f"HloModule m\n{SUM}ge {{ x = f32[] parameter(0)\n y = f32[] parameter(1)\n"
        " ROOT c = pred[] compare(x, y), direction=GE }\n"
        "ENTRY e { p = f32[4] parameter(0)\n s = f32[2] parameter(1)\n z = f32[] constant(0)\n"
        "  ROOT r = f32[4] select-and-scatter(p, s, z), window={size=2 stride=2}, select=ge,"
        " scatter=sum }",
        SUM_OUTLINE,
        "ge: x=parameter() y=parameter() *c=compare(x,y)",
        "ENTRY e: p=parameter() s=parameter() z=constant()"
        " *r=select-and-scatter(p,s,z){select=ge scatter=sum}",
    ),
    "called computations of a custom call": _feature(
        f"HloModule m\n{SUM}ENTRY e {{ p = f32[] parameter(0)\n"
        '  ROOT c = f32[] custom-call(p), custom_call_target="t", called_computations={%sum} }',
        SUM_OUTLINE,
        "ENTRY e: p=parameter() *c=custom-call(p){called_computations=sum}",
    ),
    "several calls without braces": _feature(
        f"HloModule m\n{SUM}other {{ z = f32[] parameter(0) }}\n"
        "ENTRY e { p = f32[] parameter(0)\n  ROOT c = f32[] custom-call(p), calls=%sum, %other,"
        ' custom_call_target="t" }',
        SUM_OUTLINE,
        "other: *z=parameter()",
        "ENTRY e: p=parameter() *c=custom-call(p){calls=sum+other}",
        xla=False,
    ),
    # -- asynchronous work, in every spelling ----------------------------------------------------
    "async with a named computation": _feature(
        "HloModule m\nwrapped { a = f32[2] parameter(0)\n ROOT n = f32[2] negate(a) }\n"
        "ENTRY e { p = f32[2] parameter(0)\n"
        "  s = ((f32[2]), f32[2], s32[]) async-start(p), calls=wrapped\n"
        "  u = ((f32[2]), f32[2], s32[]) async-update(s)\n  ROOT d = f32[2] async-done(u) }",
        "wrapped: a=parameter() *n=negate(a)",
        "ENTRY e: p=parameter() s=async-start(p){calls=wrapped} u=async-update(s) *d=async-done(u)",
    ),
    "async with calls on every instruction": _feature(
        "HloModule m\nwrapped { a = f32[2] parameter(0)\n ROOT n = f32[2] negate(a) }\n"
        "ENTRY e { p = f32[2] parameter(0)\n"
        "  s = ((f32[2]), f32[2], s32[]) async-start(p), async_group_id=0, calls=wrapped\n"
        "  ROOT d = f32[2] async-done(s), async_group_id=0, calls=wrapped }",
        "wrapped: a=parameter() *n=negate(a)",
        "ENTRY e: p=parameter() s=async-start(p){calls=wrapped} *d=async-done(s){calls=wrapped}",
        xla=False,  # async_group_id is gone since 2024
    ),
    "async sugar": _feature(
        "HloModule m\nENTRY e { p = f32[2] parameter(0)\n"
        '  s = ((f32[2]), f32[2], s32[]) custom-call-start(p), custom_call_target="foo"\n'
        "  u = ((f32[2]), f32[2], s32[]) custom-call-update(s)\n"
        "  ROOT d = f32[2] custom-call-done(u) }",
        "ENTRY e: p=parameter() s=custom-call-start(p){calls=<parameter,custom-call>}"
        " u=custom-call-update(s) *d=custom-call-done(u)",
    ),
    "async sugar with two operands": _feature(
        "HloModule m\nENTRY e { p = f32[2] parameter(0)\n"
        "  s = ((f32[2], f32[2]), f32[2]) add-start(p, p)\n  ROOT d = f32[2] add-done(s) }",
        "ENTRY e: p=parameter() s=add-start(p,p){calls=<parameter,parameter,add>} *d=add-done(s)",
    ),
    "async sugar around a call": _feature(
        "HloModule m\nf { a = f32[] parameter(0) }\nENTRY e { p = f32[] parameter(0)\n"
        "  s = ((f32[]), f32[], u32[]) call-start(p), to_apply=f\n  ROOT d = f32[] call-done(s) }",
        "f: *a=parameter()",
        "ENTRY e: p=parameter() s=call-start(p){calls=<parameter,call>} *d=call-done(s)",
    ),
    "async collectives with opcodes of their own": _feature(
        f"HloModule m\n{SUM}ENTRY e {{ p = f32[2] parameter(0)\n"
        "  g = (f32[2], f32[4]) all-gather-start(p), replica_groups={{0,1}}, dimensions={0}\n"
        "  gd = f32[4] all-gather-done(g)\n"
        "  r = f32[2] all-reduce-start(p), replica_groups={}, to_apply=sum\n"
        "  rd = f32[2] all-reduce-done(r)\n"
        "  c = (f32[2], f32[2]) collective-permute-start(p), source_target_pairs={{0,1},{1,0}}\n"
        "  cd = f32[2] collective-permute-done(c)\n"
        "  k = (f32[2], f32[2], u32[]) copy-start(p)\n  kd = f32[2] copy-done(k)\n"
        "  ROOT t = (f32[4], f32[2], f32[2], f32[2]) tuple(gd, rd, cd, kd) }",
        SUM_OUTLINE,
        "ENTRY e: p=parameter() g=all-gather-start(p) gd=all-gather-done(g)"
        " r=all-reduce-start(p){to_apply=sum} rd=all-reduce-done(r)"
        " c=collective-permute-start(p) cd=collective-permute-done(c)"
        " k=copy-start(p) kd=copy-done(k) *t=tuple(gd,rd,cd,kd)",
    ),
    "send and recv": _feature(
        "HloModule m\nENTRY e { p = f32[2] parameter(0)\n t = token[] after-all()\n"
        "  r = (f32[2], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true\n"
        "  rd = (f32[2], token[]) recv-done(r), channel_id=1, is_host_transfer=true\n"
        "  s = (f32[2], u32[], token[]) send(p, t), channel_id=2, is_host_transfer=true\n"
        "  ROOT sd = token[] send-done(s), channel_id=2, is_host_transfer=true }",
        "ENTRY e: p=parameter() t=after-all() r=recv(t) rd=recv-done(r) s=send(p,t) *sd=send-done(s)",
    ),
    # -- constants -------------------------------------------------------------------------------
    "scalar constants": _feature(
        "ENTRY e { a = f32[] constant(-1.5e-3)\n b = pred[] constant(true)\n"
        " c = f32[] constant(-inf)\n d = f32[] constant(-nan(0x1))\n e = c64[] constant((1, -inf))\n"
        " f = u64[] constant(18446744073709551615)\n g = f32[] constant(nan)\n h = f32[] constant(-.5)"
        "\n ROOT i = s32[] constant(-42) }",
        "ENTRY e: a=constant() b=constant() c=constant() d=constant() e=constant() f=constant()"
        " g=constant() h=constant() *i=constant()",
    ),
    "array constants": _feature(
        "ENTRY e { a = f32[3] constant({1 2, 3})\n"
        " b = s32[2,2] constant({ /*i0=0*/ { /*i1=0*/ 1, 2 }, /*i0=1*/ {3, 4} })\n"
        " c = pred[2] constant({0, true})\n d = f32[0] constant({})\n"
        " e = f32[2,0] constant({ { }, { } })\n f = c64[2] constant({(1, 2), (3, 4)})\n"
        " ROOT g = (s32[], (f32[2], pred[])) constant((1, ({2, 3}, true))) }",
        "ENTRY e: a=constant() b=constant() c=constant() d=constant() e=constant() f=constant()"
        " *g=constant()",
    ),
    "elided constants": _feature(
        "ENTRY e { a = f32[1000] constant({...})\n b = f32[10,10] constant({...})\n"
        " ROOT c = (s32[], f32[8]) constant((1, {...})) }",
        "ENTRY e: a=constant() b=constant() *c=constant()",
    ),
    "array constant with its shape in front": _feature(
        "ENTRY e { ROOT a = f32[2,2] constant(f32[2,2] { { 1, 2 }, { 3, 4 } }) }",
        "ENTRY e: *a=constant()",
        xla=False,  # printed in 2018
    ),
    "literal of a custom call": _feature(
        'ENTRY e { ROOT c = s32[] custom-call(), custom_call_target="t", literal=s32[2]{0} {1, 2} }',
        "ENTRY e: *c=custom-call()",
    ),
    # -- attributes ------------------------------------------------------------------------------
    "gather of 2018": _feature(
        "ENTRY e { a = f32[4,3] parameter(0)\n i = s32[2] parameter(1)\n"
        " ROOT g = f32[2,3] gather(a, i), output_window_dims={1}, elided_window_dims={0},"
        " gather_dims_to_operand_dims={0}, index_vector_dim=1, window_bounds={1,3} }",
        "ENTRY e: a=parameter() i=parameter() *g=gather(a,i)",
        xla=False,
    ),
    "opcodes of 2018": _feature(
        f"HloModule m\n{SUM}ENTRY e {{ a = f32[] parameter(0)\n b = pred[] less-than(a, a)\n"
        ' c = pred[] equal-to(a, a)\n d = f32[] cross-replica-sum(a), to_apply=sum, barrier=""\n'
        " e = token[] trace(a)\n ROOT f = (f32[], f32[]) tuple-select(b, d, d) }",
        SUM_OUTLINE,
        "ENTRY e: a=parameter() b=less-than(a,a) c=equal-to(a,a)"
        " d=cross-replica-sum(a){to_apply=sum} e=trace(a) *f=tuple-select(b,d,d)",
        xla=False,
    ),
    "sparse layout of 2018": _feature(
        "ENTRY e { ROOT p = f32[2,3]sparse{10} parameter(0) }",
        "ENTRY e: *p=parameter()",
        xla=False,
    ),
    "unknown opcode and attribute": _feature(
        "ENTRY e { p = f32[] parameter(0)\n"
        " ROOT x = f32[] frobnicate-2(p, p), new_thing={a=[1,2] b}, flag=YES, other=(1,2) }",
        "ENTRY e: p=parameter() *x=frobnicate-2(p,p)",
        xla=False,
    ),
    "API version of Neuron dumps": _feature(
        'ENTRY e { ROOT c = f32[] custom-call(), custom_call_target="AwsNeuronX",'
        " api_version=API_VERSION_UNSPECIFIED }",
        "ENTRY e: *c=custom-call()",
        xla=False,
    ),
    "backend config that is no JSON": _feature(
        "ENTRY e { p = f32[2] parameter(0)\n"
        " ROOT b = f32[2,2] broadcast(p), dimensions={0},"
        " backend_config={broadcast_dimensions=[0,1]} }",
        "ENTRY e: p=parameter() *b=broadcast(p)",
    ),
    "strings with everything in them": _feature(
        "ENTRY e { p = f32[] parameter(0)\n"
        ' a = f32[] negate(p), metadata={op_name="a \\"quoted\\" \\\\ {brace) \\303\\251, ROOT x ="}\n'
        ' ROOT b = f32[] negate(a), metadata={op_name="two\nlines }" source_file="f" } }',
        "ENTRY e: p=parameter() a=negate(p) *b=negate(a)",
    ),
    "single-quoted strings": _feature(
        "ENTRY e { ROOT c = f32[] custom-call(), custom_call_target='it\\'s \"}\"' }",
        "ENTRY e: *c=custom-call()",
    ),
    "convolution": _feature(
        "ENTRY e { x = f32[1,8,8,3] parameter(0)\n k = f32[3,3,3,16] parameter(1)\n"
        " ROOT c = f32[1,8,8,16] convolution(x, k), window={size=3x3 pad=1_1x1_1 rhs_reversal=0x1},"
        " dim_labels=b01f_01io->b01f, operand_precision={highest,default} }",
        "ENTRY e: x=parameter() k=parameter() *c=convolution(x,k)",
    ),
    "pad and slice": _feature(
        "ENTRY e { x = f32[4,6] parameter(0)\n z = f32[] constant(0)\n"
        " p = f32[6,10] pad(x, z), padding=1_1_0x-1_0_1\n"
        " ROOT s = f32[2,3] slice(p), slice={[0:2], [1:7:2]} }",
        "ENTRY e: x=parameter() z=constant() p=pad(x,z) *s=slice(p)",
    ),
    "bounded and unbounded dimensions": _feature(
        "ENTRY e { a = f32[<=8,2] parameter(0)\n b = f32[?,2] parameter(1)\n"
        " ROOT n = f32[<=8,2] negate(a) }",
        "ENTRY e: a=parameter() b=parameter() *n=negate(a)",
    ),
    "layouts with tiles and memory spaces": _feature(
        "ENTRY e { a = bf16[8,128]{1,0:T(8,128)(2,1)S(1)} parameter(0)\n"
        " b = s32[]{:T(128)S(2)} parameter(1)\n c = s4[9]{0:E(4)} parameter(2)\n"
        " d = f32[4]{0:L(16)} parameter(3)\n e = f32[8]{0:SC(0:4)} parameter(4)\n"
        " ROOT n = bf16[8,128]{1,0:T(8,128)(2,1)} negate(a) }",
        "ENTRY e: a=parameter() b=parameter() c=parameter() d=parameter() e=parameter() *n=negate(a)",
    ),
    "buffers": _feature(
        "ENTRY e { ROOT p = b(f32[4]) parameter(0) }",
        "ENTRY e: *p=parameter()",
    ),
    "replica groups": _feature(
        f"HloModule m\n{SUM}ENTRY e {{ p = f32[4] parameter(0)\n"
        " a = f32[4] all-reduce(p), replica_groups={{0,1},{2,3}}, to_apply=sum\n"
        " b = f32[4] all-reduce(a), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=sum\n"
        " c = f32[4] all-reduce(b), replica_groups=mesh['a'=2,'b'=4] {'b'}, to_apply=sum\n"
        " ROOT d = f32[4] all-reduce(c), replica_groups={}, to_apply=sum }",
        SUM_OUTLINE,
        "ENTRY e: p=parameter() a=all-reduce(p){to_apply=sum} b=all-reduce(a){to_apply=sum}"
        " c=all-reduce(b){to_apply=sum} *d=all-reduce(c){to_apply=sum}",
    ),
    "shardings": _feature(
        "HloModule m\nENTRY e { a = f32[4,4] parameter(0), sharding={devices=[2,2]0,1,2,3}\n"
        " b = f32[4,4] parameter(1),"
        ' sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate metadata={op_name="}"}}\n'
        " c = f32[4,4] parameter(2), sharding={maximal device=0}\n"
        " d = f32[4,4] parameter(3), sharding={mesh['x'=2,'y'=2], [{'x'}, {?}], replicated={'y'}}\n"
        " ROOT t = (f32[4,4], f32[4,4]) tuple(a, b),"
        " sharding={{replicated}, {devices=[4,1]<=[2,2]T(1,0)}} }",
        "ENTRY e: a=parameter() b=parameter() c=parameter() d=parameter() *t=tuple(a,b)",
    ),
    "frontend attributes, statistics and origin": _feature(
        'HloModule m\nENTRY e { p = f32[] parameter(0), origin={{"v1"}}\n'
        ' ROOT n = f32[] negate(p), frontend_attributes={a="1",b={x={1}},_x-y.z="}"},'
        " statistics={visualizing_index=1,stat-1=33,stat-2=44.5} }",
        "ENTRY e: p=parameter() *n=negate(p)",
    ),
}
