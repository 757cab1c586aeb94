"""Shares of a device's peaks that training reaches, and the time of a step that follows."""

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, fields, replace
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Names
from forerun.features.llm_training.step import PARTS, StepWork

OVERLAP: Final = 0.7
"""Share of the arithmetic of a step behind which messages between data-parallel devices hide."""
KERNEL_S: Final = 3e-6
"""Time between the starts of two kernels."""
SHRINKAGE: Final = 0.05
"""Weight of the squared logarithms of rates over their prior ones."""
ROUND: Final = 0.1
"""Log error up to which the loss is about quadratic."""
STEPS: Final = 6
"""Sweeps of the search over all rates."""


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

    Above 1 for messages that are partly hidden. The defaults are priors.

    Attributes:
        exposed: share of messages between data-parallel devices that arithmetic does not hide even
            where it could.
    """

    linear: float = 0.75
    experts: float = 0.55
    attention: float = 0.5
    elementwise: float = 0.7
    states: float = 0.7
    tensor_messages: float = 0.6
    context_messages: float = 2.0
    expert_messages: float = 0.5
    exposed: float = 0.1

    def times(self, work: StepWork, pipeline: Column, chunks: Column, batches: Column) -> StepTimes:
        """Times of n steps.

        Args:
            work: their ideal times.
            pipeline: (n,) stages.
            chunks: (n,) groups of layers on each stage.
            batches: (n,) micro-batches.
        """
        each = {name: work.parts[name] / getattr(self, name) for name in PARTS}
        started = work.kernels * KERNEL_S
        layers = np.maximum(sum(each.values()), started)
        head = work.head / self.linear + work.head_traffic / self.elementwise
        stage = np.maximum(work.longest * layers, layers + head) / pipeline
        bubble = (pipeline - 1.0) / chunks * (layers + head) / pipeline
        busy = batches * stage
        sent = work.gathers + work.reductions
        shown = np.maximum(0.0, sent - OVERLAP * busy) + self.exposed * np.minimum(sent, busy)
        share = batches / pipeline
        parts = {name: own * share for name, own in each.items()}
        parts |= {"head": head * share, "bubble": bubble, "data_messages": shown}
        parts |= {"optimizer": work.optimizer / self.elementwise, "host": work.host}
        total = busy + bubble + shown + parts["optimizer"] + work.host
        return StepTimes(parts, started * share, total)

    def fitted(self, total: "Callable[[Rates], Column]", logs: Column, effects: Names, weights: Column) -> Self:
        """Rates that fit measured steps, found by Powell's method in logarithms.

        Args:
            total: gives the times of n steps for rates.
            logs: (n,) logarithms of measured seconds.
            effects: n names; rows with the same name share an error that is not the rates', such
                as that of a framework.
            weights: (n,) weights of rows.
        """
        from scipy.optimize import minimize

        groups = [effects == name for name in np.unique(effects)]
        prior = np.log(astuple(self))

        def rates(steps: Column) -> Self:
            found = np.exp(prior + steps)
            names = (f.name for f in fields(self))
            return replace(self, **dict(zip(names, map(float, found), strict=True)))

        def loss(steps: Column) -> float:
            errors = logs - np.log(total(rates(steps)))
            for own in groups:
                shared = weights[own] @ errors[own] / (weights[own].sum() + 1.0)
                errors = np.where(own, errors - shared, errors)
            size = weights @ np.sqrt(errors**2 + ROUND**2)
            return float(size + SHRINKAGE * steps @ steps)

        options = {"maxiter": STEPS, "xtol": 0.02, "ftol": 1e-3}
        found = minimize(loss, np.zeros(len(prior)), method="Powell", options=options)
        return rates(found.x)

