"""Answers one query with all predictors of a release, bounded by physics and graded.

An answer holds the estimates, the roofline bound, limits, missing metrics and a grade of trust per
estimate. Users get it and evaluation scores it; the service layer only renders it.

Metrics of networks in which the time of most operators is unknown are withheld. Times on CPUs are
scaled to fewer cores and to several concurrent instances; PyTorch was measured on all cores only,
and always as a single instance.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, hypot, inf, isfinite, log, prod
from typing import Final

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.device_slices import no_power
from forerun.data.errors import InputError, UnanswerableQuery, UnknownBandwidth, UnknownPrecision
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.number_formats import trained_in
from forerun.data.query import Query
from forerun.data.workload import (
    Benchmark,
    Diffusion,
    Kernel,
    LlmServing,
    Network,
    OperatorWorkload,
    Workload,
    phase_of,
)
from forerun.features.graphs.pipeline import as_run
from forerun.features.memory.plan import most_mib
from forerun.features.operators.features import SHORTEST_KERNEL_MS
from forerun.features.operators.roofline import COMPUTE_PRECISION, ELEMENT_BYTES
from forerun.features.processors.work import CACHE_BYTES, COLUMNS, work_of
from forerun.models.answers.assumed import (
    assumed_in_reading,
    not_known,
    not_run,
    other_arithmetic,
    set_up_limits,
)
from forerun.models.answers.drawn_power import measured_above, within_drawn
from forerun.models.answers.evidence import distinct, evidence_of
from forerun.models.answers.interval_level import at_level, level_notes
from forerun.models.answers.served_models import InUse, of_pipeline, too_heavy, within_sheet
from forerun.models.answers.trust import Evidence, Trust, trust_in
from forerun.models.answers.wording import in_words, readable
from forerun.models.baselines.roofline import Roofline
from forerun.models.equal_runs import run_key
from forerun.models.limit import LATENCY, POWER, Limit
from forerun.models.networks.host_time import OVERLAP
from forerun.models.power.limit_response import ENERGY
from forerun.models.prediction import Estimate, Prediction
from forerun.models.predictor import Predictor
from forerun.models.router import Router, predictors_in

ON_PROCESSORS: Final = "cpu_latency"
"""Name of the ONNX Runtime predictor; its module is not imported for queries about GPUs."""
OF_AMD: Final = "amd_kernels"
"""Name of the predictor of convolutions on AMD GPUs."""


def on_device(
    estimates: Mapping[str, Estimate], prediction: Prediction, query: Query, in_use: InUse
) -> tuple[dict[str, Estimate], Prediction, list[Limit]]:
    """The estimates and parts at the threads and instances of a processor, or with the convolutions
    of an AMD GPU, and the limits that state this.
    """
    found, of_threads = at_threads(estimates, query, in_use)
    found, of_instances = with_instances(found, query)
    found, prediction, replaced = with_measured_convolutions(found, prediction, query, in_use)
    return found, prediction, [*of_threads, *of_instances, *replaced]


def at_threads(
    estimates: Mapping[str, Estimate], query: Query, in_use: InUse
) -> tuple[dict[str, Estimate], list[Limit]]:
    """The estimates of a network on a CPU at the query's threads, and the limit that states this.

    The estimates fall with the peak of all cores, starting from the CPUs of `MEASURED_CORES` that
    trained them. The ratio to the time at the query's threads is that of a forward pass in ONNX
    Runtime. Nothing changes where that predictor gives the answer itself, or where the user
    measured the device.
    """
    cores = query.device.compute_units
    parts = {part.name: part for part in predictors_in(in_use.loaded.predictor)}
    scaling = parts.get(ON_PROCESSORS)
    if query.device.kind != "cpu" or query.device in in_use.rows or scaling is None:
        return dict(estimates), []
    if cores is None or LATENCY not in estimates:
        return dict(estimates), []
    if not isinstance(query.workload, Network) or scaling.answers(query):
        return dict(estimates), []
    asked, known = query.software.threads_on(cores) or cores, min(MEASURED_CORES, cores)
    if asked == cores == known:
        return dict(estimates), []
    forward = replace(query.network, precision="fp32", phase="inference")
    updates = [{"runtime": "onnxruntime", "threads": threads} for threads in (asked, known)]
    runs = [
        replace(query, workload=forward, software=query.software.model_copy(update=update))
        for update in updates
    ]
    some, reference = scaling.predict(runs).values[LATENCY].tolist()
    message = f"on {asked} of {cores} cores, the time scales with threads as in ONNX Runtime"
    scaled = {
        name: _times(estimates[name], max(1.0, some / reference * cores / known))
        for name in (LATENCY, ENERGY)
        if name in estimates
    }
    return {**estimates, **scaled}, [Limit(message, LATENCY)]


def with_measured_convolutions(
    estimates: Mapping[str, Estimate], prediction: Prediction, query: Query, in_use: InUse
) -> tuple[dict[str, Estimate], Prediction, list[Limit]]:
    """The estimates and parts of a network on an AMD GPU whose convolutions take as long as those
    that were measured, and the limit that states this.

    Networks were measured on NVIDIA GPUs, convolutions also on AMD's: their times replace shorter
    ones, unless the user measured the device. Their uncertainty widens the interval by their share.
    """
    parts, latency = dict(prediction.breakdown_ms), estimates.get(LATENCY)
    experts = next((p for p in predictors_in(in_use.loaded.predictor) if p.name == OF_AMD), None)
    on_amd = query.device.vendor == "amd" and query.device.kind == "gpu"
    known = not on_amd or query.device in in_use.rows or not parts.get("conv")
    if known or latency is None or experts is None or not isinstance(query.workload, Network):
        return dict(estimates), prediction, []
    conv, low, high = experts.convolutions_ms(query)  # type: ignore[attr-defined]
    more = conv - parts["conv"]
    if not more > 0.0:
        return dict(estimates), prediction, []
    sent = parts.get("messages", 0.0)
    device = sum(parts.values()) - sent - parts.get("host", 0.0)
    whole = sum(parts.values()) - sent
    longer = (whole**OVERLAP - device**OVERLAP + (device + more) ** OVERLAP) ** (1.0 / OVERLAP)
    parts |= {"conv": conv, "host": longer - device - more}
    ratio, share = (longer + sent) / (whole + sent), conv / (longer + sent)
    spread = share * log(conv / low), share * log(high / conv)
    scaled = {n: _times(estimates[n], ratio, spread) for n in (LATENCY, ENERGY) if n in estimates}
    message = "convolutions take as long as in AMD's library; networks were measured on NVIDIA GPUs"
    limits = [Limit(message, LATENCY)]
    return {**estimates, **scaled}, replace(prediction, breakdown_ms=parts), limits


def with_instances(
    estimates: Mapping[str, Estimate], query: Query
) -> tuple[dict[str, Estimate], list[Limit]]:
    """The estimates of one of several concurrent instances on a CPU, and the limit that states it.

    Data beyond an instance's share of the last-level cache is read at its share of the memory
    bandwidth.
    """
    alone, count = estimates.get(LATENCY), query.software.instances
    known = query.device.kind == "cpu" and query.device.memory_bandwidth_gbs is not None
    if not known or count == 1 or alone is None or not isinstance(query.workload, Network):
        return dict(estimates), []
    waiting = count * _memory_ms(query, count) - _memory_ms(query, 1)
    ratio = 1.0 + max(0.0, waiting) / alone.value
    message = (
        f"{count} instances share the memory bandwidth and the last-level cache of the spec sheet"
    )
    scaled = {n: _times(estimates[n], ratio) for n in (LATENCY, ENERGY) if n in estimates}
    return {**estimates, **scaled}, [Limit(message, LATENCY)]


def _memory_ms(query: Query, count: int) -> float:
    """Least milliseconds to read what does not fit into 1 / count of the last-level cache."""
    network, device = query.network, query.device
    cache = CACHE_BYTES if device.l2_mib is None else device.l2_mib * 2**20 / count
    amounts = work_of(network.graph, network.batch_size / network.graph.batch_size, cache).amounts
    far = sum(amounts[COLUMNS.index(("memory", term))] for term in ("far_weights", "far_bytes"))
    return (
        float(far)
        * ELEMENT_BYTES[network.precision]
        / ELEMENT_BYTES["fp32"]
        / (1e6 * device.bandwidth_gbs)
    )


def _times(estimate: Estimate, ratio: float, spread: tuple[float, float] = (0.0, 0.0)) -> Estimate:
    """The estimate times a ratio that has an interval, whose log distances are independent."""
    value, low, high = estimate.value, estimate.low, estimate.high
    return replace(
        estimate,
        value=value * ratio,
        low=None if low is None else value * ratio * exp(-hypot(log(value / low), spread[0])),
        high=None if high is None else value * ratio * exp(hypot(log(high / value), spread[1])),
    )


METRICS = ("latency_ms", "power_w", "energy_j", "utilisation")
LARGEST_SHARE = 0.5
MEASURED_CORES = 14
"""Cores of both CPUs on which PyTorch was measured (`timm_bench`)."""
"""Share of unknown operators above which metrics that depend on time are withheld."""
_NAMES_LISTED = 5


def not_priced(query: Query) -> dict[str, str]:
    """Metric -> the reason, where unknown operators make up most of a network.

    Their share is the larger of that among operator executions and that among elements read and
    written.
    """
    workload = query.run
    if not isinstance(workload, Network) or not workload.graph.unknown:
        return {}
    count, traffic = _shares(workload.graph)
    share, of = max((count, "runs of operators"), (traffic, "memory traffic"))
    if share <= LARGEST_SHARE:
        return {}
    reason = (
        f"operators that no predictor knows make up {100 * share:.0f} % of the network's "
        f"{of}: {_listed(workload.graph.unknown)}"
    )
    return dict.fromkeys(METRICS, reason)


def below_a_launch(query: Query, latency: Estimate | None) -> dict[str, str]:
    """Metric -> the reason, where an estimate is shorter than a kernel launch on a GPU.

    Args:
        query: the query.
        latency: the estimate, milliseconds; None if there is none.
    """
    if query.device.kind != "gpu" or latency is None or latency.value >= SHORTEST_KERNEL_MS:
        return {}
    reason = (
        f"the estimate of {latency.value * 1e6:.3g} ns is shorter than one kernel launch, "
        f"{SHORTEST_KERNEL_MS * 1e3:.0f} microseconds"
    )
    return dict.fromkeys(METRICS, reason)


def _shares(graph: OperatorGraph) -> tuple[float, float]:
    """Share of unknown operators among executions, and among elements read and written."""
    unknown = [op for op in graph.operators if op.kind == "unknown"]
    count = sum(op.repeat for op in unknown) / sum(op.repeat for op in graph.operators)
    total = sum(map(_moved, graph.operators))
    return count, sum(map(_moved, unknown)) / total if total else 0.0


def _moved(op: Operator) -> int:
    shapes = (*op.input_shapes, *op.output_shapes)
    return op.repeat * (op.parameter_elements + sum(map(prod, shapes)))


def _listed(unknown: Mapping[str, int]) -> str:
    most = sorted(unknown, key=lambda name: (-unknown[name], name))
    more = f" and {len(most) - _NAMES_LISTED} more" if len(most) > _NAMES_LISTED else ""
    return readable(", ".join(most[:_NAMES_LISTED])) + more


PEAK = "peak_memory_mib"


@dataclass(frozen=True, slots=True)
class Asked:
    """A query and the metrics requested for it.

    Attributes:
        query: the workload, the device, and how both are run.
        metrics: names of the requested metrics.
        notes: assumptions made for fields that the request left out.
    """

    query: Query
    metrics: tuple[str, ...]
    notes: tuple[Limit, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The answer to one query.

    Attributes:
        query: the query in the form in which the predictors receive it.
        estimates: metric -> estimate, including metrics from which requested ones are derived.
        trust: requested metric with an estimate -> its grade.
        missing: requested metric without an estimate -> the reason.
        limits: limits of the requested estimates.
        breakdown_ms: operator class -> milliseconds; these add up to the latency.
        breakdown_mib: memory component -> MiB.
        bound_ms: roofline time in milliseconds; None where it cannot be computed.
        unknown_operators: name of each operator that no reader recognises -> its count.
    """

    query: Query
    estimates: Mapping[str, Estimate]
    trust: Mapping[str, Trust]
    missing: Mapping[str, str]
    limits: tuple[Limit, ...]
    breakdown_ms: Mapping[str, float]
    breakdown_mib: Mapping[str, float]
    bound_ms: float | None
    unknown_operators: Mapping[str, int]

    def in_domain(self, metric: str) -> bool:
        """Whether the query lies inside the domain of the training set for a metric."""
        return all(limit.in_domain for limit in self.limits if limit.concerns(metric))


