"""A deployed language model: its request load, its engine, and the devices of each phase."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from forerun.data.described import described
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.model import LanguageModel

EngineName = Literal["vllm", "sglang", "trtllm", "llama.cpp", "other"]
"""Inference engine: vLLM, SGLang, TensorRT-LLM, llama.cpp, or another one."""

Sampling = Literal["greedy", "top_p"]
"""How output tokens are sampled."""


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """Lengths and arrivals of requests, in total over all devices of the deployment.

    Exactly one of `concurrency` and `requests_per_s` is given.

    Attributes:
        input_tokens: mean prompt length.
        output_tokens: mean answer length.
        concurrency: requests in flight in a closed loop, where a new request follows each answer at
            once.
        requests_per_s: rate of Poisson arrivals (open loop).
        cached_share: share of the prompt tokens that hit the prefix cache, 0 to 1.
        input_variation, output_variation: coefficients of variation of the lengths.
    """

    input_tokens: float
    output_tokens: float
    concurrency: float | None = None
    requests_per_s: float | None = None
    cached_share: float = 0.0
    input_variation: float = 0.0
    output_variation: float = 0.0


@dataclass(frozen=True, slots=True)
@described
class Engine:
    """An inference engine and its settings that affect latency; None is the engine's default.

    Each field is an option of HTTP (`service/schemas/llm/deployment.py`) and of the command line
    (`service/cli/llm/options.py`).
    """

    name: EngineName = "vllm"
    """inference engine"""
    version: Annotated[str, Field(max_length=200)] = ""
    """version of the engine, such as 0.15.1"""
    max_batched_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """maximum tokens in one iteration on one data-parallel rank"""
    max_sequences: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """maximum sequences in one iteration on one data-parallel rank"""
    max_request_tokens: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """maximum tokens of a request including its output; longer requests are refused, and llama.cpp
    reserves a cache of this size for each slot"""
    chunked_prefill: bool = True
    """whether long prompts are split into chunks that share iterations with decoding"""
    graphs: bool = True
    """whether decoding replays CUDA graphs"""
    memory_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """share of a device's memory that weights and cache may take"""
    block_tokens: Annotated[int, Field(ge=1, le=4096)] = 16
    """tokens in a block of keys and values"""
    draft_tokens: Annotated[int, Field(ge=0, le=64)] = 0
    """tokens drafted per iteration by speculative decoding; 0 for none"""
    draft_acceptance: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    """probability that a drafted token is accepted if those before it were; required with draft
    tokens"""
    hold_iterations: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 0.0
    """decoding steps for which a setting makes a prompt wait: half of SGLang's
    `--scheduler-recv-interval`, TensorRT-LLM's `batch_wait_timeout_iters`"""
    sampling: Sampling | None = None
    """greedy decoding or top-p sampling; when absent, greedy, or on processors the model's
    published setting"""


Degree = Annotated[int, Field(ge=1, le=1024)]


@dataclass(frozen=True, slots=True)
@described
class Parallelism:
    """How one worker (one copy of the model) is divided over devices.

    Tensor parallelism applies to attention and dense networks; routed experts are spread over the
    devices of all data-parallel attention ranks.
    """

    tensor: Degree = 1
    """tensor parallelism: devices that share each layer's matrix products"""
    pipeline: Degree = 1
    """pipeline parallelism: stages, each of which holds consecutive layers"""
    attention_data: Degree = 1
    """data-parallel attention ranks, each with its own requests"""
    expert: Degree = 1
    """expert parallelism: devices over which routed experts are distributed whole; 1 if all share
    each expert"""

    @property
    def devices(self) -> int:
        """Number of devices of one worker."""
        return self.tensor * self.pipeline * self.attention_data


@dataclass(frozen=True, slots=True)
class Pool:
    """Workers that serve the same phase; requests are distributed evenly over them.

    Attributes:
        parallelism: parallelism of each worker.
        workers: number of workers.
    """

    parallelism: Parallelism = Parallelism()
    workers: int = 1

    @property
    def devices(self) -> int:
        """Number of devices of all workers."""
        return self.workers * self.parallelism.devices


def is_encoder_decoder(family: str) -> UnanswerableQuery:
    """The error that refuses a deployment of an encoder-decoder of that family."""
    return UnanswerableQuery(
        f"{family} is an encoder-decoder, which is supported only on GPUs, with engines other "
        "than llama.cpp, and without separate prefill workers."
    )


@dataclass(frozen=True, slots=True)
class LlmDeployment:
    """A language model, the requests that it serves, and the engine and devices that serve them.

    The device count of the query's `operation` equals `devices`.

    Raises:
        UnanswerableQuery: the model is an encoder-decoder that is not `as_served`, or that runs on
            llama.cpp or with disaggregated prefill.

    Attributes:
        model: layers, and number formats of weights and cache.
        load: lengths and arrivals of requests.
        engine: inference engine.
        pool: workers that serve requests, or only decode if `prefill` is given.
        prefill: separate prefill workers (disaggregated serving); None for none.
    """

    model: LanguageModel
    load: RequestLoad
    engine: Engine = Engine()
    pool: Pool = Pool()
    prefill: Pool | None = None
    kind: Literal["llm_deployment"] = "llm_deployment"

    def __post_init__(self) -> None:
        unsupported = self.prefill is not None or self.engine.name == "llama.cpp"
        if _attends_to_encoder(self.model) or (self.model.encoder is not None and unsupported):
            raise is_encoder_decoder(self.model.family)

    @property
    def devices(self) -> int:
        """Number of devices of all pools."""
        return self.pool.devices + (0 if self.prefill is None else self.prefill.devices)


@lru_cache(maxsize=256)
def _attends_to_encoder(model: LanguageModel) -> bool:
    """Whether any layer of the model has cross-attention."""
    return any(layer.cross is not None for layer in model.layers)
