"""Requests about training a language model."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from forerun.data.language_models.training import (
    Batch,
    Cluster,
    Degree,
    LlmTraining,
    Objective,
    Tokens,
    TrainingLayout,
)
from forerun.data.level import USUAL, Level
from forerun.service.requests.flat_fields import FlatFields
from forerun.service.schemas.fields import LONGEST_NAME, OneDevice, Strict, example, options_of
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


class LayoutIn(options_of(TrainingLayout, Strict)):  # type: ignore[misc]
    """How a training step is divided over devices."""


class ClusterIn(options_of(Cluster, Strict)):  # type: ignore[misc]
    """How devices are connected."""


class TrainingFields(options_of(LlmTraining, NamedPart, without=OWN)):  # type: ignore[misc]
    """A language model that is trained, and what its tokens are charged with."""

    model: LanguageModelIn
    """the model, by its name or its configuration"""
    device: OneDevice
    """name of a device, or a spec sheet"""
    sequence_tokens: Tokens | None = None
    """tokens of each sequence; 4,096, or the model's longest context where that is shorter, when
    absent"""
    global_batch: Batch | None = None
    """sequences per step over all devices; when absent, about 4 million tokens, or 16 sequences
    with adapters, rounded to a multiple of the devices"""
    cluster: ClusterIn = Field(default_factory=ClusterIn)
    """how devices are connected"""
    tokens: Amount | None = None
    """number of tokens to train on"""
    usd_per_device_hour: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    """price of one device, USD an hour; its list price, if known, when absent"""
    grid_g_co2_per_kwh: Annotated[float, Field(ge=0, le=5e3, allow_inf_nan=False)] | None = None
    """carbon intensity of the electricity, g of CO2 equivalent a kWh"""
    region: Annotated[str, Field(max_length=LONGEST_NAME)] | None = None
    """country whose yearly mean carbon intensity is used, such as france or united-states"""


class TrainingEstimateIn(TrainingFields):
    """Time, memory, power and cost of a training step in one layout."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_ESTIMATE]})

    layout: LayoutIn | None = None
    """how a step is divided; the fastest that fits when absent"""
    level: Level = USUAL


class TrainingPlanIn(TrainingFields):
    """The best layouts of training."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_PLAN]})

    devices: Degree | None = None
    """number of devices; when absent, the fewest that fit, or those that a budget chooses"""
    objective: Objective = "time"
    """what to minimise for a number of tokens; price and energy follow from the time on all
    devices"""
    max_usd: Amount | None = None
    """budget for the tokens, USD; the fastest number of devices within it is chosen"""
    max_days: Amount | None = None
    """time for the tokens, days; the cheapest number of devices within it is chosen"""
    kept: Annotated[int, Field(ge=1, le=20)] = 5
    """number of layouts to list"""


TRAINING_FIELDS: Final = FlatFields({"": TrainingPlanIn, "cluster": ClusterIn})
"""What options and forms ask of a plan of training, but for the model and the device."""
