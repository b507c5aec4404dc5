"""The matmuls table: every dot and gemm call, its sizes, dtypes, FLOPs and the converts around it.

FLOPs are 2·batch·m·n·k of one execution (reference/definitions.md, "Matmuls, ragged, attention").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.conv_dots import Kind, conv_as_dot
from hlo_lens.analysis.dataflow import Value, consumers, trace
from hlo_lens.facts import (
    COMMON,
    Cell,
    Column,
    Lane,
    Measure,
    Member,
    PassResult,
    Summary,
    Table,
    common,
)
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import parse_dim_labels, parse_int, parse_ints, parse_window
from hlo_lens_passes._calls import OPCODES as CUSTOM_CALLS
from hlo_lens_passes._calls import attributes_of, config_of, entry_of, result_of, target_of
from hlo_lens_passes._catalogue import Catalogue, catalogue

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation
    from hlo_lens.program import Program

_OPERATIONS: Final = ("dot", "scaled-dot", "ragged-dot", "convolution")
# The operation each opcode is or, with async sugar, starts.
_FORMS: Final = {**{op: op for op in _OPERATIONS}, **{f"{op}-start": op for op in _OPERATIONS}}
_GEMMS: Final = frozenset(("gemm", "scaled_gemm", "grouped_gemm"))
# Where the config of a fusion says what makes its code, on a GPU, a CPU, and a GPU in 2023.
_FUSION_KIND: Final = (("fusion_backend_config", "kind"), ("fusion_config", "kind"), ("kind",))
_FUSION_KINDS: Final = {
    "__triton": "triton",
    "__triton_gemm": "triton",
    "__triton_nested_gemm_fusion": "triton",
    "__cudnn$fusion": "cudnn",
    "__ynn_fusion": "ynnpack",
}
# What changes how a value lies in memory, and neither what it is nor its dtype.
_MOVES: Final = frozenset(("bitcast", "copy", "reshape", "transpose"))

TABLE = Table(
    "matmuls",
    "a matrix multiplication: a dot, alone or in a fusion, a convolution that is one (as TPU text"
    " writes dots), or a call of a gemm library",
    (
        *COMMON,
        Column(
            "form",
            "enum",
            "identity",
            "how the text writes it",
            values=("dot", "scaled-dot", "ragged-dot", "convolution", "custom_call"),
        ),
        Column("target", "text", "identity", "custom_call_target of a gemm call"),
        Column(
            "backend",
            "text",
            "structural",
            "what computes it: the library of a gemm call, or what the config of the fusion around"
            " a dot names, such as triton; NULL for another dot, which the compiler may still hand"
            " to a library",
        ),
        Column("lhs_dtype", "text", "structural", "dtype of the left operand"),
        Column("rhs_dtype", "text", "structural", "dtype of the right operand"),
        Column(
            "accumulate_dtype",
            "text",
            "structural",
            "dtype sums are kept in, where the algorithm says; NULL is the backend's choice",
        ),
        Column("out_dtype", "text", "structural", "dtype of the result"),
        Column("algorithm", "text", "structural", "dot algorithm as HLO names it"),
        Column(
            "operand_precision", "text", "structural", "precision asked for each operand, by commas"
        ),
        Column("batch", "int", "measure", "product of the batch dimensions"),
        Column("m", "int", "measure", "product of the other dimensions of the left operand"),
        Column("n", "int", "measure", "product of the other dimensions of the right operand"),
        Column("k", "int", "measure", "product of the contracted dimensions"),
        Column(
            "flops",
            "flops",
            "measure",
            "2·batch·m·n·k of one execution; of a ragged one an upper bound, reached when the"
            " groups cover every row; NULL for a ragged convolution, whose text counts every group",
        ),
        Column(
            "ragged",
            "bool",
            "structural",
            "whether groups of rows have a matrix each: ragged-dot, a grouped gemm, or what the"
            " TPU compiler says is one",
        ),
        Column("epilogue", "text", "structural", "what a gemm call does to its result besides"),
        Column(
            "converts",
            "text",
            "structural",
            "converts next to it, as `lhs bf16->f32, result f32->bf16`; NULL for none",
        ),
        Column(
            "convert_before",
            "json",
            "volatile",
            "converts in front of its operands, through fusions and what only moves data, as"
            " [{operand, from, to, via}]; NULL for none",
        ),
        Column(
            "convert_after",
            "json",
            "volatile",
            "the nearest convert that takes its result, as {from, to, via}; NULL for none",
        ),
        Column("dims", "json", "structural", "its dimension numbers, where the text has them"),
    ),
    summary=Summary(
        "matmuls",
        order=30,
        about="2·batch·m·n·k FLOP",
        none="no matmuls",
        by=(
            Cell("loop"),
            Cell("phase"),
            Cell("form"),
            Cell("backend"),
            Cell("{lhs_dtype}×{rhs_dtype}→{out_dtype}", "dtypes", merged=True),
        ),
        measures=(
            Measure("matmuls", "rows"),
            Measure("runs", "executions"),
            Measure("FLOP per run", "once", "flops"),
            Measure("FLOP per step", "per_step", "flops"),
        ),
        unknown=(Cell("ragged", words=("ragged", "")), Cell("form")),
        lane=Lane(
            "compute",
            line=(
                Cell("form"),
                Cell("backend"),
                Cell("{lhs_dtype}×{rhs_dtype}→{out_dtype}", merged=True),
                Cell("b{batch}", blank=(1,)),
                Cell("m{m} n{n} k{k}"),
                Cell("ragged", words=("ragged", "")),
                Cell("epilogue", blank=("default",)),
            ),
            details=(Cell("target"), Cell("algorithm"), Cell("converts")),
            total=Measure("computes", "per_step", "flops"),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class MatmulsPass:
    """One row a matmul as written: dots of all forms, convolutions that are dots, gemm calls."""

    name: str = "matmuls"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ()
    rules: tuple[()] = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        known = catalogue()
        rows: list[dict[str, object]] = []
        members: list[Member] = []
        for position, module in enumerate(program.modules):
            graph = program.analysis(module).graph
            for instruction in _matmuls(module.computations, known):
                matmul = _read(instruction, known, graph)
                if matmul is None:
                    continue
                before = _converts_before(graph, instruction, matmul.operands)
                after = _convert_after(graph, instruction)
                members.append(Member("matmuls", len(rows), "matmul", position, instruction.id))
                members += (
                    Member("matmuls", len(rows), "convert", position, one.instr.id)
                    for one in (*before, *after)
                )
                rows.append(
                    {
                        **common(program, position, instruction),
                        **matmul.columns,
                        "converts": ", ".join(map(str, (*before, *after))) or None,
                        "convert_before": [one.described() for one in before] or None,
                        "convert_after": next((one.described() for one in after), None),
                    }
                )
        return PassResult({"matmuls": rows}, members)


def _matmuls(computations: Iterable[Computation], known: Catalogue) -> Iterator[Instruction]:
    """Every matmul that is written there, and every convolution."""
    looked_for = _FORMS.keys() | CUSTOM_CALLS
    for computation in computations:
        if looked_for.isdisjoint(computation.opcodes):
            continue
        for index, opcode in enumerate(computation.opcodes):
            if opcode in _FORMS:
                yield Instruction(computation, index)
            elif opcode in CUSTOM_CALLS:
                instruction = Instruction(computation, index)
                if entry_of(instruction, known).op in _GEMMS:
                    yield instruction


@dataclass(frozen=True, slots=True)
class _Matmul:
    """What the text says of one matmul: columns, and its operands (left, right; () unknown)."""

    columns: Mapping[str, object]
    operands: tuple[Instruction, ...]


def _read(instruction: Instruction, known: Catalogue, graph: CallGraph) -> _Matmul | None:
    """What the text says; None for a convolution that is no dot."""
    form = _FORMS.get(instruction.opcode)
    if form is None:
        return _read_call(instruction, known)
    if form == "convolution":
        return _read_convolution(instruction, graph)
    return _read_dot(instruction, form, graph)


# ---------------------------------------------------------------------------------- sizes


@dataclass(frozen=True, slots=True)
class Dims:
    """Dimension numbers of a dot; `lhs_ragged` and `rhs_group` of a ragged one."""

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()
    lhs_ragged: tuple[int, ...] = ()
    rhs_group: tuple[int, ...] = ()

    def described(self) -> dict[str, tuple[int, ...]]:
        names = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
        found = {name: getattr(self, name) for name in names}
        ragged = {name: getattr(self, name) for name in ("lhs_ragged", "rhs_group")}
        return {**found, **{name: dims for name, dims in ragged.items() if dims}}

    def sizes(self, lhs: Shape, rhs: Shape) -> dict[str, int | None]:
        """batch, m, n, k and flops; all NULL where the numbers do not fit the shapes.

        A dimension that is bounded (`<=n`) counts n, an unbounded one makes its size NULL.
        """
        left, right = lhs.dimensions, rhs.dimensions
        known = (
            _are_dimensions((*self.lhs_contracting, *self.lhs_batch), left)
            and _are_dimensions((*self.rhs_contracting, *self.rhs_batch, *self.rhs_group), right)
            and len(self.lhs_contracting) == len(self.rhs_contracting)
            and len(self.lhs_batch) == len(self.rhs_batch)
        )
        if not known:
            return {}
        batch = _size(left, self.lhs_batch)
        m = _size(left, _others(left, (*self.lhs_contracting, *self.lhs_batch)))
        n = _size(right, _others(right, (*self.rhs_contracting, *self.rhs_batch, *self.rhs_group)))
        k = _size(left, self.lhs_contracting)
        flops = None
        if batch is not None and m is not None and n is not None and k is not None:
            flops = 2 * batch * m * n * k
        return {"batch": batch, "m": m, "n": n, "k": k, "flops": flops}


def _are_dimensions(numbers: Sequence[int], dimensions: Sequence[int | None]) -> bool:
    return len(set(numbers)) == len(numbers) and all(0 <= n < len(dimensions) for n in numbers)


def _others(dimensions: Sequence[int | None], numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(number for number in range(len(dimensions)) if number not in numbers)


def _size(dimensions: Sequence[int | None], numbers: Iterable[int]) -> int | None:
    sizes = [dimensions[number] for number in numbers]
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None


def _sizes(dims: Dims | None, operands: Sequence[Instruction]) -> dict[str, int | None]:
    shapes = [shape_of(operand) for operand in operands]
    if dims is None or len(shapes) < 2 or shapes[0] is None or shapes[1] is None:
        return {}
    return dims.sizes(shapes[0], shapes[1])


# ---------------------------------------------------------------------------------- dots


def _read_dot(dot: Instruction, form: str, graph: CallGraph) -> _Matmul:
    operands = dot.operands[:2] if len(dot.operands) >= 2 else ()
    attributes = attributes_of(dot)
    dims = _dot_dims(attributes, [shape_of(one) for one in operands], result_of(dot))
    columns: dict[str, object] = {
        "form": form,
        "backend": next(filter(None, map(_fusion_backend, _fusions_around(graph, dot))), None),
        **_written(dot, operands, attributes),
        **_sizes(dims, operands),
        "ragged": form == "ragged-dot",
        "dims": None if dims is None else dims.described(),
    }
    return _Matmul(columns, operands)


def _written(
    matmul: Instruction, operands: Sequence[Instruction], attributes: Mapping[str, str]
) -> dict[str, object]:
    """Dtypes and precision of a matmul that is an operation of HLO's own."""
    algorithm = attributes.get("algorithm")
    precision = attributes.get("operand_precision")
    return {
        **_dtypes(operands, result_of(matmul), algorithm),
        "algorithm": algorithm,
        "operand_precision": None if precision is None else "".join(precision.strip("{}").split()),
    }


