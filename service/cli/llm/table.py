"""Print estimates of language models that serve: one in full, or several devices side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from forerun.data.metrics import metric
from forerun.models.answers.deployments.arrivals import EXTRAPOLATED, OTHER_CASE
from forerun.models.answers.deployments.limits import WAITS
from forerun.service.cli.output import screen, table
from forerun.service.python.answer import on_devices
from forerun.service.schemas.answers import GRADES, NOT_CALIBRATED, GradedOut, ServingOut
from forerun.service.schemas.llm.answers import DeploymentOut, counted

WORDS: Final[Mapping[str, str]] = {
    "ttft_ms": "time to first token",
    "ttft_service_ms": "  without queueing",
    "tpot_ms": "time per output token",
    "request_latency_ms": "request latency",
    "requests_per_s": "requests per second",
    "tokens_per_s": "output tokens per second",
    "tokens_per_s_per_device": "  one device",
    "peak_memory_mib": "memory of a device",
    "power_w": "power of a device",
    "energy_per_token_j": "energy of an output token",
    "usd_per_million_tokens": "price of a million output tokens",
}
"""Metric -> row of the table, in their order."""
PARTS: Final = "where the time goes, and every limit"
REASONS: Final = "each device with the reasons of its grades, where the time goes, and every limit"
BRIEF: Final = (EXTRAPOLATED, OTHER_CASE, WAITS)
"""Ends of the limits that are printed also in brief."""
WIDEST: Final = 10_000
"""Width up to which tables are measured, columns."""
NARROW: Final = "intervals take a wider screen, a pipe or --explain"


def show(source: str, answers: Sequence[ServingOut], *, explain: bool = False) -> None:
    """Print one answer in full, or several side by side.

    Args:
        source: name of the model.
        answers: one answer per device.
        explain: whether each of several answers, parts of the time and every limit are printed too.
    """
    out = screen()
    first = answers[0]
    out.print(f"\n[bold]{escape(source)}[/bold]{_set_up(first)}", highlight=False)
    several = len(answers) > 1
    if several:
        _side_by_side(answers, explain=explain)
    for answer in answers:
        if explain or not several:
            _one(answer)
        _facts(answer, named=several and not explain)
        if explain and answer.deployment is not None:
            _parts(answer.device.name, answer.deployment)
    _notes(answers, explain=explain)


def _set_up(answer: ServingOut) -> str:
    if answer.deployment is None:
        return f", {counted(answer.device_count, 'device')}"
    engine = answer.deployment.engine
    return f" with {engine.name} {escape(engine.version)}".rstrip() + _parameters(answer)


def _parameters(answer: ServingOut) -> str:
    """Total parameters, and active ones where they are fewer, billions."""
    if answer.model is None:
        return ""
    total, active = answer.model.total_parameters, answer.model.active_parameters
    text = f", {total / 1e9:,.3g} billion parameters"
    return text if active == total else f"{text}, of which a token uses {active / 1e9:,.3g}"


def _metrics(answers: Sequence[ServingOut]) -> list[str]:
    """The metrics of any answer, in the order of the table."""
    given = dict.fromkeys(name for answer in answers for name in (*answer.metrics, *answer.missing))
    return [name for name in WORDS if name in given]


def _one(answer: ServingOut) -> None:
    rows = table("", "estimate", answer.interval_heading, "trust")
    rows.add_column("why")
    for name in _metrics([answer]):
        estimate = answer.metrics.get(name)
        if estimate is None:
            rows.add_row(WORDS[name], "not known", "", "", escape(answer.missing.get(name, "")))
            continue
        value, reason = _value(name, estimate, answer), escape(estimate.grade_reason)
        rows.add_row(WORDS[name], value, _interval(name, estimate), estimate.grade, reason)
    out = screen()
    out.print(f"\non [bold]{answer.device.name}[/bold]")
    out.print(rows)


def _side_by_side(answers: Sequence[ServingOut], *, explain: bool) -> None:
    """Print a column for each device: estimates with intervals and grades.

    Where the screen has no room for the intervals, they are left out, and a line says so.
    """
    out = screen()
    rows = _columns(answers, intervals=True)
    wanted = Measurement.get(out, out.options.update(max_width=WIDEST), rows).maximum
    if wanted <= out.width or not out.is_terminal:
        out.print(rows)
        return
    out.print(_columns(answers, intervals=False))
    if not explain:
        out.print(NARROW)


def _columns(answers: Sequence[ServingOut], *, intervals: bool) -> Table:
    rows = table("", *(answer.device.name for answer in answers))
    for name in _metrics(answers):
        cells = (_cell(name, answer, intervals=intervals) for answer in answers)
        rows.add_row(WORDS[name], *cells)
    return rows


def _cell(name: str, answer: ServingOut, *, intervals: bool) -> str:
    """The estimate with its interval and grade."""
    estimate = answer.metrics.get(name)
    if estimate is None:
        return "not known"
    interval = _interval(name, estimate) if intervals else ""
    held = f"({interval}) " if interval else ""
    return f"{_value(name, estimate, answer)} {held}{estimate.grade}"


def _value(name: str, estimate: GradedOut, answer: ServingOut) -> str:
    text = metric(name).text(estimate.value)
    at_capacity = _is_beyond(answer) and not name.endswith("_ms")
    return f"{text} at capacity" if at_capacity else text


def _is_beyond(answer: ServingOut) -> bool:
    """Whether requests arrive faster than they are answered, so that their queue has no end."""
    own = answer.deployment
    return own is not None and own.capacity is not None and "ttft_ms" in answer.missing


def _interval(name: str, estimate: GradedOut) -> str:
    """The interval in the metric's unit, with a star where it is not calibrated.

    What follows from the request alone, such as the rate of arrivals, has none.
    """
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return ""
    low, high = (_figures(end) for end in (estimate.low, estimate.high))
    return f"{low} to {high}" + ("" if estimate.coverage is not None else " *")


def _figures(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:,.3g}"


def _facts(answer: ServingOut, *, named: bool) -> None:
    """Print devices, memory, what limits the rate, and the price."""
    if answer.deployment is not None:
        lines = answer.deployment.facts()
        out = screen()
        if named:
            out.print(f"{answer.device.name}: {'; '.join(lines)}", markup=False)
            return
        for line in lines:
            out.print(f"- {line}", markup=False)


def _parts(device: str, deployment: DeploymentOut) -> None:
    """Print where the time goes, and what each part rests on."""
    rows = table("part", "of a prompt", "of a token", "rests on")
    rows.add_column("why")
    for part in deployment.parts:
        shares = (part.prefill_share, part.decode_share)
        cells = ("" if share is None else f"{100 * share:.0f} %" for share in shares)
        rows.add_row(part.name.replace("_", " "), *cells, part.basis, escape(part.reason))
    out = screen()
    out.print(f"\nwhere the time goes on [bold]{device}[/bold]")
    out.print(rows)


def _notes(answers: Sequence[ServingOut], *, explain: bool) -> None:
    """Print each limit once, with the devices to which it applies.

    In brief, these are refusals, and what is said of times near the capacity.
    A table of several devices has no room for reasons, so those why a metric is not known or has no
    interval are lines too.
    """
    out = screen()
    ranges = [e for a in answers for e in a.metrics.values() if e.low is not None]
    if any(estimate.coverage is None for estimate in ranges):
        out.print(NOT_CALIBRATED)
    more = "" if explain else "; --explain shows " + (REASONS if len(answers) > 1 else PARTS)
    out.print(f"{GRADES}{more}", style="dim", markup=False)
    said = [
        (answer.device.name, f"{limit.heading}: {limit.message}")
        for answer in answers
        for limit in answer.limit_details
        if explain or limit.severity == "refusal" or limit.message.endswith(BRIEF)
    ]
    if len(answers) > 1 and not explain:
        reasons = [(answer.device.name, line) for answer in answers for line in _reasons(answer)]
        said = [*reasons, *(own for own in said if not _is_among(own, reasons))]
    for line in on_devices(said, len(answers)):
        out.print(line, markup=False)


def _is_among(own: tuple[str, str], reasons: Sequence[tuple[str, str]]) -> bool:
    """Whether a reason of a metric ends, on the same device, with the sentence of a limit."""
    device, sentence = own[0], own[1].partition(": ")[2]
    return any(name == device and reason.endswith(sentence) for name, reason in reasons)


def _reasons(answer: ServingOut) -> Iterator[str]:
    """Lines about metrics without an estimate or an interval, one for each reason."""
    metrics: dict[tuple[str, str], list[str]] = {}
    for name in _metrics([answer]):
        estimate = answer.metrics.get(name)
        if estimate is None:
            key = ("not known", _in_full(answer.missing.get(name, ""), answer))
            metrics.setdefault(key, []).append(WORDS[name].strip())
        elif estimate.low is None:
            key = ("without an interval", estimate.grade_reason)
            metrics.setdefault(key, []).append(WORDS[name].strip())
    for (what, reason), words in metrics.items():
        yield f"{what}: {', '.join(words)}: {reason}"


def _in_full(reason: str, answer: ServingOut) -> str:
    """A reason as the limit of the answer has it that begins with it, where there is one."""
    if not reason:
        return reason
    messages = (limit.message for limit in answer.limit_details)
    return next((message for message in messages if message.startswith(reason)), reason)
