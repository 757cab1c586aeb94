"""A predictor of times of deployed models, by a formula that a test can follow."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import LoadedPredictor, bundled
from forerun.models.prediction import Predictions
from forerun.models.router import Router
from forerun.service.answers.llm.estimates import llm_estimate
from forerun.service.schemas.answers import ServingOut
from forerun.service.schemas.serving import LlmEstimateIn
from tests.devices import CATALOG

TTFT_MS, TPOT_MS = 100.0, 10.0
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
"""Sizes of Llama 3.1 8B."""
LENGTHS = {"input_tokens": 1024, "output_tokens": 256, "concurrency": 32}
IN_USE = InUse(bundled())


def estimated(**given) -> ServingOut:
    """The answer of the released predictors to a request; what is None is left out of it."""
    asked = {name: value for name, value in given.items() if value is not None}
    return llm_estimate(LlmEstimateIn.model_validate(asked), CATALOG.get, IN_USE)


ASKED = {"model": {"config": LLAMA}, "device": "h100-sxm-80gb", **LENGTHS, "tp": 1}


@dataclass(frozen=True)
class Times:
    """Deployments take 100 ms to the first token and 10 ms for each further one, +- 10 %.

    Attributes:
        calls: number of queries of each call.
        spread: ratio of the upper end of the interval of the first token to its value, and of this
            to the lower end.
    """

    calls: list[int] = field(default_factory=list)
    spread: float = 1.1
    name: ClassVar[str] = "llm_latency"
    metrics: ClassVar[tuple[str, ...]] = (
        *("ttft_ms", "ttft_service_ms", "tpot_ms", "request_latency_ms", "requests_per_s"),
        "tokens_per_s",
    )

    def answers(self, query):
        return query.workload.kind == "llm_deployment" and query.device.kind == "gpu"

    def fit(self, measurements) -> Self:
        return self

    def adapt(self, measurements) -> Self:
        return self

    def predict(self, queries):
        self.calls.append(len(queries))
        loads = [query.deployment.load for query in queries]
        out = np.array([load.output_tokens for load in loads])
        latency = TTFT_MS + (out - 1) * TPOT_MS
        rate = np.array([one.requests_per_s or one.concurrency for one in loads]) / latency * 1e3
        given = np.array([one.requests_per_s or np.nan for one in loads])
        rate = np.where(np.isnan(given), rate, given)
        same = np.ones(len(queries))
        columns = (TTFT_MS * same, TTFT_MS / 2 * same, TPOT_MS * same, latency, rate, rate * out)
        values = dict(zip(self.metrics, columns, strict=True))
        low = {name: 0.9 * column for name, column in values.items()}
        high = {name: 1.1 * column for name, column in values.items()}
        low["ttft_ms"], high["ttft_ms"] = TTFT_MS / self.spread * same, TTFT_MS * self.spread * same
        return Predictions(values, low, high, 0.9, [()] * len(queries), always=same > 0)

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    @classmethod
    def load(cls, folder: Path) -> Self:
        raise NotImplementedError


def loaded_with(times: Times, bundled: LoadedPredictor) -> LoadedPredictor:
    """The bundled predictors with one of times in place of theirs."""
    predictor = Router((times, *without_times(bundled).predictor.parts))
    return LoadedPredictor(predictor, "test", "2026-01-01", "", bundled.record)


def without_times(bundled: LoadedPredictor) -> LoadedPredictor:
    """The bundled predictors but that of times of deployed models."""
    others = (part for part in bundled.predictor.parts if part.name != Times.name)
    return LoadedPredictor(Router((*others,)), "test", "2026-01-01", "", bundled.record)