@dataclass(frozen=True)
class _Case:
    """A query and what is known about it before prediction.

    Attributes:
        asked: the query as requested.
        query: the query in the form in which the predictors receive it.
        bound: roofline time in milliseconds; None where it cannot be computed.
        untimed: the error that explains why there is no bound.
        unpriced: metric -> the reason, where the time of most operators is not known.
    """

    asked: Asked
    query: Query
    bound: float | None
    untimed: InputError | None = None
    unpriced: dict[str, str] = field(default_factory=dict)


def answers_to(asked: Sequence[Asked], in_use: InUse) -> list[Answer | InputError]:
    """The answer to each query, or the error that prevents it.

    Queries with the same metrics are predicted in one call, and a router runs only the predictors
    that these metrics need.
    """
    predictor = in_use.loaded.predictor
    # A user may have measured operators that no predictor knows on this device.
    cases = _with_bounds(
        [_case(request, predictor, priced=request.query.device in in_use.rows) for request in asked]
    )
    outcomes: dict[int, Prediction | InputError] = {}
    timed = [row for row, case in enumerate(cases) if case.untimed is None]
    for needed, members in groups_of(_needed(cases[row]) for row in timed).items():
        rows = [timed[index] for index in members]
        outcomes |= _predicted(predictor, [cases[row].query for row in rows], rows, needed)
    for row, case in enumerate(cases):
        if case.untimed is not None:
            outcomes[row] = _memory_only(predictor, case.query) or case.untimed
    evidence: dict[Hashable, Evidence] = {}
    answers: list[Answer | InputError] = []
    for row, case in enumerate(cases):
        outcome = outcomes[row]
        if isinstance(outcome, InputError):
            answers.append(outcome)
            continue
        key, needed = _same_evidence(case.query, row), _needed(case)
        if (key, needed) not in evidence:
            evidence[key, needed] = evidence_of(case.query, needed, in_use)
        answers.append(_answer(case, outcome, in_use, evidence[key, needed]))
    return answers


