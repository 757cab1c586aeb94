"""Errors of boosters on held-out rows, by device and family."""

from collections.abc import Mapping, Sequence

import numpy as np

from forerun.data.columns import Mask
from forerun.models.domain.device_novelty import device_position, novelty_of
from forerun.models.operators.family_boosters import DeviceBoosters, family_ms, mixed_ratio
from forerun.models.operators.intervals import HeldOut, site_keys
from forerun.models.operators.training_rows import OperatorRows


def errors_by_others(
    rows: OperatorRows,
    experts: Mapping[str, DeviceBoosters],
    device: str,
    held: Mask,
) -> list[HeldOut]:
    """Errors on rows of one device, of the boosters of the other devices.

    Boosters fitted to rows of the same device from another dataset are left out as well.

    Args:
        rows: n measurements.
        experts: value of the group `device` -> boosters.
        device: the held-out device.
        held: (n,) mask of its rows.
    """
    position = device_position(rows.devices[device])
    others = [e for e in experts.values() if not np.allclose(e.position, position, atol=1e-6)]
    if not others:
        return []
    novelty = novelty_of(position, [np.array(expert.position) for expert in others])
    return held_out_errors(rows, held, device, others, novelty)


def held_out_errors(
    rows: OperatorRows,
    held: Mask,
    device: str,
    experts: Sequence[DeviceBoosters],
    novelty: float,
) -> list[HeldOut]:
    """Errors on held-out rows of one device, one entry for each family with rows.

    Args:
        rows: n measurements.
        held: (n,) mask of the held-out rows, all on `device`.
        device: value of the group `device`.
        experts: boosters that were fitted without these rows.
        novelty: of the device with respect to `experts`; 0 where one of them is of this device.
    """
    position, by_family = device_position(rows.devices[device]), []
    for family in rows.parts:
        part = rows.family(family, held)
        if part is None or not len(part[1]):
            continue
        features, log_measured = part
        ratio = mixed_ratio(experts, position, family, features)
        errors = log_measured - np.log(family_ms(family, features, ratio))
        site, _ = site_keys(family, features)
        by_family.append(HeldOut(family, device, novelty, errors, site))
    return by_family
