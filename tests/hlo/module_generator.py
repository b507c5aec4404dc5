"""Random HLO modules that XLA accepts, in every style a printer or a person writes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

_FLOATS = ("f32", "bf16", "f16", "f64")
_NUMBERS = (*_FLOATS, "s32", "u8")
_UNARY = ("negate", "exponential", "tanh", "cosine", "copy", "sqrt", "round-nearest-even")
_BINARY = ("add", "multiply", "maximum", "subtract", "divide")


@dataclass(frozen=True, slots=True)
class Array:
    """An array shape; `layout` is printed where the style shows layouts."""

    dtype: str
    dims: tuple[int, ...]

    def text(self, layouts: bool) -> str:
        order = ",".join(str(axis) for axis in reversed(range(len(self.dims))))
        layout = f"{{{order}}}" if layouts and self.dims else ""
        return f"{self.dtype}[{','.join(map(str, self.dims))}]{layout}"


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple shape."""

    parts: tuple[Array, ...]

    def text(self, layouts: bool) -> str:
        parts = [part.text(layouts) for part in self.parts]
        for index in range(5, len(parts), 5):
            parts[index] = f"/*index={index}*/{parts[index]}"
        return f"({', '.join(parts)})"


Shape = Array | Tuple


@dataclass(frozen=True, slots=True)
class Style:
    """How the text is written; none of it changes the module."""

    percent: bool
    operand_shapes: bool
    layouts: bool
    comments: bool
    one_line: bool
    long_computations: bool
    frames: bool
    header: bool

    @staticmethod
    def random(r: random.Random) -> Style:
        style = Style(*(r.random() < 0.5 for _ in range(7)), header=True)
        # XLA takes a text without a header only where `{` follows the first name.
        bare = not style.long_computations and r.random() < 0.2
        return replace(style, header=not bare)


