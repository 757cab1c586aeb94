"""Deployments as rows: parts of their times in closed form, and features of the correction.

Names of devices, models and releases are never features. `SHAPE` has ratios and lengths that carry
over to another device or model; `FIGURES` has sizes of the device, the model and the engine's
release, which only tell those of the training set apart.

Longer prompts may raise or lower features of `STEADY`. Of the others, they raise those of `RISING`
and leave all else.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import log
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Columns, Matrix, groups_of
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.language_models.weights import BYTES
from forerun.data.query import Query
from forerun.features.caches import Recent
from forerun.features.llm_serving.any_load import AnyLoad, WorkerOf
from forerun.features.llm_serving.comparable import alike_at_any_load, in_step, setup_of
from forerun.features.llm_serving.engine_settings import mixes, tokens_per_iteration
from forerun.features.llm_serving.operators import parameter_counts
from forerun.features.llm_serving.releases import release
from forerun.features.llm_serving.steady_state import SteadyStates
from forerun.features.llm_serving.step import PARTS, WorkerTime

ENGINES: Final = ("vllm", "sglang", "trtllm")
STEADY: Final = (
    *(f"decode_share_{part}" for part in PARTS),
    *(f"prefill_share_{part}" for part in PARTS),
    *("log_sequences", "busy", "log_prefill_over_decode", "interference"),
    *("log_input_over_output", "log_chunks", "held", "log_waiting"),
)
RISING: Final = ("log_input_tokens", "log_prefill_s")
SHAPE: Final = (
    *STEADY,
    *("log_in_flight", "log_input_tokens", "log_output_tokens", "log_attention_data"),
    *("log_tensor", "log_prefill_ranks", "apart", *ENGINES),
)
FIGURES: Final = (
    *("log_prefill_s", "log_concurrency", "release", "log_bandwidth", "log_peak"),
    *("log_memory", "log_power", "log_active_parameters", "log_parameters", "log_hidden_size"),
    *("layers", "log_cache_bytes", "dense_bytes", "expert_bytes", "log_expert", "log_devices"),
    *("log_pool_devices", "log_prefill_devices", "log_workers", "log_prefill_tensor"),
)
FIRST_MS: Final = 0.01
SERVER_S: Final = 0.009
"""Part of the time to the first token that is spent outside of the engine (connection, tokens of
the text, streams), seconds; 2 to 17 ms in 30 runs of vLLM in `apex`."""
FEWEST_TOGETHER: Final = 4.0
"""Requests in flight from which on those of a closed loop start together as in measured runs."""
FEWEST_TOKENS: Final = 100.0
"""Tokens of an answer from which on runs were measured."""


@dataclass(frozen=True, slots=True)
class DeploymentRows(Columns):
    """n deployments.

    Attributes:
        decode: (n, parts) seconds of an iteration of decoding, in the order of `PARTS`.
        accepted: (n,) tokens that a sequence gains in it, 1 without drafted tokens.
        prefill: (n, parts) further seconds for one prompt.
        per_token: (n,) prompts processed for each token of a request, on the same workers.
        own: (n,) seconds of the prompts that share its iterations.
        burst: (n,) prompts that a request of a closed loop waits for when all start together.
        wave: (n,) share of the requests that start so.
        waiting: (n,) seconds of queueing, but for prompts that all start together.
        chunks: (n,) iterations that a prompt is divided over, where they decode others as well or
            workers that decode come after; else 0.
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
    own: Column
    burst: Column
    wave: Column
    waiting: Column
    chunks: Column
    service: Column
    together: Column
    shape: Matrix
    figures: Matrix
    engine: Matrix
    apart: Column

    @classmethod
    def of(
        cls, queries: Sequence[Query], worker_of: WorkerOf = WorkerTime.of
    ) -> tuple[Self, list["State"]]:
        """Rows of n deployments, and the state of each in closed form.

        Grids of deployments that differ in lengths alone are computed in one pass, and kept: those
        of others that differ in the number or rate of requests are the same.

        Args:
            queries: deployments on devices.
            worker_of: gives the times of iterations of their workers.

        Raises:
            UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
        """
        groups = alike_at_any_load(queries)
        which = np.empty(len(queries), dtype=np.intp)
        for place, rows in enumerate(groups.values()):
            which[rows] = place
        firsts = [queries[rows[0]] for rows in groups.values()]
        known = _any_loads(list(groups), firsts, worker_of)
        loads = [query.deployment.load for query in queries]
        concurrency = np.array([load.concurrency for load in loads], dtype=np.float64)
        rates = np.array([load.requests_per_s or 0.0 for load in loads])
        arriving = np.where(np.isnan(concurrency), rates, np.nan)
        found = SteadyStates.of([own for own, _ in known], which, concurrency, arriving)
        fixed = np.array([list(own.values()) for _, own in known])[which].T
        named = dict(zip(known[0][1], fixed, strict=True))
        flags = (found.overload.tolist(), found.fits.tolist())
        states = [State(*own) for own in zip(*flags, strict=True)]
        return cls(*_rows(named, concurrency, found)), states

    def __len__(self) -> int:
        return len(self.chunks)


