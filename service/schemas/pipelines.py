"""Requests and answers of POST /v1/pipeline."""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from forerun.data.described import Described
from forerun.data.level import USUAL, Level
from forerun.data.metrics import with_unit
from forerun.data.software import Software
from forerun.models.limit import Grade
from forerun.service.schemas import fields
from forerun.service.schemas.answers import IntervalOut, LimitedAnswerOut, PredictorOut
from forerun.service.schemas.fields import Name, OneDevice, Strict, Watts
from forerun.service.schemas.prediction import OperationIn, WorkloadIn

EXAMPLE_PIPELINE: Final = fields.example("pipeline")


class StageIn(Strict):
    """A workload on a device, or a time that was measured."""

    name: Name
    """name of the stage; of an alternative, a label"""
    workload: WorkloadIn | None = None
    """as in POST /v1/predict; a deployed language model by `concurrency`"""
    device: OneDevice | None = None
    """name of a device, or a spec sheet"""
    software: Software = Field(default_factory=Software)
    """the software that runs the workload"""
    operation: OperationIn = Field(default_factory=OperationIn)
    """how the device is operated"""
    clock_mhz: Annotated[float, Field(ge=1e-3, le=1e5)] | None = None
    """clock of a hardware design, MHz"""
    count: int = Field(default=1, ge=1, le=100_000)
    """replicas that share the items"""
    items_per_call: fields.Batch | None = None
    """items of one call; the batch of the workload when absent"""
    time_ms: Annotated[float, Field(ge=1e-9, le=1e9)] | None = None
    """time of a call in place of a workload, milliseconds"""
    time_variation: float = Field(default=0.0, ge=0, le=10)
    """standard deviation of a call's time over its mean"""
    power_w: Watts | None = None
    """power of a replica while it works, W; as predicted when absent"""
    idle_w: Watts | None = None
    """power of a replica while it waits, W; by the spec sheet when absent"""
    usd_per_hour: Annotated[float, Field(ge=0, le=1e6)] | None = None
    """price of a replica; its devices' list price when absent"""
    joins: Literal["all", "any"] = "all"
    """a call waits for an item of each link, or each item of any passes by itself"""


AlternativeIn = Annotated[
    Annotated[Name, Tag("name")] | Annotated[StageIn, Tag("content")], Discriminator(fields.by_form)
]
"""A device by its name for the workload of a stage, or a stage in its place."""


class LinkIn(Strict):
    """What takes items from one stage to another."""

    model_config = ConfigDict(extra="forbid", validate_by_name=False)

    source: Name = Field(alias="from", description="stage that items leave")
    to: Name
    """stage that they enter"""
    share: Annotated[float, Field(ge=1e-6, le=1)] = 1.0
    """share of items that take this link; each is offered all"""
    bytes_per_item: Annotated[float, Field(ge=0, le=1e15)] = 0.0
    """bytes of an item"""
    bandwidth_gb_s: Annotated[float, Field(ge=1e-9, le=1e6)] | None = None
    """bandwidth, GB/s; some 25 to a host over PCI Express 4.0"""
    latency_us: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """further time on the way, microseconds"""

    @property
    def name(self) -> str:
        """What the answer calls it."""
        return f"{self.source} -> {self.to}"