def _same_evidence(query: Query, row: int) -> Hashable:
    """A key shared by queries whose answers rest on the same evidence: batch size is ignored."""
    return run_key(query) if isinstance(query.workload, Network) else row


def _case(asked: Asked, predictor: Predictor, *, priced: bool) -> _Case:
    query = asked.query
    if isinstance(query.workload, Network):
        query = replace(query, workload=as_run(query.workload))
    if isinstance(predictor, Router):
        query = predictor.seen(query)
    if not isinstance(query.workload, OperatorWorkload):
        return _Case(asked, query, None, _unanswered(query, predictor))
    if not query.has_bound:
        return _Case(asked, query, None, UnknownBandwidth(query.device.name))
    if query.device.kind == "npu" and not priced:
        message = "times and power are predicted only for GPUs and processors"
        return _Case(
            asked, query, None, UnanswerableQuery(f"{message}; {query.device.name} is neither.")
        )
    unpriced = {} if priced else not_priced(query)
    if unpriced:
        return _Case(asked, query, None, unpriced=unpriced)
    try:
        used, trains = COMPUTE_PRECISION[query.run.precision], phase_of(query.run) == "training"
        trained_in(used, query.device) if trains else query.device.peak(used)
    except (UnanswerableQuery, UnknownPrecision) as error:
        return _Case(asked, query, None, error)
    return _Case(asked, query, None)


