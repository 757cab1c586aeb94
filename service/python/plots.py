"""Draw results with matplotlib, on given axes or on a figure of their own."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forerun.data.errors import InputError, MissingExtra
from forerun.data.metrics import metric as metric_named
from forerun.service.python.view import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forerun.service.schemas.answers import AttributionOut

BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#8A8F96"
"""Colours of Okabe and Ito, which remain distinguishable with colour blindness."""
MOST_LABELS = 60
MOST_BARS, LONGEST_LABEL = 15, 80


def axes_of(ax: "Axes | None", width: float = 7.0, height: float = 4.0) -> "Axes":
    """The given axes, or those of a new figure.

    Args:
        ax: axes to draw on; None for a new figure, which a notebook shows.
        width: of a new figure, inches.
        height: of a new figure, inches.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtra("Drawing a result", "train") from None
    _, made = pyplot.subplots(figsize=(width, height), layout="constrained")
    made.spines[["top", "right"]].set_visible(False)
    return made


def axis_name(metric: str) -> str:
    """The metric with its unit, as the label of an axis."""
    try:
        unit = metric_named(metric).unit
    except KeyError:
        unit = ""
    words = metric.removesuffix(f"_{unit.lower()}").replace("_", " ")
    return f"{words}, {unit}" if unit else words


def intervals(
    estimates: Mapping[str, Estimate | None],
    metric: str,
    title: str,
    bounds: Mapping[str, float | None],
    ax: "Axes | None" = None,
) -> "Axes":
    """Horizontal bars of a metric with intervals, one for each label with an estimate.

    Args:
        estimates: label -> estimate, None where it is not known.
        metric: name of the metric.
        title: heading.
        bounds: label -> roofline bound in the same unit, drawn as a short line.
        ax: axes to draw on; a new figure when None.

    Raises:
        InputError: no label has an estimate.
        MissingExtra: matplotlib is not installed.
    """
    known = {label: estimate for label, estimate in estimates.items() if estimate is not None}
    if not known:
        raise InputError(f"{metric} is not known for any of {', '.join(estimates)}.")
    axes = axes_of(ax, height=1.2 + 0.45 * min(len(known), MOST_LABELS))
    values = [estimate.value for estimate in known.values()]
    below = [e.value - (e.value if e.low is None else e.low) for e in known.values()]
    above = [(e.value if e.high is None else e.high) - e.value for e in known.values()]
    rows = range(len(known))
    axes.barh(rows, values, 0.6, color=BLUE, label="estimate with interval")
    axes.errorbar(values, rows, xerr=[below, above], ls="none", color="black", capsize=3)
    marked = [(row, b) for row, label in enumerate(known) if (b := bounds.get(label)) is not None]
    if marked:
        starts = [row - 0.38 for row, _ in marked]
        ends = [row + 0.38 for row, _ in marked]
        axes.vlines([b for _, b in marked], starts, ends, color=ORANGE, lw=2.5, label="roofline")
    axes.set_xlabel(axis_name(metric))
    axes.legend(frameon=False)
    return _of_rows(axes, list(known), title)


def _of_rows(axes: "Axes", labels: Sequence[str], title: str) -> "Axes":
    """Name the rows, the first on top, and the picture."""
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.invert_yaxis()
    axes.set_title(title, loc="left")
    return axes


def parts(shares: Mapping[str, float], title: str, ax: "Axes | None" = None) -> "Axes":
    """Bars of the time by operator class, the largest first.

    Args:
        shares: operator class -> milliseconds.
        title: heading.
        ax: axes to draw on; a new figure when None.

    Raises:
        InputError: the answer has no breakdown.
        MissingExtra: matplotlib is not installed.
    """
    if not shares:
        raise InputError("The answer has no breakdown of its time, so there is nothing to draw.")
    by_size = dict(sorted(shares.items(), key=lambda item: -item[1]))
    axes = axes_of(ax, height=1.2 + 0.35 * len(by_size))
    axes.barh(range(len(by_size)), list(by_size.values()), 0.65, color=BLUE)
    axes.set_xlabel("time, ms")
    return _of_rows(axes, list(by_size), title)


