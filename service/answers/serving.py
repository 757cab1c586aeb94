"""Answers about serving generative models: power, throughput, energy per token or sample."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Final

import numpy as np

from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.metrics import metric
from forerun.data.query import Query
from forerun.models.limit import POWER
from forerun.models.prediction import Estimate, Prediction, Predictions
from forerun.models.predictor import Predictor
from forerun.service.adaptation.in_use import InUse
from forerun.service.answers.evidence import evidence_of, predictor_out
from forerun.service.limits.serving import OF_SERVING, too_heavy, within_sheet
from forerun.service.limits.trust import Trust, trust_in
from forerun.service.limits.wording import in_words
from forerun.service.schemas.answers import (
    DeviceOut,
    GradedOut,
    LimitOut,
    ServingOut,
)

MISSING: Final = {
    "peak_memory_mib": "memory is answered for a model by name or config with lengths of requests "
    "(input_tokens, output_tokens)"
}
DIFFUSION_MISSING: Final = {"peak_memory_mib": "no memory was measured of diffusion models"}


def estimated(query: Query, in_use: InUse) -> ServingOut:
    """Predict a serving workload in steady state.

    Raises:
        UnanswerableQuery: no predictor in use answers the query, or the answer is not finite.
    """
    (answer,) = estimated_all([query], in_use)
    if isinstance(answer, InputError):
        raise answer
    return answer


def estimated_all(queries: Sequence[Query], in_use: InUse) -> list[ServingOut | InputError]:
    """The answer to each query, or the error that prevents one; all are predicted in one call."""
    return [
        prediction if isinstance(prediction, InputError) else _served(query, prediction, in_use)
        for query, prediction in zip(
            queries, predicted(in_use.loaded.predictor, queries), strict=True
        )
    ]


def predicted(predictor: Predictor, queries: Sequence[Query]) -> list[Prediction | InputError]:
    """The prediction of each query, in one call, or one call a query where one is rejected."""
    rows, found, errors = answered(predictor, queries)
    outcomes: dict[int, Prediction | InputError] = {**errors}
    if found is not None:
        outcomes |= zip(rows, found, strict=True)
    return [outcomes[row] for row in range(len(queries))]


def answered(
    predictor: Predictor, queries: Sequence[Query]
) -> tuple[list[int], Predictions | None, dict[int, InputError]]:
    """Predictions of the queries that are not rejected.

    Args:
        predictor: a predictor.
        queries: n queries.

    Returns:
        Positions of those that are answered, their predictions, which are None where there are
        none, and position -> error of those that are rejected.
    """
    errors: dict[int, InputError] = {}
    # Absurd sheets and sizes overflow here; answers that are not finite are rejected later.
    with np.errstate(all="ignore"):
        try:
            return list(range(len(queries))), predictor.predict(queries) if queries else None, {}
        except InputError as error:
            errors = {0: error} if len(queries) == 1 else _errors(predictor, queries)
        rows = [row for row in range(len(queries)) if row not in errors]
        found = predictor.predict([queries[row] for row in rows]) if rows else None
    return rows, found, errors


def _errors(predictor: Predictor, queries: Sequence[Query]) -> dict[int, InputError]:
    """Position -> error of each query that is rejected alone."""
    errors: dict[int, InputError] = {}
    for row, query in enumerate(queries):
        try:
            predictor.predict([query])
        except InputError as error:
            errors[row] = error
    return errors


def _served(query: Query, prediction: Prediction, in_use: InUse) -> ServingOut | InputError:
    asked = OF_SERVING[query.workload.kind]
    estimates = within_sheet(prediction.estimates, query)
    known = {name: estimates[name] for name in asked if name in estimates}
    if not known and prediction.withheld:
        why = next(iter(prediction.withheld.values()))
        return UnanswerableQuery(f"Nothing is answered: {why}.")
    if not known or not all(isfinite(estimate.value) for estimate in known.values()):
        return UnanswerableQuery(
            "The answer is beyond every number; check the sizes and the figures of the spec sheet."
        )
    limits = [*map(in_words, prediction.limits), *too_heavy(query)]
    evidence = evidence_of(query, known, in_use)
    of_power = [replace(limit, metric=POWER) for limit in limits]
    trust = {
        name: trust_in(name, known, query, of_power if name == POWER else limits, evidence)
        for name in known
    }
    usual = DIFFUSION_MISSING if query.workload.kind == "diffusion" else MISSING
    return ServingOut(
        metrics={name: graded(name, known[name], trust[name]) for name in known},
        missing={**usual, **{n: why for n, why in prediction.withheld.items() if n in asked}},
        in_domain=all(limit.in_domain for limit in limits),
        limits=[str(limit) for limit in limits],
        limit_details=[LimitOut.of(limit) for limit in limits],
        device=DeviceOut(name=query.device.name, origin=query.device.origin),
        device_count=query.operation.device_count,
        predictor=predictor_out(in_use, in_use.rows.get(query.device, 0)),
    )


def graded(name: str, estimate: Estimate, trust: Trust) -> GradedOut:
    """An estimate of a metric with its unit and grade."""
    return GradedOut(
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        coverage=estimate.coverage,
        unit=metric(name).unit,
        grade=trust.grade,
        grade_reason=trust.reason,
    )
