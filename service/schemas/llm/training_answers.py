"""Answers about training a language model: its layout, its figures, and the plan."""

from forerun.data.described import Described
from forerun.data.language_models.training import Objective, SampleLength
from forerun.service.schemas.answers import DeviceOut, GradedOut, LimitedAnswerOut, PredictorOut
from forerun.service.schemas.language_model import ModelSizesOut
from forerun.service.schemas.llm.answers import PriceOut, counted
from forerun.service.schemas.llm.training import LayoutIn


class TrainingRunOut(Described):
    """The run that was answered."""

    devices: int
    """number of devices"""
    sequence_tokens: int
    """tokens of each sequence"""
    global_batch: int
    """sequences of one step"""
    precision: str
    """number format of the layers' matrix products"""
    optimizer: str
    """optimizer"""
    framework: str
    """training framework"""
    attention: str
    """flash or eager"""
    lora_rank: int
    """rank of adapters; 0 trains all weights"""
    frozen_weights: str | None
    """how frozen weights are stored; null for none"""
    lengths: tuple[SampleLength, ...]
    """distribution of the samples' lengths; empty for one length"""
    packed: bool
    """whether samples are joined to full sequences"""


class PlacedOut(Described):
    """A layout with its degrees."""

    layout: LayoutIn
    """the layout, as a request takes it"""
    data: int
    """data-parallel ranks"""
    micro_batches: int
    """micro-batches of a rank in a step"""

    def words(self) -> str:
        """Degrees that are not 1, micro-batch and what is sharded, recomputed and offloaded."""
        own = self.layout
        degrees = {"data": self.data, **own.model_dump(include=set(DEGREES))}
        words = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
        if own.virtual_stages > 1:
            words.append(f"{own.virtual_stages} virtual stages each")
        words.append(f"micro-batch {own.micro_batch}")
        if own.zero_stage and self.data * own.context > 1:
            words.append(f"ZeRO {own.zero_stage}")
        words += [own.schedule] if own.schedule != "1f1b" else []
        if own.recompute != "none":
            some = f" of {own.recompute_layers} layers a stage" if own.recompute_layers else ""
            words.append(f"{own.recompute} recomputation{some}")
        if own.offload != "none":
            words.append(f"{own.offload} offloaded")
        return ", ".join(words)


DEGREES = ("tensor", "context", "pipeline", "expert")
NAMED = ("precision", "sequence_tokens")
"""Features whose limits every answer names: a format that the device lacks, and sequences that are
longer than the model's own."""


class PartOfStepOut(Described):
    """A part of a step."""

    name: str
    """name of the part"""
    meaning: str
    """what it is, in plain words"""
    seconds: float
    """time of it, seconds"""
    share: float
    """share of the step, 0 to 1"""


class StageMemoryOut(Described):
    """Memory of the devices in a run, by part and by pipeline stage."""

    fullest_mib: dict[str, float]
    """part -> MiB on the fullest device, which add up to its total: weights, gradients, optimizer,
    activations, recomputed, running, gathered, buffers, logits, workspace, allocator or slack
    (fragments), context"""
    stages_mib: list[float]
    """MiB of one device of each pipeline stage, before fragments and context"""
    usable_mib: float | None
    """memory that runs can use, MiB; null where not known"""


class GridOut(Described):
    """Carbon intensity of the electricity."""

    g_co2_per_kwh: float
    """g of CO2 equivalent a kWh"""
    source: str
    """where it comes from, and its year"""


