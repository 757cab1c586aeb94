"""A chart of a page: a Vega-Lite specification as data, and a table of the same figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

Spec = Mapping[str, Any]
"""A Vega-Lite specification without its data; colours are custom properties of the style sheet."""

Cell = str | float | None
HEIGHT_PX = 260


@dataclass(frozen=True)
class Chart:
    """What the macro `chart` of `chart.html` draws.

    Attributes:
        title: heading of the figure.
        summary: what the chart shows, in one or two sentences, for those who cannot see it.
        spec: the Vega-Lite specification.
        rows: its data, one mapping a row.
        columns: name of a field -> heading in the table; fields without a heading are left out.
    """

    title: str
    summary: str
    spec: Spec
    rows: Sequence[Mapping[str, Cell]]
    columns: Mapping[str, str]

    def specification(self) -> dict[str, Any]:
        """The specification with its data, to be written into the page as JSON."""
        height = self.spec.get("height", HEIGHT_PX)
        stepped = isinstance(height, Mapping)  # so many pixels a bar: only the width is to fit
        return {
            "width": "container",
            "height": height,
            "autosize": {"type": "fit-x" if stepped else "fit", "contains": "padding"},
            **self.spec,
            "data": {"values": [dict(row) for row in self.rows]},
        }


def log_ticks(values: Iterable[float | None]) -> list[float]:
    """Ticks of a logarithmic axis: powers of ten, with 2 and 5 times these where they are few."""
    known = [value for value in values if value]
    if not known:
        return []
    low, high = floor(log10(min(known))), ceil(log10(max(known)))
    steps = (1, 2, 5) if high - low <= 2 else (1,)
    return [step * 10.0**power for power in range(low, high + 1) for step in steps]
