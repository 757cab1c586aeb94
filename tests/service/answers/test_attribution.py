"""An attribution adds up to the answer, whatever the network, the device and the set-up."""

from collections import Counter
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import InputError
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.data.workload import Design, Kernel, Network
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import Scope
from forerun.models.hls_designs.features import METRICS as OF_DESIGNS
from forerun.models.prediction import OperatorTime
from forerun.service.answers.answer import answer_of
from forerun.service.answers.attribution import MOST_PARTS, attribution_of
from forerun.service.answers.question import question_about
from forerun.service.presets import presets
from forerun.service.schemas.answers import REST
from forerun.service.schemas.prediction import PredictIn
from forerun.service.schemas.workloads import any_workload_of
from tests.devices import CATALOG
from tests.laws import graphs
from tests.models.networks.test_device_time import network

DEVICES = ("rtx-4090", "a100-pcie-80gb", "l4", "t4", "h100-sxm", "epyc-7763")
RUNS = ("eager", "compiled", "onnxruntime")


@pytest.fixture(scope="module")
def in_use():
    return InUse(bundled(Scope(frozenset({"network", "kernel", "design"}))))


def explained(query, in_use, metrics=("latency_ms",)):
    return answer_of(question_about(query, metrics, explain=True), in_use)


def check_sum(answer):
    """The parts add up to the estimate, those of a class to the breakdown; none is negative."""
    own, latency = answer.attribution, answer.metrics["latency_ms"].value
    assert (own.form, own.base) == ("sum", 0.0)
    assert sum(part.value for part in own.parts) == pytest.approx(latency, rel=1e-9)
    assert sum(answer.breakdown_ms.values()) == pytest.approx(latency, rel=1e-9)
    assert min(part.value for part in own.parts) >= 0.0
    assert [part.value for part in own.parts[:MOST_PARTS]] == sorted(
        (part.value for part in own.parts[:MOST_PARTS]), reverse=True
    )
    check_sums_by_class(own, answer)
    if own.parts[-1].group != REST:
        groups = Counter()
        for part in own.parts:
            groups[part.group] += part.value
        assert groups == pytest.approx(answer.breakdown_ms, rel=1e-9, abs=1e-12)
    on_device = latency - answer.breakdown_ms.get("host", 0.0)
    if own.kernels:
        assert own.kernels * own.correction == pytest.approx(on_device, rel=1e-9, abs=1e-12)


def check_sums_by_class(own, answer):
    """Every class has its sum, the largest first: its entry of the breakdown."""
    sums = {each.group: each.value for each in own.by_class}
    assert sums == pytest.approx(answer.breakdown_ms, rel=1e-9, abs=1e-12)
    assert list(sums.values()) == sorted(sums.values(), reverse=True)
    assert sum(sums.values()) == pytest.approx(answer.metrics["latency_ms"].value, rel=1e-9)
    count = sum(part.count for part in own.parts)
    assert sum(each.count for each in own.by_class) == pytest.approx(count)


@given(
    graph=graphs(),
    device=st.sampled_from(DEVICES),
    batch=st.sampled_from([1, 3, 64]),
    precision=st.sampled_from(["fp32", "amp", "fp16", "int8"]),
    phase=st.sampled_from(["inference", "training"]),
    runtime=st.sampled_from(RUNS),
    limited=st.booleans(),
)
@pytest.mark.slow
def test_the_parts_of_any_network_add_up_to_its_latency(
    in_use, graph, device, batch, precision, phase, runtime, limited
):
    workload, where = Network(graph, batch, precision, phase), CATALOG.get(device)
    operation = Operation(1, 0.7 * where.tdp_w if limited else None)
    query = Query(workload, where, Software(runtime=runtime), operation)
    try:
        answer = explained(query, in_use)
    except InputError:
        return  # this device or runtime does not run it
    if answer.metrics["latency_ms"] is None:
        assert answer.attribution is None
    else:
        check_sum(answer)


@pytest.mark.parametrize("precision", ["fp32", "amp"])
@pytest.mark.parametrize("device", ["rtx-4090", "l4"])
def test_layers_with_more_arithmetic_take_more_of_the_time(in_use, device, precision):
    query = Query(Network(network(128, 6), 256, precision), CATALOG.get(device), Software())
    answer = explained(query, in_use)
    check_sum(answer)
    times = {part.label: part for part in answer.attribution.parts if part.group == "conv"}
    (first,) = (part for label, part in times.items() if "1x3x56x56" in label)
    (others,) = (part for label, part in times.items() if "1x128x56x56 -> 1x128x56x56" in label)
    assert (first.count, others.count) == (1.0, 6.0)
    assert others.value / others.count > 1.9 * first.value


