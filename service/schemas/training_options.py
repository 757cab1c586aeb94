"""Options of training and inference, shared by HTTP and the command line."""

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
ATTENTION = (
    "implementation of attention; eager writes the score matrices to memory, the others do not"
)


class BadTrainingSetup(InputError):
    """Training options contradict each other or the workload."""

    slug = "bad-training-setup"


class TrainingIn(BaseModel):
    """How a network is trained.

    Memory depends on all options. Times depend on them too, except where `limits` says otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    optimizer: Optimizer = Field(default="adamw", description="optimizer that updates the weights")
    checkpoint_segments: int = Field(
        default=0,
        ge=0,
        le=MOST_SEGMENTS,
        description="number of segments whose activations are recomputed in the backward pass; 0 "
        "for none",
    )
    accumulation: int = Field(
        default=1,
        ge=1,
        le=65_536,
        description="micro-batches per step; the number must divide the batch size",
    )
    lora_rank: int = Field(
        default=0,
        ge=0,
        le=LARGEST_RANK,
        description="rank of LoRA adapters, with all other weights frozen; 0 for none",
    )
    data_parallel: int = Field(
        default=1,
        ge=1,
        le=MOST_DEVICES,
        description="data-parallel devices; the workload's batch size is that of one device",
    )
    tensor_parallel: int = Field(
        default=1,
        ge=1,
        le=MOST_DEVICES,
        description="tensor-parallel devices, which share each layer",
    )
    pipeline_parallel: int = Field(
        default=1,
        ge=1,
        le=MOST_DEVICES,
        description="pipeline-parallel devices, which divide the layers",
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(
        default=0,
        description="stage of ZeRO: data-parallel devices shard optimizer states (1), also "
        "gradients (2), also weights (3)",
    )
    attention: Attention = Field(default="sdpa", description=ATTENTION)
    dropout: float | None = Field(
        default=None,
        ge=0.0,
        lt=1.0,
        description="probability of every dropout; when absent, the network's own where the graph "
        "has it, else none",
    )
    checkpoint_blocks: bool = Field(
        default=False,
        description="whether every repeated block is recomputed in the backward pass, as "
        "gradient_checkpointing_enable of Hugging Face does; it replaces checkpoint_segments",
    )
    optimizer_kernel: Literal["foreach", "fused"] = Field(
        default="foreach",
        description="implementation of Adam's step: foreach copies the weights, fused does not",
    )
    lora_targets: LoraTargets = Field(
        default="all_linear", description="layers that get LoRA adapters, where lora_rank is given"
    )
    frozen_weights: FrozenFormat | None = Field(
        default=None, description="number format of frozen weights; nf4 is the format of QLoRA"
    )
    adapter_precision: NumberFormat | None = Field(
        default=None, description="number format of the adapters; that of the run when absent"
    )
    frozen_inputs: bool = Field(
        default=False,
        description="whether quantised frozen layers keep their input until the backward pass, as "
        "bitsandbytes before 0.43.2 did",
    )
    loss_chunks: int = Field(
        default=1,
        ge=1,
        le=65_536,
        description="chunks in which logits and cross-entropy are computed",
    )
    legacy_pytorch: bool = Field(
        default=False,
        description="whether PyTorch is older than 1.11, which keeps gradients between steps and "
        "the input of softmax",
    )
    sequence_parallel: bool = Field(
        default=False,
        description="whether tensor-parallel devices also divide norms, residuals, dropout and "
        "inputs of blocks",
    )


class InferenceIn(BaseModel):
    """How a forward pass runs. Memory depends on all options; times do not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attention: Attention = Field(default="sdpa", description=ATTENTION)
    logits: Literal["all", "last"] = Field(
        default="last",
        description="positions whose logits are computed, in networks that generate text",
    )
    cache_tokens: int | None = Field(
        default=None,
        ge=0,
        le=LONGEST_CACHE,
        description="tokens per sequence in the key-value cache, in networks that generate text; "
        "those of the graph when absent",
    )
    cache_precision: NumberFormat | None = Field(
        default=None,
        description="number format of the key-value cache; that of the run when absent",
    )
    joined_cache: bool = Field(
        default=False,
        description="whether every step concatenates old and new keys and values into new "
        "tensors, as models of transformers without a cache class do",
    )


