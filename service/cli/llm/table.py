"""Print estimates of language models that serve: one in full, or several devices side by side."""

from collections.abc import Mapping, Sequence
from typing import Final

from rich.markup import escape

from forerun.data.metrics import metric
from forerun.service.cli.output import screen
from forerun.service.cli.questions.answer_table import GRADES, HEADINGS, NOT_CALIBRATED, table
from forerun.service.schemas.answers import GradedOut, ServingOut
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


def show(source: str, answers: Sequence[ServingOut], *, explain: bool = False) -> None:
    """Print one answer in full, or several side by side.

    Args:
        source: name of the model.
        answers: one answer per device.
        explain: whether parts of the time and every limit are printed too.
    """
    out = screen()
    first = answers[0]
    out.print(f"\n[bold]{escape(source)}[/bold]{_set_up(first)}", highlight=False)
    if len(answers) == 1:
        _one(first)
    else:
        _side_by_side(answers)
    for answer in answers:
        _facts(answer, named=len(answers) > 1)
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
    rows = table("", "estimate", "90 % interval", "trust")
    rows.add_column("why")
    for name in _metrics([answer]):
        estimate = answer.metrics.get(name)
        if estimate is None:
            rows.add_row(WORDS[name], "not known", "", "", escape(answer.missing.get(name, "")))
            continue
        reason = escape(estimate.grade_reason)
        rows.add_row(WORDS[name], _value(name, estimate), _interval(name, estimate), estimate.grade,
                     reason)  # fmt: skip
    out = screen()
    out.print(f"on [bold]{answer.device.name}[/bold]")
    out.print(rows)


def _side_by_side(answers: Sequence[ServingOut]) -> None:
    rows = table("", *(answer.device.name for answer in answers))
    for name in _metrics(answers):
        cells = (_cell(name, answer.metrics.get(name)) for answer in answers)
        rows.add_row(WORDS[name], *cells)
    screen().print(rows)


def _cell(name: str, estimate: GradedOut | None) -> str:
    """The estimate with its interval and grade."""
    if estimate is None:
        return "not known"
    interval = _interval(name, estimate)
    return f"{_value(name, estimate)} {f'({interval}) ' if interval else ''}{estimate.grade}"


def _value(name: str, estimate: GradedOut) -> str:
    return metric(name).text(estimate.value)


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
    """Print each limit once, with the devices to which it applies; only refusals in brief."""
    out = screen()
    ranges = [e for a in answers for e in a.metrics.values() if e.low is not None]
    if any(estimate.coverage is None for estimate in ranges):
        out.print(NOT_CALIBRATED)
    more = "" if explain else "; --explain shows where the time goes, and every limit"
    out.print(f"{GRADES}{more}", style="dim", markup=False)
    held: dict[tuple[str, str], list[str]] = {}
    for answer in answers:
        for limit in answer.limit_details:
            if explain or limit.severity == "refusal":
                line = f"{HEADINGS[limit.severity]}: {limit.message}"
                held.setdefault((limit.severity, line), []).append(answer.device.name)
    for (_, line), names in held.items():
        out.print(line + ("" if len(names) == len(answers) else f" (on {', '.join(names)})"),
                  markup=False)  # fmt: skip
