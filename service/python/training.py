"""Ask what training a language model takes, and in which layout."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final, TypeVar, Unpack

from forerun.data.errors import InputError
from forerun.data.language_models.training import Objective
from forerun.data.level import USUAL
from forerun.service.answers.llm import training
from forerun.service.python.question import validated
from forerun.service.python.run_options import TrainingRun
from forerun.service.python.session import DeviceLike, session
from forerun.service.python.view import (
    Answered,
    Estimate,
    Predicted,
    View,
    columns_of,
    estimate_row,
    estimates_of,
    refusals,
)
from forerun.service.requests.model_source import described_model, title_of
from forerun.service.schemas.answers import GRADES, GradedOut
from forerun.service.schemas.llm.answers import counted
from forerun.service.schemas.llm.training import (
    ArgumentsOf,
    TrainingEstimateIn,
    TrainingPlanIn,
)
from forerun.service.schemas.llm.training_answers import (
    PlannedOut,
    TrainingOut,
    TrainingPlanOut,
)

Asked = TypeVar("Asked", TrainingEstimateIn, TrainingPlanIn)
WORDS: Final[Mapping[str, str]] = {
    "step_s": "time of a step",
    "tokens_per_s": "tokens per second",
    "tokens_per_s_per_device": "  one device",
    "mfu": "model FLOP utilisation",
    "hfu": "  with recomputation",
    "allocated_memory_mib": "memory: live tensors",
    "reserved_memory_mib": "  held by the allocator",
    "peak_memory_mib": "  as the device shows it",
    "power_w": "power of a device",
    "run_days": "days for these tokens",
    "run_usd": "price",
    "run_kwh": "energy of the devices",
    "run_co2_kg": "CO2 equivalent",
}
"""Metric -> row of the table, in their order."""
COLUMNS: Final[Mapping[str, str]] = {
    **{"step_s": "step", "tokens_per_s_per_device": "a device", "mfu": "MFU"},
    **{"peak_memory_mib": "memory", "run_days": "for these tokens", "run_usd": "price"},
    **{"run_kwh": "energy", "run_co2_kg": "CO2"},
}
"""Metric -> heading of its column in a plan."""


@dataclass(frozen=True)
class TrainingAnswer(Answered):
    """What a step of training a language model takes, and what tokens cost.

    Attributes:
        title: what is trained.
        device: name of the device.
        metrics: metric -> estimate; memory and power are of one device.
        missing: metric without an estimate -> the reason.
        fits: whether the upper end of the memory is at most the device's; None where not known.
        limits: limits of the answer.
        content: the whole answer as HTTP gives it.
    """

    title: str
    device: str
    metrics: Mapping[str, Estimate]
    missing: Mapping[str, str]
    fits: bool | None
    limits: tuple[str, ...]
    content: TrainingOut = field(repr=False)

    step_s = Predicted("Time of a step, s")
    tokens_per_s = Predicted("Tokens per second of all devices")
    mfu = Predicted("Model FLOP utilisation, 0 to 1")
    peak_memory_mib = Predicted("Memory of the fullest device, as the device shows it, MiB")
    power_w = Predicted("Average power of one device, W")
    run_days = Predicted("Days for the tokens")
    run_usd = Predicted("Price of the tokens, US dollars")

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row."""
        where = {"device": self.device, "devices": self.content.run.devices}
        yield {**where, **columns_of(self.metrics), "fits": self.fits}

    def view(self) -> View:
        """Every metric with its interval and grade, then where time and memory go."""
        out = self.content
        rows = [
            estimate_row(words, self.metrics.get(name), self.missing.get(name, ""))
            for name, words in WORDS.items()
        ]
        lines = [f"layout: {out.words()}", f"fits: {out.fit()}", *_where(out)]
        lines += [f"to fit: {out.to_fit}"] if out.to_fit else []
        lines += refusals(out.limit_details)
        lines += [*out.facts(), GRADES]
        headings = ("", "estimate", out.interval_heading, "trust", "why")
        return View(
            f"{self.title} on {self.device}: {out.title()}", headings, rows, lines, self.limits
        )


