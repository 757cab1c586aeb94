"""Breaks down the time of a deployment, names its bottleneck and what each estimate rests on."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Column, groups_of
from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.features.llm_kernels.deployed import families_of
from forerun.features.llm_serving.comparable import setup_of
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.memory import PoolMemory
from forerun.features.llm_serving.step import PARTS, WorkerTime
from forerun.models.answers.deployments.metrics import seen_in_training, sources_of
from forerun.models.answers.served_models import InUse
from forerun.models.catalog import training_datasets
from forerun.models.limit import Basis
from forerun.models.llm_serving import LlmLatency
from forerun.models.router import Router

Foundation = tuple[Basis, str]
"""Basis of a part's estimated time, and the reason."""
_Phases = Mapping[str, Mapping[str, Column]]
"""Phase -> part -> seconds, shape (n,)."""

APART: Final[Mapping[str, tuple[str, ...]]] = {
    "collectives": ("messages", "synchronisation"),
    "host": ("launches", "host"),
}
"""Bottleneck -> the parts of an iteration that are neither memory bandwidth nor arithmetic."""
REASONS: Final[Mapping[Basis, str]] = {
    "measured": "such runs on this device are in the training set",
    "transferred": "such runs on other devices are in the training set",
    "analytic": "closed form from the spec sheet; no such run is in the training set",
}
KERNELS: Final[Mapping[Basis, str]] = {
    "measured": "such kernels ({}) were measured on this device; their share is in closed form",
    "transferred": "such kernels ({}) were measured on other devices",
}
"""As `REASONS`, where kernels rather than whole runs were measured."""
BY_METRIC: Final = {"memory": "peak_memory_mib", "power": "power_w"}
"""Parts of an answer outside the iteration -> their metric."""
ORDER: Final[tuple[Basis, ...]] = ("measured", "transferred", "analytic")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the work and the basis of its estimate.

    Attributes:
        name: products, experts, prefill_attention, decode_attention, collectives, host, memory or
            power.
        basis: basis of the estimate.
        reason: one sentence that explains the basis.
        prefill_share: share of the prefill time, 0 to 1; None for memory and power.
        decode_share: share of the time per output token, 0 to 1; None for memory and power.
    """

    name: str
    basis: Basis
    reason: str
    prefill_share: float | None
    decode_share: float | None


@dataclass(frozen=True, slots=True)
class Shares:
    """Breakdown of the time of a request.

    Attributes:
        prefill: part -> share of the prefill time; empty if unknown.
        decode: part -> share of the time per output token.
        bounds: memory bandwidth, arithmetic, collectives or host -> seconds over a whole request.
    """

    prefill: Mapping[str, float]
    decode: Mapping[str, float]
    bounds: Mapping[str, float]


def shares_of(queries: Sequence[Query], in_flight: Sequence[float]) -> list[Shares]:
    """Breakdown of the time of n deployments by the analytical model.

    Deployments that differ only in load are computed in one vectorised pass.

    Args:
        queries: n deployments and their devices.
        in_flight: concurrent requests of each.
    """
    shares: dict[int, Shares] = {}
    for rows in groups_of(map(setup_of, queries)).values():
        alike = [queries[row] for row in rows]
        if alike[0].device.kind == "cpu":
            # The analytical breakdown covers GPUs only.
            shares |= dict.fromkeys(rows, Shares({}, {}, {}))
            continue
        sequences = np.array(
            [_at_once(query, in_flight[row]) for query, row in zip(alike, rows, strict=True)]
        )
        try:
            with np.errstate(all="ignore"):
                whole, faster = (_phases(alike, sequences, memory) for memory in (1.0, 2.0))
        except InputError:
            shares |= dict.fromkeys(rows, Shares({}, {}, {}))
            continue
        tokens = np.array([query.deployment.load.output_tokens for query in alike]) / sequences
        shares |= zip(rows, _shares(whole, faster, tokens), strict=True)
    return [shares[row] for row in range(len(queries))]


def _at_once(query: Query, in_flight: float) -> float:
    """Sequences that one rank decodes concurrently."""
    deployment, pool = query.deployment, query.deployment.pool
    at_once = in_flight / (pool.workers * pool.parallelism.attention_data)
    return min(max(1.0, at_once), deployment.engine.max_sequences or np.inf)


def _shares(whole: _Phases, faster: _Phases, tokens: Column) -> list[Shares]:
    """Shares and bottlenecks of n deployments.

    Args:
        whole: phase -> part -> seconds, shape (n,).
        faster: the same with twice the memory bandwidth.
        tokens: output tokens per request over the decoding batch, shape (n,).
    """
    by_part = {part: whole["prefill"][part] + tokens * whole["decode"][part] for part in PARTS}
    memory = sum(
        2.0 * (by_part[part] - faster["prefill"][part] - tokens * faster["decode"][part])
        for part in PARTS
    )
    bounds = {"memory bandwidth": np.asarray(memory)}
    for bound, parts in APART.items():
        bounds[bound] = np.asarray(sum(by_part[part] for part in parts))
    every = np.asarray(sum(by_part.values()))
    bounds["arithmetic"] = every - np.asarray(sum(bounds.values()))
    phases = (_of_total(whole["prefill"]), _of_total(whole["decode"]), bounds)
    rows = ([dict(zip(columns, row, strict=True)) for row in _rows(columns)] for columns in phases)
    return [Shares(*row) for row in zip(*rows, strict=True)]


def _of_total(seconds: Mapping[str, Column]) -> dict[str, Column]:
    """Each part's share of their sum; 0 where the sum is 0."""
    total = np.asarray(sum(seconds.values()))
    return {part: column / np.where(total > 0, total, np.inf) for part, column in seconds.items()}


