"""Free dimensions of an ONNX graph's inputs, bound to the numbers of a question."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from forerun.data.errors import BadShape, UnreadableModel
from forerun.data.graph import BindingReason, BoundDimension, Shape
from forerun.features.readers.input_sizes import (
    DEFAULT_CHANNELS,
    DEFAULT_IMAGE_SIZE,
    DEFAULT_SEQUENCE_LENGTH,
    MAX_SIZE,
    GivenShape,
    InputSizes,
)

_BATCH = re.compile(r"^(n|b|bs|batch.*|.*_batch|.*batch_?size.*)$", re.IGNORECASE)
_PAST = re.compile(r"past", re.IGNORECASE)
_SEQUENCE = re.compile(r"seq|len|time|token|frame|^t$|^s$|^l$", re.IGNORECASE)
_IMAGE = re.compile(r"^(h|w|height|width|.*(height|width|size|image).*)$", re.IGNORECASE)
_CHANNELS = re.compile(r"^(c|.*channel.*)$", re.IGNORECASE)
_STATE = re.compile(r"state|hidden|^[hc]_?[0n]?$", re.IGNORECASE)
"""Names of inputs that hold the state of a recurrent layer, whose second dimension is the batch."""
_NO_NAMES = frozenset({"", "?", "*", "-1", "None", "none", "unk", "unknown", "dynamic"})
"""Labels that exporters write for dimensions without a name; two of them may differ in size."""

InputDims = Mapping[str, Sequence[Any]]
"""Name of an input -> its `TensorShapeProto.Dimension`s."""


class Binding:
    """Names of free dimensions -> sizes.

    A given shape decides first. The first dimension of an input, and what is called batch, is the
    batch. Names that speak of a sequence get the sequence length, lengths of the past get 0 (a
    prompt is read, not a next token), heights and widths the image size, channels 3. Without a
    name, an input of rank 4 is an image and one of lower rank a sequence.

    Args:
        sizes: what the question gives.
        batch: size at which batch dimensions are read.
        inputs: the graph's inputs.
        where: name of the file in messages.

    Raises:
        BadShape: a given shape contradicts the inputs.
        UnreadableModel: a dimension is zero or negative.
    """

    def __init__(self, sizes: InputSizes, batch: int, inputs: InputDims, where: str) -> None:
        self.batch = batch
        self.batch_is_free = False
        self.bound: list[BoundDimension] = []
        self._sizes, self._inputs, self._where = sizes, inputs, where
        self._named: dict[str, tuple[int, BindingReason]] = {}
        self._given: dict[tuple[str, int], int] = {}
        for name, shape in sizes.shapes.items():
            self._take_given(name, shape)
        self.shapes = {name: self._shape(name, dims) for name, dims in inputs.items()}
        self._check_image_size()

    def declared_shape(self, dims: list[Any]) -> Shape | None:
        """The shape that a `value_info` declares; None where no input has one of its dimensions."""
        found: list[int] = []
        for dim in dims:
            if dim.HasField("dim_value"):
                found.append(dim.dim_value)
            elif dim.dim_param in self._named:
                found.append(self._named[dim.dim_param][0])
            else:
                return None
        return tuple(found)

    def _take_given(self, name: str, shape: GivenShape) -> None:
        dims = self._inputs.get(name)
        if dims is None:
            raise self._contradiction(f"there is no input {name!r:.80}")
        if len(dims) != len(shape):
            raise self._contradiction(f"{name!r} has {len(dims)} dimensions, not {len(shape)}")
        for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if size is None:
                continue
            if not 1 <= size <= MAX_SIZE:
                raise self._contradiction(
                    f"dimension {axis} of {name!r} is given as {size}; sizes are from 1 to "
                    f"{MAX_SIZE:,}"
                )
            label = dim.dim_param
            if not is_free(dim):
                if size != dim.dim_value:
                    raise self._contradiction(
                        f"dimension {axis} of {name!r} is fixed at {dim.dim_value}, not {size}"
                    )
            elif not self._is_batch_of(name, label, axis, size):
                self._given[name, axis] = size
                if label not in _NO_NAMES and self._name(label, size, "given") != size:
                    raise self._contradiction(f"{label!r} is given two sizes")

    def _is_batch_of(self, name: str, label: str, axis: int, size: int) -> bool:
        """Whether a given size is that of the batch, by the dimension's name or place."""
        batch = self._sizes.batch_size
        if _is_batch(label, axis) and size != batch:
            raise self._contradiction(
                f"dimension {axis} of {name!r} is the batch, given as {size}, but the batch size "
                f"is {batch} (write ? in its place)"
            )
        return _is_batch(label, axis)

    def _name(self, label: str, size: int, why: BindingReason) -> int:
        """Remember the size of a named dimension; returns the size that it has."""
        return self._named.setdefault(label, (size, why))[0]

    def _check_image_size(self) -> None:
        """Refuse an image size that no dimension can take and that no input has already."""
        pixels = self._sizes.image_size
        free = any(bound.size == pixels and bound.why == "given" for bound in self.bound)
        fixed = any(len(s) == 4 and s.count(pixels) >= 2 for s in self.shapes.values() if pixels)
        if pixels is not None and not free and not fixed:
            raise self._contradiction(f"no input has a free height or width to be {pixels}")

    def _contradiction(self, what: str) -> BadShape:
        listed = ", ".join(f"{name} {_described(dims)}" for name, dims in self._inputs.items())
        return BadShape(f"{self._where}: {what}; its inputs are {listed:.600}.")

    def _shape(self, name: str, dims: Sequence[Any]) -> Shape:
        return tuple(self._bound(name, dim, axis, dims) for axis, dim in enumerate(dims))

    def _bound(self, name: str, dim: Any, axis: int, dims: Sequence[Any]) -> int:
        if not is_free(dim):
            if dim.dim_value <= 0:
                raise UnreadableModel(
                    f"input {name!r}", f"dimension {axis} is {dim.dim_value}; it must be positive."
                )
            return int(dim.dim_value)
        label, given = dim.dim_param, self._given.get((name, axis))
        why: BindingReason = "given"
        if given is not None:
            size = given
        elif label in self._named:
            size, why = self._named[label]
        else:
            size, why = self._sum_of_named(label) or self._guess(label, axis, dims, name)
            if label not in _NO_NAMES:
                self._name(label, size, why)
        self.batch_is_free |= why == "batch"
        self.bound.append(BoundDimension(name, axis, label, size, why))
        return size

    def _sum_of_named(self, label: str) -> tuple[int, BindingReason] | None:
        """`past_sequence_length + sequence_length`, where each part is named or a number."""
        parts = [p.strip() for p in label.split("+")]
        if len(parts) < 2:
            return None
        known = (self._named.get(p) or self._guess(p, 1, []) for p in parts if not p.isdigit())
        return sum(int(p) for p in parts if p.isdigit()) + sum(s for s, _ in known), "sum_of_others"

    def _guess(
        self, label: str, axis: int, dims: Sequence[Any], name: str = ""
    ) -> tuple[int, BindingReason]:
        is_state = axis == 1 and len(dims) == 3 and _STATE.search(name) and not is_free(dims[0])
        if _is_batch(label, axis) or is_state:
            return self.batch, "batch"
        if _PAST.search(label):
            return 0, "empty_past"
        if _SEQUENCE.search(label):
            return self._length()
        if _CHANNELS.match(label):
            return DEFAULT_CHANNELS, "default_channels"
        if _IMAGE.match(label):
            return self._pixels()
        if len(dims) < 4:
            return self._length()
        channels_last = dims[-1].HasField("dim_value") and dims[-1].dim_value in (1, 3, 4)
        is_channel = axis == (len(dims) - 1 if channels_last else 1)
        return (DEFAULT_CHANNELS, "default_channels") if is_channel else self._pixels()

    def _length(self) -> tuple[int, BindingReason]:
        given = self._sizes.sequence_length
        return (given, "given") if given else (DEFAULT_SEQUENCE_LENGTH, "default_sequence_length")

    def _pixels(self) -> tuple[int, BindingReason]:
        given = self._sizes.image_size
        return (given, "given") if given else (DEFAULT_IMAGE_SIZE, "default_image_size")


def is_free(dim: Any) -> bool:
    """Whether a `TensorShapeProto.Dimension` has no size; some exporters write that as -1."""
    return not dim.HasField("dim_value") or dim.dim_value == -1


def _is_batch(label: str, axis: int) -> bool:
    return bool(_BATCH.match(label)) or (axis == 0 and not _SEQUENCE.search(label))


def _described(dims: Sequence[Any]) -> str:
    """An input's shape as its file gives it, such as `[batch, 3, ?, ?]`."""
    sizes = (str(dim.dim_value) if not is_free(dim) else dim.dim_param or "?" for dim in dims)
    return f"[{', '.join(sizes)}]"


class Tensor(NamedTuple):
    """A tensor of the graph as far as it is known.

    Attributes:
        elem_type: ONNX element type, 0 when not known.
        shape: None when not known.
        constant: True when it does not depend on the values of the graph's inputs.
        value: its value as a numpy array where it is small and constant, else None.
        root: the weight it is a copy, cast or view of; itself for others.
        producers: positions of the operators that make it.
    """

    elem_type: int
    shape: Shape | None
    constant: bool = False
    value: Any = None
    root: str = ""
    producers: tuple[int, ...] = ()