_DIM_ATTRIBUTES: Final = {
    "lhs_contracting": "lhs_contracting_dims",
    "rhs_contracting": "rhs_contracting_dims",
    "lhs_batch": "lhs_batch_dims",
    "rhs_batch": "rhs_batch_dims",
    "lhs_ragged": "lhs_ragged_dims",
    "rhs_group": "rhs_group_dims",
}


def _dot_dims(
    attributes: Mapping[str, str], operands: Sequence[Shape | None], result: Shape | None
) -> Dims | None:
    """The dimension numbers; None where an attribute cannot be read.

    A dot without any is an outer product, if its result has the rank of one; text of early 2018
    leaves them out for matrices too, and there they are not known.
    """
    try:
        given = {
            name: parse_ints(attributes[attribute])
            for name, attribute in _DIM_ATTRIBUTES.items()
            if attribute in attributes
        }
    except ValueError:
        return None
    if given:
        return Dims(**{"lhs_contracting": (), "rhs_contracting": (), **given})
    ranks = [shape.rank for shape in (*operands, result) if shape is not None]
    outer = len(ranks) == 3 and ranks[0] + ranks[1] == ranks[2]
    return Dims((), ()) if outer else None


def _dtypes(
    operands: Sequence[Instruction], result: Shape | None, algorithm: str | None
) -> dict[str, str | None]:
    shapes = [shape_of(operand) for operand in operands] or [None, None]
    lhs, rhs = (None if shape is None else shape.dtype for shape in shapes)
    if result is not None and result.is_tuple:
        result = result.elements[0] if result.elements else None
    return {
        "lhs_dtype": lhs,
        "rhs_dtype": rhs,
        "accumulate_dtype": _accumulated(algorithm),
        "out_dtype": None if result is None else result.dtype,
    }


