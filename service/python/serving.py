"""Ask about models that serve requests: times, rates, power, energy and price."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Unpack

from forerun.data.level import USUAL
from forerun.data.query import Operation, Query
from forerun.data.workload import WeightFormat
from forerun.service.answers.answer import estimated
from forerun.service.answers.llm.estimates import llm_estimate
from forerun.service.python.question import validated
from forerun.service.python.run_options import LlmSizes
from forerun.service.python.session import DeviceLike, session
from forerun.service.python.training import described
from forerun.service.python.view import (
    Answered,
    Estimate,
    Predicted,
    View,
    columns_of,
    estimate_row,
    refusals,
)
from forerun.service.schemas.answers import ServingOut
from forerun.service.schemas.language_model import ModelSizesOut
from forerun.service.schemas.llm.answers import DeploymentOut
from forerun.service.schemas.serving import DiffusionEstimateIn, DiffusionIn, LlmEstimateIn, LlmIn


@dataclass(frozen=True)
class ServingAnswer(Answered):
    """Times, rates, power, energy and price of a model that serves requests in steady state.

    Attributes:
        title: what is served.
        device: name of the device.
        device_count: number of devices.
        metrics: metric -> estimate; `power_w` and `peak_memory_mib` are of one device, rates and
            energies of all devices together.
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

    power_w = Predicted("Average power of one device, W")
    tokens_per_s = Predicted("Tokens written per second by all devices")
    energy_per_token_j = Predicted("Energy of all devices for one token, J")
    latency_ms = Predicted("Time of a batch of a diffusion model, ms")
    samples_per_s = Predicted("Images or videos per second by all devices")
    energy_per_sample_j = Predicted("Energy of all devices for one image or video, J")
    ttft_ms = Predicted("Time from a request to its first token, with queueing, ms")
    tpot_ms = Predicted("Time for each token after the first, ms")
    ttft_service_ms = Predicted("Time from a request to its first token without queueing, ms")
    request_latency_ms = Predicted("Time from a request to its last token, ms")
    requests_per_s = Predicted("Requests answered per second by all devices")
    tokens_per_s_per_device = Predicted("Tokens written per second by one device")
    peak_memory_mib = Predicted("Memory of one device, MiB")
    usd_per_million_tokens = Predicted("Price of a million tokens written, US dollars")

    @property
    def model(self) -> ModelSizesOut | None:
        """Sizes of the language model by name or configuration; None where only sizes are given."""
        return self.content.model

    @property
    def deployment(self) -> DeploymentOut | None:
        """Memory, price, limits and parts of the deployment; None without lengths."""
        return self.content.deployment

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row."""
        where = {"device": self.device, "device_count": self.device_count}
        yield {**where, **columns_of(self.metrics), "in_domain": self.in_domain}

    def view(self) -> View:
        """Every metric with its interval, then what is missing."""
        rows = [estimate_row(name, own) for name, own in self.metrics.items()]
        lines = refusals(self.content.limit_details)
        lines += [f"{name} is not known: {why}" for name, why in self.missing.items()]
        title = f"{self.title} on {self.device_count} x {self.device}"
        if self.deployment is not None:
            lines += self.deployment.facts()
        headings = ("", "estimate", self.content.interval_heading, "trust", "why")
        return View(title, headings, rows, lines, self.limits)


def llm(
    model: str | PathLike[str] | Mapping[str, Any] | float | None = None,
    *,
    device: DeviceLike,
    quantization: str | Mapping[str, Any] | None = None,
    cache_format: str | None = None,
    weights: WeightFormat | None = None,
    input_tokens: float | None = None,
    output_tokens: float | None = None,
    concurrency: float | None = None,
    requests_per_s: float | None = None,
    num_prompts: int | None = None,
    command: str | None = None,
    cached_share: float | None = None,
    engine: str | Mapping[str, Any] | None = None,
    parallelism: Mapping[str, int] | None = None,
    workers: int | None = None,
    prefill: Mapping[str, Any] | None = None,
    usd_per_device_hour: float | None = None,
    device_count: int | None = None,
    level: float = USUAL,
    **sizes: Unpack[LlmSizes],
) -> ServingAnswer:
    """Predict what it takes to serve a language model.

    With lengths, the answer has times, rates, memory, power and price. Without lengths it has
    power, tokens per second and energy per token.

    Args:
        model: name of a public model, its config.json (path, folder or content), a mapping with
            `name` or `config` as over HTTP, or, without lengths, its number of parameters; None
            where `command` names it.
        device: name, spec sheet or its path.
        quantization: how the weights are quantised, where the configuration does not say so: fp8,
            nvfp4, mxfp4, int8, int4, awq or gptq, or the content of hf_quant_config.json.
        cache_format: number format of keys and values; that of the configuration when None.
        weights: number format of the weights; that of the configuration, or bf16, when None.
        input_tokens: mean length of the prompts.
        output_tokens: mean length of the answers.
        concurrency: requests in flight over all devices.
        requests_per_s: rate of arrivals over all devices, in place of `concurrency`.
        num_prompts: requests that all arrive at once, or at `requests_per_s`, with none after them.
        command: commands of vLLM, SGLang or llama.cpp; other arguments replace what they say.
        cached_share: share of the input tokens in a prefix cache, 0 to 1.
        engine: name of the inference engine, or its settings as over HTTP; vLLM when None.
        parallelism: degrees of one worker: `tensor`, `pipeline`, `attention_data`, `expert`; the
            smallest tensor parallelism that fits when None.
        workers: number of workers, copies of the model.
        prefill: `parallelism` and `workers` of workers for prompts alone; none when None.
        usd_per_device_hour: price of a device; a list price, where one is known, when None.
        device_count: number of devices; with lengths it follows from workers when None, else 1.
        level: level of the intervals, 50 to 99 %.
        sizes: without lengths: further sizes of the model and its load, as `LlmSizes` lists them.

    Raises:
        InputError: a value is not valid, or the degrees contradict the number of devices.
        UnreadableModel: the configuration is damaged or of an unknown family.
        UnanswerableQuery: no predictor can answer.
    """
    own = dict(locals())
    given = {k: v for k, v in own.items() if k not in ("model", "sizes") and v is not None} | sizes
    described_model: Mapping[str, Any] = {}
    title = "by its sizes"
    if isinstance(model, int | float):
        title, described_model = f"of {model:,.4g} parameters", {"total_parameters": model}
    elif model is not None:
        title, described_model = described(model)
    # What is no field of either is another tool's name of one, or no field of the request.
    settings = {key: value for key, value in given.items() if key in LlmIn.model_fields}
    load = {key: value for key, value in given.items() if key not in settings}
    here = session()
    sheet = here.device(device)
    content = {**load, "model": {**described_model, **settings}, "device": sheet.name}
    asked = validated(LlmEstimateIn, content)
    answer = llm_estimate(asked, lambda _: sheet, here.in_use)
    title = asked.model.name or title
    return ServingAnswer.of(answer, title=f"language model {title}, {_load_text(asked)}")


def _load_text(asked: LlmEstimateIn) -> str:
    """The load of a request in words."""
    if asked.at_once is not None:
        return f"{asked.at_once:,.0f} requests at once"
    if asked.closed is not None:
        return (
            f"{asked.requests_per_s:g} requests/s, at most {asked.closed.concurrency:g} in flight"
        )
    if asked.requests_per_s is not None:
        return f"{asked.requests_per_s:,.9g} requests/s"
    return f"{asked.concurrency or asked.model.max_sequences:,.9g} sequences"


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
    level: float = USUAL,
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
        level: level of the intervals, 50 to 99 %.

    Raises:
        InputError: a value is not valid.
        UnanswerableQuery: no predictor can answer.
    """
    model = {name: own for name, own in locals().items() if name in DiffusionIn.model_fields}
    title = f"diffusion model of {parameters:,.4g} parameters, {width} x {height} pixels"
    here = session()
    sheet = here.device(device)
    content = {"model": model, "device": sheet.name, "device_count": device_count, "level": level}
    asked = validated(DiffusionEstimateIn, content)
    operation = Operation(device_count)
    query = Query(asked.model.workload(), sheet, operation=operation, level=asked.level)
    return ServingAnswer.of(estimated(query, here.in_use), title=title)