@pytest.mark.parametrize("batch", [1, 2])
def test_nodes_on_a_processor_have_the_shares_of_their_classes(in_use, batch):
    software = Software(framework="onnxruntime", runtime="onnxruntime")
    query = Query(Network(network(32, 3), batch), CATALOG.get("epyc-7763"), software)
    answer = explained(query, in_use)
    check_sum(answer)
    times = in_use.loaded.predictor.answering(query, "latency_ms").operator_times(query)
    by_class = Counter()
    for time in times:
        by_class[time.op_class] += time.ms / answer.attribution.kernels
    latency = answer.metrics["latency_ms"].value
    shares = {name: ms / latency for name, ms in answer.breakdown_ms.items()}
    assert by_class == pytest.approx(shares, rel=1e-9)
    assert {"conv", "overhead"} <= set(shares)
    assert "unknown" not in shares


def test_a_single_operator_is_all_of_its_answer(in_use):
    op = Operator("linear", "fc", ((512, 1024),), ((512, 4096),), 1024 * 4096)
    answer = explained(Query(Kernel(op), CATALOG.get("t4")), in_use)
    (part,) = answer.attribution.parts
    assert part.label == "fc 512x1024 -> 512x4096"
    assert part.value == pytest.approx(answer.metrics["latency_ms"].value, rel=1e-12)


def test_many_parts_are_added_up_in_the_last(in_use):
    shapes = [(1, 64 + place) for place in range(2 * MOST_PARTS)]
    ops = [Operator("linear", "fc", (s,), (s,), prod(s) ** 2) for s in shapes]
    query = Query(Network(OperatorGraph(tuple(ops)), 1), CATALOG.get("t4"), Software())
    answer = explained(query, in_use)
    check_sum(answer)
    assert len(answer.attribution.parts) == MOST_PARTS + 1
    assert "smaller parts" in answer.attribution.parts[-1].label


def test_sums_by_class_include_the_parts_without_an_entry(in_use):
    shapes = [(1, 64 + place) for place in range(2 * MOST_PARTS)]
    ops = [
        Operator(kind, kind, (s,), (s,), prod(s) ** 2)
        for s in shapes
        for kind in ("linear", "softmax")
    ]
    query = Query(Network(OperatorGraph(tuple(ops)), 1), CATALOG.get("t4"), Software())
    answer = explained(query, in_use)
    sums = {each.group: each for each in answer.attribution.by_class}
    assert answer.attribution.parts[-1].group == REST
    assert sums["linear"].parts == sums["softmax"].parts == 2 * MOST_PARTS
    check_sums_by_class(answer.attribution, answer)


class Timed:
    """A predictor of sums with given times of operators."""

    def __init__(self, *times):
        self._times = list(times)

    def operator_times(self, query):
        return self._times


def test_a_class_is_divided_in_proportion_and_without_operators_stays_one_part():
    query = Query(Network(network(16, 1), 1), CATALOG.get("t4"), Software())
    timed = Timed(
        OperatorTime("a", "conv", 1.0, 1.0),
        OperatorTime("b", "conv", 2.0, 3.0),
        OperatorTime("c", "norm", 1.0, 5.0),
    )
    own = attribution_of(query, {"conv": 8.0, "copy": 1.5, "host": 0.5}, {}, timed)
    values = {(part.label, part.group): part.value for part in own.parts}
    assert values == {("a", "conv"): 2.0, ("b", "conv"): 6.0,
                      ("copy", "copy"): 1.5, ("host", "host"): 0.5}  # fmt: skip
    assert (own.kernels, own.correction) == (9.0, pytest.approx(9.5 / 9.0))


def test_an_answer_is_divided_only_where_it_was_asked(in_use):
    query = Query(Network(network(16, 1), 1), CATALOG.get("t4"), Software())
    question = question_about(query, ("latency_ms",))
    assert answer_of(question, in_use).attribution is None
    assert question.key != question_about(query, ("latency_ms",), explain=True).key


@pytest.mark.parametrize("preset", [p for p in presets() if p.kind == "design"], ids=str)
def test_the_factors_of_loops_multiply_to_the_cycles(in_use, preset):
    asked = PredictIn.model_validate(preset.request)
    workload = any_workload_of(asked.workload, lambda name: None)
    assert isinstance(workload, Design)
    query = Query(workload, CATALOG.get("l4"), asked.software)
    answer = explained(query, in_use, OF_DESIGNS)
    own = answer.attribution
    assert (own.metric, own.form) == ("latency_cycles", "product")
    whole = own.base * prod(part.value for part in own.parts)
    assert whole == pytest.approx(answer.metrics["latency_cycles"].value, rel=1e-9)
    assert all(part.group == "loop" for part in own.parts)
