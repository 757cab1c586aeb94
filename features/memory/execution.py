"""How a runtime executes a graph, as far as memory sees it."""

from dataclasses import dataclass
from typing import Final

from forerun.data.software import Software


@dataclass(frozen=True, slots=True)
class Execution:
    """What of a run's software changes which tensors exist.

    Attributes:
        compiled: whether pointwise operators are fused, and computed again in the backward pass.
        channels_last: whether images lie with their channels last, as tensor cores read them.
    """

    compiled: bool = False
    channels_last: bool = False


EAGER: Final = Execution()


def execution(software: Software) -> Execution:
    """How a run's software executes its graph."""
    return Execution(software.fuses, software.layout == "nhwc")
