"""Plots of predictions and their errors: parity, error by number of shots, coverage.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), which remain distinguishable
with colour blindness. Figures are drawn without pyplot, because it keeps global state.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.data.columns import Column
from forerun.data.errors import MissingExtra
from forerun.data.facts import facts_of
from forerun.data.metrics import metric
from forerun.training.scores.errors import absolute_percentage_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Level = tuple[str, float]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B0A000", "#666666")
_INK, _FAINT, _QUIET = "#222222", "#DDDDDD", "#9AA0A6"
_STYLE: dict[Any, Any] = facts_of(__file__)["style"]
_MOST_POINTS = 4000
_LEVEL = "#6B7177"
"""Colour of published systems."""


def parity(
    path: Path,
    measured: ArrayLike,
    predicted: ArrayLike,
    groups: Sequence[str],
    *,
    metric_name: str = "latency_ms",
    title: str = "Predicted against measured",
) -> Path:
    """Parity plot on logarithmic axes, coloured by group, with predicted / measured below.

    The grey band is 10 % around equality. At most 4,000 points are drawn, evenly over the rows;
    the errors in the legend are over all rows. With more than 8 groups, the smallest share a
    colour.

    Args:
        path: PNG file to write.
        measured: positive values, shape (n,), in the metric's unit.
        predicted: positive values, shape (n,), same unit.
        groups: n names, such as operator classes or devices.
        metric_name: metric of both columns.
        title: heading.

    Raises:
        ValueError: columns differ in length, or no row is positive.
        MissingExtra: matplotlib is not installed.
    """
    errors = absolute_percentage_errors(measured, predicted)
    truth, answer = np.asarray(measured, dtype=float), np.asarray(predicted, dtype=float)
    names = np.asarray(groups, dtype=np.str_)
    drawable = np.isfinite(errors) & (answer > 0)
    if len(names) != len(truth) or not drawable.any():
        raise ValueError("parity needs one group for each row, and at least one positive row")
    truth, answer, errors = truth[drawable], answer[drawable], errors[drawable]
    names = _grouped(names[drawable])
    drawn = np.arange(0, len(truth), -(-len(truth) // _MOST_POINTS))
    with drawing(path, 6.4, 8.0, title, heights=(3.2, 1)) as (upper, lower):
        limits = _log_limits(np.concatenate([truth, answer]))
        line = np.array(limits)
        upper.fill_between(line, line / 1.1, line * 1.1, color=_FAINT, lw=0, zorder=1)
        upper.plot(line, line, color=_QUIET, lw=1, zorder=2)
        lower.axhspan(1 / 1.1, 1.1, color=_FAINT, lw=0, zorder=1)
        lower.axhline(1.0, color=_QUIET, lw=1, zorder=2)
        for colour, name in zip(COLOURS, _by_size(names), strict=False):
            of_group = drawn[names[drawn] == name]
            dots: dict[str, Any] = {"s": 12, "color": colour, "alpha": 0.5, "lw": 0, "zorder": 3}
            label = f"{name}  {errors[names == name].mean():.1f} %"
            upper.scatter(truth[of_group], answer[of_group], label=label, **dots)
            lower.scatter(truth[of_group], answer[of_group] / truth[of_group], **dots)
        named = _axis_name(metric_name)
        upper.set(xscale="log", yscale="log", xlim=limits, ylim=limits, ylabel=f"predicted {named}")
        upper.tick_params(axis="x", labelbottom=False)
        lower.set(xscale="log", yscale="log", xlim=limits, xlabel=f"measured {named}")
        _ratio_axis(lower, answer / truth)
        for axis in (upper.yaxis, lower.xaxis):
            axis.set_major_formatter("{x:g}")
        _legend_of_dots(upper)
    return path


def error_by_shots(
    path: Path,
    lines: Mapping[str, Mapping[int, tuple[float, float | None]]],
    levels: Sequence[Level] = (),
    *,
    score: str = "mean absolute percentage error",
    higher_is_better: bool = False,
    title: str = "Error by number of measurements on the device",
) -> Path:
    """A score against the number of shots, with one line per predictor and published scores.

    Args:
        path: PNG file to write.
        lines: predictor -> shots -> value and standard error; no band if that is None. A line
            far worse than the best is cut off by the axis limits.
        levels: names and values of published systems, drawn as horizontal lines.
        score: name of the score on the axis.
        higher_is_better: whether higher is better; otherwise the axis begins at zero.
        title: heading.

    Raises:
        ValueError: no line has a point.
        MissingExtra: matplotlib is not installed.
    """
    if not any(lines.values()):
        raise ValueError("error_by_shots needs a predictor with a figure")
    with drawing(path, 7.2, 4.8, title) as (axes,):
        for row, (name, curve) in enumerate(lines.items()):
            colour, shots = COLOURS[row % len(COLOURS)], np.array(sorted(curve), dtype=float)
            value = np.array([curve[int(k)][0] for k in shots])
            error = np.array([curve[int(k)][1] or 0.0 for k in shots])
            axes.plot(shots, value, color=colour, marker="o", ms=5, lw=1.8, label=name, zorder=3)
            axes.fill_between(shots, value - error, value + error, color=colour, alpha=0.2, lw=0)
        for row, (name, level) in enumerate(levels):
            dash: Any = ((0, (5, 2)), (0, (1, 2)), (0, (5, 2, 1, 2)))[row % 3]
            axes.axhline(level, color=_LEVEL, lw=1.2, ls=dash, label=name, zorder=2)
        places = sorted({k for curve in lines.values() for k in curve})
        axes.set_xscale(
            "symlog", linthresh=max(1, min((k for k in places if k), default=1)), linscale=0.4
        )
        axes.set_xticks(places, [str(k) for k in places], minor=False)
        axes.set_xticks([], minor=True)
        axes.set(xlabel="measurements on the device under test", ylabel=score)
        if not higher_is_better:
            best = [min(v for v, _ in curve.values()) for curve in lines.values() if curve]
            first = next(max(v for v, _ in c.values()) for c in lines.values() if c)
            worst = max(v + (e or 0.0) for curve in lines.values() for v, e in curve.values())
            highest = max([worst, *(level for _, level in levels)])
            axes.set_ylim(0, 1.1 * min(highest, max(first, 4 * min(best))))
        axes.figure.legend(loc="outside lower center", ncols=3, handlelength=1.8)
    return path


@contextmanager
def drawing(
    path: Path, width: float, height: float, title: str, heights: Sequence[float] = (1,)
) -> Iterator[Sequence["Axes"]]:
    """Context manager: axes in our style, stacked vertically; writes the file at its end."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("Drawing figures", "train") from None
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        rows = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        rows[0].set_title(title)
        yield list(rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without matplotlib's version in the metadata, equal data give identical files.
        figure.savefig(path, format="png", metadata={"Software": None})


def _ratio_axis(axes: "Axes", ratios: Column) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    # Nearly all rows, at least a factor of 1.5 and at most 10 in either direction.
    spread = float(np.clip(np.exp(np.percentile(np.abs(np.log(ratios)), 99.5)), 1.5, 10.0)) * 1.05
    axes.set(ylim=(1 / spread, spread), ylabel="predicted / measured")
    axes.yaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 0.8, 1.0, 1.25, 2.0, 5.0, 10.0]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


