"""Free dimensions of an ONNX graph's inputs, bound to the numbers of a query."""

import re
from typing import Any, NamedTuple

from forerun.data.errors import UnreadableModel
from forerun.data.graph import Shape

DEFAULT_SEQUENCE_LENGTH = 128
DEFAULT_IMAGE_SIZE = 224
DEFAULT_CHANNELS = 3

_BATCH = re.compile(r"^(n|b|bs|batch.*|.*_batch|.*batch_?size.*)$", re.IGNORECASE)
_PAST = re.compile(r"past", re.IGNORECASE)
_SEQUENCE = re.compile(r"seq|len|time|token|^t$|^s$|^l$", re.IGNORECASE)
_IMAGE = re.compile(r"^(h|w|height|width|.*(height|width|size|image).*)$", re.IGNORECASE)
_CHANNELS = re.compile(r"^(c|.*channel.*)$", re.IGNORECASE)


class Binding:
    """Names of free dimensions -> numbers.

    The first dimension of an input, and what is called batch, is the batch. Names that speak of a
    sequence get `sequence_length`, lengths of the past get 0 (a prompt is read, not a next token),
    heights and widths 224, channels 3. Without a name, an input of rank 4 is an image and one of
    lower rank a sequence.

    Args:
        batch: size of batch dimensions.
        sequence_length: size of sequence dimensions.
    """

    def __init__(self, batch: int, sequence_length: int | None) -> None:
        self.batch = batch
        self._sequence = sequence_length or DEFAULT_SEQUENCE_LENGTH
        self._named: dict[str, int] = {}
        self.batch_is_free = False

    def input_shape(self, name: str, dims: list[Any]) -> Shape:
        """The shape of a graph input.

        Args:
            name: name of the input.
            dims: `TensorShapeProto.Dimension`s.

        Raises:
            UnreadableModel: a dimension is zero or negative.
        """
        return tuple(self._bound(name, dim, axis, dims) for axis, dim in enumerate(dims))

    def declared_shape(self, dims: list[Any]) -> Shape | None:
        """The shape that a `value_info` declares; None where no input has one of its dimensions."""
        sizes: list[int] = []
        for dim in dims:
            if dim.HasField("dim_value"):
                sizes.append(dim.dim_value)
            elif dim.dim_param in self._named:
                sizes.append(self._named[dim.dim_param])
            else:
                return None
        return tuple(sizes)

    def _bound(self, name: str, dim: Any, axis: int, dims: list[Any]) -> int:
        if dim.HasField("dim_value"):
            if dim.dim_value <= 0:
                raise UnreadableModel(
                    f"input {name!r}", f"dimension {axis} is {dim.dim_value}; it must be positive."
                )
            return int(dim.dim_value)
        label = dim.dim_param
        if label in self._named:
            return self._named[label]
        size = self._sum_of_named(label)
        if size is None:
            size = self._guess(label, axis, dims)
        if label:
            self._named[label] = size
        return size

    def _sum_of_named(self, label: str) -> int | None:
        """`past_sequence_length + sequence_length`, where each part is named or a number."""
        parts = [p.strip() for p in label.split("+")]
        if len(parts) < 2:
            return None
        return sum(
            int(p) if p.isdigit() else self._named.get(p, self._guess(p, 1, [])) for p in parts
        )

    def _guess(self, label: str, axis: int, dims: list[Any]) -> int:
        if _BATCH.match(label) or (axis == 0 and not _SEQUENCE.search(label)):
            self.batch_is_free = True
            return self.batch
        if _PAST.search(label):
            return 0
        if _SEQUENCE.search(label):
            return self._sequence
        if _CHANNELS.match(label):
            return DEFAULT_CHANNELS
        if _IMAGE.match(label):
            return DEFAULT_IMAGE_SIZE
        return self._by_rank(axis, dims)

    def _by_rank(self, axis: int, dims: list[Any]) -> int:
        if len(dims) < 4:
            return self._sequence
        channels_last = dims[-1].HasField("dim_value") and dims[-1].dim_value in (1, 3, 4)
        is_channel = axis == (len(dims) - 1 if channels_last else 1)
        return DEFAULT_CHANNELS if is_channel else DEFAULT_IMAGE_SIZE


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
