"""Requests and answers about training a language model."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.language_models.training import (
    Batch,
    Cluster,
    LlmTraining,
    Tokens,
    TrainingLayout,
)
from forerun.models.llm_training.plans import Objective
from forerun.service.schemas.answers import DeviceOut, GradedOut, LimitedAnswerOut, PredictorOut
from forerun.service.schemas.fields import LONGEST_NAME, OneDevice, example, options_of
from forerun.service.schemas.language_model import ModelSizesOut
from forerun.service.schemas.llm.answers import PriceOut, counted
from forerun.service.schemas.llm.deployment import NamedPart
from forerun.service.schemas.llm.model import LanguageModelIn

if TYPE_CHECKING:
    from fastapi.openapi.models import Example

ArgumentsOf = Literal["megatron", "torchtitan", "accelerate", "deepspeed", "llama-factory"]
"""Frameworks in whose arguments a layout is written."""
EXAMPLE_ESTIMATE: dict[str, Any] = example("training_estimate")
EXAMPLE_PLAN: dict[str, Any] = example("training_plan")
ESTIMATE_EXAMPLES: "dict[str, Example]" = {
    "lora": {"summary": "LoRA on one card", "value": EXAMPLE_ESTIMATE},
    "layout": {"summary": "pretraining in a layout", "value": example("training_layout")},
}
Amount = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
OWN = ("kind", "model", "layout", "cluster", "sequence_tokens", "global_batch")
"""Fields of `LlmTraining` that the request describes itself."""


class LayoutIn(options_of(TrainingLayout, NamedPart, "layout")):  # type: ignore[misc]
    """How a step is divided over devices and time."""

    PART = "layout"


class ClusterIn(options_of(Cluster, NamedPart, "cluster")):  # type: ignore[misc]
    """How devices are connected."""

    PART = "cluster"


class TrainingFields(options_of(LlmTraining, NamedPart, without=OWN)):  # type: ignore[misc]
    """A language model that is trained, and what its tokens are charged with."""

    model: LanguageModelIn = Field(description="the model, by its name or its configuration")
    device: OneDevice = Field(description="name of a device, or a spec sheet")
    sequence_tokens: Tokens | None = Field(
        default=None,
        description="tokens of each sequence; 4,096, or the model's longest context where that is "
        "shorter, when absent",
    )
    global_batch: Batch | None = Field(
        default=None,
        description="sequences of one step, all devices together; when absent, those of about 4 "
        "million tokens, or 16 with adapters, as a multiple of the devices",
    )
    cluster: ClusterIn = Field(default_factory=ClusterIn, description="how devices are connected")
    tokens: Amount | None = Field(default=None, description="number of tokens to train on")
    usd_per_device_hour: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = Field(
        default=None, description="price of a device; a list price, where one is known, when absent"
    )
    grid_g_co2_per_kwh: Annotated[float, Field(ge=0, le=5e3, allow_inf_nan=False)] | None = Field(
        default=None, description="carbon intensity of the electricity, g of CO2 equivalent a kWh"
    )
    region: Annotated[str, Field(max_length=LONGEST_NAME)] | None = Field(
        default=None,
        description="country whose yearly mean stands for it, such as france or united-states",
    )


class TrainingEstimateIn(TrainingFields):
    """What a step of training takes, in one layout."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_ESTIMATE]})

    layout: LayoutIn | None = Field(
        default=None, description="how a step is divided; the fastest that fits when absent"
    )