def _with_bounds(cases: Sequence[_Case]) -> list[_Case]:
    """The cases with their roofline times where these can be computed."""
    bounded = [
        row
        for row, case in enumerate(cases)
        if case.untimed is None and case.query.has_bound and not case.unpriced
    ]
    found = list(cases)
    # Absurd spec sheets and shapes overflow here; `_answer` rejects non-finite figures.
    with np.errstate(all="ignore"):
        bounds = Roofline().predict([cases[row].query for row in bounded]).values["latency_ms"]
    for row, bound in zip(bounded, bounds.tolist(), strict=True):
        found[row] = replace(cases[row], bound=bound)
    return found


def _unanswered(query: Query, predictor: Predictor) -> InputError | None:
    """The error for a query that the predictor does not answer; None if it answers it."""
    if predictor.answers(query):
        return None
    kind, device = query.workload.kind, query.device.name
    return UnanswerableQuery(f"No predictor in use answers a workload of kind {kind} on {device}.")


def _needed(case: _Case) -> frozenset[str]:
    """Metrics that must be predicted to answer the requested ones.

    Energy is power times time. A power limit changes the time through the power, and the power
    requires the time. A run that may exceed the memory needs the peak, because no figure of a run
    that cannot start is trusted.
    """
    needed, query = frozenset(case.asked.metrics), case.query
    device_mib = 1024.0 * (query.device.memory_gib or inf)
    if isinstance(query.workload, Network) and most_mib(query.workload) > device_mib:
        needed |= {PEAK}
    if "energy_j" in needed or (LATENCY in needed and case.query.operation.power_limit_w):
        return needed | {"power_w", LATENCY}
    return needed | {LATENCY} if needed & {"power_w", "utilisation"} else needed


