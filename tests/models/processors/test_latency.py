"""A user's own CPU: measured runs are reproduced, others are predicted within their intervals."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.datasets import dataset
from forerun.data.device import DeviceCatalog
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.contract import PredictorContract
from forerun.models.processors.latency import CpuLatency
from forerun.models.router import Router
from forerun.training.protocols.networks.onnxruntime_cpu import OnnxruntimeCpuProtocols, flops_line
from tests.models.judged import errors, inside
from tests.models.recorded_cpu import OWN, built_graph, recorded

pytestmark = pytest.mark.slow
LARGEST_TYPICAL_ERROR = 0.15
SHEETED = OWN.model_copy(
    update={
        "name": "sheeted-cpu",
        "memory_bandwidth_gbs": 22.0,
        "peak_tflops": {"fp32": 0.166},
        "compute_units": 2,
    }
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    bundle = dataset("onnxruntime_cpu").pull(folder=tmp_path_factory.mktemp("b") / "cpu")
    return OnnxruntimeCpuProtocols().training_rows(bundle, DeviceCatalog.load())


@pytest.fixture(scope="module")
def trained(rows):
    return CpuLatency().fit(rows)


@pytest.fixture(scope="module")
def adapted(trained):
    return trained.adapt(recorded("quick"))


def latency(predictor, queries):
    return predictor.predict(queries).values["latency_ms"]


class TestCpuLatency(PredictorContract):
    @pytest.fixture(autouse=True)
    def _take(self, trained):
        self.trained = trained

    def make(self):
        return replace(self.trained)

    def queries(self):
        return recorded("quick").queries[:6]


def test_networks_that_were_not_measured_are_near_after_two_minutes(adapted, trained):
    held_out = recorded("held_out")
    error = np.median(errors(adapted, held_out))
    assert error <= LARGEST_TYPICAL_ERROR
    line = flops_line(recorded("quick"), held_out.queries)
    assert error < 0.5 * np.median(np.abs(line / held_out.values["latency_ms"] - 1))


def test_intervals_hold_most_of_what_was_not_measured(adapted):
    held_out = recorded("held_out")
    answers = adapted.predict(held_out.queries)
    assert inside(answers, held_out).mean() >= 0.75
    assert np.median(answers.high["latency_ms"] / answers.low["latency_ms"]) < 2.5


def test_what_was_measured_is_answered_as_it_was_measured(adapted):
    quick = recorded("quick")
    answers = adapted.predict(quick.queries)
    assert answers.values["latency_ms"] == pytest.approx(quick.values["latency_ms"], rel=1e-6)
    width = answers.high["latency_ms"] / answers.low["latency_ms"]
    assert (width < 1.6).all()


def test_a_measurement_sent_twice_counts_once(trained, adapted):
    held_out = recorded("held_out").queries
    twice = trained.adapt(recorded("quick") + recorded("quick"))
    again = adapted.adapt(recorded("quick"))
    assert latency(twice, held_out) == pytest.approx(latency(adapted, held_out), rel=1e-6)
    assert latency(again, held_out) == pytest.approx(latency(adapted, held_out), rel=1e-6)


def test_the_same_network_at_another_batch_size_is_an_anchor(adapted):
    """A network measured 1.5 times slower is predicted slower at other batch sizes too."""
    quick = recorded("quick")
    place = list(quick.groups["model"]).index("cpu-dense-a")
    slow = quick.values["latency_ms"].copy()
    slow[place] *= 1.5
    moved = adapted.adapt(replace(quick.take([place]), values={"latency_ms": slow[[place]]}))
    query = quick.queries[place]
    larger = replace(query, workload=Network(built_graph("cpu-dense-a"), 2))
    assert 1.1 < latency(moved, [larger])[0] / latency(adapted, [larger])[0] < 1.5


def test_a_disturbed_row_does_not_decide(trained):
    quick, held_out = recorded("quick"), recorded("held_out").queries
    values = quick.values["latency_ms"].copy()
    values[3] *= 8
    bad = trained.adapt(replace(quick, values={"latency_ms": values}))
    change = np.abs(np.log(latency(bad, held_out) / latency(trained.adapt(quick), held_out)))
    assert np.median(change) < 0.08


def test_unmeasured_a_sheet_of_half_the_peak_means_a_slower_processor(trained):
    slow = SHEETED.model_copy(update={"peak_tflops": {"fp32": 0.083}})
    queries = recorded("held_out", SHEETED).queries
    slower = recorded("held_out", slow).queries
    assert (latency(trained, slower) > 1.3 * latency(trained, queries)).all()


def test_threads_are_part_of_the_question(adapted):
    """Two threads are faster than one on large networks, by a factor below about two."""
    one = recorded("held_out").queries
    software = one[0].software.model_copy(update={"threads": 2})
    ratio = latency(adapted, one) / latency(adapted, [replace(q, software=software) for q in one])
    assert (ratio > 1.05).all()
    assert (ratio < 2.2).all()
    unsaid = one[0].software.model_copy(update={"threads": None})
    assert latency(adapted, [replace(q, software=unsaid) for q in one]) == pytest.approx(
        latency(adapted, one)
    )


def test_coverage_after_adapting_is_measured_on_networks_held_out(trained, adapted):
    held_out = recorded("held_out").queries
    before, after = trained.predict(held_out)[0], adapted.predict(held_out)[0]
    assert before.estimates["latency_ms"].coverage == 0.9
    held = after.estimates["latency_ms"].coverage
    networks = sum(query.workload.kind == "network" for query in recorded("quick").queries)
    assert held * networks == pytest.approx(round(held * networks))


def test_peak_memory_of_the_processor_is_answered(adapted):
    held_out = recorded("held_out")
    assert np.median(errors(adapted, held_out, "peak_memory_mib")) < 0.25
    answers = adapted.predict(held_out.queries)
    assert inside(answers, held_out, "peak_memory_mib").mean() > 0.7


def test_it_answers_before_tables_of_other_runtimes(adapted):
    query = recorded("held_out").queries[0]
    for runtime, mine in (("onnxruntime", True), ("eager", False), ("compiled", False)):
        software = query.software.model_copy(update={"runtime": runtime})
        assert adapted.answers(replace(query, software=software)) is mine
    gpu = DeviceCatalog.load().get("l4")
    assert not adapted.answers(replace(query, device=gpu))
    assert not adapted.answers(Query(query.workload, OWN))


def test_a_black_box_is_no_limit_where_no_sheet_is_used(trained):
    chosen = Router((trained,)).adapt(recorded("quick"))
    said = chosen.predict(recorded("held_out").queries)[0]
    assert said.in_domain
    assert said.estimates["latency_ms"].coverage is not None
