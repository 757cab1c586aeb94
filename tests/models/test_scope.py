"""Parts that a question does not need are left out, and the answer is the same in every bit."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.artifact.stored_predictor import load_part
from forerun.models.baselines.constant import Constant
from forerun.models.catalog import PREDICTORS, Scope
from forerun.models.router import Router
from tests.golden.in_python import query_of
from tests.golden.stored import kinds, questions_of

CATALOG = DeviceCatalog.load()
LINEAR = Operator("linear", "fc", ((8, 1024),), ((8, 4096),), 4096 * 1024)
RELU = Operator("elementwise", "relu", ((8, 4096),), ((8, 4096),), inputs=(0,))
GRAPH = OperatorGraph((LINEAR, RELU), batch_size=8)
WHOLE = bundled().predictor


def questions():
    """Questions that Python asks in the stored answers, and some about networks and operators."""
    for content in map(questions_of, kinds()):
        if content["through"] == "python":
            yield from map(query_of, list(content["questions"].values())[::12])
    limit = Operation(power_limit_w=150.0)
    for name in ("l4", "a100-pcie-80gb", "rtx-4090"):
        for workload in (Network(GRAPH, 8), Network(GRAPH, 64, "amp"), Kernel(LINEAR)):
            yield Query(workload, CATALOG.get(name))
        yield Query(Network(GRAPH, 8), CATALOG.get(name), operation=limit)
        yield Query(Network(GRAPH, 8, phase="training"), CATALOG.get(name))
    cpu = next(device for device in CATALOG if device.kind == "cpu")
    yield Query(Network(GRAPH, 8), cpu, Software(runtime="onnxruntime", threads=2))
    yield Query(Network(GRAPH, 8), cpu)


def scope_of(query):
    return Scope(frozenset({query.workload.kind}), frozenset({query.device.kind}))


def described(predictor, query):
    """All that is not NaN in a prediction, or that there is none."""
    if not predictor.answers(query):
        return None
    found = predictor.predict([query])
    columns = (found.values, found.low, found.high, found.row_coverage)
    numbers = [
        {name: column.tobytes() for name, column in part.items() if not np.isnan(column).all()}
        for part in columns
    ]
    return numbers, found.limits, found.breakdowns_ms, found.breakdowns_mib


@pytest.mark.slow
def test_every_question_has_the_same_answer_without_the_other_parts():
    seen, fewer = set(), False
    for query in questions():
        part = bundled(scope_of(query)).predictor
        fewer |= len(part.parts) < len(WHOLE.parts) / 2
        seen.add((query.workload.kind, query.device.kind))
        assert described(part, query) == described(WHOLE, query), query
    assert fewer
    assert len(seen) > 4, "the questions are of many kinds"


def test_a_predictor_answers_nothing_outside_of_what_the_catalogue_says():
    for query in questions():
        for part in WHOLE.parts:
            if not scope_of(query).concerns(part.name):
                assert not part.answers(query), (part.name, query)


def test_a_predictor_of_another_package_is_always_loaded(tmp_path):
    scope = Scope(frozenset({"network"}), frozenset({"gpu"}))
    assert "mine" not in PREDICTORS
    assert scope.concerns("mine")
    assert not scope.concerns("design_boost")
    other = next(part for part in WHOLE.parts if part.name == "design_boost")
    Router((Constant({"latency_ms": 1.0}), other)).save(tmp_path)
    names = [part.name for part in load_part(tmp_path, scope).parts]
    assert names == ["constant"]
    assert [part.name for part in load_part(tmp_path).parts] == ["constant", "design_boost"]


@pytest.mark.parametrize(
    ("workload", "device", "concerned"),
    [("network", "gpu", False), ("network", "cpu", True), ("architecture", "cpu", False)],
)
def test_both_the_workload_and_the_device_decide(workload, device, concerned):
    scope = Scope(frozenset({workload}), frozenset({device}))
    assert scope.concerns("cpu_latency") == concerned
