"""Reading a program at a prime batch, to see exactly what grows with it."""

from dataclasses import dataclass, replace

from forerun.data.graph import Operator, Shape

PROBE_BATCH = 10007
"""A prime: read at this batch, a dimension holds the batch exactly when it divides by it."""


@dataclass(frozen=True)
class Probe:
    """Whether a program was read at the probing batch.

    Attributes:
        active: False where the program fixes its batch; then nothing is known from shapes.
    """

    active: bool

    def holds_batch(self, shape: Shape) -> bool:
        """Whether one of the dimensions is a multiple of the batch."""
        return any(d and d % PROBE_BATCH == 0 for d in shape)

    def at(self, op: Operator, batch: int) -> Operator:
        """An operator read at the probing batch, at another batch."""
        if not self.active:
            return op
        return replace(
            op,
            input_shapes=_bound(op.input_shapes, batch),
            output_shapes=_bound(op.output_shapes, batch),
        )


def _bound(shapes: tuple[Shape, ...], batch: int) -> tuple[Shape, ...]:
    return tuple(
        tuple(d // PROBE_BATCH * batch if d % PROBE_BATCH == 0 else d for d in shape)
        for shape in shapes
    )
