"""How a network is trained or run forward, as users say it over HTTP and on the command line."""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forerun.data.errors import InputError
from forerun.data.workload import (
    Attention,
    FrozenFormat,
    InferenceSetup,
    LoraTargets,
    Network,
    NumberFormat,
    Optimizer,
    Phase,
    TrainingSetup,
)

MOST_DEVICES = 100_000
MOST_SEGMENTS = 10_000
LARGEST_RANK = 65_536
LONGEST_CACHE = 1 << 24
ATTENTION = "how attention runs; eager writes its matrices of scores, the others do not"


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
    attention: Attention = Field(default="sdpa", description=ATTENTION)
    dropout: float | None = Field(
        default=None,
        ge=0.0,
        lt=1.0,
        description="probability of every dropout; the network's own where the graph tells, "
        "and none elsewhere, when absent",
    )
    checkpoint_blocks: bool = Field(
        default=False,
        description="whether every repeated block is computed again in the backward pass, as "
        "gradient_checkpointing_enable of Hugging Face does; in place of checkpoint_segments",
    )
    optimizer_kernel: Literal["foreach", "fused"] = Field(
        default="foreach", description="foreach copies weights in a step of Adam, fused does not"
    )
    lora_targets: LoraTargets = Field(
        default="all_linear", description="layers that get adapters, where lora_rank is given"
    )
    frozen_weights: FrozenFormat | None = Field(
        default=None, description="how frozen weights are stored; nf4 is QLoRA's"
    )
    adapter_precision: NumberFormat | None = Field(
        default=None, description="number format of adapters; that of the run when absent"
    )
    loss_chunks: int = Field(
        default=1, ge=1, le=65_536, description="parts of the logits and of their cross-entropy"
    )
    legacy_pytorch: bool = Field(
        default=False,
        description="PyTorch before 1.11: gradients are kept between steps, softmax keeps its "
        "input",
    )
    sequence_parallel: bool = Field(
        default=False,
        description="whether tensor-parallel devices also share norms, residuals, dropout and "
        "inputs of blocks",
    )


class InferenceIn(BaseModel):
    """How a forward pass runs. Memory follows all of it; times do not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attention: Attention = Field(default="sdpa", description=ATTENTION)
    logits: Literal["all", "last"] = Field(
        default="last",
        description="of networks that generate text: of the last position, or of all",
    )
    cache_tokens: int | None = Field(
        default=None,
        ge=0,
        le=LONGEST_CACHE,
        description="tokens of each sequence whose keys and values are kept, in networks that "
        "generate text; those of the graph when absent",
    )
    cache_precision: NumberFormat | None = Field(
        default=None, description="number format of keys and values; that of the run when absent"
    )
    joined_cache: bool = Field(
        default=False,
        description="whether every step joins old and new keys and values into new tensors, as "
        "models of transformers without a cache class do",
    )


OPTIONS = tuple(TrainingIn.model_fields)
INFERENCE_OPTIONS = tuple(InferenceIn.model_fields)
Given = TypeVar("Given", TrainingIn, InferenceIn)


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
    if given.checkpoint_blocks and given.checkpoint_segments:
        raise BadTrainingSetup(
            "checkpoint_blocks and checkpoint_segments both say what is computed again; give one."
        )
    if given.sequence_parallel and given.tensor_parallel == 1:
        raise BadTrainingSetup(
            "sequence_parallel divides among tensor-parallel devices; "
            "tensor_parallel says how many, and is 1."
        )
    if not given.lora_rank:
        needless = sorted({"lora_targets", "frozen_weights", "adapter_precision"} & _said(given))
        if needless:
            raise BadTrainingSetup(
                f"{needless[0]} is about adapters on frozen weights; lora_rank says of what rank, "
                "and is 0."
            )
    return TrainingSetup(**given.model_dump())


def _said(given: TrainingIn) -> set[str]:
    """Options that differ from their defaults."""
    return {
        name
        for name, field in TrainingIn.model_fields.items()
        if getattr(given, name) != field.default
    }


def inference_of(phase: Phase, given: InferenceIn | None) -> InferenceSetup | None:
    """How a forward pass runs, None where nothing was said.

    Raises:
        BadTrainingSetup: there is one but the network is trained.
    """
    if given is None:
        return None
    if phase != "inference":
        named = ", ".join(sorted(given.model_fields_set)) or "inference"
        raise BadTrainingSetup(f"{named}: options of inference, but the phase is {phase}.")
    return InferenceSetup(**given.model_dump())


def training_in(options: Mapping[str, Any]) -> TrainingIn | None:
    """What was given of `OPTIONS`; None when all are None.

    Raises:
        BadTrainingSetup: a value is none that the option takes.
    """
    return _checked(TrainingIn, options)


def inference_in(options: Mapping[str, Any]) -> InferenceIn | None:
    """What was given of `INFERENCE_OPTIONS`; None when all are None.

    Raises:
        BadTrainingSetup: a value is none that the option takes.
    """
    return _checked(InferenceIn, options)


def set_ups_of(
    phase: Phase, batch_size: int, options: Mapping[str, Any]
) -> tuple[TrainingSetup | None, InferenceSetup | None]:
    """The set-ups of one list of options; what both have is taken by the one of the phase.

    Args:
        phase: of the workload.
        batch_size: of the workload.
        options: of `OPTIONS` and `INFERENCE_OPTIONS`, None where nothing was said.

    Raises:
        BadTrainingSetup: an option is not of the phase, or the options contradict each other.
    """
    other = INFERENCE_OPTIONS if phase == "training" else OPTIONS
    both = set(OPTIONS) & set(INFERENCE_OPTIONS)
    rest = {name: options.get(name) for name in other if name not in both}
    mine = {
        name: options.get(name) for name in (OPTIONS if phase == "training" else INFERENCE_OPTIONS)
    }
    if phase == "training":
        inference_of(phase, inference_in(rest))
        return training_of(phase, batch_size, training_in(mine)), None
    training_of(phase, batch_size, training_in(rest))
    return None, inference_of(phase, inference_in(mine))


def _checked(kind: type[Given], options: Mapping[str, Any]) -> Given | None:
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return None
    try:
        return kind.model_validate(given)
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


def inference_out(network: Network) -> InferenceIn | None:
    """The set-up of a network as `inference_of` takes it."""
    setup = network.inference
    if setup is None:
        return None
    return InferenceIn(**{name: getattr(setup, name) for name in INFERENCE_OPTIONS})