def _legend_of_dots(axes: "Axes") -> None:
    legend = axes.legend(
        loc="upper left",
        title="mean error, grey: within 10 %",
        alignment="left",
        handletextpad=0.2,
        markerscale=1.8,
    )
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)


def _grouped(names: NDArray[np.str_]) -> NDArray[np.str_]:
    """The names; if there are more groups than colours, the smallest are merged into one."""
    largest = _by_size(names)
    if len(largest) <= len(COLOURS):
        return names
    kept = largest[: len(COLOURS) - 1]
    return np.where(np.isin(names, kept), names, f"{len(largest) - len(kept)} others")


def _by_size(names: NDArray[np.str_]) -> list[str]:
    found, counts = np.unique(names, return_counts=True)
    return [str(n) for n in found[np.argsort(-counts, kind="stable")]]


def _log_limits(values: Column) -> tuple[float, float]:
    return float(values.min() / 1.4), float(values.max() * 1.4)


def _axis_name(metric_name: str) -> str:
    unit = metric(metric_name).unit
    if not unit:
        return metric_name
    return f"{metric_name.rpartition('_')[0].replace('_', ' ')}, {unit}"


GROUPS = 10
NOMINAL = 90.0


def calibration(
    path: Path,
    measured: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    title: str = "Coverage of 90 % intervals by their width",
) -> Path:
    """Coverage of prediction intervals in up to ten equal groups of rows, from narrow to wide.

    With well calibrated intervals, all bars reach the nominal 90 %.

    Args:
        path: PNG file to write.
        measured: (n,) measured values.
        low: (n,) lower ends in the same unit; rows with NaN are ignored.
        high: (n,) upper ends.
        title: heading.

    Raises:
        ValueError: no row has an interval.
        MissingExtra: matplotlib is not installed.
    """
    truth, lower, upper = (np.asarray(c, dtype=np.float64) for c in (measured, low, high))
    known = np.isfinite(truth) & np.isfinite(lower) & np.isfinite(upper) & (lower > 0)
    if not known.any():
        raise ValueError("calibration needs a row with an interval")
    inside = ((lower <= truth) & (truth <= upper))[known]
    ratio = (upper[known] / lower[known]).astype(np.float64)
    order = np.argsort(ratio, kind="stable")
    parts = [part for part in np.array_split(order, GROUPS) if len(part)]
    shares = [100.0 * float(inside[part].mean()) for part in parts]
    labels = [f"{ratio[part].mean():.2f}" for part in parts]
    with drawing(path, 6.8, 4.4, title) as (axes,):
        places = np.arange(len(parts), dtype=float)
        axes.bar(places, shares, 0.8, color=COLOURS[0])
        axes.axhline(NOMINAL, color=_INK, lw=1, ls=(0, (4, 3)))
        axes.set_xticks(places, labels)
        axes.set(ylim=(0, 104), ylabel="measured values inside (dashed: 90 %)")
        axes.set_xlabel(f"mean ratio high / low of each group of about {len(parts[0]):,} rows")
        axes.yaxis.set_major_formatter("{x:.0f} %")
        axes.grid(visible=False, axis="x")
    return path
