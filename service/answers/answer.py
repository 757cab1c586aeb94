"""Answers to questions: estimates, roofline bound, limits, memory fit, missing metrics."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.errors import InputError, UnanswerableQuery, UnknownBandwidth, UnknownPrecision
from forerun.data.graph import OperatorGraph
from forerun.data.metrics import metric as known_metric
from forerun.data.query import Query
from forerun.data.workload import (
    Benchmark,
    Kernel,
    Network,
    OperatorWorkload,
    Workload,
)
from forerun.features.operators.roofline import COMPUTE_PRECISION
from forerun.models.answers.assumed import assumed_in_reading, other_arithmetic
from forerun.models.answers.drawn_power import measured_above, within_drawn
from forerun.models.answers.evidence import distinct, evidence_of
from forerun.models.answers.in_use import InUse
from forerun.models.answers.served_models import too_heavy, within_sheet
from forerun.models.answers.set_up import not_known, set_up_limits
from forerun.models.answers.trust import Evidence, Trust, trust_in
from forerun.models.answers.unpriced import below_a_launch, not_priced
from forerun.models.answers.wording import in_words, readable
from forerun.models.baselines.roofline import Roofline
from forerun.models.equal_runs import run_key
from forerun.models.limit import LATENCY, POWER, Limit
from forerun.models.prediction import Estimate, Prediction
from forerun.models.predictor import Predictor
from forerun.models.router import Router
from forerun.service.answers.attribution.of_answer import attribution_of
from forerun.service.answers.llm.predictions import predictions_of
from forerun.service.answers.predictor_out import predictor_out
from forerun.service.answers.question import Question
from forerun.service.schemas.answers import (
    AttributionOut,
    DeviceOut,
    EstimateOut,
    LimitOut,
    PredictionOut,
)
from forerun.service.schemas.bound_dimensions import bound_dimensions
from forerun.service.schemas.memory_fit import fits
from forerun.service.schemas.power_summary import power_facts

PEAK = "peak_memory_mib"


@dataclass(frozen=True)
class _Case:
    """A question with what is known of it before any prediction.

    Attributes:
        question: the question as it was asked.
        query: the query in the form in which the predictors receive it.
        bound: roofline time in milliseconds; None where it cannot be computed.
        untimed: the reason where there is no bound.
        unpriced: metric -> the reason, where the time of most operators is not known.
    """

    question: Question
    query: Query
    bound: float | None
    untimed: InputError | None = None
    unpriced: dict[str, str] = field(default_factory=dict)


def answer_of(question: Question, in_use: InUse) -> PredictionOut:
    """The answer to one question.

    Raises:
        UnknownBandwidth: the device has no spec sheet, and no predictor answers its memory either.
        UnanswerableQuery, UnknownPrecision: no predictor can answer.
    """
    (answer,) = answers_to([question], in_use)
    if isinstance(answer, InputError):
        raise answer
    return answer


def answers_to(questions: Sequence[Question], in_use: InUse) -> list[PredictionOut | InputError]:
    """The answer to each question, or the error that prevents one.

    Queries with equal metrics go to the predictor in one call, and only to the parts of a router
    that these metrics need.
    """
    outcomes: dict[int, PredictionOut | InputError] = {}
    by_form = groups_of(q.query.workload.kind == "llm_deployment" for q in questions)
    for deployed, rows in by_form.items():
        answer = predictions_of if deployed else _runs
        outcomes |= zip(rows, answer([questions[row] for row in rows], in_use), strict=True)
    return [outcomes[row] for row in range(len(questions))]


def _runs(questions: Sequence[Question], in_use: InUse) -> list[PredictionOut | InputError]:
    """The answers to questions that the predictors in use answer by themselves."""
    predictor = in_use.loaded.predictor
    # Measurements of a device may be of the operators that no predictor knows.
    cases = _with_bounds(
        [
            _case(question, predictor, priced=question.query.device in in_use.rows)
            for question in questions
        ]
    )
    outcomes: dict[int, Prediction | InputError] = {}
    timed = [row for row, case in enumerate(cases) if case.untimed is None]
    for needed, own in groups_of(_needed(cases[row]) for row in timed).items():
        rows = [timed[index] for index in own]
        outcomes |= _predicted(predictor, [cases[row].query for row in rows], rows, needed)
    for row, case in enumerate(cases):
        if case.untimed is not None:
            outcomes[row] = _without_times(predictor, case.query) or case.untimed
    evidence: dict[Hashable, Evidence] = {}
    answers: list[PredictionOut | InputError] = []
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
    """A key that is equal for queries whose answers rest on the same: all but the batch size."""
    return run_key(query) if isinstance(query.workload, Network) else row


def _case(question: Question, predictor: Predictor, *, priced: bool) -> _Case:
    query = question.query
    if isinstance(predictor, Router):
        query = predictor.seen(query)
    if not isinstance(query.workload, OperatorWorkload):
        return _Case(question, query, None, _unanswered(query, predictor))
    if not query.has_bound:
        return _Case(question, query, None, UnknownBandwidth(query.device.name))
    unpriced = {} if priced else not_priced(query)
    if unpriced:
        return _Case(question, query, None, unpriced=unpriced)
    try:
        query.device.peak(COMPUTE_PRECISION[query.run.precision])
    except UnknownPrecision as error:
        return _Case(question, query, None, error)
    return _Case(question, query, None)


def _with_bounds(cases: Sequence[_Case]) -> list[_Case]:
    """The cases with their roofline times, where these can be computed."""
    bounded = [
        row
        for row, case in enumerate(cases)
        if case.untimed is None and case.query.has_bound and not case.unpriced
    ]
    found = list(cases)
    # Absurd sheets and shapes overflow here; `_answer` rejects what is not finite.
    with np.errstate(all="ignore"):
        bounds = Roofline().predict([cases[row].query for row in bounded]).values["latency_ms"]
    for row, bound in zip(bounded, bounds.tolist(), strict=True):
        found[row] = replace(cases[row], bound=bound)
    return found


def _unanswered(query: Query, predictor: Predictor) -> InputError | None:
    """The error of a query that the predictor does not answer; None where it does."""
    if predictor.answers(query):
        return None
    kind, device = query.workload.kind, query.device.name
    return UnanswerableQuery(f"No predictor in use answers a workload of kind {kind} on {device}.")


def _needed(case: _Case) -> frozenset[str]:
    """Metrics to predict for those asked.

    Energy is the product of power and time, a power limit acts on the time through the power, and
    power is only known where the time is.
    """
    needed = frozenset(case.question.metrics)
    if "energy_j" in needed or (LATENCY in needed and case.query.operation.power_limit_w):
        return needed | {"power_w", LATENCY}
    return needed | {LATENCY} if needed & {"power_w", "utilisation"} else needed


def _predicted(
    predictor: Predictor, queries: Sequence[Query], rows: Sequence[int], needed: frozenset[str]
) -> dict[int, Prediction | InputError]:
    """Row -> prediction, in one call, or one call per query where the predictor rejects one."""
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


def _without_times(predictor: Predictor, query: Query) -> Prediction | None:
    """A prediction by those parts alone that need no spec sheet: the predictors of memory."""
    if not isinstance(predictor, Router):
        return None
    parts = tuple(part for part in predictor.parts if PEAK in part.metrics)
    memory = replace(predictor, parts=parts)
    return memory.predict([query])[0] if memory.answers(query) else None


def _answer(
    case: _Case, prediction: Prediction, in_use: InUse, evidence: Evidence
) -> PredictionOut | InputError:
    question, query = case.question, case.query
    if not _is_finite(prediction, case.bound):
        return UnanswerableQuery(
            "The answer is beyond every number; check the sizes and the figures of the spec sheet."
        )
    short = below_a_launch(query, prediction.estimates.get(LATENCY))
    hidden = {**short, **case.unpriced, **not_known(query)}
    estimates = {n: e for n, e in prediction.estimates.items() if n not in hidden}
    estimates = _possible(estimates, case, in_use)
    unknown = unknown_operators(query.workload)
    answered = [name for name in question.metrics if name in estimates]
    limits = [
        limit
        for limit in (*_limits(case, prediction, unknown), *measured_above(estimates, query))
        if any(limit.concerns(name) for name in answered)
    ]
    peak = estimates.get(PEAK)
    grounds = evidence.about(prediction.breakdown_ms)
    estimated = _estimated(answered, estimates, query, limits, grounds)
    breakdown = _breakdown(prediction, estimates.get("latency_ms"))
    return PredictionOut(
        metrics={n: estimated.get(n) for n in question.metrics},
        missing={
            name: hidden.get(name) or _why_missing(case, name, prediction)
            for name in question.metrics
            if name not in estimates
        },
        in_domain=all(limit.in_domain for limit in limits),
        limits=[str(limit) for limit in limits],
        limit_details=[LimitOut.of(limit) for limit in limits],
        fits=fits(query.device, peak, calibrated=peak is not None and peak.coverage is not None),
        power=power_facts(query, estimates.get("energy_j")),
        breakdown_ms=breakdown,
        breakdown_mib=dict(prediction.breakdown_mib),
        attribution=_attribution(case, breakdown, estimates, in_use),
        roofline={} if case.bound is None else {LATENCY: case.bound},
        unknown_operators=unknown,
        bound_dimensions=bound_dimensions(query.workload),
        device=DeviceOut(name=query.device.name, origin=query.device.origin),
        graph=question.graph,
        predictor=predictor_out(in_use, in_use.rows.get(question.query.device, 0)),
    )


def _possible(estimates: Mapping[str, Estimate], case: _Case, own: InUse) -> dict[str, Estimate]:
    """The estimates within what the spec sheet and power limits allow, and a user measured."""
    by_user = POWER in own.measured.get(case.question.query.device, {})
    return within_sheet(within_drawn(estimates, case.query, measured=by_user), case.query)


def _breakdown(prediction: Prediction, latency: Estimate | None) -> dict[str, float]:
    """Time per operator class, scaled so that it adds up to the latency under a power limit too."""
    total = sum(prediction.breakdown_ms.values())
    if latency is None or not total > 0.0:
        return {}
    return {name: ms * latency.value / total for name, ms in prediction.breakdown_ms.items()}


def _attribution(
    case: _Case, breakdown_ms: Mapping[str, float], estimates: Mapping[str, Estimate], own: InUse
) -> AttributionOut | None:
    """The estimate divided among its parts, where the question asks for that."""
    if not case.question.explain:
        return None
    return attribution_of(case.query, breakdown_ms, estimates, own.loaded.predictor)


def _limits(case: _Case, prediction: Prediction, unknown: Mapping[str, int]) -> list[Limit]:
    limits = other_arithmetic(case.query) if case.untimed is None else []
    limits += distinct(_said(case.query, prediction))
    if unknown and not any(limit.concerns(LATENCY) for limit in limits):
        count = sum(unknown.values())
        message = f"{count} operators are unknown and costed by their traffic alone"
        limits.insert(0, Limit(message, LATENCY))
    limits += assumed_in_reading(case.query.workload)
    return [*limits, *set_up_limits(case.query), *too_heavy(case.query), *case.question.notes]


def _said(query: Query, prediction: Prediction) -> Iterable[Limit]:
    """The limits in words; settings of a benchmark keep the names that requests use."""
    named = isinstance(query.workload, Benchmark)
    return prediction.limits if named else map(in_words, prediction.limits)


def unknown_operators(asked: Workload | OperatorGraph) -> dict[str, int]:
    """Name of each operator that no reader knows -> its count; names are valid Unicode."""
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


def _estimated(
    names: Iterable[str],
    estimates: Mapping[str, Estimate],
    query: Query,
    limits: Sequence[Limit],
    evidence: Evidence,
) -> dict[str, EstimateOut]:
    """Each estimate with the trust in it."""
    trust = {name: trust_in(name, estimates, query, limits, evidence) for name in names}
    return {name: _estimate(estimates[name], name, limits, trust[name]) for name in trust}


def _estimate(
    estimate: Estimate, metric: str, limits: Sequence[Limit], trust: Trust
) -> EstimateOut:
    known = metric.endswith("_mib") and estimate.coverage is not None
    return EstimateOut(
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        coverage=estimate.coverage,
        p95=estimate.high if known else None,
        unit=known_metric(metric).unit,
        in_domain=all(limit.in_domain for limit in limits if limit.concerns(metric)),
        grade=trust.grade,
        grade_reason=trust.reason,
    )


def _why_missing(case: _Case, metric: str, prediction: Prediction) -> str:
    query = case.query
    if metric in prediction.withheld:
        return prediction.withheld[metric]
    if not isinstance(query.workload, OperatorWorkload):
        own = (limit for limit in prediction.limits if limit.metric and limit.concerns(metric))
        return (
            "; ".join(dict.fromkeys(limit.message for limit in own))
            or f"no {metric} was measured of such a {query.workload.kind}"
        )
    if query.workload.kind == "kernel" and metric.endswith("_mib"):
        return "memory is a property of a whole network"
    if case.untimed is not None and not metric.endswith("_mib"):
        return str(case.untimed)
    phase = getattr(query.workload, "phase", "inference")
    return f"no predictor answers {metric} for {phase} on a {query.device.kind}"
