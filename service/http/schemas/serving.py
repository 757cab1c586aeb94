"""Requests and answers of POST /v1/llm/estimate and POST /v1/diffusion/estimate."""

from typing import Any

from pydantic import ConfigDict, Field, model_validator

from forerun.service.schemas.fields import OneDevice, Strict
from forerun.service.schemas.serving import MOST_DEVICES, DiffusionIn, LlmIn

EXAMPLE_LLM: dict[str, Any] = {
    "model": {"total_parameters": 8.0e9, "request": "chat", "max_sequences": 64},
    "device": "h100-sxm-80gb",
    "device_count": 1,
}
EXAMPLE_DIFFUSION: dict[str, Any] = {
    "model": {"parameters": 1.2e10, "height": 1024, "width": 1024, "steps": 28, "batch_size": 4},
    "device": "h100-sxm-80gb",
}


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
