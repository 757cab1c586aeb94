"""Power of operators and networks within what a device may draw: its limit, or its design power."""

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
"""Device -> highest measured average power of a run over the design power, where it exceeds 1,
rounded up: 12 of 4,710 runs on A30 (torch_op_energy), and 8 of 645 on H100 and 2 of 518 on H200
(torch_gpu, in windows of 0.3 s). No run on the other devices in the training set exceeds it: RTX
2080 Ti, B200, and A40, P100 and V100 at their own limits."""
ABOVE_A_LIMIT: Final[Mapping[str, tuple[float, float]]] = {
    "a40": (1.208, 1.012),
    "v100-pcie-32gb": (1.021, 1.0),
}
"""Device -> the same over a power limit below the design power (zeus_powercap): at the lowest
measured limit of 100 W, and from the next one on, `NEXT_LIMIT_W`."""
NEXT_LIMIT_W: Final = 125.0


def most_w(query: Query) -> float | None:
    """Highest average power of the device in the query, W; None without a design power.

    It is the power limit where that is below the design power, and the design power otherwise,
    times the share by which measured averages on the device exceed it.
    """
    allowed = _allowed_w(query)
    return None if allowed is None else allowed * _share(query)


def within_drawn(
    estimates: Mapping[str, Estimate], query: Query, *, measured: bool
) -> dict[str, Estimate]:
    """The estimates, with no power and no end of its interval above `most_w`.

    Energy follows, value and each end of its interval for itself. Where a user measured power on
    the device, the interval may hold that, so nothing changes.

    Args:
        estimates: metric -> estimate.
        query: the query.
        measured: whether a user measured power on the device.
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
    """A note where the interval of the power ends above what the device may draw, as runs did."""
    power, allowed, share = estimates.get(POWER), _allowed_w(query), _share(query)
    if not isinstance(query.workload, OperatorWorkload) or share <= 1.0 or allowed is None:
        return []
    if power is None or power.high is None or power.high <= allowed:
        return []
    what = "power limit" if binds(query) else "design power"
    message = f"runs on this device drew up to {100.0 * (share - 1.0):.2g} % more than its {what}"
    return [Limit(message, POWER, "note")]


def _allowed_w(query: Query) -> float | None:
    """The power limit, or the design power where that is lower; None where that is not known."""
    limit, tdp = query.operation.power_limit_w, query.device.tdp_w
    return tdp if limit is None or tdp is None else min(limit, tdp)


def _share(query: Query) -> float:
    """Highest measured average power on the device over what it may draw, at least 1."""
    name, limit = query.device.name, query.operation.power_limit_w
    share = ABOVE_DESIGN_POWER.get(name, 1.0)
    if limit is None or not binds(query) or name not in ABOVE_A_LIMIT:
        return share
    lowest, others = ABOVE_A_LIMIT[name]
    return max(share, lowest if limit < NEXT_LIMIT_W else others)


def _scaled(energy: Estimate, before: Estimate, after: Estimate) -> Estimate:
    """Energy after a change of the power that it is the product of."""

    def changed(own: float | None, old: float | None, new: float | None) -> float | None:
        return own * new / old if own is not None and old and new is not None else own

    return replace(
        energy,
        value=changed(energy.value, before.value, after.value) or energy.value,
        low=changed(energy.low, before.low, after.low),
        high=changed(energy.high, before.high, after.high),
    )