@dataclass(slots=True)
class Body:
    """A computation being written: the values so far, and its lines."""

    name: str
    values: list[tuple[str, Shape]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def arrays(self, *, rank: int | None = None, dtypes: Sequence[str] = _NUMBERS) -> list[Ref]:
        return [
            (name, shape)
            for name, shape in self.values
            if isinstance(shape, Array)
            and shape.dtype in dtypes
            and (rank is None or len(shape.dims) == rank)
        ]

    def tuples(self) -> list[tuple[str, Tuple]]:
        return [(name, shape) for name, shape in self.values if isinstance(shape, Tuple)]


Ref = tuple[str, Array]


class ModuleWriter:
    """Writes one random module; `r` decides everything, so equal seeds give equal texts."""

    def __init__(self, r: random.Random, *, instructions: int = 12) -> None:
        self.r = r
        self.style = Style.random(r)
        self.instructions = instructions
        self.computations: list[str] = []
        self.serial = 0

    def text(self) -> str:
        entry = self.body("main", depth=0, instructions=self.instructions)
        self.close(entry, entry=True)
        tables = ""
        if self.style.frames and self.style.header:
            tables = (
                '\nFileNames\n1 "model.py"\n2 "/a b/layers.py"\n\nFunctionNames\n1 "main"\n'
                '2 "Block.__call__"\n\nFileLocations\n'
                "1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=4 end_column=9}\n"
                "2 {file_name_id=2 function_name_id=2 line=7 end_line=8 column=1 end_column=3}\n\n"
                "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n"
                "2 {file_location_id=2 parent_frame_id=2}\n\n"
            )
        header = "HloModule random_module, num_partitions=4, replica_count=1\n"
        blank = "\n\n" if self.r.random() < 0.8 else "\n"
        return (header if self.style.header else "") + tables + blank.join(self.computations) + "\n"

    # -- computations ---------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.r.choice(['.', '_', '-', '.clone.'])}{self.serial}"

    def body(self, name: str, *, depth: int, instructions: int) -> Body:
        body = Body(name)
        for number in range(self.r.randint(1, 3)):
            shape = self.array()
            self.emit(body, shape, "parameter", payload=str(number))
        self.fill(body, depth, instructions)
        return body

    def fill(self, body: Body, depth: int, instructions: int) -> None:
        makers = [*_LEAF_MAKERS, *(_NESTING_MAKERS if depth < 2 else ())]
        for _ in range(instructions):
            self.r.choice(makers)(self, body, depth)

    def helper(self, stem: str, depth: int, parameters: Sequence[Shape]) -> Body:
        """A called computation with the given parameters, and a few instructions on them."""
        body = Body(self.fresh(stem))
        for number, shape in enumerate(parameters):
            self.emit(body, shape, "parameter", payload=str(number))
        self.fill(body, depth + 1, self.r.randint(0, 3))
        return body

    def close(self, body: Body, *, entry: bool = False, inline: bool = False) -> str:
        """End the computation (its last line is the root); answers what an attribute says of it."""
        if self.r.random() < 0.8:
            body.lines[-1] = f"ROOT {body.lines[-1]}"
        joint = " " if self.style.one_line else "\n  "
        inside = f"{{{joint}{joint.join(body.lines)}{' ' if self.style.one_line else chr(10)}}}"
        if inline:
            return inside
        signature = ""
        if self.style.long_computations:
            parameters = [
                f"{name}: {shape.text(False)}"
                for (name, shape), line in zip(body.values, body.lines, strict=False)
                if " parameter(" in line
            ]
            signature = f"({', '.join(parameters)}) -> {body.values[-1][1].text(False)} "
        tail = f" // {body.name}" if len(body.lines) > 5 and not self.style.one_line else ""
        self.computations.append(
            f"{'ENTRY ' if entry else ''}{self.ref(body.name)} {signature}{inside}{tail}"
        )
        return self.ref(body.name)

    # -- instructions ---------------------------------------------------------------------------

    def ref(self, name: str) -> str:
        return f"%{name}" if self.style.percent else name

    def array(self, dtypes: Sequence[str] = _FLOATS) -> Array:
        rank = self.r.choice([0, 1, 1, 2, 2, 3])
        dims = tuple(self.r.choice([1, 2, 4, 8]) for _ in range(rank))
        return Array(self.r.choice(list(dtypes)), dims)

    def operand(self, name: str, shape: Shape) -> str:
        shown = f"{shape.text(self.style.layouts)} " if self.style.operand_shapes else ""
        return shown + self.ref(name)

    def emit(
        self,
        body: Body,
        shape: Shape,
        opcode: str,
        operands: Sequence[tuple[str, Shape]] = (),
        attributes: str = "",
        *,
        payload: str | None = None,
        token: bool = False,
    ) -> tuple[str, Shape]:
        """Append one instruction and answer it; `payload` stands for the operand list."""
        name = self.fresh(self.r.choice([opcode.replace("-", "_"), opcode, "x", "Value"]))
        texts = [self.operand(*each) for each in operands] if payload is None else [payload]
        for index in range(5, len(texts), 5):
            texts[index] = f"/*index={index}*/{texts[index]}"
        comment = " /* why */ " if self.style.comments and self.r.random() < 0.3 else " "
        wrap = "\n    " if self.style.comments and self.r.random() < 0.2 else " "
        body.lines.append(
            f"{self.ref(name)} ={comment}{shape.text(self.style.layouts)}{wrap}{opcode}"
            f"({', '.join(texts)}){attributes}{self.extras(body, opcode)}"
        )
        body.values.append((name, shape))
        return name, shape

    def extras(self, body: Body, opcode: str) -> str:
        """Attributes that any instruction may carry."""
        found = []
        if self.r.random() < 0.1 and opcode not in ("parameter", "constant") and body.values:
            found.append(f"control-predecessors={{{self.ref(self.r.choice(body.values)[0])}}}")
        if self.r.random() < 0.15:
            found.append('frontend_attributes={k="v \\"q\\" }",_x-y.z={"n":[1,2]}}')
        if self.r.random() < 0.4:
            frame = " stack_frame_id=2" if self.style.frames and self.style.header else ""
            name = f'jit(f)/jvp(Model)/{opcode}[a={{1}}, \\"b\\"]'
            line = self.r.randint(1, 99)
            found.append(
                f'metadata={{op_type="{opcode}" op_name="{name}"'
                f' source_file="/a b/layers.py" source_line={line}{frame}}}'
            )
        return "".join(f", {each}" for each in found)

    def literal(self, shape: Array) -> str:
        def nested(dims: tuple[int, ...]) -> str:
            if not dims:
                return self.scalar(shape.dtype)
            return "{ " + ", ".join(nested(dims[1:]) for _ in range(dims[0])) + " }"

        if shape.dims and (self.r.random() < 0.3 or len(shape.dims) > 2):
            return "{...}"
        return nested(shape.dims)

    def scalar(self, dtype: str) -> str:
        if dtype == "pred":
            return self.r.choice(["true", "false"])
        if dtype in _FLOATS:
            return self.r.choice(["0", "-1.5", "2e-3", "inf", "-inf", "nan", "1"])
        return self.r.choice(["0", "1", "7"])


# -- makers: each appends something to a body, or nothing where the body has no fitting value -----


def _constant(w: ModuleWriter, body: Body, depth: int) -> None:
    shape = w.array((*_NUMBERS, "pred"))
    w.emit(body, shape, "constant", payload=w.literal(shape))


def _iota(w: ModuleWriter, body: Body, depth: int) -> None:
    shape = Array("s32", (4, w.r.choice([1, 2, 8])))
    w.emit(body, shape, "iota", attributes=", iota_dimension=1", payload="")


def _unary(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(dtypes=_FLOATS):
        value = w.r.choice(values)
        w.emit(body, value[1], w.r.choice(_UNARY), [value])


def _binary(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(dtypes=_FLOATS):
        left = w.r.choice(values)
        right = w.r.choice([each for each in values if each[1] == left[1]])
        w.emit(body, left[1], w.r.choice(_BINARY), [left, right])


def _nested(w: ModuleWriter, body: Body, depth: int) -> None:
    """Operands written in place, without names of their own."""
    if values := body.arrays(dtypes=_FLOATS):
        name, shape = w.r.choice(values)
        inner = f"{shape.text(w.style.layouts)} negate({w.operand(name, shape)})"
        w.emit(body, shape, "add", payload=f"{inner}, {w.operand(name, shape)}")


def _compare_select(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(dtypes=_FLOATS):
        value = w.r.choice(values)
        mask = Array("pred", value[1].dims)
        chosen = w.emit(body, mask, "compare", [value, value], ", direction=LT, type=FLOAT")
        w.emit(body, value[1], "select", [chosen, value, value])


def _convert(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays():
        value = w.r.choice(values)
        w.emit(body, Array(w.r.choice(_NUMBERS), value[1].dims), "convert", [value])


def _reshape(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(rank=2):
        value = w.r.choice(values)
        rows, columns = value[1].dims
        w.emit(body, Array(value[1].dtype, (columns, rows)), "reshape", [value])


def _transpose(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(rank=2):
        value = w.r.choice(values)
        shape = Array(value[1].dtype, value[1].dims[::-1])
        w.emit(body, shape, "transpose", [value], ", dimensions={1,0}")


def _broadcast(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(rank=1):
        value = w.r.choice(values)
        shape = Array(value[1].dtype, (3, *value[1].dims))
        w.emit(body, shape, "broadcast", [value], ", dimensions={1}")


def _slice(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(rank=1):
        value = w.r.choice(values)
        w.emit(body, Array(value[1].dtype, (1,)), "slice", [value], ", slice={[0:1]}")


def _pad(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(rank=1, dtypes=_FLOATS):
        value = w.r.choice(values)
        zero = Array(value[1].dtype, ())
        fill = w.emit(body, zero, "constant", payload="0")
        shape = Array(value[1].dtype, (value[1].dims[0] + 3,))
        w.emit(body, shape, "pad", [value, fill], ", padding=1_2")


def _concatenate(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(rank=1):
        value = w.r.choice(values)
        count = w.r.choice([2, 7])
        shape = Array(value[1].dtype, (value[1].dims[0] * count,))
        w.emit(body, shape, "concatenate", [value] * count, ", dimensions={0}")


def _dot(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(rank=2, dtypes=_FLOATS):
        value = w.r.choice(values)
        rows = value[1].dims[0]
        attributes = ", lhs_contracting_dims={1}, rhs_contracting_dims={1}"
        w.emit(body, Array(value[1].dtype, (rows, rows)), "dot", [value, value], attributes)


def _reduce(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(rank=1, dtypes=_FLOATS):
        value = w.r.choice(values)
        scalar = Array(value[1].dtype, ())
        zero = w.emit(body, scalar, "constant", payload="0")
        apply = _reducer(w, scalar, inline=w.r.random() < 0.4)
        w.emit(body, scalar, "reduce", [value, zero], f", dimensions={{0}}, to_apply={apply}")


def _reducer(w: ModuleWriter, scalar: Array, *, inline: bool = False) -> str:
    body = Body(w.fresh("sum"))
    both = [w.emit(body, scalar, "parameter", payload=str(number)) for number in (0, 1)]
    w.emit(body, scalar, "add", both)
    return w.close(body, inline=inline)


def _tuple(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays():
        chosen = [w.r.choice(values) for _ in range(w.r.choice([1, 2, 6]))]
        w.emit(body, Tuple(tuple(shape for _, shape in chosen)), "tuple", chosen)


def _element(w: ModuleWriter, body: Body, depth: int) -> None:
    if tuples := body.tuples():
        source = w.r.choice(tuples)
        index = w.r.randrange(len(source[1].parts))
        part = source[1].parts[index]
        if w.r.random() < 0.5:
            w.emit(body, part, "get-tuple-element", [source], f", index={index}")
        else:
            w.emit(body, part, "copy", payload=f"{w.ref(source[0])}#{index}")


def _custom_call(w: ModuleWriter, body: Body, depth: int) -> None:
    values = [w.r.choice(body.arrays() or [])] if body.arrays() else []
    config = w.r.choice(
        [
            "",
            ', backend_config={"a":{"b":[1,"}"]},"c":"x"}',
            ', backend_config="{\\"a\\": \\"\\\\n\\", b}"',
            ', backend_config={grid_x = 1 : i32, name = "fa"}',
            ", backend_config={broadcast_dimensions=[0,1]}",
        ]
    )
    target = w.r.choice(["my_kernel", "__cublas$gemm", "weird \\303\\251 \\'t"])
    w.emit(body, w.array(), "custom-call", values, f', custom_call_target="{target}"{config}')


def _all_reduce(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(dtypes=_FLOATS):
        value = w.r.choice(values)
        apply = _reducer(w, Array(value[1].dtype, ()))
        groups = w.r.choice(["{}", "{{0,1},{2,3}}", "[2,2]<=[4]", "[2,2]<=[2,2]T(1,0)"])
        attributes = f", channel_id={w.serial}, replica_groups={groups}, to_apply={apply}"
        attributes += "" if groups == "{}" else ", use_global_device_ids=true"
        if w.r.random() < 0.5:
            w.emit(body, value[1], "all-reduce", [value], attributes)
        else:
            start = w.emit(body, value[1], "all-reduce-start", [value], attributes)
            w.emit(body, value[1], "all-reduce-done", [start])


def _permute(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays():
        value = w.r.choice(values)
        attributes = f", channel_id={w.serial}, source_target_pairs={{{{0,1}},{{1,0}}}}"
        w.emit(body, value[1], "collective-permute", [value], attributes)


def _barrier(w: ModuleWriter, body: Body, depth: int) -> None:
    if tuples := body.tuples():
        source = w.r.choice(tuples)
        w.emit(body, source[1], "opt-barrier", [source])


def _sugar_async(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(dtypes=_FLOATS):
        value = w.r.choice(values)
        name, shape = value
        carried = f"(({shape.text(w.style.layouts)}), {shape.text(w.style.layouts)}, u32[])"
        start = w.fresh("negate-start")
        body.lines.append(f"{w.ref(start)} = {carried} negate-start({w.operand(name, shape)})")
        body.values.append((start, Array("opaque", ())))
        w.emit(body, shape, "negate-done", payload=_shaped(w, carried, start))


def _generic_async(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(dtypes=_FLOATS):
        name, shape = w.r.choice(values)
        wrapped = Body(w.fresh("async_wrapped"))
        parameter = w.emit(wrapped, shape, "parameter", payload="0")
        w.emit(wrapped, shape, "tanh", [parameter])
        callee = w.close(wrapped)
        carried = f"(({shape.text(w.style.layouts)}), {shape.text(w.style.layouts)}, s32[])"
        start, update = w.fresh("async-start"), w.fresh("async-update")
        body.lines += [
            f"{w.ref(start)} = {carried} async-start({w.operand(name, shape)}), calls={callee}",
            f"{w.ref(update)} = {carried} async-update({_shaped(w, carried, start)})",
        ]
        body.values += [(start, Array("opaque", ())), (update, Array("opaque", ()))]
        w.emit(body, shape, "async-done", payload=_shaped(w, carried, update))


def _shaped(w: ModuleWriter, shape: str, name: str) -> str:
    return f"{shape} {w.ref(name)}" if w.style.operand_shapes else w.ref(name)


def _call(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays():
        chosen = [w.r.choice(values) for _ in range(w.r.randint(1, 3))]
        callee = w.helper("called", depth, [shape for _, shape in chosen])
        w.emit(body, callee.values[-1][1], "call", chosen, f", to_apply={w.close(callee)}")


def _fusion(w: ModuleWriter, body: Body, depth: int) -> None:
    if values := body.arrays(dtypes=_FLOATS):
        value = w.r.choice(values)
        fused = Body(w.fresh("fused_computation"))
        w.emit(fused, value[1], "parameter", payload="0")
        for _ in range(w.r.randint(1, 3)):
            _unary(w, fused, depth)
        kind = w.r.choice(["kLoop", "kInput", "kOutput", "kCustom"])
        result = fused.values[-1][1]
        w.emit(body, result, "fusion", [value], f", kind={kind}, calls={w.close(fused)}")


def _while(w: ModuleWriter, body: Body, depth: int) -> None:
    if not (values := body.arrays(dtypes=_FLOATS)):
        return
    value = w.r.choice(values)
    counter = Array("s32", ())
    carry = Tuple((counter, value[1]))
    trips = w.r.randint(1, 9)

    inside = Body(w.fresh("body"))
    state = w.emit(inside, carry, "parameter", payload="0")
    index = w.emit(inside, counter, "get-tuple-element", [state], ", index=0")
    data = w.emit(inside, value[1], "get-tuple-element", [state], ", index=1")
    one = w.emit(inside, counter, "constant", payload="1")
    following = w.emit(inside, counter, "add", [index, one])
    w.fill(inside, depth + 1, w.r.randint(0, 2))
    result = w.emit(inside, value[1], "tanh", [data])
    w.emit(inside, carry, "tuple", [following, result])

    test = Body(w.fresh("condition"))
    state = w.emit(test, carry, "parameter", payload="0")
    index = w.emit(test, counter, "get-tuple-element", [state], ", index=0")
    bound = w.emit(test, counter, "constant", payload=str(trips))
    w.emit(test, Array("pred", ()), "compare", [index, bound], ", direction=LT")

    zero = w.emit(body, counter, "constant", payload="0")
    start = w.emit(body, carry, "tuple", [zero, value])
    attributes = f", condition={w.close(test)}, body={w.close(inside)}"
    if w.r.random() < 0.5:
        attributes += f', backend_config={{"known_trip_count":{{"n":"{trips}"}}}}'
    w.emit(body, carry, "while", [start], attributes)


def _conditional(w: ModuleWriter, body: Body, depth: int) -> None:
    if not (values := body.arrays(dtypes=_FLOATS)):
        return
    value = w.r.choice(values)
    branches = []
    for _ in range(2):
        branch = Body(w.fresh("branch"))
        given = w.emit(branch, value[1], "parameter", payload="0")
        w.emit(branch, value[1], w.r.choice(_UNARY), [given])
        branches.append(w.close(branch))
    if w.r.random() < 0.5:
        chosen = w.emit(body, Array("s32", ()), "constant", payload="0")
        attributes = f", branch_computations={{{branches[0]}, {branches[1]}}}"
    else:
        chosen = w.emit(body, Array("pred", ()), "constant", payload="true")
        attributes = f", true_computation={branches[0]}, false_computation={branches[1]}"
    w.emit(body, value[1], "conditional", [chosen, value, value], attributes)


Maker = Callable[[ModuleWriter, Body, int], None]

_LEAF_MAKERS: tuple[Maker, ...] = (
    _constant,
    _iota,
    _unary,
    _binary,
    _nested,
    _compare_select,
    _convert,
    _reshape,
    _transpose,
    _broadcast,
    _slice,
    _pad,
    _concatenate,
    _dot,
    _tuple,
    _element,
    _custom_call,
    _permute,
    _barrier,
)
_NESTING_MAKERS: tuple[Maker, ...] = (
    _reduce,
    _all_reduce,
    _sugar_async,
    _generic_async,
    _call,
    _fusion,
    _while,
    _conditional,
)


def module_text(r: random.Random, *, instructions: int = 12) -> str:
    """A random module that XLA accepts, with about `instructions` in its entry."""
    return ModuleWriter(r, instructions=instructions).text()
