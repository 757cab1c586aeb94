"""Sets of measurements: in their order, none changes, and a file of another name is left out."""

from datetime import UTC, datetime, timedelta

import pytest

from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.stores import measurement_sets as adaptation_store
from forerun.service.stores.measurement_sets import AdaptationStore, UnknownSet
from forerun.service.stores.places import StoreFull
from tests.service.conftest import linear_row


def rows(*latencies: float) -> list[MeasuredRow]:
    return [MeasuredRow.model_validate(linear_row(64, value)) for value in latencies]


@pytest.fixture
def store(tmp_path) -> AdaptationStore:
    return AdaptationStore(tmp_path / "measurements")


def keep(store, device="l4", *latencies):
    made = store.new(device, rows(*(latencies or (1.0,))))
    store.put(made)
    return made


def test_undone_sets_stay_and_are_out_of_use(store, tmp_path):
    first, second = keep(store), keep(store)
    store.undo(store.get("l4"))
    for one in (store, AdaptationStore(tmp_path / "measurements")):
        assert [s.undone for s in one.sets()] == [False, True]
        assert one.live() == (first,)
        assert one.get("l4", second.id).rows == second.rows
    store.undo(store.get("l4", second.id))
    store.undo(store.get("l4"))
    with pytest.raises(UnknownSet, match="l4 has no set of measurements in use"):
        store.get("l4")
    with pytest.raises(UnknownSet, match="nothing"):
        store.get("l4", "nothing")


def test_sets_sort_by_time_also_when_the_clock_is_set_back(store, monkeypatch):
    class Earlier(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2020, 1, 1, tzinfo=UTC)

    made = [keep(store)]
    monkeypatch.setattr(adaptation_store, "datetime", Earlier)
    made += [keep(store), keep(store)]
    assert list(store.sets()) == made
    assert made[1].time - made[0].time == timedelta(microseconds=1)


def test_a_folder_of_an_earlier_version_is_read(tmp_path):
    name = "l4.20260102T030405000006-0a1b2c"
    row = rows(1.5)[0].model_dump_json(exclude_none=True)
    (tmp_path / f"{name}.json").write_text(
        '{"format":"forerun.measurements/1","id":"20260102T030405000006-0a1b2c","device":"l4",'
        f'"time":"2026-01-02T03:04:05.000006Z","rows":[{row}]}}\n'
    )
    (stored,) = AdaptationStore(tmp_path).sets()
    assert (stored.device, stored.rows, stored.undone) == ("l4", tuple(rows(1.5)), False)
    (tmp_path / f"{name}.undone").touch()
    assert AdaptationStore(tmp_path).sets()[0].undone


def test_a_set_under_another_name_is_left_out(store, tmp_path, capsys):
    made = keep(store)
    path = tmp_path / "measurements" / f"l4.{made.id}.json"
    path.rename(path.with_name(f"t4.{made.id}.json"))
    assert AdaptationStore(path.parent).sets() == ()
    assert "not what its name says" in capsys.readouterr().err


def test_there_is_a_most_of_rows_and_of_sets(store, monkeypatch):
    monkeypatch.setattr(adaptation_store, "MOST_ROWS_OF_A_DEVICE", 3)
    first = keep(store, "l4", 1.0, 2.0)
    with pytest.raises(StoreFull, match="l4 has 2 measurements"):
        keep(store, "l4", 1.0, 2.0)
    keep(store, "t4", 1.0, 2.0)
    store.undo(first)
    keep(store, "l4", 1.0, 2.0)
    monkeypatch.setattr(adaptation_store, "MOST_SETS", 3)
    with pytest.raises(StoreFull, match="3 sets"):
        keep(store, "a30")
