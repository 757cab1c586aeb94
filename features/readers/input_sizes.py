"""Sizes that a question gives to the free dimensions of a model's inputs, and which grow with it.

A program is read at a prime batch size, to find the dimensions that grow with the batch.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from forerun.data.errors import BadShape
from forerun.data.graph import Operator, Shape

GivenShape = tuple[int | None, ...]
"""Sizes of the dimensions of one input; None for one that is left to the file and the defaults."""

DEFAULT_SEQUENCE_LENGTH = 128
DEFAULT_IMAGE_SIZE = 224
DEFAULT_CHANNELS = 3
MAX_SIZE = 2**24
_FORM = re.compile(r"(.+)[=:]((?:-?\d+|\?)(?:x(?:-?\d+|\?))*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class InputSizes:
    """What a question says about the sizes of inputs.

    Attributes:
        batch_size: size of dynamic batch dimensions.
        sequence_length: size of dynamic sequence dimensions; 128 where it is None.
        image_size: size of dynamic heights and widths, pixels; 224 where it is None.
        shapes: name of an input -> its shape.
    """

    batch_size: int = 1
    sequence_length: int | None = None
    image_size: int | None = None
    shapes: Mapping[str, GivenShape] = field(default_factory=dict)

    def refuse_shapes(self, where: str, why: str) -> None:
        """Refuse shapes and an image size for a format that cannot take them.

        Raises:
            BadShape: one of them was given.
        """
        if self.shapes or self.image_size is not None:
            raise BadShape(f"{where} takes no shapes and no image size: {why}.")


def parse_shapes(texts: Iterable[str]) -> dict[str, GivenShape]:
    """Name of an input -> shape, from texts such as `images=1x3x640x640` or `images:1x3x?x?`.

    Raises:
        BadShape: a text has another form, or one input is given two shapes.
    """
    shapes: dict[str, GivenShape] = {}
    for text in texts:
        found = _FORM.fullmatch(text)
        if found is None:
            raise BadShape(f"Shape {text!r:.80} is not of the form name=1x3x640x640.")
        name, listed = found.groups()
        sizes = tuple(None if part == "?" else int(part[:20]) for part in listed.split("x"))
        if shapes.setdefault(name, sizes) != sizes:
            raise BadShape(f"Input {name!r:.80} is given two shapes.")
    return shapes


PROBE_BATCH = 10007
"""A prime: a dimension read at this batch contains the batch exactly if it is a multiple of it."""


@dataclass(frozen=True)
class Probe:
    """State of probing: whether a program was read at the probing batch size.

    Attributes:
        active: False where the program fixes its batch; then nothing is known from shapes.
    """

    active: bool

    def holds_batch(self, shape: Shape) -> bool:
        """Whether one of the dimensions is a multiple of the batch."""
        return any(d and d % PROBE_BATCH == 0 for d in shape)

    def size(self, size: int, batch: int) -> int:
        """A size that was read at the probing batch size, scaled to another batch size."""
        return size // PROBE_BATCH * batch if self.active and not size % PROBE_BATCH else size

    def at(self, op: Operator, batch: int) -> Operator:
        """An operator that was read at the probing batch size, scaled to another batch size."""
        if not self.active:
            return op
        shapes = (
            tuple(tuple(self.size(d, batch) for d in shape) for shape in group)
            for group in (op.input_shapes, op.output_shapes)
        )
        inputs, outputs = shapes
        attributes, groups = op.attributes, op.attributes.get("groups")
        if isinstance(groups, int):
            # Convolutions with weights of each sample have the batch in their channels and groups.
            attributes = {**attributes, "groups": self.size(groups, batch)}
        return replace(op, input_shapes=inputs, output_shapes=outputs, attributes=attributes)
