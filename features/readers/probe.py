"""Reading a program at a prime batch size, to find the dimensions that grow with it."""

from dataclasses import dataclass, replace

from forerun.data.graph import Operator, Shape

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
