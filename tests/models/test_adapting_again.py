"""Adapting to one more device predicts no rows of others again, and ends the same."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.router import Router

CATALOG = DeviceCatalog.load()
SIDES = (2048, 3072)
GRAPHS = [
    OperatorGraph(
        (
            Operator("linear", "a", ((1, side),), ((1, side),), side * side),
            Operator("elementwise", "b", ((1, side),), ((1, side),), inputs=(0,)),
        )
    )
    for side in SIDES
]


def unused() -> Router:
    """The bundled predictors without what they keep of earlier rows."""
    router = bundled().predictor
    assert isinstance(router, Router)
    latency = next(part for part in router.parts if part.name == "network_latency")
    fresh = replace(  # type: ignore[type-var]
        latency,
        device=replace(latency.device),  # type: ignore[attr-defined]
        operators=replace(latency.operators),  # type: ignore[attr-defined]
    )
    return replace(router, parts=(fresh,))


def measured(router: Router, name: str) -> Measurements:
    queries = [
        Query(Network(graph, 4096 * batch, "fp32"), CATALOG.get(name))
        for graph in GRAPHS
        for batch in (1, 2, 3)
    ]
    return Measurements(queries, {"latency_ms": 1.2 * router.predict(queries).values["latency_ms"]})


def test_rows_of_other_devices_are_not_predicted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (measured(unused(), name) for name in ("l4", "a40"))
    rows: list[int] = []
    predict = BoosterBag.predict

    def counted(self: BoosterBag, matrix: np.ndarray) -> np.ndarray:
        rows.append(len(matrix))
        return predict(self, matrix)

    monkeypatch.setattr(BoosterBag, "predict", counted)
    router = unused()
    router.adapt(first)
    alone = sum(rows)
    rows.clear()
    both = router.adapt(first + second)
    assert 0 < sum(rows) < 1.5 * alone
    queries = [*first.queries, *second.queries]
    expected = unused().adapt(first + second).predict(queries).values["latency_ms"]
    np.testing.assert_allclose(both.predict(queries).values["latency_ms"], expected, rtol=1e-9)
