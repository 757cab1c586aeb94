"""Limits of predicted designs: directives outside the training set, and excess resources."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from forerun.data.columns import Column
from forerun.data.workload import Design
from forerun.models.hls_designs.features import METRICS, ROUNDED, facts_by_metric
from forerun.models.limit import Limit

RESOURCES: Final[Mapping[str, str]] = facts_by_metric("resource")
"""Metric that is a share of the chip -> the resource."""
_PIPE: Final = "__PIPE__"
_OF_PROGRAMS: Final = "measured designs of all programs"
Directives = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class DirectiveRange:
    """Values of directives in measured designs.

    An unknown slot accepts only the value without effect: 1 or `off`.

    Attributes:
        factors: slot, or kind of slots such as `__PARA__` -> smallest and largest factor.
        pipes: slot, or the kind `__PIPE__` -> choices.
        whose: the measured designs in words.
    """

    factors: Mapping[str, tuple[float, float]]
    pipes: Mapping[str, frozenset[str]]
    whose: str

    @classmethod
    def of_program(cls, designs: Iterable[Directives]) -> Self:
        """The values per slot in designs of one program."""
        return cls({}, {}, "measured designs of this program").with_designs(designs)

    @classmethod
    def of_programs(cls, designs: Iterable[Directives]) -> Self:
        """The values per kind of slots in designs of several programs."""
        return cls({}, {}, _OF_PROGRAMS).with_designs(designs)

    def with_designs(self, designs: Iterable[Directives]) -> Self:
        """The range extended by further designs."""
        factors, pipes = dict(self.factors), dict(self.pipes)
        for slot, value in {pair for directives in designs for pair in directives}:
            name = _kind(slot) if self.whose == _OF_PROGRAMS else slot
            if slot.startswith(_PIPE):
                pipes[name] = pipes.get(name, frozenset()) | {value}
            else:
                factor = _factor(value)
                low, high = factors.get(name, (factor, factor))
                factors[name] = min(low, factor), max(high, factor)
        return replace(self, factors=factors, pipes=pipes)

    def outside(self, design: Design) -> tuple[Limit, ...]:
        """A limit for each directive of a design with a value outside the range."""
        found = (self._limit(slot, value) for slot, value in design.directives)
        return tuple(limit for limit in found if limit is not None)

    def _limit(self, slot: str, value: str) -> Limit | None:
        kind = _kind(slot)
        if kind == _PIPE:
            choices = self.pipes.get(slot) or self.pipes.get(kind, frozenset({"off"}))
            known = " or ".join(map(repr, sorted(choices)))
            inside, choice = value in choices, repr(value)
            return None if inside else Limit(f"{slot} is {choice}, {self.whose} have {known}")
        low, high = self.factors.get(slot) or self.factors.get(kind, (1.0, 1.0))
        factor = _factor(value)
        if low <= factor <= high:
            return None
        known = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
        message = f"{slot} is {factor:,.0f}, {self.whose} have {known}"
        return Limit(message, feature=slot, value=factor, low=low, high=high)


def chip_limits(value: Column, low: Column, high: Column) -> tuple[Limit, ...]:
    """A refusal of a design that needs more than the chip has, or a note that it might.

    Args:
        value: predictions of the metrics of one design, (len(METRICS),).
        low: lower ends of their prediction intervals; the predictions if there are none.
        high: upper ends, likewise.
    """
    shares = [METRICS.index(metric) for metric in RESOURCES]
    needed = [at for at in shares if value[at] > 1.0 + ROUNDED]
    perhaps = [at for at in shares if at not in needed and high[at] > 1.0]
    found: list[Limit] = []
    if needed:
        end = "it does not fit" if max(low[needed]) > 1.0 else "it probably does not fit"
        message = f"it needs {_times(needed, value)} of the chip: {end}"
        found.append(Limit(message, severity="refusal"))
    if perhaps:
        message = f"it needs up to {_times(perhaps, high)} of the chip by the upper end"
        found.append(Limit(f"{message} of the interval: it may not fit", severity="note"))
    return tuple(found)


def _times(columns: Sequence[int], shares: Column) -> str:
    """For example `22 times the DSP blocks and 9.01 times the LUTs`."""
    parts = [f"{_figure(shares[at])} times the {RESOURCES[METRICS[at]]}" for at in columns]
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _figure(share: float) -> str:
    return f"{share:,.0f}" if share >= 100.0 else f"{share:.3g}"


def _kind(slot: str) -> str:
    """`__PARA__` of `__PARA__L0`."""
    return slot[: slot.find("__", 2) + 2]


def _factor(value: str) -> float:
    """The factor of a directive; 1, which has no effect, if it is not a number."""
    try:
        return max(float(value), 1.0)
    except ValueError:
        return 1.0