def _accumulated(algorithm: str | None) -> str | None:
    """`f32` of `dot_bf16_bf16_f32_x3`, `dot_any_f8_any_f8_f32_fast_accum`: the last dtype named."""
    parts = (algorithm or "").lower().removeprefix("dot_").split("_")
    dtypes = [part for part in parts if part[:1] in ("f", "b", "t") and part[-1:].isdigit()]
    return dtypes[-1] if len(dtypes) >= 3 else None


# ---------------------------------------------------------------------------------- convolutions


def _read_convolution(conv: Instruction, graph: CallGraph) -> _Matmul | None:
    operands = conv.operands[:2]
    attributes = attributes_of(conv)
    sizes = _conv_sizes([shape_of(one) for one in operands], result_of(conv), attributes)
    if sizes is None:
        return None
    ragged = any(map(_says_ragged, (conv, *_fusions_around(graph, conv))))
    columns: dict[str, object] = {
        "form": "convolution",
        **_written(conv, operands, attributes),
        "batch": sizes["batch"],
        "m": sizes["lhs"],
        "n": sizes["rhs"],
        "k": sizes["contracted"],
        "flops": None if ragged else 2 * prod(sizes.values()),
        "ragged": ragged,
        "dims": {name: attributes.get(name) for name in ("dim_labels", "window")},
    }
    return _Matmul(columns, operands)


