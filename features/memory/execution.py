"""Execution mode of a graph, as far as it affects memory."""

from dataclasses import dataclass
from typing import Final

from forerun.data.software import Software


@dataclass(frozen=True, slots=True)
class Execution:
    """Properties of a run's software that change which tensors exist.

    Attributes:
        compiled: whether pointwise operators are fused, and recomputed in the backward pass.
        channels_last: whether images are stored with channels last, as tensor cores read them.
    """

    compiled: bool = False
    channels_last: bool = False


EAGER: Final = Execution()


def execution(software: Software) -> Execution:
    """The execution mode of a run's software."""
    return Execution(software.fuses, software.layout == "nhwc")
