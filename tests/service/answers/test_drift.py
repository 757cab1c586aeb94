"""Reports of observations: by device, metric and slice, compared with whose answer."""

import numpy as np
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.named.networks import network_named
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.service.answers.drift import Drift
from forerun.service.answers.observing import family_of, log_ratios
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.schemas.measurements import GivenEstimate
from forerun.service.stores.database.store import Records
from forerun.service.stores.measurement_sets import AdaptationStore
from forerun.service.stores.places import Place
from tests.devices import L4
from tests.service.conftest import linear_row

SIZES = (64, 300, 2_000)


@pytest.fixture
def store(tmp_path) -> AdaptationStore:
    return AdaptationStore(Place(tmp_path) / "measurements")


@pytest.fixture
def chance():
    return np.random.default_rng(0)


def observation(size, ratio, version="v1", precision="fp32", driver="1", answered=0.5, **metrics):
    answer = {"value": answered, "low": 0.8 * answered, "high": 1.2 * answered, "version": version}
    content = linear_row(size, None) | {
        "metrics": {"latency_ms": answered * ratio, **metrics},
        "answer": {"latency_ms": answer} | dict.fromkeys(metrics, answer),
        "software": {"driver": driver},
    }
    content["workload"]["precision"] = precision
    return MeasuredRow.model_validate(content)


def put(store, rows, device="l4", family="linear"):
    made = store.new_observations(device, rows, [family] * len(rows))
    store.put(made)
    return made


def observe(store, chance, count, factor=1.0, **about):
    device = about.pop("device", "l4")
    family = about.pop("family", "linear")
    sizes = chance.choice(SIZES, count).tolist()
    ratios = factor * chance.lognormal(0.0, 0.03, count)
    rows = [observation(s, r, **about) for s, r in zip(sizes, ratios.tolist(), strict=True)]
    return put(store, rows, device, family)


def test_each_device_and_metric_has_slices_of_its_own(store, chance):
    observe(store, chance, 30)
    observe(store, chance, 40, device="t4", power_w=0.55)
    observe(store, chance, 5, device="a100-pcie-40gb")
    report = Drift(store).report()
    assert report.observations == {"l4": 30, "t4": 40, "a100-pcie-40gb": 5}
    found = [(own.device, own.metric, own.rows) for own in report.slices]
    assert sorted(found) == [
        ("l4", "latency_ms", 30),
        ("t4", "latency_ms", 40),
        ("t4", "power_w", 40),
    ]
    assert Drift(store).report("t4").observations == {"t4": 40}
    assert {own.device for own in Drift(store).report("t4").slices} == {"t4"}


def test_an_alarm_names_metric_workloads_device_size_and_begin(store, chance):
    observe(store, chance, 150, precision="fp16", power_w=0.5)
    observe(store, chance, 150, family="conv", power_w=0.5)
    slow = observe(store, chance, 60, 1.2, precision="fp16", power_w=0.5)
    observe(store, chance, 60, family="conv", power_w=0.5)
    (alarm,) = Drift(store).report().alarms
    assert alarm.message.startswith("latency_ms of linear operators in fp16 on l4 rose by ")
    assert "% (" in alarm.message
    (change,) = alarm.slice.changes
    number = f"observation {change.observation} of 420"
    assert f"since {number}, {slow.time:%Y-%m-%d %H:%M} UTC" in alarm.message
    assert 301 <= change.observation <= 303
    assert change.since == slow.time
    assert change.noticed == slow.time
    assert change.after <= 60
    assert change.percent == pytest.approx(20, abs=2)
    assert change.low_percent < change.percent < change.high_percent


def test_an_alarm_lasts_through_versions_with_the_same_answers_and_ends_with_others(store, chance):
    observe(store, chance, 150)
    observe(store, chance, 60, 1.2)
    drift = Drift(store)
    assert len(drift.report().alarms) == 1
    observe(store, chance, 120, 1.2, version="v1+of-another-device")
    assert len(drift.report().alarms) == 1
    observe(store, chance, 120, version="v2", answered=0.6)
    report = drift.report()
    assert report.alarms == []
    (own,) = report.slices
    assert (own.version, len(own.changes), own.rows, own.live.rows) == ("v2", 0, 120, 120)
    assert own.live.mape < 5
    assert report.versions == {"v1": 330, "v2": 120}
    assert [each.version for each in drift.report(version="all").slices] == ["v1", "v2"]
    (alarm,) = drift.report(version="v1").alarms
    assert alarm.slice.version == "v1"


def test_a_few_new_answers_are_scored_without_the_many_of_the_version_before(store, chance):
    observe(store, chance, 70, 2.0)
    observe(store, chance, 25, version="v2+measured")
    (own,) = Drift(store).report().slices
    assert (own.version, own.rows, own.live.rows) == ("v2", 25, 25)
    assert own.live.mape < 5
    (own,) = Drift(store, lambda: {"v1"}).report().slices
    assert (own.version, own.rows) == ("v1", 70)
    unobserved = Drift(store, lambda: {"v3"}).report()
    assert [own.version for own in unobserved.slices] == ["v2"]
    assert unobserved.versions == {"v1": 70, "v2": 25}


def test_answers_that_name_no_version_are_scored_with_any(store, chance):
    observe(store, chance, 30, version=None)
    (own,) = Drift(store, lambda: {"v1"}).report().slices
    assert (own.version, own.rows) == (None, 30)


