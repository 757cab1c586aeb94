"""Wraps a whole release as one predictor, so that protocols evaluate the answers users get."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.answers.answer import Answer, Asked, answers_to
from forerun.models.answers.deployments.answer import Deployed, deployed_all
from forerun.models.answers.served_models import InUse
from forerun.models.prediction import Predictions
from forerun.models.predictor import Suggesting


@dataclass(frozen=True)
class WholeAnswers:
    """Answers of a release as columns.

    Its predictors are fitted one by one by the recipes of the release.

    Attributes:
        in_use: the predictors, their training record, and the measurements they were adapted to.
        metrics: names of the requested metrics.
    """

    in_use: InUse
    metrics: tuple[str, ...]
    name: ClassVar[str] = "answers"

    def only(self, metrics: Sequence[str]) -> Self:
        """A copy restricted to these metrics."""
        return replace(self, metrics=tuple(metrics))

    def answers(self, query: Query) -> bool:
        """Whether any predictor answers the query."""
        return self.in_use.loaded.predictor.answers(query)

    def adapt(self, measurements: Measurements) -> Self:
        """Answers by predictors adapted to measured rows."""
        return replace(self, in_use=self.in_use.adapted_to(measurements))

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the queries to measure next; empty if the predictor cannot suggest any."""
        predictor = self.in_use.loaded.predictor
        return predictor.suggest(queries, count, seed) if isinstance(predictor, Suggesting) else []

    def answer(self, queries: Sequence[Query]) -> list[Answer | Deployed | InputError]:
        """The answer to each query, or the error that prevents it."""
        found: dict[int, Answer | Deployed | InputError] = {}
        deployed = (isinstance(query.workload, LlmDeployment) for query in queries)
        for is_deployed, rows in groups_of(deployed).items():
            members = [queries[row] for row in rows]
            answers: Sequence[Answer | Deployed | InputError] = (
                deployed_all(members, self.in_use)
                if is_deployed
                else answers_to([Asked(query, self.metrics) for query in members], self.in_use)
            )
            found |= zip(rows, answers, strict=True)
        return [found[row] for row in range(len(queries))]

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The answers as columns; NaN and an empty grade where there is no answer."""
        found = self.answer(queries)
        size, nothing = len(queries), ""
        values, low, high, coverage = (
            {name: np.full(size, np.nan) for name in self.metrics} for _ in range(4)
        )
        grades = {name: [nothing] * size for name in self.metrics}
        for row, answer in enumerate(found):
            if isinstance(answer, InputError):
                continue
            for name in answer.trust.keys() & grades.keys():
                trust = answer.trust[name]
                estimate = answer.estimates[name]
                grades[name][row] = trust.grade
                values[name][row] = estimate.value
                for column, end in (
                    (low, estimate.low),
                    (high, estimate.high),
                    (coverage, estimate.coverage),
                ):
                    column[name][row] = np.nan if end is None else end
        known = [None if isinstance(answer, InputError) else answer for answer in found]
        runs = [answer if isinstance(answer, Answer) else None for answer in found]
        return Predictions(
            values,
            low,
            high,
            limits=[() if answer is None else answer.limits for answer in known],
            breakdowns_ms=[{} if answer is None else answer.breakdown_ms for answer in runs],
            breakdowns_mib=[{} if answer is None else answer.breakdown_mib for answer in runs],
            row_coverage=coverage,
            grades=grades,
        )
