"""Carbon intensity of electricity by country, for answers about long runs."""

import json
from dataclasses import dataclass
from importlib.resources import files

from forerun.data.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Grid:
    """Carbon intensity of electricity.

    Attributes:
        g_co2_per_kwh: g of CO2 equivalent per kWh.
        source: where the value comes from, with its year.
    """

    g_co2_per_kwh: float
    source: str


def grid_of(region: str | None, g_co2_per_kwh: float | None) -> Grid | None:
    """The given intensity, or the yearly mean of a region; None if neither is given.

    Raises:
        BadRequest: both are given, or the table has no such region.
    """
    if region is None:
        return None if g_co2_per_kwh is None else Grid(g_co2_per_kwh, "as given")
    if g_co2_per_kwh is not None:
        raise BadRequest("Two carbon intensities: give region or grid_g_co2_per_kwh, not both.")
    text = (files("forerun.data") / "grid_carbon.json").read_text(encoding="utf-8")
    table = json.loads(text)
    means = table["g_co2_per_kwh"]
    known = means.get(region.strip().lower().replace(" ", "-").replace("_", "-"))
    if known is None:
        raise BadRequest(
            f"No carbon intensity of {region!r:.80} is known: give grid_g_co2_per_kwh, or one of "
            f"{', '.join(means)}."
        )
    return Grid(known, f"{table['source']}: {region}")
