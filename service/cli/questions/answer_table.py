"""Print answers as tables: one device in full with its parts, several devices side by side."""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Final

from forerun.data.metrics import metric
from forerun.models.limit import ALWAYS_SHOWN
from forerun.service.cli.output import screen
from forerun.service.cli.output import show as show_view
from forerun.service.python.answer import (
    MAIN,
    fit_lines,
    metric_rows,
    on_devices,
    parts_lines,
    side_by_side,
)
from forerun.service.python.view import View
from forerun.service.schemas.answers import (
    GRADES,
    NOT_CALIBRATED,
    REST,
    AttributedOut,
    AttributionOut,
    PredictionOut,
    sentence,
)

MOST_ROWS: Final = 12
LONGEST_LABEL: Final = 72
SUMS: Final = "sums by class of operator, over all parts: ms, share, runs, class"


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


MORE = "--explain shows bounds, where time and memory go, and every limit of the answer"


def show(name: str, answers: Sequence[PredictionOut], *, explain: bool = False) -> None:
    """Print one answer in full, or several side by side and then in full where asked for.

    Args:
        name: name of the model.
        answers: one answer per device.
        explain: whether bounds, breakdowns and limits are printed as well.
    """
    if len(answers) == 1:
        show_view(_in_full(f"{name} on {answers[0].device.name}", answers[0], explain=explain))
    else:
        show_view(_together(name, answers, explain=explain))
        for answer in answers if explain else ():
            show_view(_in_full(f"on {answer.device.name}", answer, explain=True))
    ranges = [e for a in answers for e in a.metrics.values() if e and e.low is not None]
    if any(e.coverage is None for e in ranges):
        screen().print(NOT_CALIBRATED)
    if ranges:
        screen().print(f"{GRADES}{'' if explain else f'; {MORE}'}", style="dim", markup=False)
    for line in on_devices(_limits(answers, explain=explain), len(answers)):
        screen().print(line, style="yellow", markup=False)


def _in_full(title: str, answer: PredictionOut, *, explain: bool) -> View:
    """All of an answer but its limits."""
    bound = ["bound"] if explain else []
    headings = ("", "estimate", answer.interval_heading, *bound, "trust", "why")
    lines = [*_free_dimensions(answer), *fit_lines(answer)]
    if explain:
        lines += parts_lines(answer)
        lines += [] if answer.attribution is None else attribution_lines(answer.attribution)
        lines += _power(answer)
    return View(title, headings, metric_rows(answer, _shown(answer), bounds=explain), lines)


def _together(title: str, answers: Sequence[PredictionOut], *, explain: bool) -> View:
    """One row per device: four metrics of a network, all of a workload of another kind."""
    names = _shown(answers[0])
    headings, rows = side_by_side(answers, bounds=explain)
    if names is not MAIN:
        headings = ("device", *names)
        found = [[answer.metrics.get(name) for name in names] for answer in answers]
        texts = [[own.graded() if own else "not known" for own in row] for row in found]
        rows = [[a.device.name, *row] for a, row in zip(answers, texts, strict=True)]
    missing = (
        (answer.device.name, f"{name} not known: {reason}")
        for answer in answers
        for name, reason in answer.missing.items()
        if name in names
    )
    lines = [*on_devices(missing, len(answers)), *([] if explain else _free_dimensions(answers[0]))]
    return View(title, headings, rows, lines)


def _shown(answer: PredictionOut) -> Sequence[str]:
    return MAIN if set(MAIN) <= set(answer.metrics) else tuple(answer.metrics)


def _free_dimensions(answer: PredictionOut) -> list[str]:
    """What the free dimensions of the inputs were taken as."""
    words = sentence(answer.bound_dimensions)
    return [f"free dimensions: {words}"] if words else []


def _power(answer: PredictionOut) -> list[str]:
    """The energy per sample, and the device's idle power, design power and power limit."""
    known = answer.power.model_dump(include={"idle_w", "tdp_w", "power_limit_w"})
    parts = [f"{name} {watts:,.4g}" for name, watts in known.items() if watts is not None]
    if answer.power.energy_per_sample_j is not None:
        parts.insert(0, f"{answer.power.energy_per_sample_j.text()} a sample")
    return [f"power: {', '.join(parts)}"] if parts else []


def _limits(answers: Iterable[PredictionOut], *, explain: bool) -> Iterator[tuple[str, str]]:
    """Device and limit; in short answers, refusals and those of `ALWAYS_SHOWN`."""
    for answer in answers:
        for limit in answer.limit_details:
            if explain or limit.severity == "refusal" or limit.message.endswith(ALWAYS_SHOWN):
                yield answer.device.name, f"{limit.heading}: {limit.message}"