def test_answers_after_an_adaptation_are_scored_from_the_eleventh_on(store, chance):
    observe(store, chance, 100, 2.0)
    observe(store, chance, 12, version="v1+measured", answered=1.0)
    (own,) = Drift(store).report().slices
    assert (own.version, own.rows, own.live.rows) == ("v1", 112, 12)


def test_faster_runs_are_said_to_fall(store, chance):
    observe(store, chance, 150)
    observe(store, chance, 60, 0.8)
    (alarm,) = Drift(store).report().alarms
    assert "on l4 fell by 20 % (" in alarm.message or "on l4 fell by 19 % (" in alarm.message


def test_a_change_that_comes_with_a_driver_is_found(store, chance):
    observe(store, chance, 150, driver="550.1")
    observe(store, chance, 60, 1.2, driver="560.2")
    assert len(Drift(store).report().alarms) == 1


def test_workloads_of_nearly_the_same_size_are_compared(store, chance):
    """No size comes twice, as where batch sizes are drawn at random."""
    for factor, count in ((1.0, 300), (1.2, 120)):
        sizes = np.unique(chance.integers(64, 1_024, 4 * count))
        sizes = chance.permutation(sizes)[:count].tolist()
        ratios = (factor * chance.lognormal(0.0, 0.03, count)).tolist()
        put(store, [observation(s, r) for s, r in zip(sizes, ratios, strict=True)])
    assert len(Drift(store).report().alarms) == 1


def test_a_report_follows_the_store_of_several_processes(store, chance, tmp_path):
    drift = Drift(AdaptationStore(Place(tmp_path) / "measurements"))
    assert drift.is_current(), "nothing was ever observed"
    assert drift.report().observations == {}
    first = observe(store, chance, 20)
    assert not drift.is_current()
    assert drift.report().observations == {"l4": 20}
    observe(store, chance, 10)
    assert drift.last().observations == {"l4": 20}
    assert drift.report().observations == {"l4": 30}
    store.undo(first)
    assert drift.report().observations == {"l4": 10}


def test_what_did_not_change_is_not_read_again(store, chance, monkeypatch):
    observe(store, chance, 20)
    observe(store, chance, 20, device="t4")
    drift, read = Drift(store), []
    plain = AdaptationStore.read

    def counted(self, name, source, names=frozenset()):
        read.append(name)
        return plain(self, name, source, names)

    monkeypatch.setattr(AdaptationStore, "read", counted)
    drift.report()
    added = observe(store, chance, 20)
    drift.report()
    assert len(read) == 3
    assert read[-1] == f"l4.{added.id}.json"


def test_a_damaged_file_spoils_no_report(store, chance, tmp_path):
    made = observe(store, chance, 20)
    observe(store, chance, 25)
    place = Place(tmp_path) / "measurements"
    Records.of_texts(place / "observed").put(f"l4.{made.id}.json", "{}")
    assert Drift(AdaptationStore(place)).report().observations == {"l4": 25}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("resnet50", "convolutional"),
        ("efficientnet-b0", "convolutional"),
        ("bert-base", "transformer"),
        ("vit-base", "transformer"),
        ("swin-tiny", "transformer"),
        ("gpt2", "transformer"),
        ("t5-small", "transformer"),
        ("llama-3.2-1b", "transformer"),
        ("convnext-tiny", "convolutional"),
        ("mobilenet-v3", "convolutional"),
    ],
)
def test_a_network_is_of_the_family_that_it_is_mostly_made_of(name, family):
    graph = network_named(name)
    assert graph is not None, name
    assert family_of(Query(Network(graph), L4)) == family


def test_other_networks_and_operators_have_a_family_too():
    linear = Operator("linear", "fc", ((1, 8),), ((1, 8),), 64)
    recurrent = Operator("recurrent", "lstm", ((1, 4, 8),), ((1, 4, 8),), 64)
    assert family_of(Query(Network(OperatorGraph((linear,))), L4)) == "other"
    assert family_of(Query(Network(OperatorGraph((linear, recurrent))), L4)) == "recurrent"
    assert family_of(Query(Kernel(linear), L4)) == "linear"


def row(measured, **answers) -> MeasuredRow:
    given = {name: GivenEstimate.model_validate(answer) for name, answer in answers.items()}
    content = linear_row(64, 1.0) | {"metrics": measured}
    return MeasuredRow.model_validate(content).model_copy(update={"answer": given})


def test_metrics_without_a_measured_value_or_an_answer_are_not_compared():
    found = log_ratios(
        row(
            {"latency_ms": 2.0, "power_w": None, "energy_j": 5.0, "utilisation": 0.0},
            latency_ms={"value": 1.0},
            power_w={"value": 1.0},
            utilisation={"value": 0.5},
        )
    )
    assert list(found) == ["latency_ms"]
    ratio, inside = found["latency_ms"]
    assert ratio == pytest.approx(np.log(2))
    assert np.isnan(inside), "there is no interval"


@pytest.mark.parametrize(("measured", "inside"), [(0.9, 1), (1.1, 1), (0.89, 0), (1.2, 0)])
def test_the_ends_of_an_interval_are_inside(measured, inside):
    answer = {"value": 1.0, "low": 0.9, "high": 1.1}
    assert log_ratios(row({"latency_ms": measured}, latency_ms=answer))["latency_ms"][1] == inside


def test_a_row_without_any_answer_is_not_compared():
    assert log_ratios(MeasuredRow.model_validate(linear_row(64, 1.0))) == {}
