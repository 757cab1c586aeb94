"""Limits of served models that follow from the spec sheet: design power and memory."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from forerun.data.query import Query
from forerun.data.workload import Diffusion, LlmServing
from forerun.features.serving_features import WEIGHT_BYTES
from forerun.models.limit import Limit
from forerun.models.prediction import Estimate

OF_SERVING: Final[Mapping[str, tuple[str, ...]]] = {
    "llm_serving": ("power_w", "tokens_per_s", "energy_per_token_j"),
    "diffusion": ("power_w", "latency_ms", "samples_per_s", "energy_per_sample_j"),
}
"""Kind of workload -> metrics that are answered."""


def within_design_power(estimates: Mapping[str, Estimate], query: Query) -> dict[str, Estimate]:
    """The estimates; the upper end of a served model's power is at most the design power."""
    power, tdp_w = estimates.get("power_w"), query.device.tdp_w
    served = isinstance(query.workload, LlmServing | Diffusion)
    if not served or power is None or power.high is None or tdp_w is None:
        return dict(estimates)
    high = max(power.value, min(power.high, tdp_w))
    return {**estimates, "power_w": replace(power, high=high)}


def too_heavy(query: Query) -> list[Limit]:
    """A limit where the weights alone exceed the memory of all devices."""
    model, count = query.workload, query.operation.device_count
    if not isinstance(model, LlmServing | Diffusion) or query.device.memory_gib is None:
        return []
    weights = model.total_parameters if isinstance(model, LlmServing) else model.parameters
    taken, held = weights * WEIGHT_BYTES[model.weights] / 2**30, count * query.device.memory_gib
    if taken <= held:
        return []
    message = f"weights alone take {taken:,.0f} GiB, the devices have {held:,.0f}"
    return [Limit(message, severity="refusal")]
