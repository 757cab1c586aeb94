"""Print answers as tables: one device in full, several devices side by side."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from forerun.data.metrics import metric
from forerun.models.limit import Severity
from forerun.service.cli.output import screen
from forerun.service.limits.memory_fit import FitsOut
from forerun.service.limits.power_summary import PowerFactsOut
from forerun.service.schemas.answers import EstimateOut, PredictionOut

TABLE_METRICS = ("latency_ms", "peak_memory_mib", "power_w", "energy_j")
LEAST_SHARE = 0.01
HEADINGS: Mapping[Severity, str] = {
    "note": "note",
    "outside": "outside what was measured",
    "refusal": "it cannot run as asked",
}
"""Severity of a limit -> the words in front of its sentence."""
NOT_CALIBRATED = "* an engineering range, not calibrated on measurements"


def show(name: str, answers: Sequence[PredictionOut]) -> None:
    """Print one answer in full, or several side by side."""
    if len(answers) == 1:
        show_one(name, answers[0])
    else:
        show_side_by_side(name, answers)


def show_one(source: str, answer: PredictionOut) -> None:
    """Print every metric with interval and bound, the breakdown of the time, and the limits."""
    out = screen()
    out.print(f"\n[bold]{source}[/bold] on [bold]{answer.device.name}[/bold]")
    rows = table("", "estimate", "90 % interval", "bound")
    for name in TABLE_METRICS:
        estimate = answer.metrics.get(name)
        if estimate is None:
            rows.add_row(name, "not known", "", answer.missing.get(name, ""))
            continue
        bound = answer.roofline.get(name)
        bound_text = "" if bound is None else metric(name).text(bound)
        rows.add_row(name, metric(name).text(estimate.value), _interval(name, estimate), bound_text)
    out.print(rows)
    total = sum(answer.breakdown_ms.values())
    if total:
        parts = sorted(answer.breakdown_ms.items(), key=lambda item: -item[1])
        shares = [f"{op} {100 * ms / total:.0f} %" for op, ms in parts if ms > LEAST_SHARE * total]
        out.print(f"where the time goes: {', '.join(shares)}")
    _memory(answer)
    _power(answer.power)
    _notes([answer])


def _memory(answer: PredictionOut) -> None:
    """Print the breakdown of the memory, and whether it fits the device."""
    out, fits = screen(), answer.fits
    if answer.breakdown_mib:
        parts = ", ".join(f"{part} {mib:,.0f}" for part, mib in answer.breakdown_mib.items())
        out.print(f"what takes memory, MiB: {parts}")
    if fits is not None:
        needed, usable = f"{fits.needed_mib:,.0f}", f"{fits.usable_mib:,.0f}"
        out.print(f"fits: {fit_word(fits)}, up to {needed} of {usable} usable MiB ({fits.risk})")


def _power(facts: PowerFactsOut) -> None:
    """Print the energy per sample, and the device's idle power, design power and power limit."""
    known = facts.model_dump(include={"idle_w", "tdp_w", "power_limit_w"})
    parts = [f"{name} {watts:,.4g}" for name, watts in known.items() if watts is not None]
    if facts.energy_per_sample_j is not None:
        parts.insert(0, f"{facts.energy_per_sample_j.value:,.4g} J a sample")
    if parts:
        screen().print(f"power: {', '.join(parts)}")


def fit_word(fits: FitsOut | None) -> str:
    """`yes` where the upper end of the interval fits, `perhaps` where only the estimate fits."""
    if fits is None:
        return "not known"
    return "yes" if fits.fits else "perhaps" if fits.fits_at_value else "no"


def show_side_by_side(source: str, answers: Sequence[PredictionOut]) -> None:
    """Print one row per device, with time, bound, memory, power and energy."""
    out = screen()
    out.print(f"\n[bold]{source}[/bold]")
    rows = table("device", "latency", "90 % interval", "bound", "memory", "fits", "power", "energy")
    for answer in answers:
        latency = answer.metrics["latency_ms"]
        memory, *drawn = (metric(n).text(_value(answer, n)) for n in TABLE_METRICS[1:])
        rows.add_row(
            answer.device.name,
            metric("latency_ms").text(None if latency is None else latency.value),
            _interval("latency_ms", latency),
            metric("latency_ms").text(answer.roofline.get("latency_ms")),
            memory,
            fit_word(answer.fits),
            *drawn,
        )
    out.print(rows)
    _notes(answers)


def _value(answer: PredictionOut, name: str) -> float | None:
    estimate = answer.metrics.get(name)
    return None if estimate is None else float(estimate.value)


def table(*headings: str) -> Table:
    """An empty table; the first column is left-aligned, the others are right-aligned."""
    made = Table(box=None, pad_edge=False)
    for index, heading in enumerate(headings):
        made.add_column(heading, justify="right" if index else "left", no_wrap=True)
    return made


def _interval(name: str, estimate: EstimateOut | None) -> str:
    if estimate is None or estimate.low is None:
        return ""
    low, high = metric(name).text(estimate.low), metric(name).text(estimate.high)
    return f"{low} to {high}" + ("" if estimate.coverage is not None else " *")


def _notes(answers: Sequence[PredictionOut]) -> None:
    """Print each limit once, with the devices to which it applies."""
    out = screen()
    ranges = [e for a in answers for e in a.metrics.values() if e and e.low is not None]
    if len(answers) == 1 and any(e.coverage is None for e in ranges):
        out.print(NOT_CALIBRATED)
    held: dict[tuple[Severity, str], list[str]] = {}
    for answer in answers:
        for limit in answer.limit_details:
            held.setdefault((limit.severity, limit.message), []).append(answer.device.name)
    for (severity, message), names in held.items():
        on = "" if len(names) == len(answers) else f" (on {', '.join(names)})"
        out.print(f"[yellow]{HEADINGS[severity]}:[/yellow]", end=" ")
        out.print(f"{message}{on}", markup=False)
