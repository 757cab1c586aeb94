"""A release that comes with measurements adapts to them wherever it answers."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from forerun.data.errors import BadArtifact
from forerun.service.adaptation.predictor_in_use import adaptation_of, in_use_of
from forerun.service.adaptation.released_measurements import released_measurements, text_of
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.measurement_sets import MeasurementSet
from tests.service.conftest import GRAPH, linear_row

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
        devices, graphs = DeviceStore(settings.home / "devices"), GraphStore(settings.home / "g", 9)
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
    in_use = in_use_of(settings, base, DeviceStore(settings.home / "devices"))
    assert sum(in_use.rows.values()) == 3
    assert in_use.loaded.version.startswith(f"{loaded.version}+")
