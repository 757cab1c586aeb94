"""Predicts the power of deployed models with the predictor of served models."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import expm1, log
from typing import Any, Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.language_models.model import LanguageModel
from forerun.data.query import Operation, Query
from forerun.data.workload import LlmServing, RequestKind
from forerun.features.llm_serving.comparable import at_any_load
from forerun.features.llm_serving.model_sizes import FORMATS, ModelSizes
from forerun.features.power.operator_features import waiting_w
from forerun.features.serving_features import TOKENS
from forerun.models.answers.assumed import answered
from forerun.models.answers.deployments.arrivals import places
from forerun.models.answers.deployments.derived import scaled
from forerun.models.limit import POWER, Limit
from forerun.models.prediction import Estimate, Prediction
from forerun.models.predictor import Predictor

LOADS: Final = (1.0, 8.0, 64.0, 512.0)
"""Concurrencies at which power is predicted; it is interpolated linearly in their logarithm."""
SATURATED: Final = 0.99
"""Busy share of the time from which a server counts as always busy."""
PROMPTS: Final = 4.0
"""Ratio of input to output tokens, relative to usual requests, above which power counts as
extrapolated: prefill then dominates work that measured servers did not have."""
LONG_ANSWER, LONG_PROMPT = 2000.0, 2.0
"""Output tokens from which requests count as reasoning, and input tokens per output token from
which they count as code completion."""
UNUSUAL: Final = 3.0
"""Factor between a length and the usual one, in either direction, above which power counts as
transferred."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Utilisation of a deployment.

    in_flight: mean requests in flight on all workers.
    busy: share of the time in which a pipeline stage of a worker has at least one request.
    """

    in_flight: float
    busy: float

    @property
    def while_busy(self) -> float:
        """Requests in flight if every stage always held as many as it does while busy."""
        return self.in_flight / self.busy


def occupancy(query: Query, time: Prediction) -> Occupancy | None:
    """Mean concurrency and busy share; None where the times are unknown.

    A closed loop has constant concurrency, spread over the stages of all workers. For random
    arrivals the mean follows from Little's law, and the number on each stage is taken to be
    Poisson.
    """
    load, pool = query.deployment.load, query.deployment.pool
    stages = pool.workers * pool.parallelism.pipeline
    if load.concurrency is not None:
        return Occupancy(load.concurrency, min(load.concurrency / stages, 1.0))
    latency, rate = (time.estimates.get(name) for name in ("request_latency_ms", "requests_per_s"))
    if latency is None or rate is None:
        return None
    in_flight = max(latency.value / 1e3 * rate.value, 1e-9)
    return Occupancy(in_flight, -expm1(-in_flight / stages))


def powers(
    queries: Sequence[Query], times: Sequence[Prediction | InputError], predictor: Predictor
) -> list[Prediction | None]:
    """The power of one device of each of n deployments.

    None where no predictor answers it or the times are unknown. Power does not decrease with
    concurrency: it is read from a monotone curve over the load of each deployment.

    Args:
        queries: deployments.
        times: their times.
        predictor: the predictor in use.
    """
    steps: dict[tuple[Hashable, ...], Sequence[Sequence[Query]]] = {}
    asked: dict[int, tuple[tuple[Hashable, ...], float, float]] = {}
    for row, (query, time) in enumerate(zip(queries, times, strict=True)):
        known = None if isinstance(time, InputError) else occupancy(query, time)
        if known is not None:
            key = at_any_load(query)
            if key not in steps:
                able = predictor.answers(as_serving(query, LOADS[0]))
                degrees = _with_smaller_degrees(query) if able else []
                steps[key] = [[as_serving(degree, load) for degree in degrees] for load in LOADS]
            if steps[key][0]:
                asked[row] = key, min(known.while_busy, places(query)), known.busy
    every = [as_serving(queries[row], number) for row, (_, number, _) in asked.items()]
    every += [deployment for per_load in steps.values() for step in per_load for deployment in step]
    positions, found, errors = answered(predictor, every)
    watts, alone = np.full(len(every), np.inf), dict[int, Prediction | InputError](errors)
    if found is not None:
        watts[positions] = np.nan_to_num(found.values[POWER], nan=np.inf)
        count = sum(place < len(asked) for place in positions)
        alone |= zip(positions[:count], found.of_rows(count, (POWER,)), strict=True)
    curves, end = {}, len(asked)
    for key, step in steps.items():
        start, end = end, end + sum(map(len, step))
        # A smaller degree of tensor parallelism gives each device more work.
        curves[key] = _made_monotone(
            watts[start:end].reshape(len(LOADS), -1).min(axis=1, initial=np.inf)
        )
    outcomes = {}
    for place, (row, (key, number, busy)) in enumerate(asked.items()):
        full_power = _on_curve(alone[place], curves[key], number)
        at_load = _averaged_over_time(full_power, queries[row].device, busy)
        outcomes[row] = _mark_unmeasured_settings(
            queries[row], _mark_long_prompts(queries[row], at_load)
        )
    return [outcomes.get(row) for row in range(len(queries))]


def _made_monotone(watts: Column) -> Column:
    """The power at each of `LOADS`, made non-decreasing, (loads,).

    More requests mean more work per device. As for times, each value is the geometric mean of the
    running maximum from below and the running minimum from above.
    """
    later = np.minimum.accumulate(watts[::-1])[::-1]
    return np.asarray(np.sqrt(np.maximum.accumulate(watts) * later))


def _on_curve(
    prediction: Prediction | InputError, curve: Column, in_flight: float
) -> Prediction | InputError:
    """The prediction with its power replaced by that of the curve at this concurrency."""
    if isinstance(prediction, InputError) or POWER not in prediction.estimates:
        return prediction
    power, value = (
        prediction.estimates[POWER],
        float(np.interp(log(in_flight), np.log(LOADS), curve)),
    )
    factor = value / power.value if np.isfinite(value) else 1.0
    return replace(prediction, estimates={**prediction.estimates, POWER: scaled(power, factor)})


def _with_smaller_degrees(query: Query) -> list[Query]:
    """The deployment, and copies with half, a quarter, ... of its tensor parallelism."""
    deployment, found = query.deployment, [query]
    degree = deployment.pool.parallelism.tensor
    while degree % 2 == 0 and deployment.pool.parallelism.expert == 1:
        degree //= 2
        split = replace(deployment.pool.parallelism, tensor=degree)
        fewer = replace(deployment, pool=replace(deployment.pool, parallelism=split))
        found.append(replace(query, workload=fewer, operation=Operation(fewer.devices)))
    return found


def _mark_unmeasured_settings(query: Query, found: Prediction | None) -> Prediction | None:
    """The prediction, marked as extrapolated where no measured server had such settings."""
    deployment, load = query.deployment, query.deployment.load
    usual = TOKENS[request_kind(load.input_tokens, load.output_tokens)]
    lengths = (load.input_tokens, load.output_tokens)
    settings = {
        f"the engine {deployment.engine.name}": deployment.engine.name != "vllm",
        "drafted tokens": deployment.engine.draft_tokens > 0,
        "a prefix cache": load.cached_share > 0.0,
        "separate prefill workers": deployment.prefill is not None,
        f"requests of {load.input_tokens:,.0f} and {load.output_tokens:,.0f} tokens": any(
            abs(log(length / middle)) > log(UNUSUAL)
            for length, middle in zip(lengths, usual, strict=True)
        ),
    }
    lines = tuple(
        Limit(f"not measured on any server with {name}", POWER)
        for name, applies in settings.items()
        if applies
    )
    if found is None or not lines:
        return found
    return replace(found, limits=(*found.limits, *lines), in_domain=False)


def _averaged_over_time(
    found: Prediction | InputError, device: Device, busy: float
) -> Prediction | None:
    """The prediction with power averaged over the busy and idle shares of the time.

    It has no interval, because the error of the idle power is unknown.
    """
    if isinstance(found, InputError):
        return None
    saturated = found.estimates.get(POWER)
    if saturated is None or busy >= SATURATED or device.tdp_w is None:
        return found
    waiting = waiting_w(device)

    power = Estimate(waiting + busy * max(0.0, saturated.value - waiting))
    line = Limit(
        f"the device is busy for {100 * busy:.0f} % of the time and is assumed to draw "
        f"{waiting:.0f} W when idle; no server with idle periods was measured",
        POWER,
    )
    return replace(
        found,
        estimates={**found.estimates, POWER: power},
        limits=(line, *found.limits),
        in_domain=False,
    )


def _mark_long_prompts(query: Query, found: Prediction | None) -> Prediction | None:
    """The prediction, marked as extrapolated where prefill exceeds its share in measured runs."""
    load = query.deployment.load
    usual_input, usual_output = TOKENS[request_kind(load.input_tokens, load.output_tokens)]
    usual, asked = usual_input / usual_output, load.input_tokens / load.output_tokens
    if found is None or asked <= PROMPTS * usual:
        return found
    line = Limit(
        f"request lengths are ignored; measured servers had {usual:.2g} input tokens per "
        f"output token, this one has {asked:,.4g}",
        POWER,
    )
    return replace(found, limits=(line, *found.limits), in_domain=False)


def as_serving(query: Query, in_flight: float) -> Query:
    """The deployment as a query to the predictors of served models.

    Their training set counts devices that share experts as expert parallel, not also as tensor
    parallel.

    Args:
        query: the deployment.
        in_flight: concurrent requests; at least one is assumed.
    """
    deployment = query.deployment
    worker, workers = deployment.pool.parallelism, deployment.pool.workers
    workload = LlmServing(
        **_sizes(deployment.model),
        request=request_kind(deployment.load.input_tokens, deployment.load.output_tokens),
        max_sequences=max(1, round(in_flight)),
        tensor_parallel=worker.tensor if worker.expert == 1 else 1,
        expert_parallel=worker.expert,
        data_parallel=worker.attention_data * workers,
    )
    return Query(workload, query.device, operation=Operation(deployment.devices))


@lru_cache(maxsize=64)
def _sizes(model: LanguageModel) -> Mapping[str, Any]:
    """The fields of a served model that follow from its layers and formats."""
    sizes = asdict(ModelSizes.of(model))
    return sizes | {"weights": FORMATS[sizes["weights"]]}


def request_kind(input_tokens: float, output_tokens: float) -> RequestKind:
    """The kind of measured requests whose lengths, in tokens, are closest to these."""
    if output_tokens >= LONG_ANSWER:
        return "reasoning"
    return "code" if input_tokens >= LONG_PROMPT * output_tokens else "chat"
