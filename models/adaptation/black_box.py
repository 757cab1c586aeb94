"""Estimates spec sheets of devices without one, from measurements on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import OperatorWorkload
from forerun.features.hardware import estimated_sheet
from forerun.models.limit import LATENCY, Limit

FEWEST_ROWS = 5
"""Measured latencies needed to estimate a spec sheet."""

_MARKED = "figures marked so are "


@dataclass(frozen=True)
class BlackBoxes:
    """Estimated spec sheets of devices without one.

    Attributes:
        sheets: device name -> estimated spec sheet.
    """

    sheets: Mapping[str, Device] = field(default_factory=dict)

    def learn(self, measurements: Measurements) -> tuple[Self, Measurements]:
        """Estimate spec sheets for the devices in these rows that have none.

        Args:
            measurements: n rows; those without a latency are ignored.

        Returns:
            The extended sheets, and the rows with estimated sheets filled in.
        """
        boxes: dict[str, list[int]] = {}
        latency = measurements.column("latency_ms")
        for row, query in enumerate(measurements.queries):
            runs = isinstance(query.workload, OperatorWorkload)
            if runs and not query.device.has_sheet and np.isfinite(latency[row]):
                boxes.setdefault(query.device.name, []).append(row)
        boxes = {name: rows for name, rows in boxes.items() if len(rows) >= FEWEST_ROWS}
        if not boxes:
            return self, measurements
        estimated = {
            name: estimated_sheet(measurements.queries[rows[0]].device, measurements.take(rows))
            for name, rows in boxes.items()
        }
        extended = replace(self, sheets={**self.sheets, **estimated})
        queries = [extended.with_sheet(query) for query in measurements.queries]
        return extended, replace(measurements, queries=queries)

    def with_sheet(self, query: Query) -> Query:
        """The query with the device's estimated sheet if the device has no sheet of its own."""
        if not self.sheets or query.device.has_sheet:
            return query
        sheet = self.sheets.get(query.device.name)
        return query if sheet is None else replace(query, device=sheet)

    def with_sheets(self, queries: Sequence[Query]) -> list[Query]:
        """`with_sheet` for each query."""
        return [self.with_sheet(query) for query in queries] if self.sheets else list(queries)

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """A limit for each caveat of the estimated sheet behind a prediction."""
        return tuple(
            Limit(
                f"{query.device.name} has no spec sheet of its own: {caveat.removeprefix(_MARKED)}",
                LATENCY,
            )
            for caveat in query.device.caveats
            if caveat.startswith(_MARKED) and query.device.name in self.sheets
        )
