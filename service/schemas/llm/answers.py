"""Answers about deployed language models: what was assumed, memory, price, and what it rests on."""

from typing import Literal

from forerun.data.described import Described
from forerun.data.language_models.deployment import EngineName, Pool, Sampling
from forerun.models.limit import Basis


class EngineOut(Described):
    """An inference engine and its settings; null means the engine's own default."""

    name: EngineName
    """the engine"""
    version: str
    """its version; empty where the request names none"""
    max_batched_tokens: int | None
    """maximum tokens in one iteration"""
    max_sequences: int | None
    """maximum sequences in one iteration"""
    chunked_prefill: bool
    """whether prompts share iterations with decoding"""
    graphs: bool
    """whether decoding replays CUDA graphs"""
    memory_share: float
    """share of the memory for weights and cache, 0 to 1"""
    block_tokens: int
    """tokens in a block of keys and values"""
    draft_tokens: int
    """tokens drafted in an iteration; 0 for none"""
    draft_acceptance: float
    """probability that a drafted token is accepted"""
    sampling: Sampling | None
    """greedy decoding or top-p sampling; null is as in measured runs"""


class ParallelismOut(Described):
    """How one worker is divided over devices."""

    tensor: int
    """devices that share each layer's matrix products"""
    pipeline: int
    """pipeline stages, each of which holds consecutive layers"""
    attention_data: int
    """data-parallel ranks of attention"""
    expert: int
    """devices over which whole routed experts are distributed"""


class PoolOut(Described):
    """Workers that serve the same phase."""

    parallelism: ParallelismOut
    """how each worker is divided over devices"""
    workers: int
    """number of workers"""
    devices: int
    """number of devices of all workers"""

    @classmethod
    def of(cls, pool: Pool) -> "PoolOut":
        """The workers of a deployment."""
        degrees = ParallelismOut.filled(pool.parallelism)
        return cls(parallelism=degrees, workers=pool.workers, devices=pool.devices)


class PoolMemoryOut(Described):
    """Memory of one device, and how much fits in it."""

    phase: Literal["both", "prefill", "decode"]
    """what the workers serve"""
    fits: bool
    """whether the weights and one request fit"""
    weights_mib: float
    """weights, MiB"""
    cache_mib: float
    """keys, values and states of the requests in flight (at least one) at the end of their outputs,
    MiB"""
    activations_mib: float
    """activations of the largest iteration, MiB"""
    overhead_mib: float
    """context of the device, graphs, communication, MiB"""
    needed_mib: float
    """all of these together, MiB"""
    reserved_mib: float
    """what the engine reserves, used or not, MiB"""
    usable_mib: float
    """memory of the device, MiB"""
    cache_bytes_per_token: float
    """keys and values of one token, bytes"""
    cache_tokens: float
    """tokens that the cache has room for, one worker"""
    largest_concurrency: float
    """requests of these lengths that the caches of all workers have room for"""

    def sentence(self) -> str:
        """The weights, the memory, and the requests that there is room for."""
        from forerun.features.llm_serving.memory import PoolMemory

        return PoolMemory(**self.model_dump(exclude={"fits", "needed_mib"})).sentence()


class PriceOut(Described):
    """The price of a device."""

    usd_per_device_hour: float
    """price of a device for an hour, US dollars"""
    source: str
    """where the price comes from, and its date"""

    def sentence(self) -> str:
        """The price and its source."""
        return f"{self.usd_per_device_hour:,.4g} USD for an hour of a device: {self.source}"


class CapacityOut(Described):
    """The highest arrival rate that a deployment can sustain."""

    requests_per_s: float
    """requests a second, all devices together"""
    low: float | None
    """lower end of its interval; null without one"""
    high: float | None
    """upper end of its interval; null without one"""


