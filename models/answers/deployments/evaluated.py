"""Whole answers about deployments as a predictor, which evaluations fit and score."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from forerun.data.errors import InputError
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.answers.deployments.answer import deployed_all
from forerun.models.answers.deployments.metrics import METRICS, SOURCES
from forerun.models.answers.in_use import InUse
from forerun.models.prediction import Estimate, Predictions
from forerun.models.router import Router

TIMES_BY = "llm_latency"
"""Predictor that is fitted; power keeps its own training set."""


@dataclass(frozen=True)
class AnsweredDeployments:
    """Times and rates of deployments as they are answered.

    Attributes:
        in_use: the predictor in use, whose router has a part that predicts times.
    """

    in_use: InUse
    name: ClassVar[str] = "answered_deployments"
    metrics: ClassVar[tuple[str, ...]] = tuple(n for n in METRICS if SOURCES.get(n) == TIMES_BY)

    def answers(self, query: Query) -> bool:
        """Deployed language models."""
        return query.workload.kind == "llm_deployment"

    def fit(self, measurements: Measurements) -> Self:
        """Answers from the predictor of times fitted to rows, and the others as they are."""
        router = self.in_use.loaded.predictor
        assert isinstance(router, Router)
        parts = tuple(
            part.fit(measurements) if part.name == TIMES_BY else part for part in router.parts
        )
        loaded = replace(self.in_use.loaded, predictor=replace(router, parts=parts))
        return replace(self, in_use=replace(self.in_use, loaded=loaded))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The estimates of each answer; NaN where one is not known.

        Raises:
            InputError: a deployment cannot be answered.
        """
        nothing = Estimate(np.nan)
        table = np.full((len(self.metrics), len(queries), 3), np.nan)
        limits = []
        for row, found in enumerate(deployed_all(queries, self.in_use)):
            if isinstance(found, InputError):
                raise found
            limits.append(found.limits)
            for column, name in enumerate(self.metrics):
                own = found.estimates.get(name, nothing)
                table[column, row] = own.value, own.low, own.high
        values, low, high = (
            dict(zip(self.metrics, table[:, :, end], strict=True)) for end in range(3)
        )
        return Predictions(values, low, high, 0.9, limits)
