"""Words of an answer: what was assumed, the set-up, and prices that are not known."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.workloads.operators import reference_operators
from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.language_models.deployment import LlmDeployment, RequestLoad
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import InferenceSetup, Kernel, Network
from forerun.features.chips import DEVICE_RATIOS
from forerun.features.operators.features import SHORTEST_KERNEL_MS
from forerun.features.readers.language_model.reader import named_config, read_language_model
from forerun.models.answers.answer import below_a_launch, not_priced
from forerun.models.answers.assumed import FOLDED, assumed_in_reading, not_run, set_up_limits
from forerun.models.answers.deployments.limits import of_servers
from forerun.models.answers.served_models import InUse
from forerun.models.answers.wording import in_words
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.limit import LATENCY, Limit
from forerun.models.networks.rows import RANGED_FEATURES
from forerun.models.prediction import Estimate
from forerun.service.answers.answer import answer_of
from forerun.service.answers.question import question_about
from tests.devices import CATALOG

# Limits: quantities in words, never the names of features.


METRICS = ("latency_ms", "power_w", "peak_memory_mib", "energy_j", "allocated_memory_mib")


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        (
            ("log_ridge", 4.94, 2.31, 3.62),
            "FLOPs at peak per byte of memory bandwidth: 140; the training set has 10 to 37",
        ),
        (
            ("share_pool", 0.0106, 0.0, 0.0),
            "time in kernels of class pool: 1.1 %; the training set has 0 %",
        ),
        (
            ("mean_share_of_weights", 1.0, 1.33e-05, 0.855),
            "weights among the bytes that are moved: 100 %; the training set has 0.0013 % to 86 %",
        ),
        (
            ("mean_torch_version", 2.09, 2.02, 2.04),
            "torch version: 2.9; the training set has 2.2 to 2.4",
        ),
    ],
)
def test_a_feature_out_of_range_is_reported_as_a_quantity(figures, sentence):
    feature, value, low, high = figures
    limit = Limit("", LATENCY, feature=feature, value=value, low=low, high=high)
    assert in_words(limit) == replace(limit, message=sentence)


@given(st.text(min_size=1), st.sampled_from([None, *METRICS]))
def test_every_other_sentence_stays_as_it_is(message, metric):
    limit = Limit(message, metric)
    assert in_words(limit) == limit


def test_a_sentence_is_valid_unicode():
    assert in_words(Limit("no result of the model \ud800")).message.isascii()


@given(st.sampled_from(METRICS[:3]), st.sampled_from(METRICS))
def test_a_limit_concerns_the_metrics_that_depend_on_its_own(own, metric):
    """Energy is power times time; memory depends on neither."""
    depends = {"energy_j": {"power_w", "latency_ms"}, "allocated_memory_mib": {"peak_memory_mib"}}
    assert Limit("x", own).concerns(metric) == (own in depends.get(metric, {metric}))


FEATURES = {*RANGED_FEATURES, *DEVICE_RATIOS}


@given(st.sampled_from(sorted(FEATURES)), st.floats(-1e6, 1e6))
def test_no_feature_is_called_by_its_own_name(feature, value):
    training_range = FeatureRange((feature,), np.array([2e6]), np.array([2e6]))
    (limit,) = training_range.outside(np.array([value]))
    said = in_words(limit).message
    assert said != str(limit)
    assert "_" not in said
    assert feature not in said


def test_answers_of_the_bundled_predictors_are_words():
    catalog, in_use = DeviceCatalog.load(), InUse(bundled())
    sheet_fields = set(catalog.get("l4").model_dump())
    asked = [
        Query(Kernel(op, "fp32"), catalog.get(name))
        for op in reference_operators()
        for name in ("l4", "h100-sxm", "xeon-8175m")
        if name in catalog.names()
    ]
    lines = {x for q in asked for x in answer_of(question_about(q), in_use).limits}
    assert lines
    strange = {w for line in lines for w in line.split() if "_" in w} - sheet_fields
    assert strange == set()


def test_numbers_of_tokens_are_whole():
    limit = Limit("", None, "outside", "log_input_tokens", log(512.0), log(1002.0), log(15063.0))
    assert in_words(limit).message == "input tokens: 512; the training set has 1,002 to 15,063"


# Limits by what a file leaves out.


def chain(kinds):
    shape = (1, 8, 8, 8)
    attributes = {"kernel": (3, 3), "groups": 1}
    ops = tuple(Operator(kind, kind, (shape,), (shape,), 9, attributes) for kind in kinds)
    return OperatorGraph(ops, source="onnx")


def test_training_of_a_file_without_norms_says_that_they_were_folded():
    folded, whole = chain(["conv"] * 9), chain(["conv", "batch_norm"] * 9)
    said = assumed_in_reading(Network(folded, phase="training"))
    assert {limit.metric for limit in said} == {"latency_ms", "peak_memory_mib"}
    assert {limit.message for limit in said} == {FOLDED}
    assert not assumed_in_reading(Network(folded))
    assert not assumed_in_reading(Network(whole, phase="training"))


# Nothing is said about runs that a device does not do, or whose rate no figure tells.


SCORES = ((2, 4, 8, 8),)
SOFTMAX = Operator("softmax", "aten.softmax", SCORES, SCORES)
ATTENTION = Operator("attention", "aten.attention", ((2, 4, 8, 16),) * 3, ((2, 4, 8, 16),))
RELU = Operator("elementwise", "relu", ((4, 8),), ((4, 8),))


def asked(device, precision="fp32", runtime="eager"):
    return Query(Kernel(RELU, precision), CATALOG.get(device), Software(runtime=runtime))


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
def test_a_processor_has_no_time_in_a_format_without_a_rate(precision):
    reasons = not_run(asked("core-i7-12700h", precision))
    assert set(reasons) == {"latency_ms", "utilisation", "power_w", "energy_j"}
    assert "has no" in reasons["latency_ms"]
    assert not not_run(asked("core-i7-12700h", "tf32"))
    assert not not_run(asked("p4", precision))


def test_a_processor_has_a_time_in_a_format_of_its_sheet():
    assert not not_run(asked("core-i9-10940x", "int8"))


@pytest.mark.parametrize("part", ["l40s-12q", "a100-sxm-80gb-mig-3g-40gb"])
def test_a_part_of_a_gpu_is_said_of_its_times(part):
    model = read_language_model(named_config("meta-llama/Llama-3.1-8B"))
    deployed = LlmDeployment(model, RequestLoad(99.0, 9.0, 1.0))
    for of, workload in ((set_up_limits, Kernel(RELU)), (of_servers, deployed)):
        (said,) = of(Query(workload, CATALOG.get(part)))
        assert said.message in CATALOG.get(part).caveats
        assert said.severity == "outside"
        assert of(Query(workload, CATALOG.get("l40s"))) == []


def test_tensorrt_runs_on_gpus_of_nvidia_alone():
    assert not not_run(asked("l4", runtime="tensorrt"))
    for other in ("mi300x", "core-i7-12700h"):
        assert "NVIDIA" in not_run(asked(other, runtime="tensorrt"))["latency_ms"]


@pytest.mark.parametrize(
    ("operator", "attention", "said"),
    [(SOFTMAX, "flash", True), (SOFTMAX, "eager", False), (ATTENTION, "flash", False)],
)
def test_flash_attention_of_a_graph_in_steps_is_refused_in_the_limits(operator, attention, said):
    network = Network(OperatorGraph((operator,)), inference=InferenceSetup(attention=attention))
    limits = set_up_limits(Query(network, CATALOG.get("a10")))
    assert any("trace the network" in limit.message for limit in limits) is said


# Nothing is said about the time of a network most of which no predictor knows.


SHAPE = ((4, 8),)
KNOWN = Operator("elementwise", "relu", SHAPE, SHAPE)


def unknown(name="mystery", shapes=SHAPE, repeat=1):
    return Operator("unknown", name, shapes, shapes, repeat=repeat)


def of_operators(*operators):
    return Query(Network(OperatorGraph(operators), 1, "fp32"), CATALOG.get("l4"))


def test_half_of_the_operators_may_be_unknown_and_not_more():
    assert not_priced(of_operators(KNOWN, unknown())) == {}
    reasons = not_priced(of_operators(KNOWN, unknown("b"), unknown("a")))
    assert set(reasons) == {"latency_ms", "power_w", "energy_j", "utilisation"}
    assert reasons["latency_ms"].endswith("make up 67 % of the network's runs of operators: a, b")


def test_operators_count_as_often_as_they_run():
    assert not_priced(of_operators(KNOWN, KNOWN, unknown(repeat=3)))


def test_few_operators_that_move_most_of_the_elements_are_too_many():
    reasons = not_priced(of_operators(KNOWN, KNOWN, unknown(shapes=((100, 8),))))
    assert "% of the network's memory traffic: mystery" in reasons["energy_j"]


def test_the_most_frequent_names_come_first():
    graph = of_operators(*(unknown(f"n{i}") for i in range(9)), unknown("n8"))
    assert not_priced(graph)["power_w"].endswith(": n8, n0, n1, n2, n3 and 4 more")


def test_a_single_operator_is_answered_by_its_traffic():
    assert not_priced(Query(Kernel(unknown(), "fp32"), CATALOG.get("l4"))) == {}


@pytest.mark.parametrize("latency", [Estimate(SHORTEST_KERNEL_MS), Estimate(1.0), None])
def test_a_launch_or_more_is_answered(latency):
    assert below_a_launch(of_operators(KNOWN), latency) == {}


def test_less_than_a_launch_is_not():
    reasons = below_a_launch(of_operators(KNOWN), Estimate(65e-6))
    assert "65 ns is shorter than one kernel launch, 2 microseconds" in reasons["latency_ms"]
    on_cpu = Query(of_operators(KNOWN).workload, CATALOG.get("epyc-7763"))
    assert below_a_launch(on_cpu, Estimate(65e-6)) == {}
