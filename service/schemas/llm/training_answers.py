"""Answers about training a language model: its layout, its figures, and the plan."""

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.language_models.training import Objective
from forerun.service.schemas.answers import DeviceOut, GradedOut, LimitedAnswerOut, PredictorOut
from forerun.service.schemas.language_model import ModelSizesOut
from forerun.service.schemas.llm.answers import PriceOut, counted
from forerun.service.schemas.llm.training import LayoutIn


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
        "workspace, allocator or slack (fragments), context"
    )
    stages_mib: list[float] = Field(
        description="MiB of one device of each pipeline stage, before fragments and context"
    )
    usable_mib: float | None = Field(
        description="memory that runs can use, MiB; null where not known"
    )


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
        description="whether runs can use as much of the device's memory as the upper end; null "
        "where its memory is not known"
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
    withheld: int = Field(
        description="how many were left out: their time is not known within a factor of 10"
    )
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
    script: str | None = Field(
        description="what the training script sets under accelerate and DeepSpeed: adapters and "
        "the format of frozen weights, as calls of PEFT and Transformers; null for none"
    )
