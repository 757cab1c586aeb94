"""Pictures of how good answers are: parity, error by operator class, and the spread of errors.

Colours are Okabe and Ito's, which people with colour-blindness tell apart ("Color Universal
Design", 2008). Figures are drawn without pyplot, so that nothing global is kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.data.errors import MissingExtra
from forerun.data.metrics import metric
from forerun.training.scores import absolute_percentage_errors, percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Column = NDArray[np.float64]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#B0A000", "#666666")
_INK, _FAINT, _QUIET = "#222222", "#DDDDDD", "#9AA0A6"
_RC: dict[Any, Any] = {
    "font.size": 10.5,
    "font.family": "DejaVu Sans",
    "axes.edgecolor": _QUIET,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.8,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "svg.hashsalt": "forerun",
}
_MOST_POINTS = 4000


def parity(
    path: Path,
    measured: ArrayLike,
    predicted: ArrayLike,
    groups: Sequence[str],
    *,
    metric_name: str = "latency_ms",
    title: str = "Predicted against measured",
) -> Path:
    """Predicted against measured on log axes, coloured by group, with the band of 10 % around 1:1.

    At most 4,000 points are drawn (evenly over the rows); errors in the legend are over all.

    Args:
        path: PNG file to write.
        measured: n positive values.
        predicted: n positive values.
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
        raise ValueError("parity needs one group a row, and a row that is positive")
    shown = np.flatnonzero(drawable)
    shown = shown[:: -(-len(shown) // _MOST_POINTS)]
    with _drawing(path, 6.4, 6.2, title) as axes:
        limits = _log_limits(np.concatenate([truth[drawable], answer[drawable]]))
        line = np.array(limits)
        axes.fill_between(line, line / 1.1, line * 1.1, color=_FAINT, lw=0, zorder=1)
        axes.plot(line, line, color=_QUIET, lw=1, zorder=2)
        for colour, name in zip(_colours(names[drawable]), _by_size(names[drawable]), strict=True):
            mine = shown[names[shown] == name]
            label = f"{name}  {_mean_error(errors[drawable & (names == name)])}"
            axes.scatter(
                truth[mine],
                answer[mine],
                s=13,
                color=colour,
                alpha=0.55,
                lw=0,
                label=label,
                zorder=3,
            )
        unit = metric(metric_name)
        axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")
        axes.set_xlabel(f"measured {_axis_name(unit.name, unit.unit)}")
        axes.set_ylabel(f"predicted {_axis_name(unit.name, unit.unit)}")
        axes.grid(True)
        axes.text(
            0.985,
            0.02,
            "grey band: within 10 %",
            transform=axes.transAxes,
            ha="right",
            color=_QUIET,
        )
        axes.legend(loc="upper left", handletextpad=0.2, title="mean error", alignment="left")
    return path


def error_by_class(
    path: Path,
    errors: Mapping[str, Mapping[str, float | None]],
    *,
    title: str = "Mean absolute error by operator class",
) -> Path:
    """Horizontal bars of mean absolute percentage error, one group of bars a class.

    Args:
        path: PNG file to write.
        errors: system -> class -> percent; the first system is ours and is drawn in colour. A
            class that a system has no figure for gets no bar.
        title: heading.

    Raises:
        ValueError: no system has a figure.
        MissingExtra: matplotlib is not installed.
    """
    classes = list(dict.fromkeys(name for mine in errors.values() for name in mine))
    known = [v for mine in errors.values() for v in mine.values() if v is not None]
    if not known:
        raise ValueError("error_by_class needs a figure of at least one system")
    # Bars beyond a multiple of the rest are cut, and say so: else one outlier hides all others.
    edge = 1.15 * min(max(known), 4.0 * float(np.median(known)))
    with _drawing(path, 7.2, 1.5 + len(classes) * (0.24 * len(errors) + 0.22), title) as axes:
        places = np.arange(len(classes), dtype=float)
        height = 0.8 / len(errors)
        for row, (system, mine) in enumerate(errors.items()):
            values = [mine.get(name) for name in classes]
            lengths = np.array([0.0 if v is None else min(v, edge) for v in values])
            at = places + (row - (len(errors) - 1) / 2) * height
            colour = COLOURS[0] if row == 0 else _GREYS[(row - 1) % len(_GREYS)]
            axes.barh(at, lengths, height * 0.9, color=colour, label=system)
            for y, value in zip(at, values, strict=True):
                _bar_label(axes, y, value, edge, bold=row == 0)
        axes.set_yticks(places, classes)
        axes.invert_yaxis()
        axes.set(xlim=(0, edge * 1.12), xlabel="mean absolute percentage error")
        axes.xaxis.set_major_formatter("{x:.0f} %")
        axes.grid(True, axis="x")
        axes.tick_params(axis="y", length=0)
        _legend_below(axes, len(errors))
    return path


def error_distribution(
    path: Path,
    errors: Mapping[str, ArrayLike],
    *,
    title: str = "How often answers are how far off",
) -> Path:
    """Share of rows whose absolute percentage error is at most x, one line a system.

    Args:
        path: PNG file to write.
        errors: system -> its absolute percentage errors, percent; not finite ones are left out.
            The first system is ours and is drawn in colour.
        title: heading.

    Raises:
        ValueError: a system has no error.
        MissingExtra: matplotlib is not installed.
    """
    columns = {name: np.sort(_finite(values)) for name, values in errors.items()}
    if not columns or any(not len(column) for column in columns.values()):
        raise ValueError("error_distribution needs errors of every system it is given")
    with _drawing(path, 6.8, 4.6, title) as axes:
        edge = max(20.0, min(100.0, max(percentile(c, 95.0) or 0.0 for c in columns.values())))
        for row, (system, column) in enumerate(columns.items()):
            share = 100.0 * np.arange(1, len(column) + 1) / len(column)
            middle = percentile(column, 50.0)
            colour = COLOURS[0] if row == 0 else _GREYS[(row - 1) % len(_GREYS)]
            axes.step(
                np.concatenate([[0.0], column, [max(edge, column[-1])]]),
                np.concatenate([[0.0], share, [100.0]]),
                where="post",
                color=colour,
                lw=2.4 if row == 0 else 1.6,
                zorder=3 - row * 0.1,
                label=f"{system}, median {middle:.1f} %",
            )
        axes.axvline(10.0, color=_QUIET, lw=1, ls=(0, (4, 3)), zorder=1)
        axes.text(10.0, 101.5, "10 %", ha="center", color=_QUIET)
        axes.set(xlim=(0, edge), ylim=(0, 100))
        axes.set(xlabel="absolute percentage error, at most", ylabel="share of rows")
        axes.xaxis.set_major_formatter("{x:.0f} %")
        axes.yaxis.set_major_formatter("{x:.0f} %")
        axes.grid(True)
        axes.legend(loc="lower right")
    return path


_GREYS = ("#E69F00", "#9AA0A6", "#C9CDD2", "#6B7177")
"""Baselines: one that stands out as the next best to look at, the others quiet."""


@contextmanager
def _drawing(path: Path, width: float, height: float, title: str) -> Iterator["Axes"]:
    """Axes in our style; the picture is written when the block ends."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("Drawing figures", "train") from None
    with rc_context(_RC):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        axes.set_title(title)
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the version of matplotlib in it, the same figures make the same file.
        figure.savefig(path, format="png", metadata={"Software": None})


def _bar_label(axes: "Axes", y: float, value: float | None, edge: float, bold: bool) -> None:
    if value is None:
        return
    text = f"{value:.1f} %" if value < edge else f"{value:,.0f} % →"
    weight: Any = "bold" if bold else "normal"
    axes.text(
        min(value, edge), y, f" {text}", va="center", fontsize=9, fontweight=weight, color=_INK
    )


def _legend_below(axes: "Axes", columns: int) -> None:
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0.0, -0.16),
        ncols=min(columns, 4),
        borderaxespad=0.0,
        handlelength=1.0,
    )


def _by_size(names: NDArray[np.str_]) -> list[str]:
    found, counts = np.unique(names, return_counts=True)
    return [str(n) for n in found[np.argsort(-counts, kind="stable")]]


def _colours(names: NDArray[np.str_]) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(np.unique(names)))]


def _mean_error(errors: Column) -> str:
    return f"{errors.mean():.1f} %"


def _log_limits(values: Column) -> tuple[float, float]:
    return float(values.min() / 1.4), float(values.max() * 1.4)


def _axis_name(name: str, unit: str) -> str:
    plain = name.rsplit("_", 1)[0].replace("_", " ") if unit else name
    return f"{plain}, {unit}" if unit else plain


def _finite(values: ArrayLike) -> Column:
    column = np.asarray(values, dtype=np.float64)
    return column[np.isfinite(column)]
