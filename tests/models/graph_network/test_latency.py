"""GraphNetwork fulfils the contract of predictors and starts from the additive model."""

import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.errors import BadArtifact
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.contract import PredictorContract
from forerun.models.graph_network import latency
from forerun.models.graph_network.encoder import GraphShape, export
from forerun.models.graph_network.latency import GraphNetwork, _times, _unseen_bases
from forerun.models.networks.additive_model import COLUMNS
from forerun.models.networks.features import NetworkRows, TrainingRows
from tests.models.networks.test_booster import (
    RUNTIMES,
    SIZES,
    STRANGER,
    TRAINING_GPUS,
    ask,
    network,
    training_measurements,
)
from tests.models.neural.exports import once_for_equal_weights

SMALL = GraphShape(hidden=8, head=8, last=4, epochs=2)


@pytest.fixture(autouse=True, scope="module")
def exported_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "export", once_for_equal_weights(export))
        yield


def fitted(calibrated: bool = False) -> GraphNetwork:
    return GraphNetwork(members=2, shape=SMALL, calibrated=calibrated).fit(training_measurements())


@cache
def once() -> GraphNetwork:
    return fitted(calibrated=True)


@pytest.mark.slow
class TestGraphNetwork(PredictorContract):
    def make(self) -> GraphNetwork:
        return once()

    def training_rows(self) -> Measurements:
        return training_measurements()

    def queries(self) -> list[Query]:
        return [
            ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0]),
            ask(TRAINING_GPUS[1], 32, 2, 100, RUNTIMES[0]),
            ask(TRAINING_GPUS[1], 64, 4, 100, RUNTIMES[1], "bf16"),
            ask(STRANGER, 128, 3, 64, RUNTIMES[1]),
            ask(STRANGER, 24, 1, 1, RUNTIMES[0], "fp16"),
        ]


def test_it_starts_from_the_additive_world_and_carries_it_to_another_device() -> None:
    queries = [ask(STRANGER, w, d, 128, RUNTIMES[0]) for w, d in ((32, 2), (80, 5), (128, 4))]
    clean = NetworkRows.of(queries).design_matrix @ np.full(len(COLUMNS), 0.8) * 1e3
    found = once().predict(queries).values["latency_ms"]
    np.testing.assert_allclose(found, clean, rtol=0.2)


def test_it_refuses_what_was_never_measured() -> None:
    known = ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0])
    assert once().answers(known)
    assert not once().answers(ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0], "int8"))
    assert not once().answers(Query(replace(known.workload, phase="training"), TRAINING_GPUS[0]))
    assert not GraphNetwork().answers(known)


def test_an_unseen_device_gets_a_wider_interval() -> None:
    twin = TRAINING_GPUS[0].model_copy(update={"memory_bandwidth_gbs": 1000.0})
    seen, unseen = (
        once().predict([ask(device, 64, 3, 64, RUNTIMES[0])])[0].estimates["latency_ms"]
        for device in (TRAINING_GPUS[0], twin)
    )
    assert seen.low and seen.high and unseen.low and unseen.high
    assert unseen.high / unseen.low > seen.high / seen.low
    assert seen.coverage == 0.9


def test_limits_name_what_left_the_training_range() -> None:
    def lines(query: Query) -> str:
        return "\n".join(map(str, once().predict([query])[0].limits))

    inside = ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0])
    assert lines(inside) == ""
    assert "log_batch" in lines(ask(TRAINING_GPUS[0], 64, 3, 60000, RUNTIMES[0]))
    assert lines(ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0], "fp16")) == ""


def test_the_breakdown_adds_up_to_the_answer() -> None:
    answer = once().predict([ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0])])[0]
    assert sum(answer.breakdown_ms.values()) == pytest.approx(answer.estimates["latency_ms"].value)
    assert max(answer.breakdown_ms, key=lambda name: answer.breakdown_ms[name]) == "conv"


def test_adapting_halves_the_error_of_a_device_that_is_slow_as_a_whole() -> None:
    queries = [ask(STRANGER, w, d, 64, RUNTIMES[0]) for w, d in SIZES]
    slow = once().predict(queries).values["latency_ms"] * 1.5
    adapted = once().adapt(Measurements(queries, {"latency_ms": slow}))
    left = np.abs(np.log(adapted.predict(queries).values["latency_ms"] / slow))
    assert left.max() < np.log(1.5) / 2


def test_a_network_of_one_operator_is_answered() -> None:
    alone = replace(network(16, 1), operators=network(16, 1).operators[:1])
    query = Query(Network(alone, 8, "amp"), TRAINING_GPUS[0], RUNTIMES[1])
    assert once().predict([query]).values["latency_ms"][0] > 0


def test_answering_needs_no_torch(tmp_path, monkeypatch) -> None:
    once().save(tmp_path)
    for name in [n for n in sys.modules if n.partition(".")[0] == "torch"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "torch", None)
    query = ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0])
    assert GraphNetwork.load(tmp_path).predict([query]).values["latency_ms"][0] > 0


def test_a_damaged_artifact_is_refused(tmp_path) -> None:
    once().save(tmp_path)
    (tmp_path / "head-0.onnx").unlink()
    with pytest.raises(BadArtifact, match=r"head-0\.onnx"):
        GraphNetwork.load(tmp_path)


def test_what_a_family_measured_changes_no_base_time_that_its_own_rows_start_from() -> None:
    """A planted leak: one family is made 100 times slower; only other families may be affected."""
    training = TrainingRows.of(training_measurements())
    used = np.arange(len(training)) % 7 != 0
    family = training.family[1]
    mine = training.family == family
    slow = replace(
        training, log_measured=training.log_measured + np.where(mine, np.log(100.0), 0.0)
    )
    bases = [_unseen_bases(t, used, _times(t, used), seed=0) for t in (training, slow)]
    for row in np.flatnonzero(mine & used):
        before, after = (one[row].logs["eager"] for one in bases)
        np.testing.assert_array_equal(before, after)
    assert any(
        not np.array_equal(bases[0][row].logs["eager"], bases[1][row].logs["eager"])
        for row in np.flatnonzero(~mine & used)
    )


def test_rows_that_are_not_used_keep_the_base_time_of_those_that_are() -> None:
    training = TrainingRows.of(training_measurements())
    used = training.family != training.family[0]
    times = _times(training, used)
    bases = _unseen_bases(training, used, times, seed=0)
    assert all(bases[row] is times for row in np.flatnonzero(~used))


def test_rows_of_modes_that_few_people_run_count_less(monkeypatch) -> None:
    """Full weight is for mixed precision in eager and compiled runs, which protocols evaluate."""
    seen: list[np.ndarray] = []

    class Stopped(Exception):
        pass

    def noted(self, training_set, used, held, number):  # type: ignore[no-untyped-def]
        seen.append(training_set.weights)
        raise Stopped

    monkeypatch.setattr(GraphNetwork, "_member", noted)
    known = training_measurements()
    odd = np.arange(len(known)) % 3 == 0
    queries = [
        replace(q, workload=replace(q.workload, precision="fp16")) if strange else q
        for q, strange in zip(known.queries, odd, strict=True)
    ]
    with pytest.raises(Stopped):
        GraphNetwork().fit(replace(known, queries=queries))
    share = seen[0] / TrainingRows.of(replace(known, queries=queries)).weights
    assert 0.0 < share[odd].min() <= share[odd].max() < 0.5 * share[~odd].min()