def attribution(own: "AttributionOut", title: str, ax: "Axes | None" = None) -> "Axes":
    """Bars of the largest parts of an estimate: times, or factors on a logarithmic axis.

    Args:
        own: the estimate divided into parts.
        title: heading.
        ax: axes to draw on; a new figure when None.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    kept, rest = own.parts[:MOST_BARS], own.parts[MOST_BARS:]
    labels = [textwrap.shorten(part.label, LONGEST_LABEL, placeholder=" ...") for part in kept]
    values = [part.value for part in kept]
    if rest and own.form == "sum":
        labels.append("all smaller parts")
        values.append(sum(part.value for part in rest))
    axes = axes_of(ax, width=9.0, height=1.2 + 0.35 * len(values))
    rows = range(len(values))
    if own.form == "sum":
        axes.barh(rows, values, 0.65, color=BLUE)
        shapes = f" ({said})" if (said := own.batch_of_shapes()) else ""
        axes.set_xlabel(axis_name(own.metric) + shapes)
    else:
        axes.barh(rows, [value - 1.0 for value in values], 0.65, left=1.0, color=BLUE)
        axes.set_xscale("log")
        axes.axvline(1.0, color="black", lw=1.0)
        axes.set_xlabel(f"factor on {axis_name(own.metric)}, from {own.base:,.4g} without any")
    return _of_rows(axes, labels, title)


def front(
    points: Sequence[tuple[float, float, str, bool]], title: str, ax: "Axes | None" = None
) -> "Axes":
    """Energy over time at each power limit, with the Pareto front in colour.

    Args:
        points: time in ms, energy in J, label, and whether the point is on the front.
        title: heading.
        ax: axes to draw on; a new figure when None.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    axes = axes_of(ax)
    line = sorted((time, energy) for time, energy, _, on_front in points if on_front)
    if line:
        axes.plot(*zip(*line, strict=True), color=BLUE, lw=2, label="no other limit is better")
    colours = [BLUE if on_front else GREY for *_, on_front in points]
    axes.scatter([p[0] for p in points], [p[1] for p in points], color=colours, zorder=3)
    for time, energy, label, _ in points:
        axes.annotate(label, (time, energy), xytext=(6, 4), textcoords="offset points")
    axes.set_xlabel("time of a run, ms")
    axes.set_ylabel("energy of a run, J")
    axes.set_title(title, loc="left")
    return axes


def heat_map(
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    metric: str,
    title: str,
    ax: "Axes | None" = None,
) -> "Axes":
    """A heat map on a logarithmic scale, with each value written into its cell.

    Args:
        values: one list for each row with one value for each column; NaN where not known.
        rows: labels of the lists.
        columns: labels of the values in each list.
        metric: name of the metric.
        title: heading.
        ax: axes to draw on; a new figure when None.

    Raises:
        InputError: no value is known and above zero.
        MissingExtra: matplotlib is not installed.
    """
    known = [value for row in values for value in row if value > 0.0]
    if not known:
        raise InputError(f"{metric} is not known for any of {', '.join(rows)}.")
    axes = axes_of(ax, 1.8 + 1.0 * len(columns), 1.2 + 0.45 * len(rows))
    from matplotlib.colors import LogNorm

    least, most = min(known), max(known)
    norm = LogNorm(vmin=least, vmax=most) if least < most else None
    image: Any = axes.imshow(values, aspect="auto", cmap="cividis", norm=norm)
    for row, listed in enumerate(values):
        for column, value in enumerate(listed):
            if value > 0.0:
                red, green, blue, _ = image.to_rgba([[value]])[0, 0]
                dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
                colour = "white" if dark else "black"
                axes.text(column, row, f"{value:,.3g}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.figure.colorbar(image, ax=axes, label=axis_name(metric))
    axes.set_title(title, loc="left")
    return axes
