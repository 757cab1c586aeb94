"""`LoopNetwork`: exported as trained, alone as in a batch, and part of answers of `DesignBoost`."""

from functools import lru_cache, wraps

import numpy as np
import pytest

from forerun.data.measurements import Measurements
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
    LoopBatches,
    LoopNetwork,
    LoopShape,
    arguments,
    averaged,
    export,
    joined,
    network,
    onnx_session,
    seeded_torch,
)
from tests.models.hls_designs.test_booster import TREES, measured

SHAPE = LoopShape(width=16, epochs=40, rows=64)


def training_rows() -> Measurements:
    """Two programs, of two and of three loops."""
    return measured([16, 32]) + measured([8, 16, 32])


def once_for_equal_weights(export):
    """`export`, called again only where weights differ: it takes longer than a test's training.

    A refit that ends with the same weights gets the file of the first, any other one a file of its
    own. The attribute `modules` maps each file to the module that it is of.
    """
    kept, modules = {}, {}

    @wraps(export)
    def once(module):
        weights = tuple(
            (name, value.numpy().tobytes()) for name, value in module.state_dict().items()
        )
        if weights not in kept:
            kept[weights] = export(module)
            modules[kept[weights]] = module
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


def batches() -> list[dict[str, np.ndarray]]:
    """Batches of one design, of one of each program, and of many."""
    rows = training_rows()
    matrix = network_matrix(rows.queries, feature_matrix(rows.queries))
    trees = LoopBatches.of(rows.queries, matrix, fitted().first)
    return [trees.batch(np.array(rows)) for rows in ([0], [100, 0], range(0, len(rows), 3))]


@pytest.mark.slow
def test_the_exported_network_answers_as_in_torch():
    import torch

    network, session = EXPORTED.modules[fitted().content], onnx_session(fitted().content)
    assert [one.name for one in session.get_inputs()] == list(INPUTS)
    for inputs in batches():
        tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
        with torch.no_grad():
            wanted = network(*arguments(tensors)).numpy()
        assert len(wanted) == 2
        # The exporter writes constants in single precision.
        np.testing.assert_allclose(session.run(None, inputs)[0], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_joined_networks_answer_as_each_of_them_alone():
    import torch

    scaling = EXPORTED.modules[fitted().content]
    moments = [
        (part.mean.numpy(), part.spread.numpy())
        for part in (scaling.scale_loops, scaling.scale_designs)
    ]
    short = LoopShape(width=16)
    with seeded_torch(3):
        parts = [network(short, *moments, 6) for _ in range(2)]
        with torch.no_grad():
            for weight in [w for part in parts for w in part.parameters()]:
                weight.add_(0.1 * torch.randn_like(weight))
        whole = joined(parts, network(short, *moments, 6, 2)).double()
    for inputs in batches():
        given = arguments({name: torch.from_numpy(values) for name, values in inputs.items()})
        with torch.no_grad():
            wanted = [part.double()(*given)[0].numpy() for part in parts]
            found = whole(*given).numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_a_batch_holds_the_loops_of_each_design_under_the_loop_around():
    rows = training_rows().take([0, 100])
    first = {program_key(rows.queries[0]): 0, program_key(rows.queries[1]): 2}
    trees = LoopBatches.of(rows.queries, feature_matrix(rows.queries), first)
    inputs = trees.batch(np.array([1, 0]))
    assert tuple(inputs) == INPUTS
    assert inputs["vector"].tolist() == [2, 3, 4, 0, 1]
    assert inputs["design"].tolist() == [0, 0, 0, 1, 1]
    # Five loops; the sixth position is none.
    assert inputs["parent"].tolist() == [5, 0, 1, 5, 3]
    assert inputs["inside"].tolist() == [[1, 2, 5], [2, 5, 5], [5] * 3, [4, 5, 5], [5] * 3]
    assert inputs["around"].tolist() == [[5] * 3, [0, 5, 5], [1, 0, 5], [5] * 3, [3, 5, 5]]
    assert inputs["of_design"].tolist() == [[0, 1, 2, 5], [3, 4, 5, 5]]
    np.testing.assert_array_equal(inputs["designs"], trees.designs[[1, 0]])
    np.testing.assert_array_equal(inputs["loops"], trees.features[[2, 3, 4, 0, 1]])


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

    assert len(onnx.load_from_string(fitted().content).graph.node) <= 150


@pytest.mark.slow
def test_the_same_seed_gives_the_same_network(monkeypatch):
    def weights(whole):
        return b"".join(value.numpy().tobytes() for value in whole.state_dict().values())

    monkeypatch.setattr(loop_network, "export", weights)
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


@pytest.mark.slow
class TestStackedContract(PredictorContract):
    def make(self):
        return stacked()

    def training_rows(self):
        return training_rows()

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
