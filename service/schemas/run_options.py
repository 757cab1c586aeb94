"""How a network is run, trained and kept in memory, as one description.

The options of HTTP, of the command line and of Python are made from it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from forerun.data.errors import InputError
from forerun.data.level import USUAL, Level
from forerun.data.software import Layout, Runtime, Software
from forerun.data.workload import InferenceSetup, Network, NumberFormat, Phase, TrainingSetup
from forerun.features.readers.input_sizes import MAX_SIZE, InputSizes, parse_shapes
from forerun.service.schemas.fields import BATCH_SIZE, LONGEST_NAME, Batch, Watts, options_of

if TYPE_CHECKING:
    from forerun.data.device import Device
    from forerun.data.graph import OperatorGraph
    from forerun.data.query import Query


class BadTrainingSetup(InputError):
    """Training options contradict each other or the workload."""


class _SetUpIn(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrainingIn(options_of(TrainingSetup, _SetUpIn)):  # type: ignore[misc]
    """How a network is trained.

    Memory depends on all options. Times depend on them too, except where `limits` says otherwise.
    """


class InferenceIn(options_of(InferenceSetup, _SetUpIn)):  # type: ignore[misc]
    """How a forward pass runs. Memory depends on all options; times do not."""


OPTIONS = tuple(TrainingIn.model_fields)
INFERENCE_OPTIONS = tuple(InferenceIn.model_fields)
BOTH = frozenset(OPTIONS) & frozenset(INFERENCE_OPTIONS)
Given = TypeVar("Given", TrainingIn, InferenceIn)


def part_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON schema of a field where it is not null."""
    return next(part for part in schema.get("anyOf", [schema]) if part["type"] != "null")


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
    setup = TrainingSetup(**given.model_dump())
    if batch_size % setup.accumulation:
        raise BadTrainingSetup(
            f"accumulation {setup.accumulation} does not divide the batch size {batch_size}, "
            "which is that of a whole step."
        )
    if setup.zero_stage and setup.data_parallel == 1:
        raise BadTrainingSetup(
            f"zero_stage {setup.zero_stage} shares among data-parallel devices; "
            "data_parallel says how many, and is 1."
        )
    if setup.checkpoint_blocks and setup.checkpoint_segments:
        raise BadTrainingSetup(
            "checkpoint_blocks and checkpoint_segments both say what is computed again; give one."
        )
    if setup.sequence_parallel and setup.tensor_parallel == 1:
        raise BadTrainingSetup(
            "sequence_parallel divides among tensor-parallel devices; "
            "tensor_parallel says how many, and is 1."
        )
    if not setup.lora_rank:
        for name in ("adapter_precision", "frozen_weights", "lora_targets"):
            if getattr(setup, name) != getattr(TrainingSetup(), name):
                raise BadTrainingSetup(
                    f"{name} is about adapters on frozen weights; lora_rank says of what rank, "
                    "and is 0."
                )
    return setup


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


def set_ups_of(
    phase: Phase, batch_size: int, options: Mapping[str, Any]
) -> tuple[TrainingSetup | None, InferenceSetup | None]:
    """The training and inference setups of a flat mapping of options.

    An option that both phases have belongs to the phase of the workload.

    Args:
        phase: phase of the workload.
        batch_size: batch size of the workload.
        options: name in `OPTIONS` or `INFERENCE_OPTIONS` -> value, None where not given.

    Raises:
        BadTrainingSetup: an option belongs to the other phase, or options contradict each other.
    """
    training, inference = (
        {name: options.get(name) for name in names if name not in BOTH or phase == of}
        for of, names in (("training", OPTIONS), ("inference", INFERENCE_OPTIONS))
    )
    return (
        training_of(phase, batch_size, given_in(TrainingIn, training)),
        inference_of(phase, given_in(InferenceIn, inference)),
    )


