"""The fields of a form that asks about a network on devices; they stand in the page's address."""

from collections.abc import Mapping
from typing import Annotated, Any, Self
from urllib.parse import urlencode

from pydantic import BaseModel, Field, model_validator

from forerun.data.software import Runtime, Software
from forerun.data.workload import FrozenFormat, NumberFormat, Optimizer, Phase
from forerun.service.schemas.fields import Watts
from forerun.service.schemas.prediction import LARGEST_BATCH, NetworkIn, OperationIn, PredictIn
from forerun.service.schemas.training_options import LARGEST_RANK, TrainingIn

MOST_DEVICES = 12
LONGEST_NAME = 200
USUAL_DEVICES = ("rtx-4090", "a100-pcie-80gb", "l4")
"""Devices that are asked about when the address names none."""

PRECISIONS: Mapping[NumberFormat, str] = {
    "fp32": "fp32, PyTorch's default",
    "tf32": "tf32",
    "amp": "amp, mixed fp16",
    "amp_bf16": "amp, mixed bf16",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
}
RUNTIMES: Mapping[Runtime, str] = {
    "eager": "eager PyTorch",
    "compiled": "torch.compile",
    "reduce-overhead": "torch.compile, CUDA graphs",
    "torchscript": "TorchScript",
    "tensorrt": "TensorRT",
    "onnxruntime": "ONNX Runtime",
}
OPTIMIZERS: tuple[Optimizer, ...] = (
    "adamw", "adam", "sgd", "momentum", "adafactor", "adam8bit", "adam4bit", "none",
)  # fmt: skip

TRAINING = {"optimizer", "lora_rank", "frozen_weights", "checkpoint_blocks"}
"""Fields that count in training alone."""

Name = Annotated[str, Field(max_length=LONGEST_NAME)]


class EmptyIsAbsent(BaseModel):
    """A form whose fields take their defaults where they were left empty.

    A list without an entry that is not empty is an empty list: nothing was chosen.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_empty_fields(cls, given: Any) -> Any:
        """Forms send fields that were left empty as empty texts."""
        if not isinstance(given, dict):
            return given
        lists = {k: [each for each in v if each] for k, v in given.items() if isinstance(v, list)}
        return {key: value for key, value in (given | lists).items() if value != ""}

    def address(self, path: str, **changes: Any) -> str:
        """The address of a page that asks the same, with changes."""
        fields = self.model_copy(update=changes).model_dump(
            exclude_none=True, exclude_defaults=True
        )
        return f"{path}?{urlencode(fields, doseq=True)}" if fields else path


class RunForm(EmptyIsAbsent):
    """A network, devices, and how the network runs on them.

    The network is named by its digest, so that an address shows the same answer again.
    """

    graph: Name | None = Field(default=None, description="digest or name of the network")
    title: Name | None = Field(default=None, description="what the page calls the network")
    devices: list[Name] = Field(default=list(USUAL_DEVICES), max_length=MOST_DEVICES)
    batch_size: int = Field(default=32, ge=1, le=LARGEST_BATCH)
    precision: NumberFormat = "amp"
    phase: Phase = "inference"
    runtime: Runtime | None = None
    optimizer: Optimizer = "adamw"
    lora_rank: int = Field(default=0, ge=0, le=LARGEST_RANK)
    frozen_weights: FrozenFormat | None = None
    checkpoint_blocks: bool = False
    power_limit_w: Watts | None = None

    @property
    def named(self) -> str:
        """The network's title, or the start of its digest."""
        return self.title or (self.graph or "")[:12]

    def workload(self, batch_size: int | None = None) -> NetworkIn:
        """The network at a batch size, that of the form when None."""
        training = None
        if self.phase == "training":
            training = TrainingIn(**self.model_dump(include=TRAINING, exclude_none=True))
        return NetworkIn(
            kind="network",
            graph=self.graph or "",
            batch_size=batch_size or self.batch_size,
            precision=self.precision,
            phase=self.phase,
            training=training,
        )

    def asked(self, device: str, batch_size: int | None = None) -> PredictIn:
        """The request about one device."""
        software = Software() if self.runtime is None else Software(runtime=self.runtime)
        return PredictIn(
            workload=self.workload(batch_size),
            device=device,
            software=software,
            operation=OperationIn(power_limit_w=self.power_limit_w),
        )

    @classmethod
    def of_request(cls, title: str, request: Mapping[str, Any]) -> Self | None:
        """The form that asks what a request about a network asks.

        None where the form has no field for a part of it, or where it is not about a network.
        """
        workload = dict(request["workload"])
        training = workload.pop("training", {})
        devices = request.get("devices") or [request["device"]]
        given = {"title": title, "devices": devices, **workload, **training}
        given |= request.get("software", {}) | request.get("operation", {})
        if "objective" in request:
            given["objective"] = request["objective"]
        if given.pop("kind") != "network" or not given.keys() <= cls.model_fields.keys():
            return None
        return cls(**given)
