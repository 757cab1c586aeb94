"""What goes over HTTP when a generative model that answers requests is asked about."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forerun.data.workload import (
    Diffusion,
    LlmArchitecture,
    LlmServing,
    RequestKind,
    WeightFormat,
)
from forerun.service.http.schemas.ranking import OneDevice
from forerun.service.schemas.prediction import DeviceOut, PredictorOut

MOST_DEVICES = 1024
EXAMPLE_LLM: dict[str, Any] = {
    "model": {"total_parameters": 8.0e9, "request": "chat", "max_sequences": 64},
    "device": "h100-sxm-80gb",
    "device_count": 1,
}
EXAMPLE_DIFFUSION: dict[str, Any] = {
    "model": {"parameters": 1.2e10, "height": 1024, "width": 1024, "steps": 28, "batch_size": 4},
    "device": "h100-sxm-80gb",
}
Parameters = Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]
Parallel = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
Pixels = Annotated[int, Field(ge=16, le=65_536)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class LlmIn(_Strict):
    """A language model and how it is served; what is left out is not known."""

    total_parameters: Parameters = Field(description="weights of the model")
    active_parameters: Parameters | None = Field(
        default=None, description="weights that one token passes; all when absent"
    )
    request: RequestKind = Field(default="chat", description="kind of requests")
    max_sequences: int = Field(
        default=1, ge=1, le=1_000_000, description="requests answered at a time, all devices"
    )
    weights: WeightFormat = Field(default="bf16", description="how weights are stored")
    architecture: LlmArchitecture = Field(default="dense", description="kind of layers")
    tensor_parallel: Parallel = Field(default=1, description="devices that share a product")
    expert_parallel: Parallel = Field(default=1, description="devices that experts are spread over")
    data_parallel: Parallel = Field(default=1, description="devices that hold attention whole")
    experts: int = Field(default=0, ge=0, le=65_536, description="routed experts of a layer")
    experts_per_token: int = Field(default=0, ge=0, le=65_536, description="of them for a token")
    cache_bytes_per_token: Parameters | None = Field(
        default=None, description="keys and values of one token over all layers, bytes"
    )

    @model_validator(mode="after")
    def _no_token_passes_more_than_all(self) -> "LlmIn":
        if (self.active_parameters or 0.0) > self.total_parameters:
            raise ValueError("active_parameters cannot be more than total_parameters")
        if self.experts_per_token > self.experts:
            raise ValueError("experts_per_token cannot be more than experts")
        return self

    def workload(self) -> LlmServing:
        """As predictors take it."""
        given = self.model_dump()
        given["active_parameters"] = self.active_parameters or self.total_parameters
        return LlmServing(**given)


class DiffusionIn(_Strict):
    """A diffusion model and what it draws; what is left out is not known."""

    parameters: Parameters = Field(description="weights of the denoising network")
    height: Pixels = Field(description="of a picture, pixels")
    width: Pixels = Field(description="of a picture, pixels")
    frames: int = Field(default=1, ge=1, le=10_000, description="of a video; 1 for images")
    steps: int = Field(default=50, ge=1, le=10_000, description="denoising steps")
    batch_size: int = Field(default=1, ge=1, le=65_536, description="drawn at a time")
    weights: WeightFormat = Field(default="bf16", description="how weights are stored")
    ring_parallel: Parallel = Field(default=1, description="devices that share the sequence")
    ulysses_parallel: Parallel = Field(default=1, description="devices that share the heads")
    pixels_per_token: int | None = Field(
        default=None, ge=1, le=1024, description="along each side: autoencoder's factor times patch"
    )
    frames_per_token: int | None = Field(default=None, ge=1, le=1024, description="of a video")
    passes: int | None = Field(
        default=None, ge=1, le=16, description="of the network for one picture and step"
    )

    def workload(self) -> Diffusion:
        """As predictors take it."""
        return Diffusion(**self.model_dump())


class _ServedOn(_Strict):
    device: OneDevice = Field(description="name of a device, or a spec sheet")
    device_count: int = Field(default=1, ge=1, le=MOST_DEVICES, description="devices that serve")


class LlmEstimateIn(_ServedOn):
    """A language model on devices of one kind."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_LLM]})
    model: LlmIn = Field(description="what is served")

    @model_validator(mode="after")
    def _has_the_devices(self) -> "LlmEstimateIn":
        """No degree of parallelism is over the number of devices."""
        for name in ("tensor_parallel", "expert_parallel", "data_parallel"):
            if getattr(self.model, name) > self.device_count:
                raise ValueError(f"{name} cannot be more than device_count, {self.device_count}")
        return self


class DiffusionEstimateIn(_ServedOn):
    """A diffusion model on devices of one kind."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_DIFFUSION]})
    model: DiffusionIn = Field(description="what draws")


class ServingMetricOut(BaseModel):
    """One metric of a model that serves without pause."""

    value: float = Field(description="best estimate, in `unit`")
    low: float | None = Field(description="lower end of the interval, null without one")
    high: float | None = Field(description="upper end of the interval, null without one")
    coverage: float | None = Field(description="share of truths that it holds, null: not known")
    unit: str = Field(description="W, tokens/s, samples/s, ms, J")


class ServingOut(BaseModel):
    """The answer, with what it does not know."""

    metrics: dict[str, ServingMetricOut] = Field(
        description="power_w of one device on average; rates and energies of all together"
    )
    missing: dict[str, str] = Field(description="what is not known -> why")
    in_domain: bool = Field(description="false when an input left the training range")
    limits: list[str] = Field(description="which inputs do, and how far")
    device: DeviceOut = Field(description="the device that was taken")
    device_count: int = Field(description="devices that serve")
    predictor: PredictorOut = Field(description="who answered")