def _rows(columns: Mapping[str, Column]) -> list[list[float]]:
    """The columns transposed to rows."""
    rows: list[list[float]] = np.column_stack(list(columns.values())).tolist()
    return rows


def foundations_of(query: Query, in_use: InUse) -> dict[str, Foundation]:
    """Part of an iteration -> basis of its time and the reason; also for memory and power.

    Args:
        query: the deployment and its device; its load does not matter.
        in_use: the predictor in use, whose training record lists the measurements.
    """
    of_runs = basis_of("tpot_ms", query, in_use)
    families = families_of(query.deployment)
    found = dict.fromkeys(PARTS, (of_runs, REASONS[of_runs]))
    for part, names in families.items():
        of_kernels = _basis_of_kernels(names, query.device, in_use)
        if ORDER.index(of_kernels) < ORDER.index(of_runs):
            found[part] = of_kernels, KERNELS[of_kernels].format(", ".join(sorted(names)))
    for part, metric in BY_METRIC.items():
        basis = basis_of(metric, query, in_use)
        found[part] = basis, REASONS[basis]
    return found


def parts_of(
    shares: Shares, foundations: Mapping[str, Foundation], metrics: Collection[str]
) -> list[Part]:
    """The parts of the work with their shares of prefill and decode time.

    Args:
        shares: breakdown of the time.
        foundations: result of `foundations_of`.
        metrics: estimated metrics; memory and power are included only if theirs are.
    """
    parts = [
        Part(
            name=name,
            basis=foundations[name][0],
            reason=foundations[name][1],
            prefill_share=shares.prefill[name],
            decode_share=shares.decode[name],
        )
        for name in shares.decode
        if max(shares.prefill[name], shares.decode[name]) > 0
    ]
    for name, metric in BY_METRIC.items():
        if metric in metrics:
            basis, reason = foundations[name]
            parts.append(
                Part(name=name, basis=basis, reason=reason, prefill_share=None, decode_share=None)
            )
    return parts


def basis_of(metric: str, query: Query, in_use: InUse) -> Basis:
    """Basis of the estimate of a metric."""
    asked = in_use.loaded.predictor
    part = asked.answering(query, metric) if isinstance(asked, Router) else asked
    if isinstance(part, LlmLatency):
        return "measured" if part.has_runs(query) else "analytic"
    devices = seen_in_training(metric, "device", in_use, sources_of(query, in_use))
    if not devices:
        return "analytic"
    return "measured" if query.device.name in devices else "transferred"


def _basis_of_kernels(families: Collection[str], device: Device, in_use: InUse) -> Basis:
    """Basis of the estimate for kernels of the given families on a device."""
    records = [in_use.loaded.record.seen(name) for name in training_datasets("llm_kernels")]
    measured = [
        record.get("device", ())
        for record in records
        if families and all(_is_among(family, record.get("part", ())) for family in families)
    ]
    if not measured:
        return "analytic"
    return "measured" if any(device.name in names for names in measured) else "transferred"


def _is_among(family: str, parts: Iterable[str]) -> bool:
    """Whether a kernel family occurs among a dataset's parts, which may include an engine name."""
    return any(part == family or part.startswith(f"{family}/") for part in parts)


def limited_by(
    shares: Shares, memory: Iterable[PoolMemory], in_flight: float, *, kept_up: bool
) -> str | None:
    """The bottleneck of a deployment's rate; None if unknown.

    Args:
        shares: breakdown of the time.
        memory: memory of a device per phase.
        in_flight: requests in flight.
        kept_up: whether requests arrive at a rate and are answered as they arrive.
    """
    if kept_up:
        return "arrival rate"
    if any(pool.largest_concurrency < in_flight for pool in memory if pool.phase != "prefill"):
        return "cache capacity"
    return max(shares.bounds, key=lambda name: shares.bounds[name], default=None)


def _phases(queries: Sequence[Query], sequences: Column, memory: float) -> _Phases:
    """Phase -> part -> seconds of a whole prompt, and of one token per sequence, shape (n,).

    Args:
        queries: n deployments that differ only in load.
        sequences: sequences decoded concurrently by each, shape (n,).
        memory: factor on the achieved memory bandwidth.
    """
    loads = [query.deployment.load for query in queries]
    given, answer, shared = np.array(
        [(load.input_tokens, load.output_tokens, load.cached_share) for load in loads], float
    ).T
    cached = shared * given
    tokens = np.maximum(1.0, given - cached)
    pairs = tokens * cached + tokens * (tokens + 1) / 2
    context = sequences * (given + answer / 2)
    none, unit = np.zeros(len(queries)), np.ones(len(queries))
    prompts = Iterations(tokens, pairs, unit, none, none)
    decodes = Iterations(none, none, none, sequences, context)
    deployment, device = queries[0].deployment, queries[0].device
    decode, prefill = (
        WorkerTime.of(deployment, device, phase=phase).with_memory(memory)
        for phase in ("decode", "prefill")
    )
    of_tokens, of_prompts = decode.parts_with([decodes], prefill, [prompts])
    return {"prefill": of_prompts, "decode": of_tokens}
