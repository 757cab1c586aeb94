"""`LoopNetwork`: exported as trained, alone as in a batch, and part of answers of `DesignBoost`."""

from functools import lru_cache, wraps

import numpy as np
import pytest

from forerun.data.measurements import Measurements
from forerun.features.hls.loop_tree import loop_tree
from forerun.models.contract import PredictorContract
from forerun.models.hls_designs import loop_network
from forerun.models.hls_designs.booster import DesignBoost
from forerun.models.hls_designs.features import (
    FLOORS,
    METRICS,
    feature_matrix,
    network_matrix,
    program_key,
)
from forerun.models.hls_designs.loop_network import (
    INPUTS,
    NETWORK_SHARE,
    LoopNetwork,
    LoopShape,
    averaged,
    export,
    inputs_of,
    onnx_session,
    seeded_torch,
)
from tests.models.hls_designs.test_booster import TREES, measured

TRIPS = ([16, 32], [40, 80], [8, 16, 32])
"""Two programs of the training set, and one that is not."""
SHAPE = LoopShape(width=16, epochs=40, rows=64)


def training_rows() -> Measurements:
    """Two programs, of two and of three loops."""
    return measured([16, 32]) + measured([8, 16, 32])


def weights_of(members) -> bytes:
    values = [value for member in members for value in member.state_dict().values()]
    return b"".join(value.numpy().tobytes() for value in values)


def once_for_equal_weights(export):
    """`export`, called again only where weights differ: it takes longer than a test's training.

    A refit that ends with the same weights gets the file of the first, any other one a file of its
    own. The attribute `modules` maps each file to the modules that it is of.
    """
    kept, modules = {}, {}

    @wraps(export)
    def once(members):
        weights = weights_of(members)
        if weights not in kept:
            kept[weights] = export(members)
            modules[kept[weights]] = members
        return kept[weights]

    once.modules = modules
    return once


EXPORTED = once_for_equal_weights(export)


@pytest.fixture(autouse=True)
def exported_once(monkeypatch):
    monkeypatch.setattr(loop_network, "export", EXPORTED)


@lru_cache(maxsize=1)
def stacked() -> DesignBoost:
    return DesignBoost(trees=TREES, calibrated=False, loop_shape=SHAPE, members=2).fit(
        training_rows()
    )


def fitted() -> LoopNetwork:
    return stacked().network


@pytest.mark.slow
def test_the_exported_networks_answer_as_in_torch_for_designs_alone_and_together():
    import torch

    members, session = EXPORTED.modules[fitted().content], onnx_session(fitted().content)
    assert [one.name for one in session.get_inputs()] == list(INPUTS)
    rows = training_rows()
    for some in ([0], [100, 0], range(0, len(rows), 3)):
        queries = rows.take(some).queries
        matrix = network_matrix(queries, feature_matrix(queries))
        inputs = inputs_of(queries, matrix, fitted().first)
        tensors = [torch.from_numpy(inputs[name]) for name in INPUTS]
        with torch.no_grad():
            wanted = [member(*tensors).numpy() for member in members]
        assert len(wanted) == 2
        # The exporter writes constants in single precision.
        np.testing.assert_allclose(session.run(None, inputs)[0], wanted, rtol=1e-6, atol=1e-6)


def test_loops_of_several_designs_are_one_graph_without_edges_between_designs():
    rows = training_rows().take([100, 0])
    first = {program_key(rows.queries[1]): 0, program_key(rows.queries[0]): 2}
    matrix = feature_matrix(rows.queries)
    inputs = inputs_of(rows.queries, matrix, first)
    assert tuple(inputs) == INPUTS
    assert inputs["vector"].tolist() == [2, 3, 4, 0, 1]
    assert inputs["batch"].tolist() == [0, 0, 0, 1, 1]
    assert inputs["parent_index"].T.tolist() == [[0, 1], [1, 2], [3, 4]]
    assert inputs["nested_index"].T.tolist() == [[1, 0], [2, 1], [2, 0], [4, 3]]
    np.testing.assert_array_equal(inputs["designs"], matrix)
    trees = [loop_tree(query.design).features for query in rows.queries]
    np.testing.assert_array_equal(inputs["x"], np.concatenate(trees))


@pytest.mark.slow
def test_batches_of_training_are_those_of_answers():
    from torch_geometric.data import Batch

    rows = training_rows().take([100, 0, 3])
    matrix = network_matrix(rows.queries, feature_matrix(rows.queries))
    logs = np.zeros((3, len(METRICS)))
    graphs = loop_network._graphs(rows.queries, matrix, fitted().first, logs)
    batch, inputs = Batch.from_data_list(graphs), inputs_of(rows.queries, matrix, fitted().first)
    for name in INPUTS:
        np.testing.assert_allclose(batch[name].numpy(), inputs[name], rtol=1e-6)


@pytest.mark.slow
def test_it_learns_its_programs_and_answers_each_design_alike_in_any_batch():
    rows, network = training_rows(), fitted()
    matrix = feature_matrix(rows.queries)
    answers = network.predict_log(rows.queries, matrix)
    alone = [network.predict_log([q], matrix[i : i + 1]) for i, q in enumerate(rows.queries[:5])]
    np.testing.assert_allclose(answers[:5], np.concatenate(alone), rtol=1e-12)
    truth = np.column_stack([np.log2(rows.values[m] + FLOORS[m]) for m in METRICS])
    assert (np.sqrt(np.mean((answers - truth) ** 2, axis=0)) < 0.5 * truth.std(axis=0) + 0.2).all()


