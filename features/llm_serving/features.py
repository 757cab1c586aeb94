"""Feature rows of deployments: closed-form times by part, and features of the residual correction.

Names of devices, models and releases are never features. `SHAPE` holds ratios and lengths that
transfer to other devices and models. `FIGURES` holds sizes of the device and model, and the
engine's release, which only serve to recognise those of the training set.

Longer prompts may raise or lower the features in `STEADY`. They raise those in `RISING` and leave
all others unchanged.
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
"""Part of the time to first token spent outside of the engine (connection, tokenisation,
streaming), seconds; 2 to 17 ms in 30 runs of vLLM in `apex`."""
FEWEST_TOGETHER: Final = 4.0
"""Concurrency from which closed-loop requests start together as much as in measured runs."""
FEWEST_TOKENS: Final = 100.0
"""Shortest answers of measured runs, tokens."""


@dataclass(frozen=True, slots=True)
class DeploymentRows(Columns):
    """Features and closed-form times of n deployments.

    Attributes:
        decode: (n, parts) seconds of a decode iteration, in the order of `PARTS`.
        accepted: (n,) tokens that a sequence gains per iteration, 1 without speculative decoding.
        prefill: (n, parts) seconds that one prompt adds.
        per_token: (n,) prompts processed per output token of a request, on the same workers.
        batch_prefill: (n,) prefill seconds of the batch that a request's own prompt is in.
        burst: (n,) prompts that a closed-loop request waits for when all start together.
        wave: (n,) share of the requests that start together.
        waiting: (n,) queueing delay, seconds, excluding that of prompts that all start together.
        chunks: (n,) iterations that a prompt is split over if its iterations also decode or prefill
            is disaggregated; else 0.
        service: (n,) time to first token without queueing, seconds, including `SERVER_S`.
        together: (n,) how closely the load resembles the measured closed loops, whose prompts start
            together and wait for decode: 0 for Poisson arrivals, for a concurrency of 1 and for
            answers of one token, 1 from `FEWEST_TOGETHER` requests and `FEWEST_TOKENS` tokens.
        shape: (n, features) as in `SHAPE`.
        figures: (n, features) as in `FIGURES`.
        engine: (n, engines) one-hot encoding of the engine, in the order of `ENGINES`.
        apart: (n,) 1 for disaggregated prefill, else 0.
    """

    decode: Matrix
    accepted: Column
    prefill: Matrix
    per_token: Column
    batch_prefill: Column
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
        """Rows of n deployments, and the closed-form state of each.

        Grids of deployments that differ only in lengths are computed in one pass. They are cached,
        because deployments that differ only in concurrency or arrival rate share a grid.

        Args:
            queries: deployments on devices.
            worker_of: returns the iteration times of their workers.

        Raises:
            UnknownBandwidth, UnknownPrecision: a device's spec sheet lacks a figure.
        """
        groups = alike_at_any_load(queries)
        which = np.empty(len(queries), dtype=np.intp)
        for group, rows in enumerate(groups.values()):
            which[rows] = group
        firsts = [queries[rows[0]] for rows in groups.values()]
        any_loads = _any_loads(list(groups), firsts, worker_of)
        loads = [query.deployment.load for query in queries]
        concurrency = np.array([load.concurrency for load in loads], dtype=np.float64)
        rates = np.array([load.requests_per_s or 0.0 for load in loads])
        arriving = np.where(np.isnan(concurrency), rates, np.nan)
        grids = [any_load for any_load, _ in any_loads]
        steady = SteadyStates.of(grids, which, concurrency, arriving)
        fixed = np.array([list(features.values()) for _, features in any_loads])[which].T
        named = dict(zip(any_loads[0][1], fixed, strict=True))
        flags = zip(steady.overload.tolist(), steady.fits.tolist(), strict=True)
        states = [State(*pair) for pair in flags]
        return cls(*_rows(named, concurrency, steady)), states

    def __len__(self) -> int:
        return len(self.chunks)


class State(NamedTuple):
    """Whether a deployment is overloaded and whether it fits in memory, as in `SteadyStates`."""

    overload: bool
    fits: bool


_ANY_LOAD: Final = Recent[tuple[Hashable, ...], tuple[AnyLoad, dict[str, float]]](2048)
"""Cache of recent deployments at any load, each with its features that do not depend on load."""


def _any_loads(
    keys: Sequence[tuple[Hashable, ...]], queries: Sequence[Query], worker_of: WorkerOf
) -> list[tuple[AnyLoad, dict[str, float]]]:
    """Each of k deployments at any load, and its features that do not depend on load.

    Args:
        keys: `at_any_load` of each.
        queries: the deployments and their devices.
        worker_of: as in `DeploymentRows.of`.
    """

    def compute(places: list[int]) -> list[tuple[AnyLoad, dict[str, float]]]:
        computed: dict[int, tuple[AnyLoad, dict[str, float]]] = {}
        kinds = (
            (setup_of(one), in_step(one.deployment)) for one in map(queries.__getitem__, places)
        )
        for group in groups_of(kinds).values():
            rows = [places[number] for number in group]
            deployments = [queries[row].deployment for row in rows]
            grids = AnyLoad.of_each(deployments, queries[rows[0]].device, worker_of)
            shared = _fixed_of_setup(queries[rows[0]])
            for row, grid in zip(rows, grids, strict=True):
                computed[row] = grid, shared | _fixed(queries[row].deployment, grid)
        return [computed[place] for place in places]

    if worker_of != WorkerTime.of:
        return compute([*range(len(keys))])
    return _ANY_LOAD.of_each(keys, compute)


def _rows(
    named: dict[str, Column], concurrency: Column, states: SteadyStates
) -> tuple[Column | Matrix, ...]:
    """The fields of `DeploymentRows`, in order, for n deployments.

    Args:
        named: features from `_fixed` and `_fixed_of_setup`, by name.
        concurrency: (n,) requests in flight; NaN for open-loop loads.
        states: their steady states.
    """
    decode = np.column_stack([states.decode[part] for part in PARTS])
    prefill = np.column_stack([states.prefill[part] for part in PARTS])
    step, prompt = decode.sum(axis=1), np.maximum(prefill.sum(axis=1), 1e-9)
    closed, at_once = ~np.isnan(concurrency), np.fmax(concurrency, 1.0)
    in_flight = np.where(closed, at_once / named["prefill_ranks"], 1.0 + states.others)
    per_token = states.interfering * named["prompts_of_others"]
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
        states.batch_prefill,
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
    """Features that follow from the request lengths of a deployment at any load.

    `prompts_of_others` is the number of prompts that workers process per output token and other
    sequence. `long_answers` rises from 0 to 1 as answers get as long as in measured runs.
    """
    prompt, answer = deployment.load.input_tokens, deployment.load.output_tokens
    stages, prompts_of_others = deployment.pool.parallelism.pipeline, 0.0
    if deployment.prefill is None:
        prompts_of_others = 1.0 / any_load.answer_tokens / stages
    return {
        "prompts_of_others": prompts_of_others,
        "long_answers": min(log(max(answer, 1.0)) / log(FEWEST_TOKENS), 1.0),
        "log_input_tokens": log(prompt),
        "log_output_tokens": log(answer),
        "log_input_over_output": log(prompt / answer),
        "log_chunks": log(any_load.iterations),
    }


def _fixed_of_setup(query: Query) -> dict[str, float]:
    """Features that follow from the model, engine, pools and device of a deployment."""
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
    features = {f"log_{name}": float(np.log(value)) for name, value in logs.items()}
    features |= {engine: float(deployment.engine.name == engine) for engine in ENGINES}
    return features | {
        "prefill_ranks": float(prefill_ranks),
        "apart": float(deployment.prefill is not None),
        "decoded_with": float(deployment.prefill is not None or mixes(deployment.engine)),
        "accepted": tokens_per_iteration(deployment.engine),
        "release": release(deployment.engine),
        "layers": float(len(model.layers)),
        "dense_bytes": BYTES[form.mixer],
        "expert_bytes": BYTES[form.experts],
    }
