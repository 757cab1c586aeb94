"""List prices of an hour on a device, for answers to requests that name no price of their own."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class ListPrice:
    """What an hour on one device costs, with its share of the instance around it.

    Attributes:
        usd_per_device_hour: price of one device, USD an hour.
        source: provider, instance and month.
    """

    usd_per_device_hour: float
    source: str


def list_price(device: str) -> ListPrice | None:
    """The list price of a device of the catalog, by its name; None where none is known."""
    return _prices().get(device)


@cache
def _prices() -> dict[str, ListPrice]:
    text = (files("forerun.service") / "list_prices.json").read_text(encoding="utf-8")
    table = json.loads(text)
    return {
        row["device"]: ListPrice(
            row["usd_per_hour"] / row["gpus"],
            f"list price, {table['provider']}, {table['as_of']}: {row['instance']}",
        )
        for row in table["instances"]
    }