class PipelineIn(Strict):
    """Stages, and links between them."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_PIPELINE]})

    stages: list[StageIn] = Field(min_length=1, max_length=50)
    """the stages, each with its own name"""
    links: list[LinkIn] = Field(default_factory=list, max_length=200)
    """the links; one stage needs none"""
    rate_per_s: Annotated[float, Field(ge=1e-6, le=1e12)] | None = None
    """items that arrive, 1/s, at random times; power and utilisation are at the throughput when
    absent"""
    alternatives: dict[Name, Annotated[list[AlternativeIn], Field(max_length=20)]] = Field(
        default_factory=dict, max_length=20
    )
    """stage -> devices, or stages, each of which is tried in its place"""
    level: Level = USUAL


class StationOut(Described):
    """A stage or a link."""

    name: str
    """name of the stage; FROM -> TO of a link"""
    device: str | None
    """its device; null for a link, and where only a time was given"""
    time_ms: IntervalOut
    """time of a call, or of an item on a link, milliseconds"""
    throughput_per_s: IntervalOut | None
    """items that enter the pipeline at most while it keeps up; null for a link without a size"""
    utilisation: float
    """share of the time that it is busy"""
    headroom: float | None
    """its throughput over the rate, less 1; negative where it falls short"""
    wait_ms: float | None
    """mean time before a call at the asked rate, by best estimates, milliseconds; null without a
    rate, and where the queue grows without bound"""
    grade: Grade | None
    """trust in the time; null for given times and for links"""

    def row(self) -> list[str]:
        """The cells of a table."""
        most, headroom, wait_ms = self.throughput_per_s, self.headroom, self.wait_ms
        return [
            *(self.name, self.device or "", self.time_ms.text(), str(most or "")),
            f"{100 * self.utilisation:.0f} %",
            "" if headroom is None else f"{100 * headroom:+,.0f} %",
            *("" if wait_ms is None else with_unit(wait_ms, "ms"), self.grade or ""),
        ]


class FiguresOut(Described):
    """Figures of a whole pipeline."""

    throughput_per_s: IntervalOut
    """items that can enter it; the least of its stages and links. Its ends are those where all
    times are at theirs"""
    bottleneck: str
    """stage or link that limits it"""
    latency_ms: IntervalOut
    """time of an item that nothing delays, on the slowest path, milliseconds"""
    latency_at_rate_ms: IntervalOut | None
    """mean time of an item at the asked rate with queues and with calls that fill, milliseconds;
    `high` is null where the upper ends of the times saturate"""
    power_w: float | None
    """mean power at the rate, W, of what is busy and of what waits"""
    busy_power_w: float | None
    """power while all stages work, W"""
    energy_per_item_j: float | None
    """energy of an item's work, J, without that of waiting"""
    usd_per_hour: float | None
    """price of all replicas, USD"""
    missing: dict[str, str]
    """figure that is not known -> the reason"""
    grade: Grade | None
    """the worst grade of its stages; null where all times were given"""
    grade_reason: str | None
    """stage with that grade, and the reason"""
    stations: list[StationOut]
    """stages and links, in the order of the request"""

    def text(self) -> str:
        """The figures in one line."""
        said = {"": self.throughput_per_s, "latency ": self.latency_ms}
        said |= {"at the rate ": self.latency_at_rate_ms} if self.latency_at_rate_ms else {}
        too_slow = ["too slow for the rate"] if "latency_at_rate_ms" in self.missing else []
        units = {"W": self.power_w, "W while all are busy": self.busy_power_w}
        units |= {"J an item": self.energy_per_item_j, "USD an hour": self.usd_per_hour}
        found = [f"{words}{own.text()}" for words, own in said.items()]
        found += [with_unit(own, unit) for unit, own in units.items() if own is not None]
        return ", ".join([*found, *too_slow])


class AlternativeOut(FiguresOut):
    """The pipeline with another device or workload at one stage."""

    stage: str
    """stage that is another"""
    name: str
    """its device, or the label of the stage in its place"""
    differences: dict[str, float]
    """figure -> its value less that of the pipeline as asked, where both are known"""


class PipelineOut(LimitedAnswerOut, FiguresOut):
    """What a pipeline carries, and where it saturates."""

    alternatives: list[AlternativeOut]
    """the alternatives that can be answered, best first: by throughput, then by the time of an
    item"""
    unanswered: dict[str, str]
    """STAGE: NAME of an alternative -> why it cannot be answered"""
    predictor: PredictorOut
    """the predictor that answered"""