def _conv_sizes(
    operands: Sequence[Shape | None], result: Shape | None, attributes: Mapping[str, str]
) -> Mapping[Kind, int] | None:
    """Sizes of the dot a convolution is; None where it is none or the text does not say."""
    lhs, rhs = operands if len(operands) == 2 else (None, None)
    labels, window = attributes.get("dim_labels"), attributes.get("window")
    if lhs is None or rhs is None or result is None or labels is None:
        return None
    try:
        return conv_as_dot(
            (lhs, rhs, result),
            parse_dim_labels(labels),
            None if window is None else parse_window(window),
            feature_groups=parse_int(attributes.get("feature_group_count", "1")),
            batch_groups=parse_int(attributes.get("batch_group_count", "1")),
        )
    except ValueError:
        return None


def _fusions_around(graph: CallGraph, instr: Instruction) -> Iterator[Instruction]:
    site = graph.only_caller(instr.computation)
    while site is not None and site.kind == "fusion":
        yield site.caller
        site = graph.only_caller(site.caller.computation)


def _fusion_backend(fusion: Instruction) -> str | None:
    """What makes the code of the fusion; None where its config names nothing that is known."""
    if not any(kind in fusion.tail for kind in _FUSION_KINDS):
        return None
    config = config_of(attributes_of(fusion))
    if config is None:
        return None
    kinds = (config.get(*path) for path in _FUSION_KIND)
    return next((_FUSION_KINDS[kind] for kind in kinds if kind in _FUSION_KINDS), None)


def _says_ragged(instruction: Instruction) -> bool:
    """Whether the TPU compiler's config calls the operation a ragged dot."""
    if "is_ragged_dot" not in instruction.tail:
        return False
    config = config_of(attributes_of(instruction))
    return config is not None and bool(config.get("convolution_algorithm_config", "is_ragged_dot"))


