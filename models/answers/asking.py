"""Ask a predictor about many queries, of which it may reject some."""

from collections.abc import Sequence

import numpy as np

from forerun.data.errors import InputError
from forerun.data.query import Query
from forerun.models.prediction import Prediction, Predictions
from forerun.models.predictor import Predictor


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
