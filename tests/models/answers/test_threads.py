"""Instances of one run on a processor share its memory bandwidth and its last cache."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.named.networks import network_named
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.models.answers.answer import at_threads, with_instances
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.prediction import Estimate
from forerun.models.router import predictors_in

SIDE = 8192
XEON = DeviceCatalog.load().get("xeon-platinum-8480-plus")
ALONE_MS = 2.0


def milliseconds(instances, *, side=SIDE, precision="fp32", device=XEON):
    """The answer with other instances at once, of a layer that takes `ALONE_MS` alone."""
    layer = Operator(
        "aten.linear", "linear", ((1, side),), ((1, side),), parameter_elements=side * side
    )
    software = Software(runtime="onnxruntime", threads=4, instances=instances)
    query = Query(Network(OperatorGraph((layer,)), precision=precision), device, software)
    estimates = {"latency_ms": Estimate(ALONE_MS, ALONE_MS / 2, ALONE_MS * 2)}
    found, limits = with_instances(estimates, query)
    assert bool(limits) == (found != estimates)
    own = found["latency_ms"]
    assert own.low / own.value == pytest.approx(0.5)
    assert own.high / own.value == pytest.approx(2.0)
    return own.value


def test_weights_that_outgrow_the_cache_come_at_a_share_of_the_bandwidth():
    read_ms = 4 * SIDE**2 / (1e6 * XEON.bandwidth_gbs)
    assert milliseconds(14) - ALONE_MS == pytest.approx(13 * read_ms, rel=0.2)
    assert milliseconds(14, precision="int8") - ALONE_MS < 0.3 * (milliseconds(14) - ALONE_MS)


def test_what_stays_in_the_cache_does_not_wait():
    assert milliseconds(14, side=64) == pytest.approx(ALONE_MS, rel=1e-3)


def test_one_instance_and_gpus_are_as_they_were():
    assert milliseconds(1) == ALONE_MS
    assert milliseconds(14, device=DeviceCatalog.load().get("t4")) == ALONE_MS


@given(st.integers(1, 55))
def test_one_instance_more_is_not_faster(count):
    assert milliseconds(count) <= milliseconds(count + 1)


def test_instances_that_say_no_threads_share_the_cores():
    assert Software(instances=14).threads_on(56) == 4
    assert Software(instances=14, threads=2).threads_on(56) == 2
    assert Software().threads_on(56) is None


def eager_ms(cores, threads=None):
    """The answer for PyTorch on `threads` of equal cores, where all of them were answered 2 ms."""
    device = XEON.model_copy(
        update={"compute_units": cores, "peak_tflops": {"fp32": 0.2 * cores}, "l2_mib": 32.0}
    )
    query = Query(Network(network_named("resnet18")), device, Software(threads=threads))
    found, limits = at_threads({"latency_ms": Estimate(2.0, 1.0, 4.0)}, query, InUse(bundled()))
    assert bool(limits) == (found["latency_ms"].value != 2.0)
    return found["latency_ms"].value, query


@pytest.mark.parametrize(("cores", "threads"), [(56, 4), (56, 1), (14, 4), (8, 2)])
def test_pytorch_loses_as_much_by_fewer_threads_as_onnx_runtime(cores, threads):
    scaling = {p.name: p for p in predictors_in(bundled().predictor)}["cpu_latency"]
    most = min(14, cores)
    (few, query), (many, _) = eager_ms(cores, threads), eager_ms(cores, most)
    runs = [
        replace(query, software=Software(runtime="onnxruntime", threads=n)) for n in (threads, most)
    ]
    few_ms, many_ms = scaling.predict(runs).values["latency_ms"]
    assert few / many == pytest.approx(few_ms / many_ms)


def test_pytorch_was_measured_on_14_cores_and_gains_less_than_in_proportion_by_more():
    assert eager_ms(14)[0] == eager_ms(8)[0] == 2.0
    assert eager_ms(56)[0] > 1.5 * 2.0