def _predicted(
    predictor: Predictor, queries: Sequence[Query], rows: Sequence[int], needed: frozenset[str]
) -> dict[int, Prediction | InputError]:
    """Row -> prediction: one call for all, or one per query if the predictor rejects any."""
    try:
        with np.errstate(all="ignore"):
            if isinstance(predictor, Router):
                predictions = predictor.predict_only(needed, queries)
            else:
                predictions = predictor.predict(queries)
        return dict(zip(rows, predictions, strict=True))
    except InputError as error:
        if len(queries) == 1:
            return {rows[0]: error}
    outcomes: dict[int, Prediction | InputError] = {}
    for query, row in zip(queries, rows, strict=True):
        outcomes |= _predicted(predictor, [query], [row], needed)
    return outcomes


def _memory_only(predictor: Predictor, query: Query) -> Prediction | None:
    """A prediction by the memory predictors alone, which need no spec sheet."""
    if not isinstance(predictor, Router):
        return None
    parts = tuple(part for part in predictor.parts if PEAK in part.metrics)
    memory = replace(predictor, parts=parts)
    return memory.predict([query])[0] if memory.answers(query) else None


def _answer(
    case: _Case, prediction: Prediction, in_use: InUse, evidence: Evidence
) -> Answer | InputError:
    query, metrics = case.query, case.asked.metrics
    if not _is_finite(prediction, case.bound):
        return UnanswerableQuery(
            "The answer overflows; check the sizes and the figures of the spec sheet."
        )
    is_measured = query.device in in_use.rows
    hidden = _hidden(case, prediction) | ({} if is_measured else not_run(query))
    estimates = {n: e for n, e in prediction.estimates.items() if n not in hidden}
    estimates = at_level(estimates, query)
    estimates, prediction, scaled = on_device(estimates, prediction, query, in_use)
    estimates = _within_bounds(estimates, case, in_use)
    # Measurements of this device by the user already include the pipeline factor.
    estimates = estimates if is_measured else of_pipeline(estimates, query)
    unknown = unknown_operators(query.workload)
    answered = [name for name in metrics if name in estimates]
    limits = tuple(
        limit
        for source in (_limits(case, prediction, unknown), measured_above(estimates, query), scaled)
        for limit in source
        if (limit.metric == PEAK and limit.severity == "refusal")
        or any(_concerns(limit, name, query) for name in answered)
    )
    return Answer(
        query=query,
        estimates=estimates,
        trust={
            name: trust_in(name, estimates, query, _with_metric(limits, name, query), evidence)
            for name in answered
        },
        missing={
            name: hidden.get(name) or _why_missing(case, name, prediction)
            for name in metrics
            if name not in estimates
        },
        limits=(*limits, *level_notes(answered, query)),
        breakdown_ms=_breakdown(prediction, estimates.get(LATENCY)),
        breakdown_mib=dict(prediction.breakdown_mib),
        bound_ms=case.bound,
        unknown_operators=unknown,
    )


def _hidden(case: _Case, prediction: Prediction) -> dict[str, str]:
    """Metric -> the reason, where an estimate is not shown."""
    query = case.query
    hidden = below_a_launch(query, prediction.estimates.get(LATENCY))
    hidden |= {**case.unpriced, **not_known(query)}
    for limit in too_heavy(query):
        hidden |= dict.fromkeys(prediction.estimates, limit.message)
    return hidden