class PartOut(Described):
    """A part of the work, and the evidence for its estimate."""

    name: str
    """products, experts, prefill_attention, decode_attention, collectives, host, memory or power"""
    basis: Basis
    """measured: on this device; transferred: from other devices; analytic: closed form alone"""
    reason: str
    """one sentence about it"""
    prefill_share: float | None
    """share of the time of a prompt, 0 to 1; null for memory and power"""
    decode_share: float | None
    """share of the time of an output token, 0 to 1; null for memory and power"""


class DeploymentOut(Described):
    """The deployment that the answer is about: what was chosen, its memory, price and parts."""

    engine: EngineOut
    """the inference engine and its settings"""
    pool: PoolOut
    """workers that serve requests; those that decode, with separate `prefill` workers"""
    prefill: PoolOut | None
    """separate prefill workers; null for none"""
    chosen: list[str]
    """what was chosen where the request leaves it open"""
    capacity: CapacityOut | None
    """highest arrival rate that can be sustained; null where the model does not fit, or where all
    requests of a given concurrency run at once"""
    replicas: int | None
    """number of such deployments that sustain the arrival rate, by the lower end of the capacity;
    null without an arrival rate"""
    memory: list[PoolMemoryOut]
    """memory of a device, by phase"""
    limited_by: str | None
    """what bounds the rate: arithmetic, memory bandwidth, collectives, host, cache capacity or
    arrival rate; null where that is not known"""
    price: PriceOut | None
    """price of a device; null where none is known"""
    parts: list[PartOut]
    """parts of the work, and the evidence for each"""

    def facts(self) -> list[str]:
        """Devices, memory, what limits the rate, price, and what was chosen, one line each."""
        lines = [_degrees(self.pool)]
        if self.prefill is not None:
            lines.append(f"for prompts: {_degrees(self.prefill)}")
        if (own := self.capacity) is not None:
            ends = "" if own.low is None else f" ({own.low:,.3g} to {own.high:,.3g})"
            line = f"keeps up with {own.requests_per_s:,.3g} requests a second{ends}"
            if self.replicas is not None and self.replicas > 1:
                devices = self.pool.devices + (0 if self.prefill is None else self.prefill.devices)
                line += (
                    f"; {self.replicas:,} such deployments ({self.replicas * devices:,} devices) "
                    "keep up with the arrivals even at the lower end"
                )
            lines.append(line)
        lines += [memory.sentence() for memory in self.memory]
        if self.limited_by is not None:
            lines.append(f"limited by {self.limited_by}")
        if self.price is not None:
            lines.append(self.price.sentence())
        return [*lines, *(f"chosen: {sentence}" for sentence in self.chosen)]


def _degrees(pool: PoolOut) -> str:
    """Number of devices and workers, and the degrees of parallelism that are not 1."""
    own = pool.parallelism
    degrees = {
        "tensor parallel": own.tensor,
        "pipeline parallel": own.pipeline,
        "attention data parallel": own.attention_data,
        "expert parallel": own.expert,
    }
    words = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
    counts = [counted(pool.devices, "device"), counted(pool.workers, "worker")]
    return ", ".join((*counts, *words))


def counted(count: int, word: str) -> str:
    """A number and what is counted, in the singular for one."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


class SupportedOut(Described):
    """Where a metric of deployed models was measured."""

    metric: str
    """name of the metric"""
    devices: list[str]
    """devices in the training set"""
    models: list[str]
    """models in the training set"""
    datasets: list[str]
    """datasets in the training set"""


class SupportOut(Described):
    """What requests about language models may name, and the evidence for the answers."""

    models: list[str]
    """models by name, whose configuration is known"""
    families: list[str]
    """values of `model_type` whose config.json is read"""
    devices: list[str]
    """devices with a spec sheet on which answers are based"""
    engines: list[str]
    """inference engines"""
    formats: list[str]
    """number formats of weights"""
    cache_formats: list[str]
    """number formats of keys and values"""
    also: dict[str, list[str]]
    """field of a request -> names that are accepted for it"""
    measured: list[SupportedOut]
    """metric -> where it was measured: on other devices an answer is transferred, without
    measurements analytic"""
