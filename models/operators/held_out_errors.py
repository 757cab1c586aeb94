"""Errors of boosters on rows that they did not see, device by device and family by family."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.models.domain.device_novelty import device_position, novelty_of
from forerun.models.operators.family_boosters import DeviceBoosters, family_ms, mixed_ratio
from forerun.models.operators.intervals import HeldOut, site_keys
from forerun.models.operators.training_rows import OperatorRows


def errors_by_others(
    rows: OperatorRows,
    experts: Mapping[str, DeviceBoosters],
    device: str,
    held: NDArray[np.bool_],
) -> list[HeldOut]:
    """Errors on rows of one device, by the boosters of the others.

    Groups of the same device (rows of another dataset) are left out with it.
    """
    position = device_position(rows.devices[device])
    others = [e for e in experts.values() if not np.allclose(e.position, position, atol=1e-6)]
    if not others:
        return []
    novelty = novelty_of(position, [np.array(expert.position) for expert in others])
    return held_out_errors(rows, held, device, others, novelty)


def held_out_errors(
    rows: OperatorRows,
    held: NDArray[np.bool_],
    device: str,
    experts: Sequence[DeviceBoosters],
    novelty: float,
) -> list[HeldOut]:
    """Errors of held-out rows of one device, family by family."""
    position, found = device_position(rows.devices[device]), []
    for family in rows.parts:
        part = rows.family(family, held)
        if part is None or not len(part[1]):
            continue
        features, log_measured = part
        ratio = mixed_ratio(experts, position, family, features)
        errors = log_measured - np.log(family_ms(family, features, ratio))
        site, _ = site_keys(family, features)
        found.append(HeldOut(family, device, novelty, errors, site))
    return found