class AboutTrainingOut(LimitedAnswerOut):
    """What answers about training have in common."""

    device: DeviceOut
    """the device"""
    model: ModelSizesOut
    """what was read from the request's config or name"""
    run: TrainingRunOut
    """the run that was answered"""
    chosen: list[str]
    """what was chosen where the request leaves it open"""
    price: PriceOut | None
    """price of a device; null where none is known"""
    grid: GridOut | None
    """carbon intensity; null where none is given"""
    predictor: PredictorOut
    """the predictor that answered"""
    to_fit: str | None
    """changes each of which alone would make the layout (or the first of a plan) fit; null where it
    fits"""

    def title(self) -> str:
        """What is done, and on which devices; how these were chosen where they were."""
        run, devices = self.run, counted(self.run.devices, "device")
        chosen = (own.partition(":")[0] for own in self.chosen if own.startswith(f"{devices}, "))
        devices = next(chosen, devices)
        how = f"LoRA of rank {run.lora_rank}" if run.lora_rank else "all weights"
        frozen = f" on {run.frozen_weights}" if run.frozen_weights else ""
        most = "at most " if run.lengths and not run.packed else ""
        return (
            f"{how}{frozen}, {run.global_batch:,} sequences of "
            f"{most}{run.sequence_tokens:,} tokens a step, {run.precision}, {run.optimizer}, "
            f"{run.framework}, {devices}"
        )

    def facts(self) -> list[str]:
        """Price, carbon intensity, what is not as the device or the model has it, and choices."""
        lines = [] if self.price is None else [self.price.sentence()]
        lines += [own.message for own in self.limit_details if own.feature in NAMED]
        if self.grid is not None:
            lines.append(f"{self.grid.g_co2_per_kwh:,.4g} g of CO2 a kWh: {self.grid.source}")
        return [*lines, *(f"chosen: {sentence}" for sentence in self.chosen)]


class TrainingOut(AboutTrainingOut, PlacedOut):
    """Time, memory, power and cost of a training step and of the tokens."""

    metrics: dict[str, GradedOut]
    """metric -> estimate; memory and power are of one device, rates and costs of all"""
    missing: dict[str, str]
    """metric without an estimate -> the reason"""
    fits: bool | None
    """whether the upper end of the memory fits on the device; null where its memory is not known"""
    fits_at_value: bool | None
    """whether the best estimate of the memory fits; null where the device's is not known"""
    breakdown: list[PartOfStepOut]
    """where the time goes, longest first"""
    memory: StageMemoryOut
    """memory by part and by stage"""
    predict: str | None
    """command that predicts the same run from the model's config.json as a network; null for closed
    forms"""

    def fit(self) -> str:
        """Whether it fits, with the interval of the memory and what runs can use, MiB."""
        peak, usable = self.metrics.get("peak_memory_mib"), self.memory.usable_mib
        if peak is None or usable is None or self.fits is None:
            return "not known"
        refused = any(limit.severity == "refusal" for limit in self.limit_details)
        no = refused or (peak.low or 0.0) > usable
        word = "no" if no else "perhaps" if self.fits_at_value else "probably not"
        word = "yes" if self.fits else word
        low, high = (peak.value if end is None else end for end in (peak.low, peak.high))
        return f"{word} ({low:,.0f} to {high:,.0f} MiB needed, {usable:,.0f} MiB usable)"


class PlannedOut(PlacedOut):
    """A layout of a plan."""

    devices: int
    """number of devices"""
    metrics: dict[str, GradedOut]
    """metric -> estimate, including the cost of the tokens"""
    fits: bool
    """whether the upper end of the memory is at most the device's"""
    fits_at_value: bool | None
    """whether the best estimate of the memory fits; null where the device's is not known"""
    wins: float | None
    """share of draws from the intervals in which no other layout is better, 0 to 1; null for
    layouts that were not drawn"""

    def fit(self) -> str:
        """Whether its memory fits, in words."""
        if self.fits or "step_s" not in self.metrics:
            return "fits" if self.fits else "does not fit"
        return "may not fit" if self.fits_at_value else "probably does not fit"


class TrainingPlanOut(AboutTrainingOut):
    """The best layouts of a run."""

    objective: Objective
    """what is minimised"""
    searched: int
    """number of layouts that were searched"""
    fitting: int
    """how many of them fit"""
    withheld: int
    """number of layouts left out, because their time is not known within a factor of 10"""
    best: list[PlannedOut]
    """layouts that fit, best first, and the one that `measure` names"""
    misses: list[PlannedOut]
    """layouts that do not fit and would be faster, nearest to fitting first"""
    front: list[PlannedOut]
    """layouts that fit and that no other beats in both time and cost, on a quarter to four times as
    many devices or on all numbers within a budget"""
    measure: str | None
    """which layouts a measurement should compare; null where the first is best in any case"""
    arguments: dict[str, str]
    """framework -> the first layout in its arguments; without those that cannot express it"""
    script: str | None
    """settings for the training script under accelerate and DeepSpeed (adapters, format of frozen
    weights), as calls of PEFT and Transformers; null for none"""

    def none_fits(self) -> str:
        """That no layout fits, or none for sure."""
        refused = all("step_s" not in one.metrics for one in self.misses)
        return "no layout fits" if refused else "no layout is sure to fit"
