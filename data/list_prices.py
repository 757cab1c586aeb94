"""List prices of an hour on a device, for answers to requests that name no price of their own."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Price:
    """What an hour on one device costs.

    Attributes:
        usd_per_device_hour: price of one device, USD an hour.
        source: where the price comes from, and its date.
    """

    usd_per_device_hour: float
    source: str


def list_price(device: str) -> Price | None:
    """The list price of a device of the catalog, by its name; None where none is known."""
    return _prices().get(device)


def priced_devices() -> list[str]:
    """Names of the devices of the catalog whose list price is known."""
    return list(_prices())


@cache
def _prices() -> dict[str, Price]:
    text = (files("forerun.data") / "list_prices.json").read_text(encoding="utf-8")
    table = json.loads(text)
    return {
        row["device"]: Price(
            row["usd_per_hour"] / row["gpus"],
            f"list price, {table['provider']}, {table['as_of']}: {row['instance']}",
        )
        for row in table["instances"]
    }
