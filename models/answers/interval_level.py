"""Converts prediction intervals to the confidence level that a query asks for.

Predictors are calibrated at `USUAL` percent. Both log-half-widths of an interval are multiplied by
the quantile of error over half-width at the new level, relative to that at the usual level, as
measured on held-out groups (`python -m forerun.training.interval_levels`). Physical bounds such as
power limits and least times are applied afterwards.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from forerun.data.errors import BadRequest, in_field
from forerun.data.level import LEVEL, USUAL
from forerun.data.query import Query
from forerun.features.power.operator_features import waiting_w
from forerun.models.limit import POWER, Limit
from forerun.models.power.limit_response import ENERGY
from forerun.models.prediction import Estimate

FILE: Final = "interval_levels.json"
FAMILIES: Final[Mapping[str, str]] = {
    "kernel": "networks",
    "network": "networks",
    "llm_serving": "served models",
    "diffusion": "served models",
    "llm_deployment": "deployments",
    "llm_training": "training",
}
"""Kind of workload -> the predictors whose errors give the ratios, except for memory."""
MEMORY: Final[Mapping[str, str]] = {"networks": "memory", "training": "training memory"}
"""Predictors -> the memory predictors of the same workloads."""
MOST_MEASURED: Final = 95.0
ENOUGH_GROUPS: Final = 99
"""Number of held-out groups that the 99 % quantile of their errors needs: L / (1 - L)."""


def family_of(kind: str, metric: str) -> str:
    """The predictor family of a metric, for a kind of workload in `FAMILIES`."""
    family = FAMILIES[kind]
    return MEMORY.get(family, family) if metric.endswith("_mib") else family


def at_level(estimates: Mapping[str, Estimate], query: Query) -> dict[str, Estimate]:
    """The estimates with intervals of the query's level.

    Uncalibrated intervals are left as they are. An interval whose coverage was measured after
    adaptation gets the coverage that its new width has under the family's error distribution. The
    lower end of power stays above the idle power unless it was below it already.

    Args:
        estimates: metric -> estimate, with intervals of `USUAL` percent.
        query: the query.
    """
    kind = query.workload.kind
    if query.level == USUAL or kind not in FAMILIES:
        return dict(estimates)
    found = {
        name: _scaled(estimate, family_of(kind, name), query.level)
        for name, estimate in estimates.items()
    }
    power, usual = found.get(POWER), estimates.get(POWER)
    if ENERGY in found and power is not None and power.coverage is not None:
        # Energy from the ends of power and time states no coverage, so it follows their ratio.
        ratio = _ratio(family_of(kind, POWER), query.level)
        found[ENERGY] = replace(found[ENERGY], **_ends(estimates[ENERGY], ratio))
    if power is not None and power.low is not None and usual is not None and query.device.tdp_w:
        least = min(usual.low or 0.0, waiting_w(query.device))
        found[POWER] = replace(power, low=max(power.low, least))
    return found


def check_level(query: Query) -> None:
    """Refuse a level for workloads whose intervals exist only at the usual level.

    Raises:
        BadRequest: the level is not available for this kind of workload.
    """
    kind = query.workload.kind
    if query.level != USUAL and kind not in FAMILIES:
        with in_field("level"):
            raise BadRequest(
                f"level: intervals of kind {kind} were calibrated only at {USUAL:g} %; omit it."
            )


def level_notes(metrics: Iterable[str], query: Query) -> tuple[Limit, ...]:
    """A note where the level is extrapolated from few held-out groups for some metric."""
    kind = query.workload.kind
    if query.level <= MOST_MEASURED or kind not in FAMILIES:
        return ()
    families = sorted({family_of(kind, name) for name in metrics})
    groups = {family: _table()[family]["groups"] for family in families}
    few = [f"{count} of {family}" for family, count in groups.items() if count < ENOUGH_GROUPS]
    message = f"intervals above 95 % are extrapolated from few held-out groups ({', '.join(few)})"
    return (Limit(message, severity="note"),) if few else ()


def _scaled(estimate: Estimate, family: str, level: float) -> Estimate:
    if estimate.coverage is None:
        return estimate
    ratio = _ratio(family, level)
    if estimate.coverage != LEVEL:
        reached = ratio * _ratio(family, 100.0 * estimate.coverage)
        level = float(np.interp(reached, _table()[family]["ratios"], _table()[family]["levels"]))
    return replace(estimate, coverage=level / 100.0, **_ends(estimate, ratio))


def _ends(estimate: Estimate, ratio: float) -> dict[str, float]:
    """Both ends with rescaled log-half-widths; empty without a positive interval."""
    if estimate.low is None or estimate.high is None or not estimate.low > 0.0:
        return {}
    low, high = (
        estimate.value * (end / estimate.value) ** ratio for end in (estimate.low, estimate.high)
    )
    return {"low": low, "high": high}


def _ratio(family: str, level: float) -> float:
    """Half-width at a level over that at `USUAL`, interpolated linearly in normal quantiles."""
    table = _table()[family]
    levels = [_deviations(at) for at in table["levels"]]
    return float(np.interp(_deviations(level), levels, table["ratios"]))


def _deviations(level: float) -> float:
    """Half-width of a normal interval at a level in percent, in standard deviations."""
    return NormalDist().inv_cdf(0.5 + min(level, 99.0) / 200.0)


@cache
def _table() -> dict[str, Any]:
    """Family -> `levels` in percent, `ratios`, and the number of held-out `groups`."""
    text = files("forerun.models.answers").joinpath(FILE).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