class TrainingPlanIn(TrainingFields):
    """The best layouts of training."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_PLAN]})

    objective: Objective = Field(
        default="time",
        description="what is least for a number of tokens; price and energy follow from the time "
        "of all devices",
    )
    max_usd: Amount | None = Field(
        default=None,
        description="most that the tokens may cost; chooses the number of devices: the fastest",
    )
    max_days: Amount | None = Field(
        default=None,
        description="most days that the tokens may take; chooses the number of devices: the "
        "cheapest",
    )
    kept: Annotated[int, Field(ge=1, le=20)] = Field(
        default=5, description="layouts that are answered"
    )


class TrainingRunOut(BaseModel):
    """The run that was answered."""

    devices: int = Field(description="number of devices")
    sequence_tokens: int = Field(description="tokens of each sequence")
    global_batch: int = Field(description="sequences of one step")
    precision: str = Field(description="number format of the layers' matrix products")
    optimizer: str = Field(description="optimizer")
    framework: str = Field(description="training framework")
    attention: str = Field(description="flash or eager")
    lora_rank: int = Field(description="rank of adapters; 0 trains all weights")
    frozen_weights: str | None = Field(description="how frozen weights are stored; null for none")


class PlacedOut(BaseModel):
    """A layout with its degrees."""

    layout: LayoutIn = Field(description="the layout, as a request takes it")
    data: int = Field(description="data-parallel ranks")
    micro_batches: int = Field(description="micro-batches of a rank in a step")

    def words(self) -> str:
        """Degrees that are not 1, micro-batch and what is sharded, recomputed and offloaded."""
        own = self.layout
        degrees = {"data": self.data, **own.model_dump(include=set(DEGREES))}
        words = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
        if own.virtual_stages > 1:
            words.append(f"{own.virtual_stages} groups a stage")
        words.append(f"micro-batch {own.micro_batch}")
        if own.zero_stage and self.data * own.context > 1:
            words.append(f"ZeRO {own.zero_stage}")
        if own.recompute != "none":
            words.append(f"{own.recompute} recomputation")
        if own.offload != "none":
            words.append(f"{own.offload} offloaded")
        return ", ".join(words)


DEGREES = ("tensor", "context", "pipeline", "expert")


class PartOfStepOut(BaseModel):
    """A part of a step."""

    name: str = Field(description="name of the part")
    meaning: str = Field(description="what it is, in plain words")
    seconds: float = Field(description="time of it, seconds")
    share: float = Field(description="share of the step, 0 to 1")


class StageMemoryOut(BaseModel):
    """Memory of the devices of a run, by part and by stage."""

    fullest_mib: dict[str, float] = Field(
        description="part -> MiB of the fullest device, which add up to what it shows: weights, "
        "gradients, optimizer, activations, recomputed, running, gathered, buffers, logits, "
        "allocator (fragments), context"
    )
    stages_mib: list[float] = Field(
        description="MiB of one device of each pipeline stage, before fragments and context"
    )
    usable_mib: float | None = Field(description="memory of the device; null where not known")


class GridOut(BaseModel):
    """Carbon intensity of the electricity."""

    model_config = ConfigDict(from_attributes=True)

    g_co2_per_kwh: float = Field(description="g of CO2 equivalent a kWh")
    source: str = Field(description="where it comes from, and its year")


class AboutTrainingOut(LimitedAnswerOut):
    """What answers about training have in common."""

    device: DeviceOut = Field(description="the device")
    model: ModelSizesOut = Field(description="what was read from the request's config or name")
    run: TrainingRunOut = Field(description="the run that was answered")
    chosen: list[str] = Field(description="what was chosen where the request leaves it open")
    price: PriceOut | None = Field(description="price of a device; null where none is known")
    grid: GridOut | None = Field(description="carbon intensity; null where none is given")
    predictor: PredictorOut = Field(description="the predictor that answered")

    def title(self) -> str:
        """The devices and what is done on them."""
        run = self.run
        how = f"LoRA of rank {run.lora_rank}" if run.lora_rank else "all weights"
        frozen = f" on {run.frozen_weights}" if run.frozen_weights else ""
        return (
            f"{how}{frozen}, {run.global_batch:,} sequences of {run.sequence_tokens:,} tokens a "
            f"step, {run.precision}, {run.optimizer}, {run.framework}, "
            f"{counted(run.devices, 'device')}"
        )

    def facts(self) -> list[str]:
        """Price, carbon intensity and what was chosen, one line each."""
        lines = []
        if self.price is not None:
            usd = f"{self.price.usd_per_device_hour:,.4g} USD"
            lines.append(f"{usd} for an hour of a device: {self.price.source}")
        if self.grid is not None:
            lines.append(f"{self.grid.g_co2_per_kwh:,.4g} g of CO2 a kWh: {self.grid.source}")
        return [*lines, *(f"chosen: {sentence}" for sentence in self.chosen)]


class TrainingOut(AboutTrainingOut, PlacedOut):
    """What a step of training takes, and what tokens cost."""

    metrics: dict[str, GradedOut] = Field(
        description="metric -> estimate; memory and power are of one device, rates and costs of all"
    )
    missing: dict[str, str] = Field(description="metric without an estimate -> the reason")
    fits: bool | None = Field(
        description="whether the upper end of the memory is at most the device's; null where its "
        "memory is not known"
    )
    breakdown: list[PartOfStepOut] = Field(description="where the time goes, longest first")
    memory: StageMemoryOut = Field(description="memory by part and by stage")


class PlannedOut(PlacedOut):
    """A layout of a plan."""

    devices: int = Field(description="number of devices")
    metrics: dict[str, GradedOut] = Field(
        description="metric -> estimate, among them what the tokens cost"
    )
    fits: bool = Field(description="whether the upper end of the memory is at most the device's")
    wins: float | None = Field(
        description="share of draws from the intervals in which no other layout is better, 0 to 1; "
        "null for layouts that were not drawn"
    )


class TrainingPlanOut(AboutTrainingOut):
    """The best layouts of a run."""

    objective: Objective = Field(description="what is least")
    searched: int = Field(description="number of layouts that were searched")
    fitting: int = Field(description="how many of them fit")
    best: list[PlannedOut] = Field(description="layouts that fit, best first")
    misses: list[PlannedOut] = Field(
        description="layouts that do not fit and would be faster, nearest to fitting first"
    )
    front: list[PlannedOut] = Field(
        description="layouts on a quarter to four times as many devices, or all that a budget "
        "chooses from, that fit and that no other beats both in time and in price and energy"
    )
    measure: str | None = Field(
        description="which layouts a measurement should compare; null where the first wins anyway"
    )
    arguments: dict[str, str] = Field(
        description="framework -> the first layout in its arguments; without those that cannot "
        "express it"
    )
