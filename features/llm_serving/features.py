"""Deployments as rows: parts of their times in closed form, and features of the correction.

Names of devices, models and releases are never features. `SHAPE` has ratios and lengths that carry
over to another device or model; `FIGURES` has sizes of the device, the model and the engine's
release, which only tell those of the training set apart.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Columns, Matrix, groups_of
from forerun.data.language_models.deployment import Engine, LlmDeployment, RequestLoad
from forerun.data.language_models.weights import BYTES
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import at_any_load
from forerun.features.llm_serving.operators import parameter_counts
from forerun.features.llm_serving.steady_state import (
    AnyLoad,
    SteadyStates,
    tokens_per_iteration,
)
from forerun.features.llm_serving.step import PARTS
from forerun.features.recent import Recent

ENGINES: Final = ("vllm", "sglang", "trtllm")
SHAPE: Final = (
    *(f"decode_share_{part}" for part in PARTS),
    *(f"prefill_share_{part}" for part in PARTS),
    *("log_sequences", "log_in_flight", "busy", "log_prefill_over_decode", "interference"),
    *("log_input_tokens", "log_output_tokens", "log_input_over_output", "log_attention_data"),
    *("log_tensor", "log_prefill_ranks", "log_chunks", "held", "log_waiting", "apart", *ENGINES),
)
FIGURES: Final = (
    *("log_decode_s", "log_prefill_s", "log_concurrency", "release", "log_bandwidth", "log_peak"),
    *("log_memory", "log_power", "log_active_parameters", "log_parameters", "log_hidden_size"),
    *("layers", "log_cache_bytes", "dense_bytes", "expert_bytes", "log_expert", "log_devices"),
    *("log_pool_devices", "log_prefill_devices", "log_workers", "log_prefill_tensor"),
)
FIRST_MS: Final = 0.01
SERVER_S: Final = 0.010
"""Part of the time to the first token that is spent outside of the engine (connection, tokens of
the text, streams), seconds; 6 to 21 ms in 30 runs of vLLM in `apex`."""
FEWEST_TOGETHER: Final = 4.0
"""Requests in flight from which on those of a closed loop start together as in measured runs."""
FEWEST_TOKENS: Final = 100.0
"""Tokens of an answer from which on runs were measured."""
_RELEASE: Final = re.compile(
    r"(\d+)\.(\d+)(?:\.(\d+))?(?:[.-]?rc(\d+))?(?:\.pre\d+)?(?:[.-]?post(\d+))?"
)
_CANDIDATES: Final = 50
"""Candidates of a release that are told apart, and later patches of one."""


@dataclass(frozen=True, slots=True)
class DeploymentRows(Columns):
    """n deployments.

    Attributes:
        decode: (n, parts) seconds of an iteration of decoding, in the order of `PARTS`.
        accepted: (n,) tokens that a sequence gains in it, 1 without drafted tokens.
        prefill: (n, parts) further seconds for one prompt.
        per_token: (n,) prompts processed for each token of a request, on the same workers.
        burst: (n,) prompts that a request of a closed loop waits for when all start together.
        waiting: (n,) seconds of queueing of arrivals that are independent.
        chunks: (n,) iterations that a prompt is divided over.
        service: (n,) seconds to the first token without queueing, with `SERVER_S`.
        together: (n,) how far prompts start together and are held up by decoding as in the closed
            loops that were measured: 0 for Poisson arrivals, for one request in flight and for
            answers of one token, 1 from `FEWEST_TOGETHER` requests and `FEWEST_TOKENS` on.
        shape: (n, features) as in `SHAPE`.
        figures: (n, features) as in `FIGURES`.
        engine: (n, engines) 1 for the engine of the deployment, in the order of `ENGINES`.
        apart: (n,) 1 where prompts have workers of their own, else 0.
    """

    decode: Matrix
    accepted: Column
    prefill: Matrix
    per_token: Column
    burst: Column
    waiting: Column
    chunks: Column
    service: Column
    together: Column
    shape: Matrix
    figures: Matrix
    engine: Matrix
    apart: Column

    @classmethod
    def of(cls, queries: Sequence[Query]) -> tuple[Self, list["State"]]:
        """Rows of n deployments, and the state of each in closed form.

        Deployments that differ in the number or rate of requests alone are computed in one pass.

        Raises:
            UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
        """
        groups = groups_of(map(at_any_load, queries))
        order = np.argsort([row for rows in groups.values() for row in rows])
        tables, states = [], []
        for rows in groups.values():
            first = queries[rows[0]]
            any_load, figures = _any_load(first)
            found = any_load.at(*_loads([queries[row] for row in rows]))
            loads = [queries[row].deployment.load for row in rows]
            tables.append(_rows(first, loads, found, figures))
            flags = zip(found.overload.tolist(), found.held.tolist(), strict=True)
            states += [State(*own, found.fits) for own in flags]
        columns = (np.concatenate(parts)[order] for parts in zip(*tables, strict=True))
        return cls(*columns), [states[place] for place in order.tolist()]

    def __len__(self) -> int:
        return len(self.chunks)


class State(NamedTuple):
    """Whether requests of a deployment wait, and whether it fits; fields as in `SteadyState`."""

    overload: bool
    held: bool
    fits: bool


_ANY_LOAD: Final = Recent[tuple[Hashable, ...], tuple[AnyLoad, dict[str, float]]](2048)
"""Deployments that were computed last, with what `_figures` has of each."""


def _any_load(query: Query) -> tuple[AnyLoad, dict[str, float]]:
    common = at_any_load(query)
    found = _ANY_LOAD.get(common)
    if found is None:
        own = query.deployment
        found = AnyLoad.of(own, query.device), _figures(query, own)
        _ANY_LOAD.put(common, found)
    return found


def _loads(queries: Sequence[Query]) -> tuple[Column, Column]:
    """Numbers of requests in flight, and rates of arrivals, each (n,); NaN where not given."""
    loads = [query.deployment.load for query in queries]
    closed = [np.nan if load.concurrency is None else load.concurrency for load in loads]
    rates = [
        np.nan if load.concurrency is not None else load.requests_per_s or 0.0 for load in loads
    ]
    return np.array(closed, dtype=np.float64), np.array(rates, dtype=np.float64)


def _rows(
    query: Query,
    loads: Sequence[RequestLoad],
    states: SteadyStates,
    figures: Mapping[str, float],
) -> tuple[Column | Matrix, ...]:
    """The fields of `DeploymentRows` in their order, of one deployment with n loads.

    Args:
        query: the deployment with any load.
        loads: n loads, which differ in the number or rate of requests alone.
        states: its steady states with these.
        figures: what `_figures` has of it.
    """
    deployment, load, one = query.deployment, query.deployment.load, np.ones(len(loads))
    decode = np.column_stack([states.decode[part] for part in PARTS])
    prefill = np.column_stack([states.prefill[part] for part in PARTS])
    step, prompt = decode.sum(axis=1), np.maximum(prefill.sum(axis=1), 1e-9)
    pool = deployment.prefill or deployment.pool
    ranks = pool.workers * pool.parallelism.attention_data
    concurrency = np.array([own.concurrency or np.nan for own in loads])
    closed = np.array([own.concurrency is not None for own in loads])
    apart = deployment.prefill is not None
    at_once = np.fmax(concurrency, 1.0)
    in_flight = np.where(closed, at_once / ranks, 1.0 + states.others)
    output = max(load.output_tokens - 1.0, 1.0)
    per_token = 0.0 * one
    if not apart:
        per_token = states.others / output / deployment.pool.parallelism.pipeline
    named = {**figures, **_named(query, states, step, prompt, in_flight, per_token)}
    waiting_too = np.where(np.isnan(concurrency), 1.0 + states.others, concurrency)
    named["log_concurrency"] = np.log(np.maximum(waiting_too, 1.0))
    return (
        decode,
        tokens_per_iteration(deployment.engine) * one,
        prefill,
        per_token,
        np.where(closed, np.maximum(in_flight - 1.0, 0.0) / 2.0, 0.0),
        np.where(closed, np.minimum(states.waiting, 100.0 * prompt), states.waiting),
        states.iterations * one,
        states.service + SERVER_S,
        np.array([_together(own) for own in loads]),
        *(_columns(named, names, len(loads)) for names in (SHAPE, FIGURES, ENGINES)),
        named["apart"] * one,
    )


def _columns(named: Mapping[str, Column | float], names: Sequence[str], count: int) -> Matrix:
    """Columns of these names, each of which has one value or n, (n, columns)."""
    found = np.empty((count, len(names)))
    for place, name in enumerate(names):
        found[:, place] = named[name]
    return found


def _together(load: RequestLoad) -> float:
    """As `DeploymentRows.together`."""
    others = max((load.concurrency or 1.0) - 1.0, 0.0)
    tokens = np.log(max(load.output_tokens, 1.0)) / np.log(FEWEST_TOKENS)
    return min(others / (FEWEST_TOGETHER - 1.0), 1.0) * min(float(tokens), 1.0)


def _named(
    query: Query,
    states: SteadyStates,
    step: Column,
    prompt: Column,
    in_flight: Column,
    per_token: Column,
) -> dict[str, Column | float]:
    """Feature -> values of n loads, or one value of all of them."""
    deployment, load = query.deployment, query.deployment.load
    split, pool = deployment.pool.parallelism, deployment.prefill or deployment.pool
    found: dict[str, Column | float] = {}
    found |= {f"decode_share_{part}": value / step for part, value in states.decode.items()}
    found |= {f"prefill_share_{part}": value / prompt for part, value in states.prefill.items()}
    found |= {engine: float(deployment.engine.name == engine) for engine in ENGINES}
    logs: dict[str, Column | float] = {
        "sequences": 1.0 + states.others,
        "in_flight": 1.0 + in_flight,
        "prefill_over_decode": prompt / step,
        "interference": 1.0 + per_token * prompt / step,
        "input_tokens": load.input_tokens,
        "output_tokens": load.output_tokens,
        "input_over_output": load.input_tokens / load.output_tokens,
        "attention_data": split.attention_data,
        "tensor": split.tensor,
        "prefill_ranks": pool.workers * pool.parallelism.attention_data,
        "chunks": states.iterations,
        "waiting": 1e-4 + states.waiting,
        "decode_s": step,
        "prefill_s": prompt,
        "expert": split.expert,
        "devices": deployment.devices,
        "pool_devices": split.devices,
        "prefill_devices": pool.parallelism.devices,
        "prefill_tensor": pool.parallelism.tensor,
        "workers": deployment.pool.workers,
    }
    found |= {f"log_{name}": np.log(value) for name, value in logs.items()}
    found |= {"busy": states.busy, "held": states.held.astype(np.float64)}
    found["interference"] = per_token * prompt / step
    found["apart"] = float(deployment.prefill is not None)
    return found


def _figures(query: Query, deployment: LlmDeployment) -> dict[str, float]:
    """Sizes of the device, the model and the engine's release."""
    device, model = query.device, deployment.model
    form = model.formats.of_layer(len(model.layers) - 1)
    logs = {
        "bandwidth": device.bandwidth_gbs,
        "peak": device.peak("bf16"),
        "memory": device.memory_gib or np.nan,
        "power": device.tdp_w or np.nan,
        "active_parameters": parameter_counts(model)[1],
        "parameters": parameter_counts(model)[0],
        "hidden_size": model.hidden_size,
        "cache_bytes": model.cache_bytes(1024),
    }
    found = {f"log_{name}": float(np.log(value)) for name, value in logs.items()}
    return found | {
        "release": release(deployment.engine),
        "layers": float(len(model.layers)),
        "dense_bytes": BYTES[form.mixer],
        "expert_bytes": BYTES[form.experts],
    }


def release(engine: Engine) -> float:
    """The engine's release as one number that rises with it; NaN where it is not known.

    Candidates (`1.2.0rc6`) come before their release, and patches of either (`post2`) after it.
    """
    found = _RELEASE.match(engine.version)
    if found is None:
        return float("nan")
    major, minor, patch = (float(part or 0) for part in found.groups()[:3])
    candidate, post = found.groups()[3:]
    later = min(float(post or 0), _CANDIDATES - 1.0) / _CANDIDATES
    if candidate is not None:
        later += min(float(candidate), _CANDIDATES - 1.0) - _CANDIDATES
    return major * 1e4 + minor * 1e2 + patch + later / (2.0 * _CANDIDATES)
