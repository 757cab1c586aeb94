"""A user's own CPU: measured runs are reproduced, others are predicted within their intervals."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.datasets import dataset
from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.models.contract import PredictorContract
from forerun.models.processors.latency import ENOUGH_NETWORKS, CpuLatency
from forerun.models.router import Router
from forerun.training.protocols.networks.onnxruntime_cpu import OnnxruntimeCpuProtocols, flops_line
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
    errors = np.abs(latency(adapted, held_out.queries) / held_out.values["latency_ms"] - 1)
    assert np.median(errors) <= LARGEST_TYPICAL_ERROR
    line = flops_line(recorded("quick"), held_out.queries)
    assert np.median(errors) < 0.5 * np.median(np.abs(line / held_out.values["latency_ms"] - 1))


def test_a_processor_unlike_those_trained_on_is_near_too(trained):
    held_out, quick = recorded("held_out"), recorded("quick")
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(4):
        prior = trained.prior
        moved = rng.multivariate_normal(prior.mean, prior.deviations.covariance(), method="eigh")
        other = replace(trained, prior=replace(prior, mean=moved)).adapt(quick)
        predicted = latency(other, held_out.queries)
        errors += np.abs(predicted / held_out.values["latency_ms"] - 1).tolist()
    assert np.median(errors) <= 1.3 * LARGEST_TYPICAL_ERROR


def test_intervals_hold_most_of_what_was_not_measured(adapted):
    held_out = recorded("held_out")
    answers = adapted.predict(held_out.queries)
    truth = held_out.values["latency_ms"]
    inside = (answers.low["latency_ms"] <= truth) & (truth <= answers.high["latency_ms"])
    assert inside.mean() >= 0.75
    assert np.median(answers.high["latency_ms"] / answers.low["latency_ms"]) < 2.5


def test_what_was_measured_is_answered_as_it_was_measured(adapted):
    quick = recorded("quick")
    answers = adapted.predict(quick.queries)
    assert answers.values["latency_ms"] == pytest.approx(quick.values["latency_ms"], rel=1e-6)
    width = answers.high["latency_ms"] / answers.low["latency_ms"]
    assert (width < 1.6).all()


def test_the_median_of_repeated_measurements_is_answered(trained):
    one = recorded("quick").take([0])
    three = one + one + one
    values = {"latency_ms": one.values["latency_ms"][0] * np.array([1.0, 1.1, 2.0])}
    answers = trained.adapt(replace(three, values=values)).predict(one.queries)
    assert answers.values["latency_ms"][0] == pytest.approx(values["latency_ms"][1])


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


def test_a_sheet_and_a_black_box_agree_within_their_intervals(trained):
    quick = recorded("quick")
    one = trained.adapt(recorded("quick", OWN)).predict(recorded("held_out", OWN).queries)
    other = trained.adapt(recorded("quick", SHEETED)).predict(recorded("held_out", SHEETED).queries)
    assert len(quick) > 20
    for a, b in ((one, other), (other, one)):
        value = a.values["latency_ms"]
        assert ((b.low["latency_ms"] <= value) & (value <= b.high["latency_ms"])).all()


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


def test_latency_grows_with_the_batch(adapted):
    graph, query = built_graph("cpu-text-a"), recorded("quick").queries[0]
    sizes = [replace(query, workload=Network(graph, size)) for size in (2, 4, 8, 16, 64, 256)]
    times = latency(adapted, sizes)
    assert (np.diff(times) > 0).all()


def test_no_answer_is_below_the_fixed_time_of_its_nodes(adapted):
    tiny = OperatorGraph(
        tuple(
            Operator("elementwise", "Relu", ((1, 1),), ((1, 1),), 0, {"function": "relu"}, inputs)
            for inputs in ((), (0,), (1,))
        ),
        source="onnx",
    )
    query = recorded("quick").queries[0]
    tiny_queries = [replace(query, workload=w) for w in (Network(tiny), Kernel(tiny.operators[0]))]
    answers = adapted.predict(tiny_queries)
    floor = adapted._posterior(query).floor_ms(adapted._rows(tiny_queries))
    assert (floor > 1e-4).all()
    assert (answers.low["latency_ms"] >= floor * (1 - 1e-9)).all()


def test_coverage_after_adapting_is_measured_on_networks_held_out(trained, adapted):
    held_out = recorded("held_out").queries
    before, after = trained.predict(held_out)[0], adapted.predict(held_out)[0]
    assert before.estimates["latency_ms"].coverage == 0.9
    held = after.estimates["latency_ms"].coverage
    networks = sum(query.workload.kind == "network" for query in recorded("quick").queries)
    assert held * networks == pytest.approx(round(held * networks))


def test_an_unmeasured_processor_is_said_to_be_one(trained, adapted):
    query = recorded("held_out").queries[0]
    said = trained.predict([query])[0]
    assert not said.in_domain
    assert "0 networks were measured on this processor" in str(said.limits[0])
    assert adapted.predict([query])[0].in_domain
    few = recorded("quick").take(range(ENOUGH_NETWORKS - 1))
    assert not trained.adapt(few).predict([query])[0].in_domain


def test_time_in_nodes_that_nobody_measured_is_said(adapted):
    recurrent = Operator("recurrent", "LSTM", ((64, 1, 512),), ((64, 1, 512),), 4 * 2 * 512 * 512)
    query = replace(recorded("quick").queries[0], workload=Network(OperatorGraph((recurrent,))))
    assert "'recurrent'" in " ".join(map(str, adapted.predict([query])[0].limits))


def test_peak_memory_of_the_processor_is_answered(adapted):
    held_out = recorded("held_out")
    answers = adapted.predict(held_out.queries)
    measured, predicted = held_out.values["peak_memory_mib"], answers.values["peak_memory_mib"]
    assert np.median(np.abs(predicted / measured - 1)) < 0.25
    inside = (answers.low["peak_memory_mib"] <= measured) & (
        measured <= answers.high["peak_memory_mib"]
    )
    assert inside.mean() > 0.7


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


def test_suggestions_leave_less_doubt_than_random_draws(trained):
    """Chosen from the quick collection; compared by the deviation for the evaluated networks."""
    quick, held_out = recorded("quick"), recorded("held_out")
    networks = quick.take([q.workload.kind == "network" for q in quick.queries])
    chosen = trained.suggest(networks.queries, 4)

    def doubt(places):
        after = trained.adapt(networks.take(np.array(places)))
        posterior = after._posterior(held_out.queries[0])
        return float(np.median(posterior.predict(after._rows(held_out.queries))[1]))

    rng = np.random.default_rng(0)
    random = [doubt(rng.choice(len(networks), 4, replace=False)) for _ in range(10)]
    assert doubt(chosen) <= np.median(random)


def test_rows_of_two_processors_are_apart(trained):
    quick = recorded("quick")
    fast = OWN.model_copy(update={"name": "fast-cpu"})
    values = {"latency_ms": quick.values["latency_ms"] / 3}
    both = trained.adapt(quick).adapt(replace(recorded("quick", fast), values=values))
    slow, quicker = (latency(both, recorded("held_out", d).queries) for d in (OWN, fast))
    assert slow / quicker == pytest.approx(3.0, rel=0.2)
    assert isinstance(recorded("quick", fast), Measurements)
