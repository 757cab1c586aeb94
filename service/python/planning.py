"""Ask what to serve a language model on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final

from forerun.service.answers.llm import planning
from forerun.service.python.question import validated
from forerun.service.python.session import session
from forerun.service.python.training import described, metric_text
from forerun.service.python.view import Answered, View, columns_of, estimates_of
from forerun.service.schemas.llm.serving_plan import LlmPlanIn
from forerun.service.schemas.llm.serving_plan_answers import LlmPlanOut, PlannedServingOut

COLUMNS: Final[Mapping[str, str]] = {
    **{"ttft_ms": "first token", "tpot_ms": "a token", "request_latency_ms": "a request"},
    "usd_per_million_tokens": "USD a million",
}
"""Metric -> heading of its column in a plan."""


@dataclass(frozen=True)
class ServingPlan(Answered):
    """What to serve a language model on.

    Attributes:
        title: what is served.
        best: options that keep all limits, best first.
        misses: those that miss a time by least.
        front: those that none beats in the time of a request, price and power.
        measure: what a measurement should compare; None where the first wins anyway.
        commands: `vllm` or `sglang`, `kubernetes`, `kserve`, `llmisvc` -> the first option.
        limits: limits of the answer about the first.
        content: the whole answer as HTTP gives it.
    """

    title: str
    best: tuple[PlannedServingOut, ...]
    misses: tuple[PlannedServingOut, ...]
    front: tuple[PlannedServingOut, ...]
    measure: str | None
    commands: Mapping[str, str]
    limits: tuple[str, ...]
    content: LlmPlanOut = field(repr=False)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row for each option that keeps all limits."""
        for one in self.best:
            yield {
                "device": one.device,
                "devices": one.devices,
                "replicas": one.replicas,
                **one.pool.parallelism.model_dump(),
                "usd_per_hour": one.usd_per_hour,
                "wins": one.wins,
                **columns_of(estimates_of(one.metrics)),
            }

    def view(self) -> View:
        """The options, why the others are worse, those that nearly do, and the front."""
        out = self.content
        rows = [
            [one.words(), one.price(), _watts(one),
             *(_figures(one, name) for name in COLUMNS),
             "" if one.wins is None else f"{100 * one.wins:.0f} %",
             one.worse or ", ".join(one.missed(out.most, out.risk))]
            for one in (*self.best, *self.misses)
        ]  # fmt: skip
        lines = [*out.remarks(), *([] if self.best else [out.remedy()])]
        lines += out.fleet.lines() if out.fleet is not None else []
        lines += [self.measure] if self.measure else []
        if len(self.front) > 1:
            lines.append("trade-off of request latency, price and power:")
            lines += [f"  {_on_front(one)}" for one in self.front]
        lines += [f"chosen: {sentence}" for sentence in out.chosen]
        if self.commands:
            lines += _each_replica(next(iter(self.commands.values())))
        headings = ("", "an hour", "power", *COLUMNS.values(), "wins", "why not")
        return View(f"{self.title}: {out.title()}", headings, rows, lines, self.limits)


def llm_plan(
    model: str | PathLike[str] | Mapping[str, Any],
    *,
    devices: Sequence[Any] | None = None,
    **asked: Any,
) -> ServingPlan:
    """Choose devices, parallel layout, scheduler and replicas to serve a language model.

    Args:
        model: name of a public model, its config.json (path, folder or content), or a mapping with
            `name` or `config` as over HTTP.
        devices: types to choose from: names, sheets, or mappings with `device`, `count` and
            `usd_per_device_hour`; all GPUs with a list price when None.
        asked: further fields of `POST /v1/llm/plan`, such as `requests_per_s`, `input_tokens`,
            `output_tokens`, `ttft_ms`, `tpot_ms`.

    Raises:
        InputError: a value is not valid, or the request cannot be answered.
    """
    here = session()
    title, content = described(model)
    content = {**asked, "model": content}
    if devices is not None:
        content["devices"] = [devices] if isinstance(devices, str) else list(devices)
    out = planning.llm_plan(validated(LlmPlanIn, content), here.device, here.in_use)
    return ServingPlan.of(out, title=title)


def _each_replica(command: str) -> list[str]:
    first, *rest = command.splitlines()
    return ["each replica:", *(f"  {line}" for line in (first, *rest))] if rest else [
        f"each replica: {first}"]  # fmt: skip


def _watts(one: PlannedServingOut) -> str:
    return "not known" if one.power_w is None else f"{one.power_w / 1e3:,.3g} kW"


def _figures(one: PlannedServingOut, name: str) -> str:
    own = one.metrics.get(name)
    return "" if own is None else metric_text(own)


def _on_front(one: PlannedServingOut) -> str:
    latency = _figures(one, "request_latency_ms")
    return f"{latency} a request, {one.price()} an hour, {_watts(one)}: {one.words()}"