# ---------------------------------------------------------------------------------- gemm calls

_DIM_FIELDS: Final = {
    "lhs_contracting": "lhs_contracting_dimensions",
    "rhs_contracting": "rhs_contracting_dimensions",
    "lhs_batch": "lhs_batch_dimensions",
    "rhs_batch": "rhs_batch_dimensions",
}


_SCALED_DOTS: Final = frozenset(("__op$block_scaled_dot", "__cudnn$blockScaledDot"))
_ENGINE_GEMMS: Final = frozenset(("te_gemm_ffi", "te_gemm_v2_ffi"))
_ENGINE_FIELDS: Final = (
    "lhs_axis_boundary", "rhs_axis_boundary", "lhs_transposed", "rhs_transposed", "collective_op",
)  # fmt: skip


def _read_call(call: Instruction, known: Catalogue) -> _Matmul:
    entry = entry_of(call, known)
    config = config_of(attributes_of(call))
    get: Callable[..., object] = (lambda *_: None) if config is None else config.get
    gemm: tuple[str, ...] = ("gemm_backend_config",)
    if get("grouped_gemm_backend_config") is not None:
        gemm = ("grouped_gemm_backend_config", *gemm)
    elif get(*gemm) is None:
        gemm = ()  # before 2024 the fields stood at the top
    ragged = get("grouped_gemm_backend_config", "ragged_dot_dimension_numbers")
    dims = _config_dims(get(*gemm, "dot_dimension_numbers"), ragged)
    algorithm = _named(get(*gemm, "precision_config", "algorithm"), "alg_", "unset")
    precision = get(*gemm, "precision_config", "operand_precision")
    places: tuple[int, int] | None = None if dims is None else (0, 1)
    if dims is None:
        dims, places = _by_contract(target_of(call), call.operands, get)
    # Only where the config or the target's contract tells is it sure which its operands are.
    operands: tuple[Instruction, ...] = ()
    if places is not None and len(call.operands) > max(places):
        operands = tuple(call.operands[place] for place in places)
    columns: dict[str, object] = {
        "form": "custom_call",
        "target": target_of(call),
        "backend": entry.family,
        **_dtypes(operands, result_of(call), algorithm),
        "algorithm": algorithm,
        "operand_precision": (
            ",".join(str(one).lower() for one in precision) if isinstance(precision, list) else None
        ),
        **_sizes(dims, operands),
        "ragged": ragged is not None or entry.op == "grouped_gemm",
        "epilogue": _named(get(*gemm, "epilogue"), "", ""),
        "dims": None if dims is None else dims.described(),
    }
    return _Matmul(columns, operands)


def _by_contract(
    target: str | None, operands: Sequence[Instruction], get: Callable[..., object]
) -> tuple[Dims | None, tuple[int, int] | None]:
    """Dimension numbers of a call, and which operands are left and right, where its target fixes
    them; None for what it leaves open.

    A block-scaled dot takes left, right and their scales; both contract their last dimension
    (XLA's block_scaling_rewriter.cc). A gemm of TransformerEngine takes each operand in front of
    its scale, and from 2025 says where the dimensions of each are cut in two (its
    cpp_extensions/gemm.py); with communication inside the sizes of its products are not told.
    """
    if target in _SCALED_DOTS and len(operands) >= 4:
        shape = shape_of(operands[0])
        last = -1 if shape is None else shape.rank - 1
        dims = {1: Dims((1,), (1,)), 2: Dims((2,), (2,), (0,), (0,))}.get(last)
        return dims, (0, 1)
    if target not in _ENGINE_GEMMS:
        return None, None
    if len(operands) == 2:
        return None, (0, 1)
    if len(operands) < 6:
        return None, None
    fields = [get("config", name) if get("config") else get(name) for name in _ENGINE_FIELDS]
    lhs_at, rhs_at, lhs_transposed, rhs_transposed, together = fields
    shapes = [shape_of(operands[place]) for place in (0, 2)]
    dims = None
    if isinstance(lhs_at, int) and isinstance(rhs_at, int) and not together and None not in shapes:
        lhs, rhs = (() if shape is None else range(shape.rank) for shape in shapes)
        dims = Dims(
            tuple(lhs[:lhs_at] if lhs_transposed else lhs[lhs_at:]),
            tuple(rhs[rhs_at:] if rhs_transposed else rhs[:rhs_at]),
        )
    return dims, (0, 2)


