"""Simulates a trace or burst with the event model, its iterations scaled to fitted times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final

import numpy as np

from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.language_models.engine_formats import not_run
from forerun.data.language_models.requests import Requests
from forerun.data.query import Query
from forerun.features.llm_serving.least_times import LeastTime
from forerun.models.answers.assumed import predicted
from forerun.models.answers.deployments.limits import of_servers
from forerun.models.answers.served_models import InUse
from forerun.models.answers.wording import in_words
from forerun.models.catalog import unfitted
from forerun.models.limit import Basis, Limit
from forerun.models.llm_serving.correction import FittedTime, cut_off
from forerun.models.llm_serving.replay import Dispatch, Replay, replay
from forerun.models.llm_serving.worker import Worker
from forerun.models.prediction import Prediction


@dataclass(frozen=True, slots=True)
class Scales:
    """Ratios of fitted iteration times to those of the analytical model.

    Attributes:
        prefill, decode: the ratio of each phase.
        basis: basis of the ratios; `analytic` where both are 1.
    """

    prefill: float
    decode: float
    basis: Basis


ANALYTIC: Final = Scales(1.0, 1.0, "analytic")


def served(query: Query, requests: Requests, scales: Scales, dispatch: Dispatch) -> Replay:
    """Simulate requests, with iterations scaled by these ratios.

    Raises:
        UnanswerableQuery: the device is a CPU, the engine is llama.cpp, or the engine does not run
            the model on this device.
    """
    deployment = query.deployment
    if (why := not_run(deployment.engine.name, query.device, deployment.model)) is not None:
        raise UnanswerableQuery(f"{why}.")
    if query.device.kind == "cpu" or deployment.engine.name == "llama.cpp":
        raise UnanswerableQuery("On processors and with llama.cpp, give concurrency.")

    def worker(phase: Any) -> Worker:
        plain = Worker.of(deployment, query.device, phase=phase)
        if scales.basis == "analytic":
            return plain
        least = LeastTime.of(deployment, query.device, phase=phase)
        return replace(plain, time=FittedTime(plain.time, scales.prefill, scales.decode, least))

    apart = deployment.prefill is not None
    prefill = worker("prefill") if apart else None
    decode = worker("decode" if apart else "both")
    return replay(requests, deployment, decode, prefill, dispatch=dispatch)


def scales_of(query: Query, requests: Requests, in_use: InUse) -> tuple[Scales, list[str]]:
    """Iteration scales at the mean load of the trace, and the limits of the fitted predictor.

    The predictor was fitted to closed loops, so it is asked for one whose concurrency is the mean
    that the analytical model reaches on this trace.
    """
    plain = served(query, requests, ANALYTIC, "round_robin")
    latency = plain.latency_s[np.isfinite(plain.latency_s)]
    in_flight = float(latency.sum() / plain.span_s) if plain.span_s else 1.0
    load = replace(query.deployment.load, requests_per_s=None, concurrency=max(in_flight, 1.0))
    asked = replace(query, workload=replace(query.deployment, load=load))
    predictor, servers = in_use.loaded.predictor, of_servers(query)
    if not predictor.answers(asked):
        return ANALYTIC, _lines(servers)
    (fitted,) = predicted(predictor, [asked])
    (closed,) = predicted(unfitted("llm_latency"), [asked])
    if isinstance(fitted, InputError) or isinstance(closed, InputError):
        return ANALYTIC, _lines(servers)
    factor = fitted.estimates["tpot_ms"].value / closed.estimates["tpot_ms"].value
    if not isfinite(factor):
        return ANALYTIC, _lines(servers)
    # The prefill ratio stays 1: it was measured with prompts that all start together.
    scales = Scales(1.0, cut_off(factor), _basis(fitted))
    return scales, _lines([*servers, *fitted.limits])


def _lines(limits: Sequence[Limit]) -> list[str]:
    """Each distinct limit in words."""
    return list(dict.fromkeys(str(in_words(limit)) for limit in limits))


def _basis(fitted: Prediction) -> Basis:
    transferred = any(limit.severity == "transfer" for limit in fitted.limits)
    return "transferred" if transferred else "measured"