@pytest.mark.slow
def test_the_exported_network_has_few_operators():
    """Most of the time of one answer is spent on operators, whatever the size of their inputs."""
    import onnx

    assert len(onnx.load_from_string(fitted().content).graph.node) <= 250


@pytest.mark.slow
def test_the_same_seed_gives_the_same_network(monkeypatch):
    monkeypatch.setattr(loop_network, "export", weights_of)
    rows = measured([16, 32]).take(range(0, 96, 4))
    matrix, short = feature_matrix(rows.queries), LoopShape(width=8, epochs=1)
    one, again, other = (
        LoopNetwork.fit(rows, matrix, short, 1, seed).content for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


def test_torchs_seed_and_threads_are_as_before_afterwards():
    import torch

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    with seeded_torch(3):
        assert torch.get_num_threads() == 1
        torch.rand(5)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


def test_an_average_lies_between_its_parts():
    boosted = np.repeat([[-2.0], [3.0], [1.0]], len(METRICS), axis=1)
    network = np.repeat([[1.0], [-3.0], [1.0]], len(METRICS), axis=1)
    mean = averaged(boosted, network, dict.fromkeys(METRICS, 0.5))
    assert (mean >= np.minimum(boosted, network) - 1e-9).all()
    assert (mean <= np.maximum(boosted, network) + 1e-9).all()
    only_boosted = averaged(boosted, network, dict.fromkeys(METRICS, 0.0))
    assert only_boosted == pytest.approx(boosted)
    cycles, dsp = averaged(boosted, network)[0, :2]
    weight = NETWORK_SHARE["util_dsp"]
    assert cycles == pytest.approx(3.0 * NETWORK_SHARE["latency_cycles"] - 2.0)
    assert 2**dsp == pytest.approx(0.25 * (1 - weight) + 2.0 * weight)


def test_members_are_averaged_as_logarithms_for_cycles_and_as_shares_otherwise():
    class Session:
        def run(self, _, inputs):
            count = len(inputs["designs"])
            return [np.array([np.full((count, len(METRICS)), log) for log in (-3.0, 1.0)])]

    rows = measured([16, 32]).take([0])
    network = LoopNetwork({program_key(rows.queries[0]): 0}, b"")
    network.__dict__["_session"] = Session()
    found = network.predict_log(rows.queries, feature_matrix(rows.queries))
    assert found[0, 0] == pytest.approx(-1.0)
    assert found[0, 1:] == pytest.approx(np.log2((0.125 + 2.0) / 2))


@pytest.mark.slow
class TestStackedContract(PredictorContract):
    make = staticmethod(stacked)
    training_rows = staticmethod(training_rows)

    def queries(self):
        return [*measured([16, 32]).queries[:3], *measured([40, 80]).queries[:3]]


@pytest.mark.slow
def test_the_name_of_a_program_is_a_key_and_nothing_else():
    rows = training_rows()
    other = Measurements(
        rows.queries, rows.values, {"kernel": np.char.add("other-", rows.groups["kernel"])}
    )
    renamed = stacked().fit(other)
    held_out = rows.queries[::9]
    one, two = (p.predict(held_out).values for p in (stacked(), renamed))
    assert all((one[metric] == two[metric]).all() for metric in METRICS)


@pytest.mark.slow
def test_an_answer_does_not_depend_on_the_programs_in_the_same_batch():
    boost, few = stacked(), measured([8, 16, 32]).take(range(0, 96, 5))
    of_programs = [measured(trips).queries[:9] for trips in TRIPS]
    mixed = [query for queries in zip(*of_programs, strict=True) for query in queries]
    for predictor in (boost, boost.adapt(few)):
        together = predictor.predict(mixed).values
        alone = [predictor.predict([query]).values for query in mixed]
        for metric in METRICS:
            wanted = [values[metric][0] for values in alone]
            np.testing.assert_allclose(together[metric], wanted, rtol=1e-11)


@pytest.mark.slow
def test_only_programs_of_the_training_set_are_answered_with_the_network():
    rows = training_rows()
    boosters, both = stacked().with_params(loop_shape=None).fit(rows), stacked()
    known, new = rows.queries[::7], measured([40, 80]).queries[::7]
    for metric in METRICS:
        assert NETWORK_SHARE[metric] > 0
        one, other = (p.predict(new).values[metric] for p in (boosters, both))
        assert (one == other).all()
    one, other = (p.predict(known).values["latency_cycles"] for p in (boosters, both))
    assert (one != other).any()
    few = measured([16, 32]).take(range(0, 96, 5))
    one, other = (p.adapt(few).predict(known[:5]).values["util_dsp"] for p in (boosters, both))
    assert (one == other).all()


@pytest.mark.slow
def test_answers_do_not_need_torch(tmp_path):
    import subprocess
    import sys

    rows = training_rows()
    boost = stacked()
    boost.save(tmp_path)
    assert list(tmp_path.glob("*.onnx"))
    again = DesignBoost.load(tmp_path).predict(rows.queries[:3])
    for metric, values in boost.predict(rows.queries[:3]).values.items():
        assert again.values[metric] == pytest.approx(values, rel=1e-9)
    code = (
        "import sys; sys.modules['torch'] = None; from pathlib import Path;"
        "from forerun.models.hls_designs.booster import DesignBoost;"
        "from tests.models.hls_designs.test_booster import measured;"
        f"boost = DesignBoost.load(Path({str(tmp_path)!r}));"
        "print(len(boost.predict(measured([16, 32]).queries[:3]).values))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == str(len(METRICS)), ran.stderr
