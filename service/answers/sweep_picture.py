"""Draw energy over time at each power limit as SVG; all text is escaped."""

from collections.abc import Sequence
from html import escape
from math import floor, log10
from typing import NamedTuple

from forerun.service.schemas.answers import LimitedOut, SweepOut

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 24, 44, 54
INK, FAINT, QUIET, FRONT = "#222222", "#DDDDDD", "#9AA0A6", "#0072B2"
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class _Axis(NamedTuple):
    """A linear map from values to pixels."""

    least: float
    most: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.least) / (self.most - self.least)
        return round(self.start + share * (self.end - self.start), 1)


def sweep_picture(sweep: SweepOut, title: str = "Energy over time by power limit") -> str:
    """An SVG document with one dot per limit and the Pareto front in colour.

    The advised limits are labelled.

    Args:
        sweep: a sweep, as `swept` returns it.
        title: heading of the picture.
    """
    runs = sweep.runs
    times = [run.latency_ms.value for run in runs]
    energies = [run.energy_j.value for run in runs]
    across = _axis(times, LEFT, WIDTH - RIGHT)
    up = _axis(energies, HEIGHT - BOTTOM, TOP)
    front = sorted((t, e) for t, e, run in zip(times, energies, runs, strict=True) if run.on_front)
    line = " ".join(f"{across.at(t)},{up.at(e)}" for t, e in front)
    advised = sweep.within_slow_down.limit_w, sweep.least_energy.limit_w
    dots = "".join(
        _dot(across.at(t), up.at(e), run, run.limit_w in advised)
        for t, e, run in zip(times, energies, runs, strict=True)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui,sans-serif" font-size="13" fill="{INK}" role="img">'
        f"<title>{escape(title)}</title>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#FFFFFF"/>'
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">{escape(title)}</text>'
        f"{_grid(across, up)}"
        f'<polyline points="{line}" fill="none" stroke="{FRONT}" stroke-width="2"/>{dots}'
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
        "time of a run, ms</text>"
        f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        'text-anchor="middle">energy of a run, J</text></svg>\n'
    )


def _axis(values: Sequence[float], start: float, end: float) -> _Axis:
    """An axis with a margin around the values, also where all values are equal."""
    least, most = min(values), max(values)
    room = 0.08 * (most - least) or 0.1 * abs(most) or 1.0
    return _Axis(least - room, most + room, start, end)


def _ticks(axis: _Axis) -> list[float]:
    wide = (axis.most - axis.least) / 5
    size = 10.0 ** floor(log10(wide))
    step = next(size * by for by in STEPS if size * by >= wide)
    first = floor(axis.least / step) + 1
    return [k * step for k in range(first, first + 8) if k * step <= axis.most]


def _grid(across: _Axis, up: _Axis) -> str:
    parts = []
    for tick in _ticks(across):
        x, low = across.at(tick), HEIGHT - BOTTOM
        parts.append(f'<path d="M{x} {TOP}V{low}" stroke="{FAINT}"/>')
        parts.append(f'<text x="{x}" y="{low + 18}" text-anchor="middle">{tick:.4g}</text>')
    for tick in _ticks(up):
        y = up.at(tick)
        parts.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{tick:.4g}</text>')
    return "".join(parts)


def _dot(x: float, y: float, run: LimitedOut, named: bool) -> str:
    colour = FRONT if run.on_front else QUIET
    text = f"{run.limit_w:.4g} W"
    dot = (
        f'<circle cx="{x}" cy="{y}" r="{6 if named else 4}" fill="{colour}">'
        f"<title>{text}</title></circle>"
    )
    if not named:
        return dot
    anchor, shift = ("end", -8) if x > WIDTH / 2 else ("start", 8)
    return f'{dot}<text x="{x + shift}" y="{y - 12}" text-anchor="{anchor}">{text}</text>'
