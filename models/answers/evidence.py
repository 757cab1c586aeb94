"""Collects the evidence behind an answer: its predictors, their training record and limits."""

from collections.abc import Iterable

from forerun.data.query import Query
from forerun.models.answers.served_models import InUse
from forerun.models.answers.trust import Evidence
from forerun.models.limit import Limit
from forerun.models.router import Router


def evidence_of(query: Query, estimates: Iterable[str], in_use: InUse) -> Evidence:
    """The evidence behind the answers to a query."""
    predictor = in_use.loaded.predictor
    if isinstance(predictor, Router):
        parts = {name: predictor.answering(query, name) for name in estimates}
        names = {name: part.name for name, part in parts.items() if part is not None}
    else:
        names = dict.fromkeys(estimates, predictor.name)
    return Evidence(in_use.loaded.record, names, in_use.measured.get(query.device, {}))


def distinct(limits: Iterable[Limit]) -> list[Limit]:
    """The limits without repeated sentences."""
    first: dict[str, Limit] = {}
    for limit in limits:
        first.setdefault(str(limit), limit)
    return list(first.values())
