"""Print answers as tables: one device in full with its parts, several devices side by side."""

from collections.abc import Sequence
from math import prod
from typing import Final

from rich.markup import escape
from rich.table import Table

from forerun.data.metrics import metric
from forerun.models.limit import OFFLOADED
from forerun.service.cli.output import screen
from forerun.service.schemas.answers import (
    GRADES,
    NOT_CALIBRATED,
    REST,
    AttributedOut,
    AttributionOut,
    EstimateOut,
    FitsOut,
    PowerFactsOut,
    PredictionOut,
    sentence,
)

MOST_ROWS: Final = 12
LONGEST_LABEL: Final = 72
SUMS: Final = "sums by class of operator, over all parts: ms, share, runs, class"


def show_attribution(answer: PredictionOut) -> None:
    """Print the largest parts of the answer, and how they make the estimate."""
    own = answer.attribution
    if own is None:
        return
    for line in attribution_lines(own):
        screen().print(line, markup=False, highlight=False, soft_wrap=True)


def attribution_lines(own: AttributionOut) -> list[str]:
    """The largest parts as lines: the value, its share or sign, how often it runs, and what it is.

    Parts beyond `MOST_ROWS` are added up in a last line. The sums of all classes of operators
    follow, and add up to the estimate.
    """
    if own.form == "product":
        text, whole = metric(own.metric).text, prod(part.value for part in own.parts)
        lines = [f"{text(own.base)} without directives, times the factor of each loop's directives"]
        lines += [f"  x {part.value:<8.3g} {part.label}" for part in own.parts]
        return [*lines, f"  = {text(own.base * whole)}"]
    total = sum(part.value for part in own.parts)
    kept, rest = own.parts[:MOST_ROWS], own.parts[MOST_ROWS:]
    shapes = f" ({said})" if (said := own.batch_of_shapes()) else ""
    lines = [f"largest parts of the latency: ms, share, runs, operator{shapes}"]
    lines += [_line(part, total) for part in kept]
    if rest:
        others = sum(part.value for part in rest)
        lines.append(f"{others:>9.3g} {others / total:>6.1%}        all smaller parts")
    lines.append(SUMS)
    lines += [
        f"{each.value:>9.4g} {each.value / total:>6.1%} x{each.count:<6g} {each.group}"
        for each in (*own.by_part, *own.by_class)
    ]
    lines.append(f"{total:>9.4g} {1:>6.1%}        the latency")
    if own.kernels is not None and own.correction is not None:
        lines.append(
            f"single operators add up to {own.kernels:.4g} ms; corrections of the whole network "
            f"multiply this by {own.correction:.3g}, which is in all parts but host"
        )
    return lines


def _line(part: AttributedOut, total: float) -> str:
    label = part.label if len(part.label) <= LONGEST_LABEL else f"{part.label[:LONGEST_LABEL]}..."
    group = "" if part.group in (part.label, REST) else f" ({part.group})"
    return f"{part.value:>9.3g} {part.value / total:>6.1%} x{part.count:<6g} {label}{group}"


TABLE_METRICS = ("latency_ms", "peak_memory_mib", "power_w", "energy_j")
LEAST_SHARE = 0.01
MORE = "--explain shows bounds, where time and memory go, and every limit of the answer"


def show(name: str, answers: Sequence[PredictionOut], *, explain: bool = False) -> None:
    """Print one answer in full, or several side by side.

    Args:
        name: name of the model.
        answers: one answer per device.
        explain: whether bounds, breakdowns and limits are printed as well.
    """
    if len(answers) == 1:
        show_one(name, answers[0], explain=explain)
    else:
        show_side_by_side(name, answers, explain=explain)


def show_one(source: str, answer: PredictionOut, *, explain: bool = False) -> None:
    """Print every metric with interval and trust; breakdowns and limits where asked for."""
    screen().print(f"\n[bold]{source}[/bold] on [bold]{answer.device.name}[/bold]")
    _in_full(answer, explain=explain)
    _notes([answer], explain=explain)


def _in_full(answer: PredictionOut, *, explain: bool) -> None:
    """Print all of an answer but its limits."""
    rows = table("", "estimate", answer.interval_heading, *(["bound"] if explain else []), "trust")
    rows.add_column("why")
    for name in shown_metrics(answer):
        estimate, bound = answer.metrics.get(name), answer.roofline.get(name)
        bounds = ["" if bound is None else metric(name).text(bound)] if explain else []
        if estimate is None:
            rows.add_row(name, "not known", "", *bounds, "", escape(answer.missing.get(name, "")))
            continue
        interval, reason = _interval(name, estimate), escape(estimate.grade_reason)
        value = metric(name).text(estimate.value)
        rows.add_row(name, value, interval, *bounds, estimate.grade, reason)
    screen().print(rows)
    _free_dimensions(answer)
    _fit(answer)
    if explain:
        _parts(answer)
        show_attribution(answer)
        _power(answer.power)


