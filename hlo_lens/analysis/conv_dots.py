"""Convolutions that are dots: TPU writes nearly every dot as one, batch dimensions as windows.

In a spatial dimension, output o meets window position k at input i where
o·stride + k·rhs_dilate − pad = i·lhs_dilate. With size N, the dimension is one of a dot if that
pairs things off one to one. Of a longer input it takes N that follow on each other, from f on,
where pad is −f·lhs_dilate (TPU folds slices into windows); i counts from there:

    contracted  outputs 1, window and input N: k = i
    lhs         window 1, input and outputs N: o = i
    rhs         input 1, window and outputs N: k = N − 1 − o
    batch       all N: o = k = i, and no other pair (XLA: stride N − 1, lhs_dilate N)

Where the window is reversed (rhs_reversal), N − 1 − k stands for k: rhs pairs k = o, and a batch
has stride N, lhs_dilate N − 1 and pad N − 1. With any other dimension a convolution is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from hlo_lens.hlo import Shape
from hlo_lens.hlo.attributes import DimLabels, Window

Kind = Literal["batch", "lhs", "rhs", "contracted"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial dimension: sizes of input, window and output, and how they meet."""

    inputs: int
    window: int
    outputs: int
    stride: int = 1
    pad: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1
    reversed: bool = False

    @classmethod
    def of(cls, sizes: Sequence[int], window: Window, at: int) -> Axis:
        """Spatial dimension `at` of a window, with the sizes of input, window and output.

        Raises IndexError or ValueError where window and sizes do not fit together.
        """
        inputs, size, outputs = sizes
        if window.size[at] != size:
            raise ValueError("the window has another size")
        dilations = window.lhs_dilate[at], window.rhs_dilate[at]
        low, back = window.pad[at][0], window.rhs_reversal[at]
        return cls(inputs, size, outputs, window.stride[at], low, *dilations, back)

    @property
    def kind(self) -> Kind | None:
        """Which dimension of a dot it is, "batch" for one of size 1; None where it is none."""
        size = max(self.window, self.outputs)  # of a longer input, only so much is read
        if self.inputs > size and self.lhs_dilate > 0:
            first, between = divmod(-self.pad, self.lhs_dilate)
            taken = not between and 0 <= first <= self.inputs - size
            return replace(self, inputs=size, pad=0).kind if taken else None
        match (self.outputs == size, self.window == size, self.inputs == size):
            case True, True, True:
                return "batch" if self._pairs(size) else None
            case False, True, True:
                exact = self.outputs == 1 and self.rhs_dilate == self.lhs_dilate
                return "contracted" if exact and not self.pad else None
            case True, False, True:
                exact = self.window == 1 and self.stride == self.lhs_dilate
                return "lhs" if exact and not self.pad else None
            case True, True, False:
                exact = self.inputs == 1 and self.stride == self.rhs_dilate
                return "rhs" if exact and self.pad == (size - 1) * self.rhs_dilate else None
        return None

    def _pairs(self, size: int) -> bool:
        """Whether o = k = i, and nothing else meets; see the head of the module.

        Straight, rhs_dilate·(k − o) = lhs_dilate·(i − o); reversed, rhs_dilate·(o − k) is that: k
        and o furthest apart would then meet an i outside.
        """
        if size == 1:
            return not self.pad
        furthest = self.rhs_dilate * (size - 1)
        if self.reversed:
            step = self.stride - self.rhs_dilate == self.lhs_dilate
            return step and furthest <= self.lhs_dilate and self.pad == furthest
        step = self.stride + self.rhs_dilate == self.lhs_dilate
        return step and furthest < self.lhs_dilate and not self.pad


def spatial_kinds(
    labels: DimLabels, sizes: Sequence[Mapping[str, int]], window: Window | None
) -> dict[str, Kind]:
    """What each spatial dimension of a convolution is in the dot that it is, by label, in order.

    sizes: of left operand, right operand and result, by label. Raises ValueError where a dimension
    is none of a dot, KeyError or IndexError where labels, sizes and window do not fit together.
    """
    found: dict[str, Kind] = {}
    for at, label in enumerate(sorted(set(labels.lhs) - set("bf?"))):
        each = [of[label] for of in sizes]
        if window is not None:
            kind = Axis.of(each, window, at).kind
        else:
            kind = "batch" if max(each) == 1 else None
        if kind is None:
            raise ValueError("no dimension of a dot")
        found[label] = kind
    return found


@dataclass(frozen=True, slots=True)
class ConvDot:
    """The dot that a convolution is: the size of each batch dimension that is not 1, and the
    products of the other dimensions of the left operand, of the right one, and of those summed."""

    batches: tuple[int, ...]
    lhs: int
    rhs: int
    contracted: int

    @property
    def batch(self) -> int:
        return prod(self.batches)


def conv_as_dot(
    shapes: tuple[Shape, Shape, Shape],
    labels: DimLabels,
    window: Window | None,
    *,
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> ConvDot | None:
    """The dot that a convolution is, from the shapes of its operands and result; None where it is
    none, or its text is at odds with itself.

    Groups of features or of the batch are batch dimensions of the dot.
    """
    try:
        lhs, rhs, out = map(_sizes, shapes, (labels.lhs, labels.rhs, labels.output))
        rows, features, contracted = lhs["b"], rhs["o"], rhs["i"]
        kinds = spatial_kinds(labels, (lhs, rhs, out), window)
    except (KeyError, IndexError, ValueError):
        return None
    groups = feature_groups * batch_groups
    if groups < 1 or rows % batch_groups or features % groups:
        return None
    sizes: dict[Kind, list[int]] = {
        "batch": [groups],
        "lhs": [rows // batch_groups],
        "rhs": [features // groups],
        "contracted": [contracted],
    }
    for label, kind in kinds.items():
        sizes[kind].append(max(rhs[label], out[label]))
    return ConvDot(
        tuple(size for size in sizes["batch"] if size != 1),
        prod(sizes["lhs"]),
        prod(sizes["rhs"]),
        prod(sizes["contracted"]),
    )


def _sizes(shape: Shape, labels: str) -> dict[str, int]:
    """Size by label. Raises ValueError where a size is not known or the rank is another."""
    sizes: dict[str, int] = {}
    for label, size in zip(labels, shape.dimensions, strict=True):
        if size is None:
            raise ValueError("a dimension without a bound")
        sizes[label] = size
    return sizes