@dataclass(frozen=True)
class TrainingPlan(Answered):
    """The best layouts of training a language model.

    Attributes:
        title: what is trained.
        device: name of the device.
        best: layouts that fit, best first.
        misses: faster ones that do not fit, nearest first.
        front: layouts on other numbers of devices too, that none beats in time and in price.
        measure: which layouts a measurement should compare; None where the first wins anyway.
        limits: limits of the answer about the first.
        content: the whole answer as HTTP gives it.
    """

    title: str
    device: str
    best: tuple[PlannedOut, ...]
    misses: tuple[PlannedOut, ...]
    front: tuple[PlannedOut, ...]
    measure: str | None
    limits: tuple[str, ...]
    content: TrainingPlanOut = field(repr=False)

    def arguments(self, framework: ArgumentsOf) -> str:
        """The first layout in the arguments of a framework.

        Raises:
            InputError: the framework cannot express it.
        """
        return arguments_of(self.content, framework)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row for each layout that fits."""
        for one in self.best:
            layout = {"devices": one.devices, **one.layout.model_dump(), "wins": one.wins}
            yield layout | columns_of(estimates_of(one.metrics))

    def view(self) -> View:
        """The layouts, those that nearly fit, and the front."""
        out = self.content
        listed = [*self.best, *self.misses]
        shown = [name for name in COLUMNS if any(name in one.metrics for one in listed)]
        rows = [
            [one.words(), *(_figures(one.metrics.get(name)) for name in shown),
             one.fit(), "" if one.wins is None else f"{100 * one.wins:.0f} %"]
            for one in listed
        ]  # fmt: skip
        lines = [
            f"{out.fitting:,} of {out.searched:,} layouts fit at the upper end of their memory"
        ]
        lines += [f"{out.none_fits()}: {out.to_fit}"] if out.to_fit else []
        if out.withheld:
            lines.append(f"{out.withheld:,} left out: their intervals span a factor above 10")
        lines += [self.measure] if self.measure else []
        lines += [f"in the script: {out.script}"] if out.script else []
        if len(self.front) > 1:
            lines.append("on other numbers of devices, fastest first, then cheaper:")
            lines += [f"  {_on_front(one)}" for one in self.front]
        headings = ("layout", *(COLUMNS[name] for name in shown), "memory fits", "wins")
        title = f"{self.title} on {self.device}: {out.title()}"
        return View(title, headings, rows, [*lines, *out.facts()], self.limits)


def llm_training(
    model: str | PathLike[str] | Mapping[str, Any],
    *,
    device: DeviceLike,
    layout: Mapping[str, Any] | None = None,
    level: float = USUAL,
    **run: Unpack[TrainingRun],
) -> TrainingAnswer:
    """Predict what a step of training a language model takes, and what a number of tokens costs.

    Args:
        model: name of a public model, its config.json (path, folder or content), or a mapping with
            `name` or `config` as over HTTP.
        device: name, spec sheet or its path.
        layout: degrees as over HTTP, such as `{"tensor": 4, "pipeline": 4}`; the fastest that fits
            when None.
        level: of the intervals, 50 to 99 %.
        run: the run and what its tokens are charged with, as `TrainingRun` lists them.

    Raises:
        InputError: a value is not valid, or degrees do not divide the run.
    """
    more = {"layout": layout, "level": level}
    title, asked, here, sheet = _asked(TrainingEstimateIn, model, device, {**run, **more})
    out = training.training_estimate(asked, lambda _: sheet, here.in_use)
    return TrainingAnswer.of(out, title=title)


def training_plan(
    model: str | PathLike[str] | Mapping[str, Any],
    *,
    device: DeviceLike,
    objective: Objective = "time",
    max_usd: float | None = None,
    max_days: float | None = None,
    kept: int = 5,
    **run: Unpack[TrainingRun],
) -> TrainingPlan:
    """Find the best layouts of training a language model.

    Args:
        model: as for `llm_training`.
        device: name, spec sheet or its path.
        objective: what is minimised: time, price or energy.
        max_usd: most that the tokens may cost; chooses the number of devices.
        max_days: most days that the tokens may take; chooses the number of devices.
        kept: number of layouts to list.
        run: as for `llm_training`.

    Raises:
        InputError: a value is not valid, or no number of devices keeps the budget.
    """
    more = {"objective": objective, "max_usd": max_usd, "max_days": max_days, "kept": kept}
    title, asked, here, sheet = _asked(TrainingPlanIn, model, device, {**run, **more})
    out = training.training_plan(asked, lambda _: sheet, here.in_use)
    return TrainingPlan.of(out, title=title)


def arguments_of(out: TrainingPlanOut, framework: str) -> str:
    """The first layout of a plan in the arguments of a framework.

    Raises:
        InputError: the framework cannot express it.
    """
    if framework not in out.arguments:
        known = ", ".join(out.arguments) or "none"
        raise InputError(f"{framework} cannot express the first layout; it is written for {known}.")
    return out.arguments[framework]


def _asked(
    kind: type[Asked], model: Any, device: DeviceLike, given: Mapping[str, Any]
) -> tuple[str, Asked, Any, Any]:
    """Title, request, session and device.

    Raises:
        InputError: a value is not valid.
    """
    here = session()
    sheet = here.device(device)
    title, own_model = described(model)
    content = {name: own for name, own in given.items() if own is not None}
    asked = validated(kind, {**content, "model": own_model, "device": sheet.name})
    return title, asked, here, sheet


def described(model: Any) -> tuple[str, Mapping[str, Any]]:
    """Title of a model, and the model of a request."""
    if isinstance(model, Mapping):
        title = str(model.get("name") or "a model by its configuration")
        return title, model if {"name", "config"} & model.keys() else {"config": dict(model)}
    return title_of(str(model)), described_model(str(model))


def _where(out: TrainingOut) -> list[str]:
    """Where the time and the memory go."""
    time = [
        f"{part.meaning} {100 * part.share:.0f} %" for part in out.breakdown if part.share >= 0.005
    ]
    parts = sorted(out.memory.fullest_mib.items(), key=lambda item: -item[1])
    memory = [f"{name} {own / 1024:,.3g} GiB" for name, own in parts if own >= 1.0]
    lines = [f"where the time goes: {', '.join(time)}"] if time else []
    fullest = "the fullest stage" if len(out.memory.stages_mib) > 1 else "the device"
    return [*lines, f"memory of {fullest}: {', '.join(memory)}"]


def _figures(own: GradedOut | None) -> str:
    return "" if own is None else metric_text(own)


def metric_text(own: GradedOut) -> str:
    """The value of an estimate with its unit and grade."""
    return f"{Estimate.of(own).text()} {own.grade}"


def _on_front(one: PlannedOut) -> str:
    costs = [_figures(one.metrics.get(name)) for name in ("run_days", "run_usd", "run_kwh")]
    figures = ", ".join(text for text in costs if text) or _figures(one.metrics.get("step_s"))
    return f"{counted(one.devices, 'device')}: {figures} ({one.words()})"
