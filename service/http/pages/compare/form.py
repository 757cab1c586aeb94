"""The fields of the page *Compare*: those of a run, an objective, limits and prices."""

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from forerun.data.errors import InputError
from forerun.service.http.pages.run_form import Name, RunForm
from forerun.service.http.schemas.ranking import LimitsIn, Most, RankIn
from forerun.service.schemas.answers import Objective

MOST_COMPARED = 24
COMPARED = (
    "h100-sxm-80gb", "a100-pcie-80gb", "rtx-4090", "l40s", "a10g", "l4", "t4", "v100-sxm2-16gb",
)  # fmt: skip
"""Devices that are compared when the address names none."""

Measure = Literal["latency_ms", "samples_per_s", "j_per_sample"]
MEASURES: Mapping[Measure, str] = {
    "latency_ms": "time of one run, ms",
    "samples_per_s": "samples per second",
    "j_per_sample": "energy of one sample, J",
}
OBJECTIVES: Mapping[Objective, str] = {
    "latency_ms": "least time",
    "energy_j": "least energy",
    "cost": "least cost, by the prices below",
    "power_w": "least power",
    "peak_memory_mib": "least memory",
}
_PRICE = re.compile(r"\s*([^\s=:,;]+)\s*[=:\s]\s*([\d.]+)\s*")


class BadPrices(InputError):
    """The prices are not written as `device=price`."""

    slug = "bad-prices"


class CompareForm(RunForm):
    """One network on many devices."""

    devices: list[Name] = Field(default=list(COMPARED), max_length=MOST_COMPARED)
    measure: Measure = "latency_ms"
    objective: Objective = "latency_ms"
    most_latency_ms: Most | None = None
    most_power_w: Most | None = None
    prices: str | None = Field(default=None, max_length=2_000)

    def prices_per_hour(self) -> dict[str, float]:
        """Device -> price of an hour, in the reader's currency.

        Raises:
            BadPrices: a part of the text is no `device=price`.
        """
        found: dict[str, float] = {}
        for part in re.split(r"[,;\n]", self.prices or ""):
            matched = _PRICE.fullmatch(part)
            if matched is None and part.strip():
                raise BadPrices(f"prices: {part.strip()!r:.60} is not written as l4=0.71.")
            if matched is not None:
                try:
                    found[matched[1]] = float(matched[2])
                except ValueError:
                    raise BadPrices(f"prices: {matched[2]!r:.60} is not a number.") from None
        return found

    def ranking(self) -> RankIn:
        """The request that ranks the devices."""
        asked = self.asked(self.devices[0])
        prices = self.prices_per_hour() if self.objective == "cost" else {}
        return RankIn(
            workload=self.workload(),
            devices=list(dict.fromkeys(self.devices)),
            prices_per_hour=prices,
            software=asked.software,
            operation=asked.operation,
            objective=self.objective,
            limits=LimitsIn(latency_ms=self.most_latency_ms, power_w=self.most_power_w),
        )
