"""The chart of a critical path: when each cell and connection of it takes its time."""

from collections.abc import Iterator, Mapping
from typing import Final

from forerun.service.http.pages.chart import Cell, Chart
from forerun.service.http.pages.encodings import coloured, number, shown
from forerun.service.http.pages.numbers import short
from forerun.service.schemas.circuits import ClockOut

PS_PER_NS: Final = 1e3
PARTS: Final = ("cell", "connection", "other placements")


def path_chart(clock: ClockOut) -> Chart | None:
    """The period of a clock from edge to edge, as one bar; None where no frequency is known."""
    if clock.fmax_mhz is None or not clock.critical_path:
        return None
    rows = [_row(*segment) for segment in _segments(clock) if segment[3] > segment[2]]
    first, last = clock.critical_path[0], clock.critical_path[-1]
    x = number("from_ns", "ns after the clock's edge")
    spec = {
        "height": 60,
        "mark": {"type": "bar", "height": 34},
        "encoding": {
            "x": x,
            "x2": {"field": "to_ns"},
            "color": coloured("part", PARTS, {row["part"] for row in rows}),
            "tooltip": shown(part="part", where="where", text="time"),
        },
    }
    summary = (
        f"The period of {clock.clock} as one bar of {len(rows)} parts, from {first.source} to "
        f"{last.sink}; connections take {short(_share(clock))} % of it."
    )
    columns = {"from_ns": "from, ns", "to_ns": "to, ns", "part": "part", "where": "where"}
    return Chart(f"Where the period of {clock.clock} goes", summary, spec, rows, columns)


def _segments(clock: ClockOut) -> Iterator[tuple[str, str, float, float]]:
    """Part, place, begin and end of each piece of the period, picoseconds."""
    reached = 0.0
    for step in clock.critical_path:
        leaves = step.arrival_ps - step.connection_ps
        yield "cell", step.source, reached, leaves
        yield "connection", f"{step.source} to {step.sink}", leaves, step.arrival_ps
        reached = step.arrival_ps
    parts = clock.breakdown_ps
    longest = reached + parts["setup"]
    yield "cell", f"setup of {clock.critical_path[-1].sink}", reached, longest
    yield "other placements", "", longest, longest + parts["placement"]


def _row(part: str, where: str, start_ps: float, end_ps: float) -> Mapping[str, Cell]:
    return {
        "part": part,
        "where": where,
        "from_ns": start_ps / PS_PER_NS,
        "to_ns": end_ps / PS_PER_NS,
        "text": f"{short(end_ps - start_ps)} ps",
    }


def _share(clock: ClockOut) -> float:
    return 100.0 * clock.breakdown_ps["connections"] / sum(clock.breakdown_ps.values())
