"""Requests about generative models that are served."""

from math import inf
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from forerun.data.errors import in_field
from forerun.data.workload import (
    Diffusion,
    LlmArchitecture,
    LlmServing,
    RequestKind,
    WeightFormat,
)
from forerun.features.readers.language_model.reader import read_language_model
from forerun.service.schemas.fields import OneDevice, Strict
from forerun.service.schemas.language_model import ModelSizesOut

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
Parameters = Annotated[float, Field(ge=1e5, le=1e15, allow_inf_nan=False)]
"""Number of parameters; the smallest refuses billions that are given as a plain number."""
CacheBytes = Annotated[float, Field(ge=1.0, le=1e12, allow_inf_nan=False)]
FROM_CONFIG = frozenset(
    {"total_parameters", "active_parameters", "architecture", "experts", "experts_per_token"}
    | {"cache_bytes_per_token"}
)
"""Fields that follow from a configuration."""
Parallel = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
Pixels = Annotated[int, Field(ge=16, le=65_536)]


class LlmIn(Strict):
    """A language model and how it is served; absent fields count as unknown."""

    total_parameters: Parameters | None = Field(
        default=None, description="number of parameters of the model; `config` may stand for it"
    )
    config: dict[str, Any] | None = Field(
        default=None,
        description="content of the model's config.json, from which parameters, architecture, "
        "experts and cache follow, and `weights` unless they are given",
    )
    active_parameters: Parameters | None = Field(
        default=None, description="number of parameters used per token; all when absent"
    )
    request: RequestKind = Field(default="chat", description="kind of requests that are served")
    max_sequences: int = Field(
        default=1, ge=1, le=1_000_000, description="concurrent requests over all devices"
    )
    weights: WeightFormat = Field(default="bf16", description="number format of the weights")
    architecture: LlmArchitecture = Field(default="dense", description="kind of layers")
    tensor_parallel: Parallel = Field(
        default=1, description="degree of tensor parallelism, devices"
    )
    expert_parallel: Parallel = Field(
        default=1, description="degree of expert parallelism, devices"
    )
    data_parallel: Parallel = Field(
        default=1, description="degree of data parallelism of attention, devices"
    )
    experts: int = Field(
        default=0, ge=0, le=65_536, description="routed experts per layer; 0 for none"
    )
    experts_per_token: int = Field(
        default=0, ge=0, le=65_536, description="routed experts per token"
    )
    cache_bytes_per_token: CacheBytes | None = Field(
        default=None, description="size of the key-value cache per token over all layers, bytes"
    )

    @model_validator(mode="after")
    def _sizes_are_given_once(self) -> "LlmIn":
        if self.config is None and self.total_parameters is None:
            raise ValueError("total_parameters is missing, and there is no config")
        twice = sorted(FROM_CONFIG & self.model_fields_set)
        if self.config is not None and twice:
            raise ValueError(f"{twice[0]} follows from config; leave one of the two out")
        return self

    @model_validator(mode="after")
    def _no_token_passes_more_than_all(self) -> "LlmIn":
        if (self.active_parameters or 0.0) > (self.total_parameters or inf):
            raise ValueError("active_parameters cannot be more than total_parameters")
        if self.experts_per_token > self.experts:
            raise ValueError("experts_per_token cannot be more than experts")
        return self

    def workload(self) -> LlmServing:
        """The workload of the query.

        Raises:
            UnreadableModel, BadRequest: as `sizes`.
        """
        given = self.model_dump(exclude={"config"})
        sizes = self.sizes()
        if sizes is not None:
            named = self.weights if "weights" in self.model_fields_set else None
            given |= sizes.request(weights=named)
        given["active_parameters"] = given["active_parameters"] or given["total_parameters"]
        return LlmServing(**given)

    def sizes(self) -> ModelSizesOut | None:
        """What `config` gives; None without one.

        Raises:
            UnreadableModel: it is of an unknown family, contradicts itself, or lacks a field.
        """
        if self.config is None:
            return None
        with in_field("config"):
            return ModelSizesOut.of(read_language_model(self.config))


class DiffusionIn(Strict):
    """A diffusion model and the images or videos it makes; absent fields count as unknown."""

    parameters: Parameters = Field(description="number of parameters of the denoising network")
    height: Pixels = Field(description="height of the image or video, pixels")
    width: Pixels = Field(description="width of the image or video, pixels")
    frames: int = Field(default=1, ge=1, le=10_000, description="frames of the video; 1 for images")
    steps: int = Field(default=50, ge=1, le=10_000, description="number of denoising steps")
    batch_size: int = Field(default=1, ge=1, le=65_536, description="images or videos per batch")
    weights: WeightFormat = Field(default="bf16", description="number format of the weights")
    ring_parallel: Parallel = Field(
        default=1, description="degree of ring parallelism over the sequence, devices"
    )
    ulysses_parallel: Parallel = Field(
        default=1, description="degree of Ulysses parallelism over the heads, devices"
    )
    pixels_per_token: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="pixels per token along each side: the autoencoder's factor times the patch "
        "size",
    )
    frames_per_token: int | None = Field(
        default=None, ge=1, le=1024, description="frames of the video per token"
    )
    passes: int | None = Field(
        default=None, ge=1, le=16, description="forward passes of the network per sample and step"
    )

    def workload(self) -> Diffusion:
        """The workload of the query."""
        return Diffusion(**self.model_dump())


class _ServedOn(Strict):
    device: OneDevice = Field(description="name of a device, or a spec sheet")
    device_count: int = Field(default=1, ge=1, le=MOST_DEVICES, description="number of devices")


class LlmEstimateIn(_ServedOn):
    """A language model on devices of one kind."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_LLM]})
    model: LlmIn = Field(description="the model and how it is served")

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
    model: DiffusionIn = Field(description="the model and its samples")
