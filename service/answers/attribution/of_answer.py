"""The attribution of an answer, where the request asks for one."""

from collections.abc import Mapping

from forerun.data.query import Query
from forerun.data.workload import Design, OperatorWorkload
from forerun.models.prediction import Estimate
from forerun.models.predictor import Predictor
from forerun.service.answers.attribution.by_operator import by_operator
from forerun.service.schemas.answers import AttributionOut


def attribution_of(
    query: Query,
    breakdown_ms: Mapping[str, float],
    estimates: Mapping[str, Estimate],
    predictor: Predictor,
) -> AttributionOut | None:
    """An estimate divided among its parts; None where there are none.

    Args:
        query: the query as the predictors receive it.
        breakdown_ms: operator class, or `HOST` -> milliseconds, which add up to the latency.
        estimates: metric -> estimate that is returned.
        predictor: the predictor that answered.
    """
    if isinstance(query.workload, OperatorWorkload) and breakdown_ms:
        return by_operator(query, breakdown_ms, predictor)
    if isinstance(query.workload, Design) and "latency_cycles" in estimates:
        # Questions about networks do not load the predictors of designs.
        from forerun.service.answers.attribution.by_loop import by_loop

        return by_loop(query, query.workload, predictor)
    return None
