"""Ask what a pipeline of stages carries."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forerun.service.answers import pipelines
from forerun.service.problems import valid
from forerun.service.python.session import session
from forerun.service.python.view import Answered, Estimate, View
from forerun.service.schemas.answers import GRADES, IntervalOut
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
    limits: tuple[str, ...]
    content: PipelineOut = field(repr=False)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row for each stage and link."""
        for station in self.stations:
            yield {n: float(v) if isinstance(v, IntervalOut) else v for n, v in station}

    def view(self) -> View:
        """Stages and links, the figures of the whole, and alternatives."""
        headings = ("", "device", "a call", "at most", "busy", "headroom", "wait", "trust")
        lines = [
            f"latency {self.latency_ms}",
            *(f"{figure} is not known: {why}" for figure, why in self.content.missing.items()),
            *(f"{own.stage} = {own.name}: {own.text()}" for own in self.alternatives),
            *(f"{which}: {why}" for which, why in self.content.unanswered.items()),
            GRADES,
        ]
        title = f"{self.title}: {self.content.text()}, limited by {self.bottleneck}"
        return View(title, headings, [own.row() for own in self.stations], lines, self.limits)


def answered(given: object) -> PipelineOut:
    """The answer to plain data with the fields of POST /v1/pipeline, as HTTP gives it.

    Raises:
        InputError: a field is not valid, or a stage cannot be answered.
    """
    here, asked = session(), valid(PipelineIn, given)
    return pipelines.pipeline(asked, here.device, here.graphs.get, here.in_use)


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
    given = {"stages": [*stages], "links": [*links], **asked}
    return Pipeline.of(answered(given), title="pipeline")
