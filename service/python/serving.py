"""Ask about models that serve requests: power, rate, and energy of a token or sample."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from forerun.data.errors import InputError
from forerun.data.query import Operation, Query
from forerun.data.workload import LlmArchitecture, RequestKind, WeightFormat
from forerun.features.readers.language_model.reader import json_object
from forerun.service.answers.serving import estimated
from forerun.service.python.estimate import Estimate, estimates_of
from forerun.service.python.run_options import first_fault
from forerun.service.python.session import DeviceLike, session
from forerun.service.python.view import View, Viewed, refusals
from forerun.service.schemas.answers import ServingOut
from forerun.service.schemas.serving import DiffusionEstimateIn, LlmEstimateIn, LlmIn


@dataclass(frozen=True)
class ServingAnswer(Viewed):
    """Power, rate and energy of a model that serves requests in steady state.

    Attributes:
        title: what is served.
        device: name of the device.
        device_count: number of devices.
        metrics: metric -> estimate; `power_w` is the average of one device, rates and energies are
            of all devices together.
        missing: metric without an estimate -> the reason.
        limits: inputs outside the training range, and other limits of the answer.
        in_domain: whether all inputs are in the training range.
        content: the whole answer as HTTP gives it.
    """

    title: str
    device: str
    device_count: int
    metrics: Mapping[str, Estimate]
    missing: Mapping[str, str]
    limits: tuple[str, ...]
    in_domain: bool
    content: ServingOut = field(repr=False)

    @classmethod
    def of(cls, title: str, out: ServingOut) -> "ServingAnswer":
        """The answer in this form."""
        return cls(
            title,
            out.device.name,
            out.device_count,
            estimates_of(out.metrics),
            dict(out.missing),
            tuple(out.limits),
            out.in_domain,
            out,
        )

    @property
    def power_w(self) -> Estimate | None:
        """Average power of one device, W; None where it is not known."""
        return self.metrics.get("power_w")

    @property
    def tokens_per_s(self) -> Estimate | None:
        """Tokens written per second by all devices; None where it is not known."""
        return self.metrics.get("tokens_per_s")

    @property
    def energy_per_token_j(self) -> Estimate | None:
        """Energy of all devices for one token, J; None where it is not known."""
        return self.metrics.get("energy_per_token_j")

    @property
    def latency_ms(self) -> Estimate | None:
        """Time of a batch of a diffusion model, ms; None where it is not known."""
        return self.metrics.get("latency_ms")

    @property
    def samples_per_s(self) -> Estimate | None:
        """Images or videos per second by all devices; None where it is not known."""
        return self.metrics.get("samples_per_s")

    @property
    def energy_per_sample_j(self) -> Estimate | None:
        """Energy of all devices for one image or video, J; None where it is not known."""
        return self.metrics.get("energy_per_sample_j")

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain dictionaries and lists, as over HTTP."""
        return self.content.model_dump(mode="json")

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row."""
        row: dict[str, Any] = {"device": self.device, "device_count": self.device_count}
        for name, estimate in self.metrics.items():
            row |= estimate.record(name)
        yield row | {"in_domain": self.in_domain}

    def view(self) -> View:
        """Every metric with its interval, then what is missing."""
        rows = [
            [name, e.text(), e.interval_text(), e.grade or "", e.grade_reason or ""]
            for name, e in self.metrics.items()
        ]
        lines = refusals(self.content.limit_details)
        lines += [f"{name} is not known: {why}" for name, why in self.missing.items()]
        title = f"{self.title} on {self.device_count} x {self.device}"
        return View(
            title, ("", "estimate", "90 % interval", "trust", "why"), rows, lines, self.limits
        )


def llm(
    total_parameters: float | None = None,
    *,
    device: DeviceLike,
    config: str | Path | Mapping[str, Any] | None = None,
    device_count: int = 1,
    active_parameters: float | None = None,
    request: RequestKind = "chat",
    max_sequences: int = 1,
    weights: WeightFormat | None = None,
    architecture: LlmArchitecture | None = None,
    tensor_parallel: int = 1,
    expert_parallel: int = 1,
    data_parallel: int = 1,
    experts: int | None = None,
    experts_per_token: int | None = None,
    cache_bytes_per_token: float | None = None,
) -> ServingAnswer:
    """Predict power, tokens per second and energy per token of a language model that serves.

    Args:
        total_parameters: number of parameters of the model; None with a configuration.
        device: name, spec sheet or its path.
        config: the model's config.json, its path or its content, from which parameters,
            architecture, experts and cache follow.
        device_count: number of devices.
        active_parameters: number of parameters used per token; all when None.
        request: kind of requests that are served.
        max_sequences: concurrent requests over all devices.
        weights: number format of the weights; that of the configuration, or bf16, when None.
        architecture: kind of layers; dense when None.
        tensor_parallel: degree of tensor parallelism, devices.
        expert_parallel: degree of expert parallelism, devices.
        data_parallel: degree of data parallelism of attention, devices.
        experts: routed experts per layer; none when None.
        experts_per_token: routed experts per token; none when None.
        cache_bytes_per_token: size of the key-value cache per token over all layers, bytes.

    Raises:
        InputError: a value is not valid, or the degrees contradict the number of devices.
        UnreadableModel: the configuration is damaged or of an unknown family.
        UnanswerableQuery: no predictor can answer.
    """
    content = json_object(Path(config)) if isinstance(config, str | Path) else config
    model = {
        "total_parameters": total_parameters,
        "config": content,
        "active_parameters": active_parameters,
        "request": request,
        "max_sequences": max_sequences,
        "weights": weights,
        "architecture": architecture,
        "tensor_parallel": tensor_parallel,
        "expert_parallel": expert_parallel,
        "data_parallel": data_parallel,
        "experts": experts,
        "experts_per_token": experts_per_token,
        "cache_bytes_per_token": cache_bytes_per_token,
    }
    given = {name: value for name, value in model.items() if value is not None}
    what = (
        "by its configuration"
        if total_parameters is None
        else f"of {total_parameters:,.4g} parameters"
    )
    title = f"language model {what}, {max_sequences} sequences"
    return _served(LlmEstimateIn, title, given, device, device_count)


def diffusion(
    parameters: float,
    *,
    device: DeviceLike,
    height: int,
    width: int,
    device_count: int = 1,
    frames: int = 1,
    steps: int = 50,
    batch_size: int = 1,
    weights: WeightFormat = "bf16",
    ring_parallel: int = 1,
    ulysses_parallel: int = 1,
    pixels_per_token: int | None = None,
    frames_per_token: int | None = None,
    passes: int | None = None,
) -> ServingAnswer:
    """Predict power, time of a batch and energy per sample of a diffusion model that serves.

    Args:
        parameters: number of parameters of the denoising network.
        device: name, spec sheet or its path.
        height: height of the image or video, pixels.
        width: width of the image or video, pixels.
        device_count: number of devices.
        frames: frames of the video; 1 for images.
        steps: number of denoising steps.
        batch_size: images or videos per batch.
        weights: number format of the weights.
        ring_parallel: degree of ring parallelism over the sequence, devices.
        ulysses_parallel: degree of Ulysses parallelism over the heads, devices.
        pixels_per_token: pixels per token along each side.
        frames_per_token: frames of the video per token.
        passes: forward passes of the network per sample and step.

    Raises:
        InputError: a value is not valid.
        UnanswerableQuery: no predictor can answer.
    """
    model = {
        "parameters": parameters,
        "height": height,
        "width": width,
        "frames": frames,
        "steps": steps,
        "batch_size": batch_size,
        "weights": weights,
        "ring_parallel": ring_parallel,
        "ulysses_parallel": ulysses_parallel,
        "pixels_per_token": pixels_per_token,
        "frames_per_token": frames_per_token,
        "passes": passes,
    }
    title = f"diffusion model of {parameters:,.4g} parameters, {width} x {height} pixels"
    return _served(DiffusionEstimateIn, title, model, device, device_count)


def _served(
    kind: type[LlmEstimateIn] | type[DiffusionEstimateIn],
    title: str,
    model: Mapping[str, Any],
    device: DeviceLike,
    device_count: int,
) -> ServingAnswer:
    here = session()
    sheet = here.device(device)
    try:
        content = {"model": model, "device": sheet.name, "device_count": device_count}
        asked = kind.model_validate(content)
    except ValidationError as error:
        raise InputError(first_fault(error)) from None
    query = Query(asked.model.workload(), sheet, operation=Operation(device_count))
    answer = estimated(query, here.in_use)
    if isinstance(asked.model, LlmIn):
        answer = answer.model_copy(update={"model": asked.model.sizes()})
    return ServingAnswer.of(title, answer)
