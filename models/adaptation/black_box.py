"""Devices without a spec sheet: their measurements give them an estimated one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import OperatorWorkload
from forerun.features.hardware import estimated_sheet

FEWEST_ROWS = 5
"""Latencies that a sheet is estimated from, at least."""

_MARKED = "figures marked so are "


@dataclass(frozen=True)
class BlackBoxes:
    """Estimated sheets.

    Attributes:
        sheets: name of a device without a sheet -> the sheet that its measurements gave it.
    """

    sheets: Mapping[str, Device] = field(default_factory=dict)

    def learn(self, measurements: Measurements) -> tuple[Self, Measurements]:
        """Sheets of the black boxes in these rows, and the rows on devices with sheets."""
        boxes: dict[str, list[int]] = {}
        latency = measurements.values.get("latency_ms", np.full(len(measurements), np.nan))
        for row, query in enumerate(measurements.queries):
            runs = isinstance(query.workload, OperatorWorkload)
            if runs and not query.device.has_sheet and np.isfinite(latency[row]):
                boxes.setdefault(query.device.name, []).append(row)
        boxes = {name: rows for name, rows in boxes.items() if len(rows) >= FEWEST_ROWS}
        if not boxes:
            return self, measurements
        found = {
            name: estimated_sheet(measurements.queries[rows[0]].device, measurements.take(rows))
            for name, rows in boxes.items()
        }
        learnt = replace(self, sheets={**self.sheets, **found})
        queries = [learnt.seen(query) for query in measurements.queries]
        return learnt, replace(measurements, queries=queries)

    def seen(self, query: Query) -> Query:
        """The query on the device's estimated sheet, where it has none of its own."""
        if not self.sheets or query.device.has_sheet:
            return query
        sheet = self.sheets.get(query.device.name)
        return query if sheet is None else replace(query, device=sheet)

    def limits(self, query: Query) -> tuple[str, ...]:
        """A line where a query is answered on an estimated sheet."""
        return tuple(
            f"{query.device.name} has no spec sheet of its own: {caveat.removeprefix(_MARKED)}"
            for caveat in query.device.caveats
            if caveat.startswith(_MARKED) and query.device.name in self.sheets
        )

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries."""
        return {name: device.model_dump(mode="json") for name, device in self.sheets.items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The sheets that `to_json` wrote."""
        return cls({name: Device.model_validate(sheet) for name, sheet in content.items()})
