"""Bounds the power of operators and networks by the device's power limit or design power."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from forerun.data.query import Query
from forerun.data.workload import OperatorWorkload
from forerun.models.limit import POWER, Limit
from forerun.models.power.limit_response import ENERGY, binds
from forerun.models.prediction import Estimate

ABOVE_DESIGN_POWER: Final[Mapping[str, float]] = {
    "a30": 1.008,
    "h100-sxm-80gb": 1.078,
    "h200-sxm-141gb": 1.105,
}
"""Device -> highest measured average power of a run over the design power, rounded up, where it
exceeds 1: 12 of 4,710 runs on A30 (torch_op_energy), and 8 of 645 on H100 and 2 of 518 on H200
(torch_gpu, in windows of 0.3 s). No run exceeds it on the other devices of the training set: RTX
2080 Ti, B200, and A40, P100 and V100 at their own limits."""
ABOVE_A_LIMIT: Final[Mapping[str, tuple[float, float]]] = {
    "a40": (1.208, 1.012),
    "v100-pcie-32gb": (1.021, 1.0),
}
"""Device -> the same ratio for a power limit below the design power (zeus_powercap): at the lowest
measured limit of 100 W, and from the next one, `NEXT_LIMIT_W`, upwards."""
NEXT_LIMIT_W: Final = 125.0


def most_w(query: Query) -> float | None:
    """Highest average power of the queried device, W; None without a design power.

    The lower of power limit and design power, times the ratio by which measured averages on the
    device exceed it.
    """
    allowed = _allowed_w(query)
    return None if allowed is None else allowed * _share(query)


def within_drawn(
    estimates: Mapping[str, Estimate], query: Query, *, measured: bool
) -> dict[str, Estimate]:
    """The estimates with power and its interval capped at `most_w`, and energy rescaled to match.

    Nothing changes where the user measured power on the device, since the interval may then hold
    measured values.

    Args:
        estimates: metric -> estimate.
        query: the query.
        measured: whether the user measured power on the device.
    """
    found, most = dict(estimates), most_w(query)
    power = found.get(POWER)
    if measured or power is None or most is None:
        return found
    if not isinstance(query.workload, OperatorWorkload):
        return found
    found[POWER] = replace(
        power,
        value=min(power.value, most),
        low=None if power.low is None else min(power.low, most),
        high=None if power.high is None else min(power.high, most),
    )
    if ENERGY in found:
        found[ENERGY] = _scaled(found[ENERGY], power, found[POWER])
    return found


def measured_above(estimates: Mapping[str, Estimate], query: Query) -> list[Limit]:
    """A note where the power interval exceeds what the device may draw, as measured runs did."""
    power, allowed, share = estimates.get(POWER), _allowed_w(query), _share(query)
    if not isinstance(query.workload, OperatorWorkload) or share <= 1.0 or allowed is None:
        return []
    if power is None or power.high is None or power.high <= allowed:
        return []
    what = "power limit" if binds(query) else "design power"
    message = f"runs on this device drew up to {100.0 * (share - 1.0):.2g} % more than its {what}"
    return [Limit(message, POWER, "note")]


def _allowed_w(query: Query) -> float | None:
    """The lower of power limit and design power; None if the design power is unknown."""
    limit, tdp = query.operation.power_limit_w, query.device.tdp_w
    return tdp if limit is None or tdp is None else min(limit, tdp)


def _share(query: Query) -> float:
    """Highest measured average power on the device over its allowed power, at least 1."""
    name, limit = query.device.name, query.operation.power_limit_w
    share = ABOVE_DESIGN_POWER.get(name, 1.0)
    if limit is None or not binds(query) or name not in ABOVE_A_LIMIT:
        return share
    lowest, others = ABOVE_A_LIMIT[name]
    return max(share, lowest if limit < NEXT_LIMIT_W else others)


def _scaled(energy: Estimate, before: Estimate, after: Estimate) -> Estimate:
    """Energy after its power has changed; value and interval ends scale separately."""

    def changed(end: float | None, old: float | None, new: float | None) -> float | None:
        return end * new / old if end is not None and old and new is not None else end

    return replace(
        energy,
        value=changed(energy.value, before.value, after.value) or energy.value,
        low=changed(energy.low, before.low, after.low),
        high=changed(energy.high, before.high, after.high),
    )