def _named(value: object, prefix: str, nothing: str) -> str | None:
    """An enum of a config in lower case without its prefix; NULL where it names nothing."""
    if not isinstance(value, str):
        return None
    text = value.lower().removeprefix(prefix)
    return None if text == nothing else text


def _config_dims(numbers: object, ragged: object) -> Dims | None:
    """Dimension numbers of a gemm's config: integers, also as text; None where it has none."""
    if not isinstance(numbers, Mapping):
        return None
    fields: dict[str, object] = {name: numbers.get(key, []) for name, key in _DIM_FIELDS.items()}
    if isinstance(ragged, Mapping):
        inner = ragged.get("dot_dimension_numbers")
        if isinstance(inner, Mapping):
            fields = {name: inner.get(key, []) for name, key in _DIM_FIELDS.items()}
        fields["lhs_ragged"] = ragged.get("lhs_ragged_dimensions", [])
        fields["rhs_group"] = ragged.get("rhs_group_dimensions", [])
    read: dict[str, tuple[int, ...]] = {}
    for name, given in fields.items():
        if not isinstance(given, list) or not all(str(one).isdigit() for one in given):
            return None
        read[name] = tuple(int(one) for one in given)
    return Dims(**read)


# ---------------------------------------------------------------------------------- converts


@dataclass(frozen=True, slots=True)
class _Convert:
    """A convert next to a matmul: of which operand (None: of the result), and seen as what."""

    instr: Instruction
    operand: int | None
    source: str
    target: str
    via: Instruction

    def __str__(self) -> str:
        place = "result" if self.operand is None else ("lhs", "rhs")[self.operand]
        return f"{place} {self.source}->{self.target}"

    def described(self) -> dict[str, object]:
        place = {} if self.operand is None else {"operand": self.operand}
        return {**place, "from": self.source, "to": self.target, "via": self.via.name}


def _converts_before(
    graph: CallGraph, matmul: Instruction, operands: Sequence[Instruction]
) -> list[_Convert]:
    found = []
    for number, operand in enumerate(operands):
        instr = trace(graph, Value(operand), moves=_MOVES).instr
        if instr.opcode == "convert":
            convert = _described(graph, matmul, instr, number)
            if convert is not None:
                found.append(convert)
    return found


def _convert_after(graph: CallGraph, matmul: Instruction) -> list[_Convert]:
    """The nearest convert of the result, alone in a list; [] where there is none."""
    result = result_of(matmul)
    element = (0,) if result is not None and result.is_tuple else ()
    path = (1, *element) if matmul.opcode.endswith("-start") else element
    for user in consumers(graph, matmul, path, moves=_MOVES):
        if user.opcode == "convert":
            convert = _described(graph, matmul, user, None)
            if convert is not None:
                return [convert]
    return []


def _described(
    graph: CallGraph, matmul: Instruction, convert: Instruction, operand: int | None
) -> _Convert | None:
    """The convert with its dtypes; None where it stands across a loop, branch or call from the
    matmul, for then it is not next to it."""
    via = _outermost(graph, convert, set(_fused_in(graph, matmul)))
    region, beside = _fused_in(graph, matmul)[-1], _fused_in(graph, convert)[-1]
    source = shape_of(convert.operands[0]) if convert.operands else None
    target = shape_of(convert)
    if region != beside or source is None or target is None:
        return None
    return _Convert(convert, operand, source.dtype, target.dtype, via)


def _fused_in(graph: CallGraph, instr: Instruction) -> list[Computation]:
    """The computation of `instr` and those around it through fusions, the outermost last."""
    around = [instr.computation]
    while (site := graph.only_caller(around[-1])) is not None and site.kind == "fusion":
        around.append(site.caller.computation)
    return around


def _outermost(graph: CallGraph, instr: Instruction, around: set[Computation]) -> Instruction:
    """`instr`, or the fusion that holds it, as seen from one of the computations `around`."""
    while instr.computation not in around:
        site = graph.only_caller(instr.computation)
        if site is None or site.kind != "fusion":
            break
        instr = site.caller
    return instr


PASS = MatmulsPass()