class State(NamedTuple):
    """Whether a deployment keeps up, and whether it fits; fields as in `SteadyStates`."""

    overload: bool
    fits: bool


_ANY_LOAD: Final = Recent[tuple[Hashable, ...], tuple[AnyLoad, dict[str, float]]](2048)
"""Deployments that were computed last, with what `_fixed` has of each."""


def _any_loads(
    keys: Sequence[tuple[Hashable, ...]], queries: Sequence[Query], worker_of: WorkerOf
) -> list[tuple[AnyLoad, dict[str, float]]]:
    """Each of k deployments with any load, and what is fixed of it.

    Args:
        keys: `at_any_load` of each.
        queries: the deployments and their devices.
        worker_of: as in `DeploymentRows.of`.
    """

    def compute(places: list[int]) -> list[tuple[AnyLoad, dict[str, float]]]:
        found: dict[int, tuple[AnyLoad, dict[str, float]]] = {}
        kinds = (
            (setup_of(own), in_step(own.deployment)) for own in map(queries.__getitem__, places)
        )
        for same in groups_of(kinds).values():
            rows = [places[number] for number in same]
            deployments = [queries[row].deployment for row in rows]
            every = AnyLoad.of_each(deployments, queries[rows[0]].device, worker_of)
            shared = _fixed_of_setup(queries[rows[0]])
            for row, own in zip(rows, every, strict=True):
                found[row] = own, shared | _fixed(queries[row].deployment, own)
        return [found[place] for place in places]

    if worker_of != WorkerTime.of:
        return compute([*range(len(keys))])
    return _ANY_LOAD.of_each(keys, compute)


