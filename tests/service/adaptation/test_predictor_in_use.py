"""The predictor in use: what was measured or released with it decides it, in every process."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from forerun.data.collectors.workloads.operators import reference_operators
from forerun.data.device import Device
from forerun.data.errors import BadArtifact, UnanswerableQuery, UnknownBandwidth, UnknownDevice
from forerun.data.query import Query
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.baselines.constant import Constant
from forerun.service.adaptation.predictor_in_use import Adaptation, adaptation_of, in_use_of
from forerun.service.adaptation.released_measurements import released_measurements, text_of
from forerun.service.answers.answer import answer_of
from forerun.service.answers.question import question_about
from forerun.service.schemas.measured_rows import MeasuredRow, queries_of
from forerun.service.settings import Settings
from forerun.service.stores.database.store import Records
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.measurement_sets import MeasurementSet
from forerun.service.stores.places import Place
from tests.service.conftest import GRAPH, kernel_row, linear_row

SHEET = {"memory_bandwidth_gbs": 900, "peak_tflops": {"fp32": 40}}


@pytest.fixture
def make(tmp_path, trained):
    """Adaptations over one folder, as several processes have them."""

    def made(base=trained) -> Adaptation:
        devices = DeviceStore(Place(tmp_path) / "devices")
        graphs = GraphStore(Place(tmp_path) / "graphs", 10)
        return Adaptation(base, Place(tmp_path) / "measurements", devices, graphs.get, 10)

    return made


def rows(factor: float, trained, device: Device, count: int = 12) -> list[MeasuredRow]:
    """Measurements of the reference operators, `factor` times what the predictor says."""
    operators = reference_operators()[:count]
    given = [MeasuredRow.model_validate(kernel_row(op, 1.0)) for op in operators]
    said = trained.predictor.predict(queries_of(given, device, GraphStore)).values["latency_ms"]
    return [
        MeasuredRow.model_validate(kernel_row(op, float(ms) * factor))
        for op, ms in zip(operators, said, strict=True)
    ]


def answer(adaptation: Adaptation, name: str = "l4") -> np.ndarray:
    device = adaptation._devices.get(name)
    given = [MeasuredRow.model_validate(linear_row(n, None)) for n in (96, 960)]
    queries = queries_of(given, device, GraphStore)
    return adaptation.current().loaded.predictor.predict(queries).values["latency_ms"]


def test_answers_move_to_the_measurements_and_those_of_other_devices_stay(make, trained):
    adaptation = make()
    before, other = answer(adaptation), answer(adaptation, "t4")
    device = adaptation._devices.get("l4")
    learnt = adaptation.learn("l4", rows(2.0, trained, device))
    assert (answer(adaptation) / before > 1.5).all()
    assert (answer(adaptation, "t4") == other).all()
    assert learnt.rows == 12
    assert learnt.version.startswith(f"{trained.version}+")
    error = learnt.errors.metrics["latency_ms"]
    assert error.mape_after < error.mape_before == pytest.approx(50, abs=0.1)


def test_a_rollback_brings_back_the_very_predictor(make, trained):
    adaptation = make()
    before, version = answer(adaptation), adaptation.current().loaded.version
    device = adaptation._devices.get("l4")
    first = adaptation.learn("l4", rows(2.0, trained, device))
    between = answer(adaptation)
    second = adaptation.learn("l4", rows(5.0, trained, device))
    assert adaptation.undo("l4").id == second.kept.id
    assert (answer(adaptation) == between).all()
    assert adaptation.current().loaded.version == first.version
    adaptation.undo("l4", first.kept.id)
    assert (answer(adaptation) == before).all()
    assert adaptation.current().loaded.version == version == trained.version
    assert adaptation.current().rows == {}


def test_another_process_sees_sets_and_rollbacks_with_its_next_question(make, trained):
    one, other = make(), make()
    device = one._devices.get("l4")
    before = answer(other)
    learnt = one.learn("l4", rows(2.0, trained, device))
    assert (answer(other) == answer(one)).all()
    assert other.current().loaded.version == learnt.version
    other.undo("l4")
    assert (answer(one) == before).all()


def test_a_version_never_stands_for_two_things(make, trained):
    adaptation = make()
    device = adaptation._devices.get("l4")
    seen = {adaptation.current().loaded.version}
    for factor in (2.0, 3.0):
        seen.add(adaptation.learn("l4", rows(factor, trained, device)).version)
        adaptation.undo("l4")
    seen.add(adaptation.learn("t4", rows(2.0, trained, adaptation._devices.get("t4"))).version)
    assert len(seen) == 4


def test_measurements_outlive_the_predictor_that_they_came_to(make, trained):
    adaptation = make()
    device = adaptation._devices.get("l4")
    adaptation.learn("l4", rows(2.0, trained, device))
    after = answer(adaptation)
    adaptation.swap(replace(trained, version="next"))
    assert adaptation.current().loaded.version.startswith("next+")
    assert (answer(adaptation) == after).all()
    assert (answer(make()) == after).all()


def test_a_sheet_that_changes_is_adapted_anew(make, trained):
    adaptation = make()
    card = Device(name="my-card", vendor="me", kind="gpu", **SHEET)
    adaptation._devices.register(card)
    first = adaptation.learn("my-card", rows(2.0, trained, card))
    faster = card.model_copy(update={"memory_bandwidth_gbs": 1800.0, "peak_tflops": {"fp32": 80.0}})
    adaptation._devices.register(faster)
    in_use = adaptation.current()
    assert in_use.loaded.version != first.version
    assert [device.memory_bandwidth_gbs for device in in_use.rows] == [1800.0]


def test_a_network_keeps_its_graph_when_uploads_are_deleted(make, tmp_path):
    uploads = GraphStore(Place(tmp_path) / "graphs", 10)
    digest = uploads.put(GRAPH)
    network = {"kind": "network", "graph": digest, "batch_size": 8}
    row = MeasuredRow.model_validate({"workload": network, "metrics": {"latency_ms": 0.5}})
    make().learn("l4", [row] * 3)
    uploads.delete(digest)
    # The same measurement sent three times counts once.
    assert make().current().rows == {make()._devices.get("l4"): 1}


def test_a_damaged_copy_of_a_graph_is_mended_from_the_upload(make, tmp_path):
    digest = GraphStore(Place(tmp_path) / "graphs", 10).put(GRAPH)
    network = {"kind": "network", "graph": digest, "batch_size": 8}
    row = MeasuredRow.model_validate({"workload": network, "metrics": {"latency_ms": 0.5}})
    make().learn("l4", [row])
    copies = Place(tmp_path) / "measurements" / "graphs"
    Records.of_texts(copies).put(f"{digest}.json", "{")
    assert list(make().current().rows.values()) == [1]
    assert GraphStore(copies, 10).get(digest) == GRAPH


def test_what_cannot_be_learnt_from_any_more_is_left_out_and_logged(
    make, trained, tmp_path, capsys
):
    adaptation = make()
    card = Device(name="my-card", vendor="me", kind="gpu", **SHEET)
    adaptation._devices.register(card)
    adaptation.learn("l4", rows(2.0, trained, adaptation._devices.get("l4")))
    after = answer(adaptation)
    adaptation.learn("my-card", rows(2.0, trained, card))
    adaptation._devices.delete("my-card")
    assert (answer(make()) == after).all()
    assert "my-card" in capsys.readouterr().err


def test_a_predictor_that_breaks_on_one_device_still_adapts_to_the_others(make, trained, capsys):
    class Picky(Constant):
        def adapt(self, measurements):
            if any(q.device.name == "t4" for q in measurements.queries):
                raise ZeroDivisionError
            return self

    adaptation = make()
    for name in ("l4", "t4"):
        adaptation.learn(name, rows(2.0, trained, adaptation._devices.get(name)))
    picky = LoadedPredictor(Picky({"latency_ms": 1.0}), "picky", "2026-01-01", "")
    assert [device.name for device in make(picky).current().rows] == ["l4"]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_latencies_give_a_device_without_a_sheet_one(make, trained):
    adaptation = make()
    box = Device(name="black-box", vendor="me", kind="gpu")
    adaptation._devices.register(box)
    slower = rows(3.0, trained, adaptation._devices.get("l4"))
    learnt = adaptation.learn("black-box", slower)
    assert learnt.rows == len(slower)
    (query,) = queries_of(slower[:1], box, GraphStore)
    said = answer_of(question_about(query), adaptation.current())
    measured = slower[0].metrics["latency_ms"]
    assert said.metrics["latency_ms"].value == pytest.approx(measured, rel=0.4)
    assert "no spec sheet of its own: estimated from 12" in " ".join(said.limits)
    assert said.predictor.adapted_rows == len(slower)


def test_a_device_without_a_sheet_is_refused_in_one_line(make):
    adaptation = make()
    adaptation._devices.register(Device(name="black-box", vendor="me", kind="gpu"))
    network = {"kind": "network", "graph": GRAPH.to_json()}
    row = MeasuredRow.model_validate({"workload": network, "metrics": {"peak_memory_mib": 500.0}})
    with pytest.raises(UnknownBandwidth, match="black-box"):
        adaptation.learn("black-box", [row])
    with pytest.raises(UnknownDevice, match="black-box"):
        adaptation.learn("black-boks", [row])


def test_a_workload_that_nothing_answers_is_named(make):
    network = {"kind": "network", "graph": GRAPH.to_json()}
    row = MeasuredRow.model_validate({"workload": network, "metrics": {"latency_ms": 0.5}})
    unfitted = LoadedPredictor(Constant(), "unfitted", "2026-01-01", "")
    with pytest.raises(UnanswerableQuery, match=r"^row 7: no predictor answers a network"):
        make(unfitted).learn("l4", [row], names=["row 7"])


def test_asking_once_touches_no_folder(tmp_path, trained):
    home = tmp_path / "home"
    in_use = in_use_of(Settings(home=home), trained, DeviceStore(Place(home) / "devices"))
    assert in_use.loaded is trained
    assert not home.exists()


def test_records_hold_what_was_sent(make, tmp_path, trained):
    adaptation = make()
    given = rows(2.0, trained, adaptation._devices.get("l4"))
    adaptation.learn("l4", given)
    (text,) = Records.of_texts(Place(tmp_path) / "measurements").values().values()
    content = json.loads(text)
    assert content["format"] == "forerun.measurements/1"
    assert [MeasuredRow.model_validate(row) for row in content["rows"]] == given
    assert isinstance(queries_of(given, adaptation._devices.get("l4"), GraphStore)[0], Query)


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def measured():
    made = [MeasuredRow.model_validate(linear_row(n, n / 2e3)) for n in (64, 200, 700)]
    return MeasurementSet(id="one", device="l4", time=NOW, rows=made)


def test_measurements_and_graphs_survive_a_release():
    network = {"workload": {"kind": "network", "graph": GRAPH.digest}}
    row = MeasuredRow.model_validate(network | {"metrics": {"latency_ms": 2.5}})
    sets = (measured(), MeasurementSet(id="two", device="t4", time=NOW, rows=(row,)))
    again = released_measurements(text_of(sets, {GRAPH.digest: GRAPH}))
    assert again.sets == sets
    assert again.graphs == {GRAPH.digest: GRAPH}


def test_answers_that_were_given_are_not_released():
    own = {"value": 2.0, "low": 1.0, "high": 3.0, "version": "theirs"}
    row = MeasuredRow.model_validate(linear_row(64, 4.0) | {"answer": {"latency_ms": own}})
    (made,) = released_measurements(
        text_of([MeasurementSet(id="a", device="l4", time=NOW, rows=(row,))], {})
    ).sets
    assert made.rows[0].answer is None
    assert made.rows[0].metrics == {"latency_ms": 4.0}


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "forerun.support/2", "sets": []}'])
def test_a_damaged_text_is_refused_with_its_file(text):
    with pytest.raises(BadArtifact, match=r"support\.json"):
        released_measurements(text)


@pytest.fixture
def adaptation(settings, loaded):
    def made(*sets):
        devices, graphs = (
            DeviceStore(Place(settings.home) / "devices"),
            GraphStore(Place(settings.home) / "g", 9),
        )
        base = replace(loaded, support=text_of(sets, {}) if sets else "")
        return adaptation_of(settings, base, devices, graphs.get)

    return made


def test_a_set_that_is_stored_here_counts_once(adaptation):
    own = adaptation(measured())
    assert sum(own.current().rows.values()) == 3
    stored = adaptation()
    result = stored.learn("l4", measured().rows)
    both = adaptation(measured().model_copy(update={"id": result.kept.id}))
    assert sum(both.current().rows.values()) == 3
    both.undo("l4", result.kept.id)
    assert not both.current().rows, "what was rolled back here is not used here"


def test_a_process_that_answers_once_adapts_too(settings, loaded):
    base = replace(loaded, support=text_of([measured()], {}))
    in_use = in_use_of(settings, base, DeviceStore(Place(settings.home) / "devices"))
    assert sum(in_use.rows.values()) == 3
    assert in_use.loaded.version.startswith(f"{loaded.version}+")
