"""Shares of a device's peaks that training reaches, and the time of a step that follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Column, Columns
from forerun.features.llm_training.step import PARTS, StepWork

OVERLAP: Final = 0.7
"""Share of the arithmetic of a step behind which messages between data-parallel devices hide."""


@dataclass(frozen=True, slots=True)
class StepTimes(Columns):
    """Seconds of n steps.

    Attributes:
        parts: part -> time in the step: those of `PARTS`, the output head, the pipeline's bubble,
            messages between data-parallel devices that nothing hides, optimizer, host.
        launches: time between starts of kernels, which is hidden where the parts take longer.
        total: the step.
    """

    parts: Mapping[str, Column]
    launches: Column
    total: Column

    def __len__(self) -> int:
        return len(self.total)


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of peak arithmetic, bandwidth and link rates that are reached.

    Above 1 for messages that are partly hidden. The defaults are rounded from a fit to all runs of
    `published_training`; fits without one family or one device answer about it no better.

    Attributes:
        exposed: share of messages between data-parallel devices that arithmetic does not hide even
            where it could.
    """

    linear: float = 0.9
    experts: float = 0.9
    attention: float = 0.4
    elementwise: float = 0.6
    states: float = 0.4
    tensor_messages: float = 0.5
    context_messages: float = 2.0
    expert_messages: float = 1.0
    exposed: float = 0.5

    def times(self, work: StepWork, pipeline: Column, chunks: Column, batches: Column) -> StepTimes:
        """Times of n steps.

        Args:
            work: their ideal times.
            pipeline: (n,) stages.
            chunks: (n,) groups of layers on each stage.
            batches: (n,) micro-batches.
        """
        each = {name: work.parts[name] / getattr(self, name) for name in PARTS}
        layers = np.maximum(sum(each.values()), work.starts)
        head = work.head / self.linear + work.head_traffic / self.elementwise
        stage = np.maximum(work.longest * layers, layers + head) / pipeline
        bubble = (pipeline - 1.0) / chunks * (layers + head) / pipeline
        busy = batches * stage
        shown = self.not_hidden(work.gathers + work.reductions, busy)
        share = batches / pipeline
        parts = {name: own * share for name, own in each.items()}
        parts |= {"head": head * share, "bubble": bubble, "data_messages": shown}
        parts |= {"optimizer": work.optimizer / self.elementwise, "host": work.host}
        total = busy + bubble + shown + parts["optimizer"] + work.host
        return StepTimes(parts, work.starts * share, total)

    def not_hidden(self, sent: Column, busy: Column) -> Column:
        """Time of messages between data-parallel devices that n busy times do not hide, (n,)."""
        shown = np.maximum(0.0, sent - OVERLAP * busy) + self.exposed * np.minimum(sent, busy)
        return np.asarray(shown)
