"""Shares of a device's peaks that training reaches, and the time of a step that follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from forerun.data.columns import Column, Columns
from forerun.features.llm_training.step import PARTS, StepWork

OVERLAP: Final = 0.7
"""Share of the arithmetic of a step behind which messages between data-parallel devices hide."""
EXPOSED: Final = 0.5
"""Share of these messages that arithmetic does not hide even where it could."""
RATES: Final[Mapping[str, float]] = MappingProxyType(
    {
        **{"linear": 1.0, "experts": 1.0, "attention": 0.4, "elementwise": 0.6, "states": 0.4},
        **{"tensor_messages": 0.5, "context_messages": 2.0, "expert_messages": 1.0},
    }
)
"""Part -> share of the best products, of peak arithmetic, bandwidth or link rates that is reached;
above 1 for messages that are partly hidden. Rounded from a fit to all runs of `published_training`:
fits without one family or one device answer about it no better."""


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


def step_times(work: StepWork) -> StepTimes:
    """Times of n steps by their ideal times."""
    pipeline, batches = work.pipeline, work.batches
    each = {name: work.parts[name] / RATES[name] for name in PARTS}
    sent, others = each["expert_messages"], sum(each.values()) - each["expert_messages"]
    # With groups of layers that take turns, one micro-batch's messages pass while another computes.
    each["expert_messages"] = np.where(work.chunks > 1, not_hidden(sent, others), sent)
    layers = np.maximum(sum(each.values()), work.starts)
    head = work.head / RATES["linear"] + work.head_traffic / RATES["elementwise"]
    stage = np.maximum(work.longest * layers / pipeline, work.last * layers / pipeline + head)
    waiting = np.maximum(layers + head - work.filling / RATES["linear"], 0.0)
    bubble = (pipeline - 1.0) / work.chunks * waiting / pipeline
    busy = batches * stage
    shown = not_hidden(work.gathers + work.reductions, busy)
    share = batches / pipeline
    parts = {name: own * share for name, own in each.items()}
    parts |= {"head": head * share, "bubble": bubble, "data_messages": shown}
    parts |= {"optimizer": work.optimizer / RATES["elementwise"], "host": work.host}
    total = busy + bubble + shown + parts["optimizer"] + work.host
    return StepTimes(parts, work.starts * share, total)


def not_hidden(sent: Column, busy: Column) -> Column:
    """Time of messages between data-parallel devices that n busy times do not hide, (n,)."""
    return np.asarray(np.maximum(0.0, sent - OVERLAP * busy) + EXPOSED * np.minimum(sent, busy))
