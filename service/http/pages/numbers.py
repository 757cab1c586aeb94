"""Numbers and names as readers of a page see them: few digits, a prefix where it helps."""

from collections.abc import Callable, Mapping
from math import floor, log10
from typing import Any

from forerun.data.device import Device

MISSING = "–"
"""Stands for a value that is not known."""


def short(value: float | None, digits: int = 3) -> str:
    """A number to that many significant digits; whole numbers of more digits are kept whole."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    places = max(0, digits - 1 - floor(log10(abs(value))))
    return f"{value:,.{places}f}"


def percent(share: float | None, digits: int = 0) -> str:
    """A share as percent."""
    return MISSING if share is None else f"{100 * share:.{digits}f} %"


def large(value: float | None, billion: str = "G") -> str:
    """A large number with a prefix: 25.6 million is 25.6 M.

    Args:
        value: the number; None where it is not known.
        billion: prefix of billions; `B` for counts of parameters.
    """
    if value is None:
        return MISSING
    for size, prefix in ((1e12, "T"), (1e9, billion), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{short(value / size)} {prefix}"
    return short(value)


def label(device: Device) -> str:
    """The title of a device without its vendor and brand, for tables and charts."""
    words = device.title.split()
    brands = {device.vendor.lower(), "geforce", "radeon", "instinct", "tesla"}
    kept = [word for word in words if word.lower() not in brands]
    return " ".join(kept or words)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "short": short,
    "percent": percent,
    "large": large,
    "label": label,
}
"""Filters of the templates."""
