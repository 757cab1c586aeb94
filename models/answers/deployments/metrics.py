"""Metrics of deployed language models, and the predictors and datasets behind each."""

from collections.abc import Mapping
from typing import Final

from forerun.data.query import Query
from forerun.models.answers.served_models import InUse
from forerun.models.catalog import PREDICTORS, training_datasets
from forerun.models.router import Router

METRICS: Final = (
    *("ttft_ms", "ttft_service_ms", "tpot_ms", "request_latency_ms", "requests_per_s"),
    *("tokens_per_s", "tokens_per_s_per_device", "peak_memory_mib", "power_w"),
    *("energy_per_token_j", "usd_per_million_tokens"),
)
"""Metrics of a deployed model, in the order of answers."""

SOURCES: Final[Mapping[str, str]] = {
    **dict.fromkeys(METRICS[:7], "llm_latency"),
    "power_w": "serving_power",
    "energy_per_token_j": "serving_power",
}
"""Metric -> predictor it rests on; memory and price are computed from the deployment."""


ON_PROCESSORS: Final = "processor_llm_latency"
"""Predictor of times on CPUs, and of llama.cpp on GPUs."""


def sources_of(query: Query, in_use: InUse) -> Mapping[str, str]:
    """`SOURCES` for the answer to this query."""
    asked = in_use.loaded.predictor
    part = asked.answering(query, "tpot_ms") if isinstance(asked, Router) else asked
    if part is None or part.name != ON_PROCESSORS:
        return SOURCES
    return {**SOURCES, **dict.fromkeys(METRICS[:7], ON_PROCESSORS)}


def seen_in_training(
    metric: str, key: str, in_use: InUse, sources: Mapping[str, str] = SOURCES
) -> frozenset[str]:
    """Values of a grouping key in the training set of the predictor behind a metric.

    Args:
        metric: name of the metric.
        key: grouping key, such as `device` or `model`.
        in_use: the predictor in use.
        sources: metric -> predictor behind it.
    """
    record = in_use.loaded.record
    datasets = datasets_behind(metric, in_use, sources)
    values = (record.seen(dataset).get(key, ()) for dataset in datasets)
    return frozenset(value for found in values for value in found)


def datasets_behind(metric: str, in_use: InUse, sources: Mapping[str, str] = SOURCES) -> list[str]:
    """Datasets in the training set of the predictor behind a metric."""
    predictor = sources.get(metric)
    if predictor is None or predictor not in PREDICTORS:
        return []
    return [name for name in training_datasets(predictor) if in_use.loaded.record.seen(name)]