def given_in(kind: type[Given], options: Mapping[str, Any]) -> Given | None:
    """The options that are not None; None when all are.

    Raises:
        BadTrainingSetup: an option has an invalid value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return None
    try:
        checked: Given = kind.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadTrainingSetup(f"{where} {first['input']!r}: {first['msg']}.") from None
    return checked


IMAGE_SIZE = "size of dynamic heights and widths, pixels; 224 when absent"
SHAPE = (
    "shape of an input as name=1x3x640x640 or name:1x3x640x640; ? leaves a dimension open; may be "
    "repeated"
)
MOST_SHAPES = 256


class PlainRunIn(BaseModel):
    """How a network is run: batch size, formats, software, and sizes of its inputs."""

    batch_size: Batch | None = Field(default=None, description=BATCH_SIZE)
    precision: NumberFormat = Field(default="fp32", description="number format of the run")
    phase: Phase = Field(default="inference", description="inference or training")
    runtime: Runtime | None = Field(
        default=None,
        description="execution mode; when absent, onnxruntime for inference on processors, "
        "else eager",
    )
    layout: Layout = Field(default="nchw", description="layout of image tensors")
    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="compute threads on a processor; those of the training rows when absent",
    )
    instances: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1,
        description="copies of the run at the same time on one processor, each with its own "
        "threads",
    )
    sequence_length: Annotated[int, Field(ge=1, le=2**20)] | None = Field(
        default=None, description="size of dynamic sequence dimensions; 128 when absent"
    )
    image_size: Annotated[int, Field(ge=1, le=MAX_SIZE)] | None = Field(
        default=None, description=IMAGE_SIZE
    )
    shape: list[str] = Field(default=[], max_length=MOST_SHAPES, description=SHAPE)
    level: Level = USUAL

    def set_ups(
        self, batch_size: int | None = None
    ) -> tuple[TrainingSetup | None, InferenceSetup | None]:
        """The training and inference set-ups.

        Args:
            batch_size: that of the graph, where the run names none.

        Raises:
            BadTrainingSetup: options do not fit the phase, or contradict each other.
        """
        options = {name: getattr(self, name, None) for name in (*OPTIONS, *INFERENCE_OPTIONS)}
        return set_ups_of(self.phase, self.batch_size or batch_size or 1, options)

    def input_sizes(self) -> InputSizes:
        """The sizes of the model's free dimensions.

        Raises:
            BadShape: a shape has another form than name=1x3x640x640.
        """
        return InputSizes(
            self.batch_size or 1, self.sequence_length, self.image_size, parse_shapes(self.shape)
        )

    def query(
        self,
        graph: "OperatorGraph",
        device: "Device",
        set_ups: tuple[TrainingSetup | None, InferenceSetup | None],
    ) -> "Query":
        """The query for a graph on a device.

        Raises:
            BadRequest: heads or layers cannot be divided over devices as the set-up says.
        """
        from forerun.data.query import Query
        from forerun.service.schemas.degrees import check_training_degrees
        from forerun.service.schemas.workloads import operation_of, usual_runtime

        batch_size = self.batch_size or graph.batch_size
        network = Network(graph, batch_size, self.precision, self.phase, *set_ups)
        if network.training is not None:
            check_training_degrees(graph, network.training)
        runtime = self.runtime or usual_runtime(network, device)
        how = self.model_dump(include={"layout", "threads", "instances"})
        operation = operation_of(network, getattr(self, "power_limit_w", None))
        return Query(network, device, Software(runtime=runtime, **how), operation, self.level)


class _LimitedRunIn(PlainRunIn):
    """How a network is run, under a power limit."""

    power_limit_w: Watts | None = Field(
        default=None, description="power limit set on the device, W"
    )


def run_in(training: type[BaseModel], inference: type[BaseModel]) -> type[_LimitedRunIn]:
    """The software, and the options of training and of inference as fields that may be left out."""
    found: dict[str, Any] = {}
    both = training.model_fields.keys() & inference.model_fields.keys()
    for phase, kind in (("training", training), ("inference", inference)):
        for name, field in kind.model_fields.items():
            of = "" if name in both else f"{phase}: "
            kind_of: Any = Annotated[(field.annotation, Field(), *field.metadata)]
            if numbers := [each for each in get_args(field.annotation) if isinstance(each, int)]:
                kind_of = Annotated[int, Field(ge=min(numbers), le=max(numbers))]
            found[name] = kind_of | None, Field(None, description=f"{of}{field.description}")
    return create_model("RunIn", __base__=_LimitedRunIn, **found)


class RunIn(run_in(TrainingIn, InferenceIn)):  # type: ignore[misc]
    """The software, and the options of training or inference."""


class ModelQuestion(RunIn):
    """The query parameters of POST /v1/predict/model."""

    device: str = Field(description="name of a device", max_length=LONGEST_NAME, examples=["l4"])
    explain: bool = Field(
        default=False, description="whether the answer has an `attribution` by operator"
    )
