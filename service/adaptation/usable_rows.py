"""Adapt a predictor to the measurements of several devices, without those that it cannot use."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.models.adaptation.black_box import BlackBoxes
from forerun.models.predictor import Predictor
from forerun.service.log import log


def adapted(base: Predictor, rows: Mapping[Device, Measurements]) -> tuple[Predictor, list[Device]]:
    """The predictor adapted to all devices, except to rows and devices that it cannot use.

    Returns:
        The adapted predictor, and the devices whose rows it used.
    """
    usable = {device: part.take(_answered(base, part)) for device, part in rows.items()}
    usable = {device: part for device, part in usable.items() if len(part)}
    try:
        return _adapted_to(base, usable.values()), list(usable)
    except Exception:
        # After `swap`, the new predictor may fail on rows of one device; the others stay adapted.
        usable = {device: part for device, part in usable.items() if _learns(base, device, part)}
        return _adapted_to(base, usable.values()), list(usable)


def _answered(base: Predictor, rows: Measurements) -> NDArray[np.bool_]:
    """Whether the predictor answers each of n rows, as a mask of shape (n,)."""
    on_sheets = BlackBoxes().learn(rows)[1]
    return np.array([base.answers(query) for query in on_sheets.queries], dtype=np.bool_)


def _adapted_to(base: Predictor, parts: Iterable[Measurements]) -> Predictor:
    total: Measurements | None = None
    for part in parts:
        total = part if total is None else total + part
    return base if total is None else base.adapt(total)


def _learns(base: Predictor, device: Device, rows: Measurements) -> bool:
    try:
        base.adapt(rows)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:500]
        log().error("measurements are left out", device=device.name, why=why)
        return False
    return True