OPTIONS = tuple(TrainingIn.model_fields)
INFERENCE_OPTIONS = tuple(InferenceIn.model_fields)
Given = TypeVar("Given", TrainingIn, InferenceIn)


def training_of(phase: Phase, batch_size: int, given: TrainingIn | None) -> TrainingSetup | None:
    """The training set-up; None where no option is given.

    Raises:
        BadTrainingSetup: options are given but the phase is inference, or they contradict each
            other.
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
        needless = sorted({"lora_targets", "frozen_weights", "adapter_precision"} & _changed(given))
        if needless:
            raise BadTrainingSetup(
                f"{needless[0]} is about adapters on frozen weights; lora_rank says of what rank, "
                "and is 0."
            )
    return TrainingSetup(**given.model_dump())


def _changed(given: TrainingIn) -> set[str]:
    """Names of options that differ from their defaults."""
    return {
        name
        for name, field in TrainingIn.model_fields.items()
        if getattr(given, name) != field.default
    }


def inference_of(phase: Phase, given: InferenceIn | None) -> InferenceSetup | None:
    """The set-up of a forward pass; None where no option is given.

    Raises:
        BadTrainingSetup: options are given but the phase is training.
    """
    if given is None:
        return None
    if phase != "inference":
        named = ", ".join(sorted(given.model_fields_set)) or "inference"
        raise BadTrainingSetup(f"{named}: options of inference, but the phase is {phase}.")
    return InferenceSetup(**given.model_dump())


def training_in(options: Mapping[str, Any]) -> TrainingIn | None:
    """The training options that are not None; None when all are.

    Raises:
        BadTrainingSetup: an option has an invalid value.
    """
    return _checked(TrainingIn, options)


def inference_in(options: Mapping[str, Any]) -> InferenceIn | None:
    """The inference options that are not None; None when all are.

    Raises:
        BadTrainingSetup: an option has an invalid value.
    """
    return _checked(InferenceIn, options)


def set_ups_of(
    phase: Phase, batch_size: int, options: Mapping[str, Any]
) -> tuple[TrainingSetup | None, InferenceSetup | None]:
    """The training and inference set-ups of a flat mapping of options.

    An option that both phases have belongs to the phase of the workload.

    Args:
        phase: phase of the workload.
        batch_size: batch size of the workload.
        options: name in `OPTIONS` or `INFERENCE_OPTIONS` -> value, None where not given.

    Raises:
        BadTrainingSetup: an option belongs to the other phase, or options contradict each other.
    """
    other = INFERENCE_OPTIONS if phase == "training" else OPTIONS
    both = set(OPTIONS) & set(INFERENCE_OPTIONS)
    rest = {name: options.get(name) for name in other if name not in both}
    own = {
        name: options.get(name) for name in (OPTIONS if phase == "training" else INFERENCE_OPTIONS)
    }
    if phase == "training":
        inference_of(phase, inference_in(rest))
        return training_of(phase, batch_size, training_in(own)), None
    training_of(phase, batch_size, training_in(rest))
    return None, inference_of(phase, inference_in(own))


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
    """The training set-up of a network as a schema, the inverse of `training_of`."""
    setup = network.training
    if setup is None:
        return None
    return TrainingIn(**{name: getattr(setup, name) for name in OPTIONS})


def inference_out(network: Network) -> InferenceIn | None:
    """The inference set-up of a network as a schema, the inverse of `inference_of`."""
    setup = network.inference
    if setup is None:
        return None
    return InferenceIn(**{name: getattr(setup, name) for name in INFERENCE_OPTIONS})
