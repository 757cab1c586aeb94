"""Ask what a pipeline of stages carries."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forerun.data.metrics import with_unit
from forerun.service.answers import pipelines
from forerun.service.problems import valid
from forerun.service.python.session import session
from forerun.service.python.view import Answered, Estimate, View
from forerun.service.schemas.answers import GRADES
from forerun.service.schemas.pipelines import AlternativeOut, PipelineIn, PipelineOut, StationOut


@dataclass(frozen=True)
class Pipeline(Answered):
    """What a pipeline carries, and where it saturates.

    Attributes:
        title: what it is called.
        throughput_per_s: items that can enter it, 1/s.
        bottleneck: stage or link that limits it.
        latency_ms: time of an item that nothing delays.
        latency_at_rate_ms: mean time of an item at the asked rate; None without one, and where a
            queue grows without bound.
        stations: stages and links.
        alternatives: the pipeline with another device or workload at one stage, best first.
        missing: figure that is not known -> the reason.
        limits: limits of the answer.
        content: the whole answer as HTTP gives it.
    """

    title: str
    throughput_per_s: Estimate
    bottleneck: str
    latency_ms: Estimate
    latency_at_rate_ms: Estimate | None
    stations: tuple[StationOut, ...]
    alternatives: tuple[AlternativeOut, ...]
    missing: Mapping[str, str]
    limits: tuple[str, ...]
    content: PipelineOut = field(repr=False)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row for each stage and link."""
        for one in self.stations:
            yield one.model_dump(exclude={"time_ms", "throughput_per_s"}) | {
                "time_ms": one.time_ms.value,
                "throughput_per_s": one.throughput_per_s and one.throughput_per_s.value,
            }

    def view(self) -> View:
        """Stages and links, the figures of the whole, and alternatives."""
        out = self.content
        rows = [
            [one.name, one.device or "", one.time_ms.text(),
             "" if one.throughput_per_s is None else str(one.throughput_per_s),
             f"{100 * one.utilisation:.0f} %",
             "" if one.headroom is None else f"{100 * one.headroom:+,.0f} %",
             "" if one.wait_ms is None else f"{one.wait_ms:,.3g} ms", one.grade or ""]
            for one in self.stations
        ]  # fmt: skip
        lines = [
            f"latency {self.latency_ms}",
            *(f"{words} {with_unit(value, unit)}" for words, value, unit in (
                ("power while all are busy", out.busy_power_w, "W"),
                ("energy of an item", out.energy_per_item_j, "J"),
                ("price of an hour", out.usd_per_hour, "USD"),
            ) if value is not None),
            *(
                [f"latency at the rate {self.latency_at_rate_ms}"]
                if self.latency_at_rate_ms
                else []
            ),
            *(f"{own} is not known: {why}" for own, why in self.missing.items()),
            *(f"{one.stage} = {one.name}: {one.text()}" for one in self.alternatives),
            *(f"{which}: {why}" for which, why in out.unanswered.items()),
            GRADES,
        ]  # fmt: skip
        title = f"{self.title}: {out.text()}, limited by {self.bottleneck}"
        headings = ("", "device", "a call", "at most", "busy", "headroom", "wait", "trust")
        return View(title, headings, rows, lines, self.limits)


def pipeline(
    stages: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]] = (), **asked: Any
) -> Pipeline:
    """What a pipeline of stages carries, and where it saturates.

    Args:
        stages: the stages, each with `name`, and `workload` and `device` or `time_ms`.
        links: from one stage to another, each with `from` and `to`.
        asked: further fields of `POST /v1/pipeline`: `rate_per_s`, `alternatives`, `level`.

    Raises:
        InputError: a field is not valid, or a stage cannot be answered.
    """
    here = session()
    content = valid(PipelineIn, {"stages": [*stages], "links": [*links], **asked})
    return Pipeline.of(
        pipelines.pipeline(content, here.device, here.graphs.get, here.in_use), title="pipeline"
    )
