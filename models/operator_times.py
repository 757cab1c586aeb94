"""Times of single operators, by which a predictor of sums of operators divides its answer."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from forerun.data.columns import Column
from forerun.data.query import Query


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The time of operators with equal labels, before corrections of the whole network.

    Attributes:
        label: the operator with its shapes; several operators joined by `+` are one fused kernel.
        op_class: operator class under which the breakdown of the predictor counts it.
        count: number of runs in one pass.
        ms: time of all of them together, milliseconds, never negative.
    """

    label: str
    op_class: str
    count: float
    ms: float


@runtime_checkable
class TimesOperators(Protocol):
    """A predictor that gives the times of a query's operators."""

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Time of each operator as the predictor adds it up, before corrections of the whole."""
        ...


def merged_times(
    labels: Sequence[str], op_classes: Sequence[str], counts: Column, ms: Column
) -> list[OperatorTime]:
    """The times of n operators, with those of equal label and class added up.

    Args:
        labels: n labels.
        op_classes: n operator classes.
        counts: (n,) runs in one pass.
        ms: (n,) time of all runs of each, milliseconds.
    """
    totals: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    keys = zip(labels, op_classes, strict=True)
    for key, count, own in zip(keys, counts.tolist(), ms.tolist(), strict=True):
        totals[key][0] += count
        totals[key][1] += own
    return [OperatorTime(*key, *total) for key, total in totals.items()]