def _concerns(limit: Limit, metric: str, query: Query) -> bool:
    """Whether a limit concerns a metric.

    For served models a limit without a metric also concerns power, which the predictor of the rates
    predicts too.
    """
    of_served = isinstance(query.workload, LlmServing | Diffusion) and metric == POWER
    return limit.concerns(metric) or (of_served and limit.metric is None)


def _with_metric(limits: Sequence[Limit], metric: str, query: Query) -> list[Limit]:
    """The limits, where those that concern the metric implicitly now name it."""
    return [
        replace(limit, metric=metric)
        if not limit.concerns(metric) and _concerns(limit, metric, query)
        else limit
        for limit in limits
    ]


def _within_bounds(
    estimates: Mapping[str, Estimate], case: _Case, in_use: InUse
) -> dict[str, Estimate]:
    """The estimates within the spec sheet, the power limit and what the user measured."""
    by_user = POWER in in_use.measured.get(case.asked.query.device, {})
    return within_sheet(within_drawn(estimates, case.query, measured=by_user), case.query)


def _breakdown(prediction: Prediction, latency: Estimate | None) -> dict[str, float]:
    """Time per operator class, scaled to add up to the latency, also under a power limit."""
    total = sum(prediction.breakdown_ms.values())
    if latency is None or not total > 0.0:
        return {}
    return {name: ms * latency.value / total for name, ms in prediction.breakdown_ms.items()}


BY_HOST: Final = Limit("host-bound: launching kernels takes most of the time", LATENCY, "note")


def _limits(case: _Case, prediction: Prediction, unknown: Mapping[str, int]) -> list[Limit]:
    limits = other_arithmetic(case.query) if case.untimed is None else []
    limits += distinct(_limits_in_words(case.query, prediction))
    if unknown and not any(limit.concerns(LATENCY) for limit in limits):
        count = sum(unknown.values())
        message = f"{count} operators are unknown; only their memory traffic is counted"
        limits.insert(0, Limit(message, LATENCY))
    limits += assumed_in_reading(case.query.workload)
    if 2.0 * prediction.breakdown_ms.get("host", 0.0) > sum(prediction.breakdown_ms.values()):
        limits.append(BY_HOST)
    return [*limits, *set_up_limits(case.query), *too_heavy(case.query), *case.asked.notes]


def _limits_in_words(query: Query, prediction: Prediction) -> Iterable[Limit]:
    """The prediction's limits in words; benchmark settings keep the names that requests use."""
    named = isinstance(query.workload, Benchmark)
    return prediction.limits if named else map(in_words, prediction.limits)


def unknown_operators(asked: Workload | OperatorGraph) -> dict[str, int]:
    """Name of each operator that no reader recognises -> its count; names are valid Unicode."""
    if isinstance(asked, Kernel):
        op = asked.operator
        return {readable(op.name): 1} if op.kind == "unknown" else {}
    graph = asked.graph if isinstance(asked, Network) else asked
    if not isinstance(graph, OperatorGraph):
        return {}
    return {readable(name): count for name, count in graph.unknown.items()}


def _is_finite(prediction: Prediction, bound: float | None) -> bool:
    ends = (x for e in prediction.estimates.values() for x in (e.value, e.low, e.high))
    parts = prediction.breakdown_mib.values()
    return all(x is None or isfinite(x) for x in (bound, *ends, *parts))


def _why_missing(case: _Case, metric: str, prediction: Prediction) -> str:
    query = case.query
    if metric in prediction.withheld:
        return prediction.withheld[metric]
    if metric.startswith(("power", "energy")) and (why := no_power(query.device)) is not None:
        return why
    if not isinstance(query.workload, OperatorWorkload):
        concerning = (
            limit for limit in prediction.limits if limit.metric and limit.concerns(metric)
        )
        return (
            "; ".join(dict.fromkeys(limit.message for limit in concerning))
            or f"no {metric} was measured for such a {query.workload.kind}"
        )
    if query.workload.kind == "kernel" and metric.endswith("_mib"):
        return "memory is a property of a whole network"
    if case.untimed is not None and not metric.endswith("_mib"):
        return str(case.untimed)
    phase = getattr(query.workload, "phase", "inference")
    return f"no predictor answers {metric} for {phase} on a {query.device.kind}"
