"""A chart of a page: a Vega-Lite specification as data, and a table of the same figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        return {
            "width": "container",
            "height": HEIGHT_PX,
            "autosize": {"type": "fit-x", "contains": "padding"},
            **self.spec,
            "data": {"values": [dict(row) for row in self.rows]},
        }
