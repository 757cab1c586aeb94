"""Sizes that a question gives to the free dimensions of a model's inputs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from forerun.data.errors import BadShape

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
        batch_size: size of free batch dimensions.
        sequence_length: size of free sequence dimensions; 128 where it is None.
        image_size: size of free heights and widths, pixels; 224 where it is None.
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
