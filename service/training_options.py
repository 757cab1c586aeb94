"""How a network is trained, as users say it over HTTP and on the command line."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forerun.data.errors import InputError
from forerun.data.workload import Network, Optimizer, Phase, TrainingSetup

MOST_DEVICES = 100_000
MOST_SEGMENTS = 10_000
LARGEST_RANK = 65_536


class BadTrainingSetup(InputError):
    """Options of training contradict each other, or the workload."""

    slug = "bad-training-setup"


class TrainingIn(BaseModel):
    """How a network is trained. Memory follows all of it; times what `limits` does not except."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    optimizer: Optimizer = Field(default="adamw", description="how weights are stepped")
    checkpoint_segments: int = Field(
        default=0,
        ge=0,
        le=MOST_SEGMENTS,
        description="parts whose activations are computed again in the backward pass; 0 for none",
    )
    accumulation: int = Field(
        default=1, ge=1, le=65_536, description="micro-batches of a step; divides the batch size"
    )
    lora_rank: int = Field(
        default=0,
        ge=0,
        le=LARGEST_RANK,
        description="rank of adapters on the linear layers, all else frozen; 0 for none",
    )
    data_parallel: int = Field(
        default=1,
        ge=1,
        le=MOST_DEVICES,
        description="devices with a batch each; the workload's batch size is that of one",
    )
    tensor_parallel: int = Field(
        default=1, ge=1, le=MOST_DEVICES, description="devices that share each layer"
    )
    pipeline_parallel: int = Field(
        default=1, ge=1, le=MOST_DEVICES, description="devices that share the layers"
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(
        default=0,
        description="data-parallel devices share 1 optimizer slots, 2 also gradients, "
        "3 also weights",
    )


OPTIONS = tuple(TrainingIn.model_fields)


def training_of(phase: Phase, batch_size: int, given: TrainingIn | None) -> TrainingSetup | None:
    """The set-up, None where nothing was said.

    Raises:
        BadTrainingSetup: there is one but nothing is trained, or its parts contradict each other.
    """
    if given is None:
        return None
    if phase != "training":
        named = ", ".join(sorted(given.model_fields_set)) or "training"
        raise BadTrainingSetup(
            f"{named}: options of training, but the phase is {phase}; ask for the phase training."
        )
    if batch_size % given.accumulation:
        raise BadTrainingSetup(
            f"accumulation {given.accumulation} does not divide the batch size {batch_size}, "
            "which is that of a whole step."
        )
    if given.zero_stage and given.data_parallel == 1:
        raise BadTrainingSetup(
            f"zero_stage {given.zero_stage} shares among data-parallel devices; "
            "data_parallel says how many, and is 1."
        )
    return TrainingSetup(**given.model_dump())


def training_in(options: Mapping[str, Any]) -> TrainingIn | None:
    """What was given of `OPTIONS`; None when all are None.

    Raises:
        BadTrainingSetup: a value is none that the option takes.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return None
    try:
        return TrainingIn.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadTrainingSetup(f"{where} {first['input']!r}: {first['msg']}.") from None


def training_out(network: Network) -> TrainingIn | None:
    """The set-up of a network as `training_of` takes it."""
    setup = network.training
    if setup is None:
        return None
    return TrainingIn(**{name: getattr(setup, name) for name in OPTIONS})
