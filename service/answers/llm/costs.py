"""Power, energy and price of deployed models from their rates, with intervals."""

from collections.abc import Mapping
from functools import lru_cache
from math import exp, hypot, log
from typing import Any, Final

from forerun.data.language_models.model import LanguageModel
from forerun.data.query import Operation, Query
from forerun.data.workload import LlmServing, RequestKind
from forerun.models.prediction import Estimate
from forerun.service.schemas.language_model import FORMATS, ModelSizesOut

SECONDS_PER_HOUR: Final = 3600.0
LONG_ANSWER, LONG_PROMPT = 2000.0, 2.0
"""Output tokens from which on requests count as reasoning, and input tokens for one output token
from which on they count as code completion."""


def as_serving(query: Query, in_flight: float) -> Query:
    """The deployment as a question to predictors of served models.

    Their training set counts devices that experts are spread over as expert parallel, and not
    again as tensor parallel.

    Args:
        query: the deployment.
        in_flight: requests in flight; no more of them are served at a time than there are places.
    """
    deployment = query.deployment
    worker, workers = deployment.pool.parallelism, deployment.pool.workers
    workload = LlmServing(
        **_sizes(deployment.model),
        request=request_kind(deployment.load.input_tokens, deployment.load.output_tokens),
        max_sequences=sequences_of(query, in_flight),
        tensor_parallel=worker.tensor if worker.expert == 1 else 1,
        expert_parallel=worker.expert,
        data_parallel=worker.attention_data * workers,
    )
    return Query(workload, query.device, operation=Operation(deployment.devices))


def sequences_of(query: Query, in_flight: float) -> int:
    """Requests that a deployment serves at a time, at least one; arguments as of `as_serving`."""
    engine, pool = query.deployment.engine, query.deployment.pool
    if engine.max_sequences is not None:
        places = engine.max_sequences * pool.parallelism.attention_data * pool.workers
        in_flight = min(in_flight, places)
    return max(1, round(in_flight))


@lru_cache(maxsize=64)
def _sizes(model: LanguageModel) -> Mapping[str, Any]:
    """The fields of a served model that follow from its layers and formats."""
    sizes = ModelSizesOut.of(model)
    fields = {"total_parameters", "active_parameters", "architecture", "experts"}
    fields |= {"experts_per_token", "cache_bytes_per_token"}
    return sizes.model_dump(include=fields) | {"weights": FORMATS[sizes.weights]}


def request_kind(input_tokens: float, output_tokens: float) -> RequestKind:
    """The kind of measured requests whose lengths are like these, tokens."""
    if output_tokens >= LONG_ANSWER:
        return "reasoning"
    return "code" if input_tokens >= LONG_PROMPT * output_tokens else "chat"


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """The estimate times a constant."""
    low, high = (None if end is None else factor * end for end in (estimate.low, estimate.high))
    return Estimate(factor * estimate.value, low, high, estimate.coverage)


def inverse(estimate: Estimate, factor: float) -> Estimate:
    """A constant over the estimate, which is positive."""
    low, high = (
        None if end is None or not end > 0 else factor / end
        for end in (estimate.high, estimate.low)
    )
    coverage = None if low is None or high is None else estimate.coverage
    return Estimate(factor / estimate.value, low, high, coverage)


def product(one: Estimate, other: Estimate) -> Estimate:
    """The product of two positive estimates whose errors are independent, on a logarithmic scale.

    It has no interval where one of them has none.
    """
    value = one.value * other.value
    ends = [(own.value, own.low, own.high) for own in (one, other)]
    if any(low is None or high is None or not low > 0 for _, low, high in ends):
        return Estimate(value)
    down = hypot(*(log(middle / low) for middle, low, _ in ends if low is not None))
    up = hypot(*(log(high / middle) for middle, _, high in ends if high is not None))
    known = None not in (one.coverage, other.coverage)
    return Estimate(value, value * exp(-down), value * exp(up), one.coverage if known else None)
