"""Holds the predictors in use, and bounds served models by their spec sheet.

Power is at most the design power, the weights must fit into memory, and no token takes less time
than reading them.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from forerun.data.device import Device
from forerun.data.device_slices import no_link
from forerun.data.measurements import Measurements
from forerun.data.number_formats import FORMATS
from forerun.data.query import Query
from forerun.data.workload import Diffusion, LlmServing, Network
from forerun.features.graphs.pipeline import has_parts
from forerun.features.serving_features import least_step_s, outputs
from forerun.models.answers.trust import subject_of
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.artifact.training_record import Setting
from forerun.models.limit import PEAK_MEMORY, POWER, Limit
from forerun.models.prediction import Estimate


@dataclass(frozen=True, slots=True)
class InUse:
    """The predictor that answers queries.

    Attributes:
        loaded: the predictor; its version identifies the measurements that it was adapted to.
        rows: device -> number of its measurements used for adaptation.
        measured: device -> metric -> subject of those measurements -> their number.
    """

    loaded: LoadedPredictor
    rows: Mapping[Device, int] = field(default_factory=dict)
    measured: Mapping[Device, Mapping[str, Mapping[Setting, int]]] = field(default_factory=dict)

    def adapted_to(self, measurements: Measurements) -> Self:
        """The predictor adapted to measured rows of one or several devices."""
        devices = [query.device for query in measurements.queries]
        by_device = {
            device: measurements.take([row for row, owner in enumerate(devices) if owner == device])
            for device in dict.fromkeys(devices)
        }
        adapted = replace(self.loaded, predictor=self.loaded.predictor.adapt(measurements))
        counts = Counter(self.rows) + Counter(
            {device: len(rows) for device, rows in by_device.items()}
        )
        measured = {device: subjects_measured(rows) for device, rows in by_device.items()}
        return replace(self, loaded=adapted, rows=counts, measured={**self.measured, **measured})


def subjects_measured(rows: Measurements) -> dict[str, Counter[Setting]]:
    """Metric -> subject -> number of values, as in `InUse.measured`."""
    known = {
        name: np.flatnonzero(np.isfinite(column)).tolist() for name, column in rows.values.items()
    }
    return {
        name: Counter(subject_of(rows.queries[row], name) for row in measured)
        for name, measured in known.items()
        if measured
    }


RATE, ENERGY = "tokens_per_s", "energy_per_token_j"
OF_SERVING: Final[Mapping[str, tuple[str, ...]]] = {
    "llm_serving": ("power_w", "tokens_per_s", "energy_per_token_j"),
    "diffusion": ("power_w", "latency_ms", "samples_per_s", "energy_per_sample_j"),
}
"""Kind of workload -> metrics that are answered."""


def within_sheet(estimates: Mapping[str, Estimate], query: Query) -> dict[str, Estimate]:
    """The estimates of a served model within what the spec sheet allows.

    The upper end of power is at most the design power. No rate of a language model exceeds that of
    reading and multiplying its active weights.

    Raises:
        UnknownBandwidth, UnknownPrecision: the spec sheet lacks a figure.
    """
    found, tdp_w = dict(estimates), query.device.tdp_w
    power, rate = found.get(POWER), found.get(RATE)
    if not isinstance(query.workload, LlmServing | Diffusion):
        return found
    if power is not None and power.high is not None and tdp_w is not None:
        found[POWER] = replace(power, high=max(power.value, min(power.high, tdp_w)))
    if rate is None or not isinstance(query.workload, LlmServing):
        return found
    most = outputs(query.workload) / least_step_s(query)
    found[RATE] = _at_most(rate, most)
    if ENERGY in found and power is not None:
        devices = query.operation.device_count
        found[ENERGY] = _at_least(found[ENERGY], power, devices / most)
    return found


def _at_most(estimate: Estimate, most: float) -> Estimate:
    low, high = (None if end is None else min(end, most) for end in (estimate.low, estimate.high))
    return replace(estimate, value=min(estimate.value, most), low=low, high=high)


def _at_least(energy: Estimate, power: Estimate, seconds: float) -> Estimate:
    """Energy raised to power times a least time in seconds, at the value and at each end."""
    ends = zip(
        (energy.value, energy.low, energy.high), (power.value, power.low, power.high), strict=True
    )
    value, low, high = (
        None if end is None else max(end, (watts or 0.0) * seconds) for end, watts in ends
    )
    return replace(energy, value=energy.value if value is None else value, low=low, high=high)


PIPELINE: Final = 1.24
"""Ratio of a diffusion pipeline's time to the sum of its parts: the median of eight runs of image
models in `mlenergy` (FLUX.1, Stable Diffusion 3.5, PixArt and SANA on an H100 and a B200), where
clocks drop under sustained load. It is evaluated on published times of U-Nets and videos."""


def of_pipeline(estimates: Mapping[str, Estimate], query: Query) -> dict[str, Estimate]:
    """The estimates, with time and energy of diffusion pipelines scaled to sustained load."""
    found = dict(estimates)
    if isinstance(query.workload, Network) and has_parts(query.workload.graph):
        for name in {"latency_ms", "energy_j"} & found.keys():
            estimate = found[name]
            low, high = (None if x is None else x * PIPELINE for x in (estimate.low, estimate.high))
            found[name] = replace(estimate, value=estimate.value * PIPELINE, low=low, high=high)
    return found


def too_heavy(query: Query) -> list[Limit]:
    """A limit where the weights alone exceed the memory of all devices."""
    model, count = query.workload, query.operation.device_count
    if not isinstance(model, LlmServing | Diffusion) or query.device.memory_gib is None:
        return []
    weights = model.total_parameters if isinstance(model, LlmServing) else model.parameters
    taken, held = weights * FORMATS[model.weights].bytes / 2**30, count * query.device.memory_gib
    if taken <= held:
        return []
    advice = no_link(query.device) or "give more devices"
    message = f"weights alone take {taken:,.0f} GiB, the devices have {held:,.0f}: {advice}"
    return [Limit(message, PEAK_MEMORY, "refusal")]