def _rows(
    named: dict[str, Column], concurrency: Column, states: SteadyStates
) -> tuple[Column | Matrix, ...]:
    """The fields of `DeploymentRows` in their order, of n deployments.

    Args:
        named: what `_fixed` and `_fixed_of_setup` have of them, by name.
        concurrency: (n,) requests in flight; NaN where they arrive at a rate of their own.
        states: their steady states.
    """
    decode = np.column_stack([states.decode[part] for part in PARTS])
    prefill = np.column_stack([states.prefill[part] for part in PARTS])
    step, prompt = decode.sum(axis=1), np.maximum(prefill.sum(axis=1), 1e-9)
    closed, at_once = ~np.isnan(concurrency), np.fmax(concurrency, 1.0)
    in_flight = np.where(closed, at_once / named["prefill_ranks"], 1.0 + states.others)
    per_token = states.met * named["prompts_of_others"]
    burst = np.where(closed, np.maximum(in_flight - states.batch, 0.0) / 2.0, 0.0)
    wave = np.where(states.held, 0.0, states.together * burst * prompt)
    named |= {f"decode_share_{part}": value / step for part, value in states.decode.items()}
    named |= {f"prefill_share_{part}": value / prompt for part, value in states.prefill.items()}
    logs = {
        "sequences": 1.0 + states.others,
        "in_flight": 1.0 + in_flight,
        "prefill_over_decode": prompt / step,
        "waiting": 1e-4 + states.waiting,
        "prefill_s": prompt,
        "concurrency": np.maximum(np.where(closed, concurrency, 1.0 + states.others), 1.0),
    }
    named |= {f"log_{name}": np.log(value) for name, value in logs.items()}
    named |= {"busy": states.busy, "held": states.held.astype(np.float64)}
    named["interference"] = per_token * prompt / step
    together = np.minimum((at_once - 1.0) / (FEWEST_TOGETHER - 1.0), 1.0)
    return (
        decode,
        named["accepted"],
        prefill,
        per_token,
        states.own,
        burst,
        states.together,
        np.maximum(states.waiting - wave, 0.0),
        states.iterations * named["decoded_with"],
        states.service + SERVER_S,
        together * named["long_answers"],
        *(np.column_stack([named[name] for name in names]) for names in (SHAPE, FIGURES, ENGINES)),
        named["apart"],
    )


def _fixed(deployment: LlmDeployment, any_load: AnyLoad) -> dict[str, float]:
    """What follows from the lengths of requests of a deployment with any load.

    `prompts_of_others` are those that workers process for each token of a request and each other
    sequence; `long_answers` is how far answers are as long as in measured runs.
    """
    given, answer = deployment.load.input_tokens, deployment.load.output_tokens
    stages, prompts_of_others = deployment.pool.parallelism.pipeline, 0.0
    if deployment.prefill is None:
        prompts_of_others = 1.0 / any_load.answer_tokens / stages
    return {
        "prompts_of_others": prompts_of_others,
        "long_answers": min(log(max(answer, 1.0)) / log(FEWEST_TOKENS), 1.0),
        "log_input_tokens": log(given),
        "log_output_tokens": log(answer),
        "log_input_over_output": log(given / answer),
        "log_chunks": log(any_load.iterations),
    }


def _fixed_of_setup(query: Query) -> dict[str, float]:
    """What follows from the model, the engine, the pools and the device of a deployment."""
    deployment, device, model = query.deployment, query.device, query.deployment.model
    split, pool = deployment.pool.parallelism, deployment.prefill or deployment.pool
    prefill_ranks = pool.workers * pool.parallelism.attention_data
    form = model.formats.of_layer(len(model.layers) - 1)
    total, active = parameter_counts(model)
    logs = {
        "attention_data": split.attention_data,
        "tensor": split.tensor,
        "prefill_ranks": prefill_ranks,
        "expert": split.expert,
        "devices": deployment.devices,
        "pool_devices": split.devices,
        "prefill_devices": pool.parallelism.devices,
        "prefill_tensor": pool.parallelism.tensor,
        "workers": deployment.pool.workers,
        "bandwidth": device.bandwidth_gbs,
        "peak": device.peak("bf16"),
        "memory": device.memory_gib or np.nan,
        "power": device.tdp_w or np.nan,
        "active_parameters": active,
        "parameters": total,
        "hidden_size": model.hidden_size,
        "cache_bytes": model.cache_bytes(1024),
    }
    found = {f"log_{name}": float(np.log(value)) for name, value in logs.items()}
    found |= {engine: float(deployment.engine.name == engine) for engine in ENGINES}
    return found | {
        "prefill_ranks": float(prefill_ranks),
        "apart": float(deployment.prefill is not None),
        "decoded_with": float(deployment.prefill is not None or mixes(deployment.engine)),
        "accepted": tokens_per_iteration(deployment.engine),
        "release": release(deployment.engine),
        "layers": float(len(model.layers)),
        "dense_bytes": BYTES[form.mixer],
        "expert_bytes": BYTES[form.experts],
    }
