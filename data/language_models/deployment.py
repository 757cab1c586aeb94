"""A language model that serves requests: lengths and load, engine, and devices of each phase."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.model import LanguageModel

EngineName = Literal["vllm", "sglang", "trtllm", "llama.cpp", "other"]
"""Inference engine: vLLM, SGLang, TensorRT-LLM, llama.cpp, or one that is not known here."""


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """Lengths and arrivals of requests, for all devices of the deployment together.

    Exactly one of `concurrency` and `requests_per_s` is given.

    Attributes:
        input_tokens: mean length of the prompts.
        output_tokens: mean length of the answers.
        concurrency: requests in flight, where each answer is followed by the next request at once
            (closed loop).
        requests_per_s: rate of Poisson arrivals (open loop).
        cached_share: share of the input tokens whose keys and values are in a prefix cache, 0 to 1.
        input_variation, output_variation: standard deviation of the lengths over their mean.
    """

    input_tokens: float
    output_tokens: float
    concurrency: float | None = None
    requests_per_s: float | None = None
    cached_share: float = 0.0
    input_variation: float = 0.0
    output_variation: float = 0.0


@dataclass(frozen=True, slots=True)
class Engine:
    """An inference engine and the settings of it that times depend on.

    Attributes:
        name: the engine.
        version: its version, such as `0.15.1`; empty where it is not known.
        max_batched_tokens: most tokens of one iteration on one data-parallel rank; None for the
            engine's default.
        max_sequences: most sequences of one iteration on one data-parallel rank; None for the
            engine's default.
        chunked_prefill: whether long prompts are divided over iterations and share them with
            decoding.
        graphs: whether decoding replays CUDA graphs.
        memory_share: share of a device's memory that weights and cache may take.
        block_tokens: tokens in a block of keys and values.
        draft_tokens: tokens drafted in an iteration by speculative decoding; 0 for none.
        draft_acceptance: probability that a drafted token is accepted, given that those before it
            were.
    """

    name: EngineName = "vllm"
    version: str = ""
    max_batched_tokens: int | None = None
    max_sequences: int | None = None
    chunked_prefill: bool = True
    graphs: bool = True
    memory_share: float = 0.9
    block_tokens: int = 16
    draft_tokens: int = 0
    draft_acceptance: float = 0.0


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How one worker, a copy of the model, is divided over devices.

    Attributes:
        tensor: devices that share the products of each layer's attention and dense networks.
        pipeline: groups of devices that hold successive layers.
        attention_data: data-parallel ranks of attention, each with requests of its own; experts are
            spread over the devices of all ranks.
        expert: devices that routed experts are spread over whole; 1 where each expert is divided
            over all devices of the layer.
    """

    tensor: int = 1
    pipeline: int = 1
    attention_data: int = 1
    expert: int = 1

    @property
    def devices(self) -> int:
        """Number of devices of one worker."""
        return self.tensor * self.pipeline * self.attention_data


@dataclass(frozen=True, slots=True)
class Pool:
    """Workers that serve the same phase; requests are spread evenly over them.

    Attributes:
        parallelism: devices of each worker.
        workers: number of workers.
    """

    parallelism: Parallelism = Parallelism()
    workers: int = 1

    @property
    def devices(self) -> int:
        """Number of devices of all workers."""
        return self.workers * self.parallelism.devices


def is_encoder_decoder(family: str) -> UnanswerableQuery:
    """The refusal of a deployment of an encoder-decoder of that family."""
    return UnanswerableQuery(
        f"Deployments of encoder-decoders are not answered, and {family} is one: time and memory "
        "of its encoder and of its cross attention are not known here. Ask about a decoder-only "
        "model."
    )


@dataclass(frozen=True, slots=True)
class LlmDeployment:
    """A language model, the requests that it serves, and the engine and devices that serve them.

    The device count of the query's `operation` is `devices`.

    Raises:
        UnanswerableQuery: the model is an encoder-decoder, whose encoder and cross attention no
            estimate of a deployment covers.

    Attributes:
        model: layers, and number formats of weights and cache.
        load: lengths and arrivals of requests.
        engine: inference engine.
        pool: workers that serve requests; only decoding where `prefill` is given.
        prefill: workers of their own for prompts (disaggregated serving); None for none.
    """

    model: LanguageModel
    load: RequestLoad
    engine: Engine = Engine()
    pool: Pool = Pool()
    prefill: Pool | None = None
    kind: Literal["llm_deployment"] = "llm_deployment"

    def __post_init__(self) -> None:
        if _has_encoder(self.model):
            raise is_encoder_decoder(self.model.family)

    @property
    def devices(self) -> int:
        """Number of devices of all pools."""
        return self.pool.devices + (0 if self.prefill is None else self.prefill.devices)


@lru_cache(maxsize=256)
def _has_encoder(model: LanguageModel) -> bool:
    """Whether a model has an encoder, or layers that attend to one."""
    return model.encoder is not None or any(layer.cross is not None for layer in model.layers)
