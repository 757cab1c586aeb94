"""Questions that HTTP does not take, asked of the bundled predictors in Python."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.data.workload import Architecture, Benchmark, Design, Network, TrainingSetup, Workload
from forerun.models.prediction import Predictions
from tests.golden.bundle import predictors
from tests.golden.graphs import graph_named
from tests.programs import nested

CATALOG = DeviceCatalog.load()


def answers_in_python(content: Mapping[str, Any]) -> dict[str, Any]:
    """Question -> answer.

    Args:
        content: `before`, questions with `values` that the predictors are adapted on first;
            `questions`, name -> `workload`, `device`, and `software` and `operation` if any.
    """
    predictor: Any = predictors().predictor
    measured = content.get("before", ())
    if measured:
        metrics = sorted({name for one in measured for name in one["values"]})
        values = {m: np.array([one["values"].get(m, np.nan) for one in measured]) for m in metrics}
        predictor = predictor.adapt(Measurements([query_of(one) for one in measured], values))
    answers = {}
    for name, question in content["questions"].items():
        try:
            answers[name] = described(predictor.predict([query_of(question)]), 0)
        except InputError as error:
            answers[name] = {"status": error.status, "detail": str(error)}
    return answers


def described(predictions: Predictions, row: int) -> dict[str, Any]:
    """One row as JSON: every estimate, withheld ones among them."""
    one = predictions[row]
    metrics = {}
    for name, column in predictions.values.items():
        if np.isnan(column[row]):
            continue
        metrics[name] = {"value": float(column[row])}
        if name in predictions.low and not np.isnan(predictions.low[name][row]):
            ends = float(predictions.low[name][row]), float(predictions.high[name][row])
            metrics[name] |= {"low": ends[0], "high": ends[1]}
            share = predictions.coverage_of(name)
            own = predictions.row_coverage.get(name)
            if own is not None and not np.isnan(own[row]):
                share = float(own[row])
            metrics[name] |= {} if share is None else {"coverage": share}
    parts = {"breakdown_ms": one.breakdown_ms, "breakdown_mib": one.breakdown_mib}
    parts |= {"withheld": one.withheld}
    filled = {name: dict(part) for name, part in parts.items() if part}
    return {
        "metrics": metrics,
        "limits": list(map(str, one.limits)),
        "in_domain": one.in_domain,
        **filled,
    }


def query_of(question: Mapping[str, Any]) -> Query:
    """A question in JSON as a query."""
    device = question["device"]
    return Query(
        _workload(question["workload"]),
        CATALOG.get(device) if isinstance(device, str) else Device.model_validate(device),
        Software.model_validate(question.get("software", {})),
        Operation(**question.get("operation", {})),
    )


def _workload(given: Mapping[str, Any]) -> Workload:
    match given["kind"]:
        case "architecture":
            return Architecture(given["space"], tuple(given["operators"]))
        case "benchmark":
            return Benchmark(given["suite"], _pairs(given["settings"]))
        case "design":
            return Design(nested(given["trips"]), _pairs(given["directives"]))
        case "network":
            graph = OperatorGraph.from_json(graph_named(given["graph"]))
            rest = {name: given[name] for name in ("batch_size", "precision", "phase")}
            training = TrainingSetup(**given["training"]) if "training" in given else None
            return Network(graph, **rest, training=training)
    raise ValueError(f"no questions about {given['kind']!r} in Python")


def _pairs(given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(given.items()))


def refit_answers(predictor: Any, queries: Sequence[Query], name: str) -> dict[str, Any]:
    """`name/row` -> answer of a predictor that was fitted for the purpose."""
    answers = predictor.predict(queries)
    return {f"{name}/{row}": described(answers, row) for row in range(len(queries))}
