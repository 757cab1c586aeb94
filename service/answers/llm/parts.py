"""Parts of the time of a deployment, what bounds its rate, and what each estimate rests on."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.features.llm_kernels.deployed import families_of
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.step import Rates, WorkerTime
from forerun.models.llm_kernels.known_kernels import KnowsKernels
from forerun.models.router import predictors_in
from forerun.service.adaptation.in_use import InUse
from forerun.service.answers.llm.support import seen_in_training
from forerun.service.schemas.llm.answers import Basis, PartOut, PoolMemoryOut

RATES: Final = Rates()
FASTER_MEMORY: Final = replace(RATES, bandwidth=2 * RATES.bandwidth, cache=2 * RATES.cache)
APART: Final[Mapping[str, tuple[str, ...]]] = {
    "collectives": ("messages", "synchronisation"),
    "host": ("launches", "host"),
}
"""Bound -> the parts of an iteration that are neither memory bandwidth nor arithmetic."""
KEPT_UP: Final = 0.99
"""Share of the arrivals that are answered where a deployment keeps up with them."""
REASONS: Final[Mapping[Basis, str]] = {
    "measured": "runs of other deployments on this device are in the training set",
    "transferred": "runs on other devices are in the training set",
    "analytic": "closed form from the spec sheet; no run is in the training set",
}
KERNELS: Final[Mapping[Basis, str]] = {
    "measured": "such kernels ({}) were measured on this device; their share is in closed form",
    "transferred": "such kernels ({}) were measured on other devices",
}
"""As `REASONS`, where kernels and not whole runs were measured."""
ORDER: Final[tuple[Basis, ...]] = ("measured", "transferred", "analytic")


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the time of a request goes.

    Attributes:
        prefill: part -> share of the time of a prompt; empty where it is not known.
        decode: part -> share of the time of an output token.
        bounds: memory bandwidth, arithmetic, collectives or host -> seconds of a whole request.
    """

    prefill: Mapping[str, float]
    decode: Mapping[str, float]
    bounds: Mapping[str, float]


def shares_of(query: Query, in_flight: float) -> Shares:
    """The parts of a deployment's time in closed form.

    Args:
        query: the deployment and its device.
        in_flight: requests that are served at a time.
    """
    deployment = query.deployment
    pool = deployment.pool
    at_once = in_flight / (pool.workers * pool.parallelism.attention_data)
    sequences = min(max(1.0, at_once), deployment.engine.max_sequences or np.inf)
    try:
        with np.errstate(all="ignore"):
            whole, faster = (_phases(query, sequences, rates) for rates in (RATES, FASTER_MEMORY))
    except InputError:
        return Shares({}, {}, {})
    tokens = deployment.load.output_tokens / sequences
    weights = {"prefill": 1.0, "decode": tokens}
    by_part = {
        part: sum(weight * whole[phase][part] for phase, weight in weights.items())
        for part in whole["decode"]
    }
    saved = {
        part: 2 * sum(w * (whole[p][part] - faster[p][part]) for p, w in weights.items())
        for part in by_part
    }
    apart = {bound: sum(by_part[part] for part in parts) for bound, parts in APART.items()}
    memory = sum(saved.values())
    bounds = {"memory bandwidth": memory, **apart}
    bounds["arithmetic"] = sum(by_part.values()) - sum(bounds.values())
    return Shares(_shares(whole["prefill"]), _shares(whole["decode"]), bounds)


def parts_of(query: Query, shares: Shares, metrics: Iterable[str], in_use: InUse) -> list[PartOut]:
    """The parts of the work, with their share of the time of a prompt and of a token.

    Args:
        query: the deployment and its device.
        shares: where the time goes.
        metrics: metrics that are known; memory and power are parts where theirs are.
        in_use: the predictor in use, whose training record says what was measured.
    """
    of_runs = basis_of("tpot_ms", query, in_use)
    families = families_of(query.deployment)
    every = predictors_in(in_use.loaded.predictor)
    kernels = next((part for part in every if isinstance(part, KnowsKernels)), None)
    parts = []
    for name in shares.decode:
        if max(shares.prefill[name], shares.decode[name]) > 0:
            basis, reason = of_runs, REASONS[of_runs]
            of_kernels = _basis_of_kernels(families.get(name, frozenset()), query.device, kernels)
            if ORDER.index(of_kernels) < ORDER.index(of_runs):
                names = ", ".join(sorted(families[name]))
                basis, reason = of_kernels, KERNELS[of_kernels].format(names)
            part = PartOut(
                name=name,
                basis=basis,
                reason=reason,
                prefill_share=shares.prefill[name],
                decode_share=shares.decode[name],
            )
            parts.append(part)
    for name, metric in (("memory", "peak_memory_mib"), ("power", "power_w")):
        if metric in metrics:
            basis = basis_of(metric, query, in_use)
            parts.append(
                PartOut(
                    name=name,
                    basis=basis,
                    reason=REASONS[basis],
                    prefill_share=None,
                    decode_share=None,
                )
            )
    return parts


def basis_of(metric: str, query: Query, in_use: InUse) -> Basis:
    """What the estimate of a metric rests on."""
    devices = seen_in_training(metric, "device", in_use)
    if not devices:
        return "analytic"
    return "measured" if query.device.name in devices else "transferred"


def _basis_of_kernels(
    families: Collection[str], device: Device, kernels: KnowsKernels | None
) -> Basis:
    """What is known of kernels of some families on a device."""
    if kernels is None or not families or not set(families) <= kernels.families.keys():
        return "analytic"
    here = all(kernels.measured(family, device) for family in families)
    return "measured" if here else "transferred"


def limited_by(
    query: Query,
    shares: Shares,
    memory: Iterable[PoolMemoryOut],
    in_flight: float,
    requests_per_s: float | None,
) -> str | None:
    """What bounds the rate of a deployment; None where that is not known.

    Args:
        query: the deployment and its device.
        shares: where the time goes.
        memory: memory of a device by phase.
        in_flight: requests that are in flight.
        requests_per_s: rate at which they are answered; None where it is not known.
    """
    arriving = query.deployment.load.requests_per_s
    if arriving is not None and (requests_per_s or 0.0) > KEPT_UP * arriving:
        return "arrival rate"
    if any(own.largest_concurrency < in_flight for own in memory if own.phase != "prefill"):
        return "cache capacity"
    return max(shares.bounds, key=lambda name: shares.bounds[name], default=None)


def _phases(query: Query, sequences: float, rates: Rates) -> dict[str, dict[str, float]]:
    """Phase -> part -> seconds, of one whole prompt and of one token of that many sequences."""
    deployment, load = query.deployment, query.deployment.load
    cached = load.cached_share * load.input_tokens
    tokens = max(1.0, load.input_tokens - cached)
    pairs = tokens * cached + tokens * (tokens + 1) / 2
    context = sequences * (load.input_tokens + load.output_tokens / 2)
    rows = ((tokens, 0.0), (pairs, 0.0), (1.0, 0.0), (0.0, sequences), (0.0, context))
    both = Iterations(*(np.array(row) for row in rows))
    parts = WorkerTime.of(deployment, query.device, rates=rates).parts(both)
    prompt = parts
    if deployment.prefill is not None:
        worker = WorkerTime.of(deployment, query.device, phase="prefill", rates=rates)
        prompt = worker.parts(both)
    return {
        "prefill": {part: float(column[0]) for part, column in prompt.items()},
        "decode": {part: float(column[1]) for part, column in parts.items()},
    }


def _shares(seconds: Mapping[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {part: own / total if total > 0 else 0.0 for part, own in seconds.items()}
