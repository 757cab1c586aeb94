"""Limits of a prediction as data: a metric, a feature with its range, and a sentence.

Grades of trust are derived from them.
"""

from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["note", "transfer", "outside", "refusal"]
"""`note`: information that does not put a query outside the domain. `transfer`: the device or
program was not measured, and the interval was calibrated on held-out ones. `outside`: something in
the query is outside the range of the training set, or an interval is not calibrated. `refusal`:
the workload cannot run as asked, or an estimate is withheld for the reason that answers give under
`missing`."""

Grade = Literal["A", "B", "C"]
"""`A`: the device was measured, and the query is within the range of the training set. `B`: the
device or program was not measured, and the interval was calibrated on held-out ones. `C`:
extrapolated beyond the training set, or without a calibrated interval."""

Basis = Literal["measured", "transferred", "analytic"]
"""`measured`: runs on this device are in the training set. `transferred`: only runs on other
devices are. `analytic`: the analytical model without fitting."""
LATENCY: Final = "latency_ms"
POWER: Final = "power_w"
PEAK_MEMORY: Final = "peak_memory_mib"
HELD: Final = "the device holds only the largest at a time"
NOT_COPIED: Final = "the time to load weights from host memory is not included"
NOT_APPLIED: Final = "no limit is applied"
ALWAYS_SHOWN: Final = (HELD, NOT_COPIED, NOT_APPLIED)
"""Final parts of the limits that short answers show too: of a pipeline whose parts are offloaded to
host memory, and of a power limit without effect."""
_TOPICS: Final = {POWER: "power: ", PEAK_MEMORY: "memory: "}


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a prediction.

    Attributes:
        message: one plain sentence without its topic; empty for a feature outside its range, whose
            sentence is derived from the figures.
        metric: what it concerns: `latency_ms` for all times, `power_w` for power and energy,
            `peak_memory_mib` for all memory; None for every metric of a prediction with neither
            power nor memory.
        severity: as `Severity`.
        feature: name of the feature or setting outside its range; None for a limit that is not
            about one number.
        value: its value in the query; None without a feature.
        low, high: its range in the training set; None without a feature.
    """

    message: str
    metric: str | None = None
    severity: Severity = "outside"
    feature: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        """The sentence, prefixed with its topic if it is about power or memory."""
        return _TOPICS.get(self.metric or "", "") + (self.message or self._range_sentence())

    def _range_sentence(self) -> str:
        known = f"{self.low:.3g} to {self.high:.3g}"
        return f"{self.feature} is {self.value:.3g}; the training set has {known}"

    @property
    def in_domain(self) -> bool:
        """Whether the query remains inside the domain of the training set."""
        return self.severity == "note"

    def concerns(self, metric: str) -> bool:
        """Whether the limit concerns a metric; limits of power and of time both concern energy."""
        if metric.endswith("_mib"):
            return self.metric == PEAK_MEMORY
        about_power = self.metric == POWER
        if metric == POWER:
            return about_power
        return self.metric != PEAK_MEMORY and (metric == "energy_j" or not about_power)
