"""List prices per device-hour, for requests that give no price."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Price:
    """Price of one device for an hour.

    Attributes:
        usd_per_device_hour: USD per device-hour.
        source: where the price comes from, with its date.
    """

    usd_per_device_hour: float
    source: str


def list_price(device: str) -> Price | None:
    """The list price of a catalogue device, by name; None if unknown."""
    return _prices().get(device)


def priced_devices() -> list[str]:
    """Names of the catalogue devices with a known list price."""
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