def _free_dimensions(answer: PredictionOut) -> None:
    """Print what the free dimensions of the inputs were taken as."""
    words = sentence(answer.bound_dimensions)
    if words:
        screen().print(f"free dimensions: {words}", markup=False)


def shown_metrics(answer: PredictionOut) -> Sequence[str]:
    """Metrics that tables show: four of a network, all of a workload of another kind."""
    of_run = set(TABLE_METRICS) <= set(answer.metrics)
    return TABLE_METRICS if of_run else tuple(answer.metrics)


def _fit(answer: PredictionOut) -> None:
    """Print whether the run fits the memory of the device."""
    fits = answer.fits
    if fits is not None:
        needed, usable = f"{fits.needed_mib:,.0f}", f"{fits.usable_mib:,.0f}"
        screen().print(
            f"fits: {fit_word(fits)}, up to {needed} of {usable} usable MiB ({fits.risk})"
        )


def _parts(answer: PredictionOut) -> None:
    """Print what takes the time, and what takes the memory."""
    out, total = screen(), sum(answer.breakdown_ms.values())
    if total:
        parts = sorted(answer.breakdown_ms.items(), key=lambda item: -item[1])
        shares = [f"{op} {100 * ms / total:.0f} %" for op, ms in parts if ms > LEAST_SHARE * total]
        out.print(f"where the time goes: {', '.join(shares)}")
    if answer.breakdown_mib:
        mebibytes = ", ".join(f"{part} {mib:,.0f}" for part, mib in answer.breakdown_mib.items())
        out.print(f"what takes memory, MiB: {mebibytes}")


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


def show_side_by_side(
    source: str, answers: Sequence[PredictionOut], *, explain: bool = False
) -> None:
    """Print one row per device, then each device in full where asked for, then the limits."""
    screen().print(f"\n[bold]{source}[/bold]")
    if shown_metrics(answers[0]) is TABLE_METRICS:
        _show_runs_by_device(answers, explain=explain)
    else:
        _show_metrics_by_device(answers)
    _missing(answers)
    if explain:
        for answer in answers:
            screen().print(f"\non [bold]{answer.device.name}[/bold]")
            _in_full(answer, explain=True)
        screen().print()
    else:
        _free_dimensions(answers[0])
    _notes(answers, explain=explain)


def _show_runs_by_device(answers: Sequence[PredictionOut], *, explain: bool) -> None:
    """Print one row per device, with time, memory, power and energy, and the trust in each."""
    bound = ["bound"] if explain else []
    heading = answers[0].interval_heading
    rows = table("device", "latency", heading, *bound, "memory", "fits", "power", "energy")
    for answer in answers:
        least = metric("latency_ms").text(answer.roofline.get("latency_ms"))
        latency, memory, *drawn = (graded(name, answer.metrics.get(name)) for name in TABLE_METRICS)
        rows.add_row(
            answer.device.name,
            latency,
            _interval("latency_ms", answer.metrics["latency_ms"]),
            *([least] if explain else []),
            memory,
            fit_word(answer.fits),
            *drawn,
        )
    screen().print(rows)


def _show_metrics_by_device(answers: Sequence[PredictionOut]) -> None:
    """Print one row per device with the estimate of every metric and its trust."""
    names = shown_metrics(answers[0])
    rows = table("device", *names)
    for answer in answers:
        rows.add_row(answer.device.name, *(graded(n, answer.metrics.get(n)) for n in names))
    screen().print(rows)


def graded(name: str, estimate: EstimateOut | None) -> str:
    """The estimate of a metric with its unit and grade."""
    if estimate is None:
        return metric(name).text(None)
    return f"{metric(name).text(estimate.value)} {estimate.grade}"


def _missing(answers: Sequence[PredictionOut]) -> None:
    """Print each reason for a missing metric once, with the devices to which it applies."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for answer in answers:
        for name, reason in answer.missing.items():
            if name in shown_metrics(answer):
                reasons.setdefault((name, reason), []).append(answer.device.name)
    for (name, reason), names in reasons.items():
        screen().print(f"{name} not known on {', '.join(names)}: {reason}", markup=False)


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


def _notes(answers: Sequence[PredictionOut], *, explain: bool) -> None:
    """Print each limit once, with the devices to which it applies.

    In brief, these are refusals, and what is said of parts that wait in the host's memory.
    """
    out = screen()
    ranges = [e for a in answers for e in a.metrics.values() if e and e.low is not None]
    if any(e.coverage is None for e in ranges):
        out.print(NOT_CALIBRATED)
    if ranges:
        out.print(f"{GRADES}{'' if explain else f'; {MORE}'}", style="dim", markup=False)
    held: dict[tuple[str, str], list[str]] = {}
    for answer in answers:
        for limit in answer.limit_details:
            if explain or limit.severity == "refusal" or limit.message.endswith(OFFLOADED):
                held.setdefault((limit.heading, limit.message), []).append(answer.device.name)
    for (heading, message), names in held.items():
        on = "" if len(names) == len(answers) else f" (on {', '.join(names)})"
        out.print(f"[yellow]{heading}:[/yellow] {escape(message)}{on}")
