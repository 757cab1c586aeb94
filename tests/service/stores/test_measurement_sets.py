"""Sets of measurements: in their order, none changes, repeatable requests are stored once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.stores import measurement_sets
from forerun.service.stores.database.store import Records
from forerun.service.stores.measurement_sets import (
    AdaptationStore,
    AlreadyStored,
    RepeatableRequest,
    ReusedKey,
    UnknownSet,
)
from forerun.service.stores.places import Place, StoreFull
from tests.service.conftest import linear_row


def rows(*latencies: float) -> list[MeasuredRow]:
    return [MeasuredRow.model_validate(linear_row(64, value)) for value in latencies]


@pytest.fixture
def store(tmp_path) -> AdaptationStore:
    return AdaptationStore(Place(tmp_path) / "measurements")


def keep(store, device="l4", *latencies):
    made = store.new(device, rows(*(latencies or (1.0,))))
    store.put(made)
    return made


def test_undone_sets_stay_and_are_out_of_use(store, tmp_path):
    first, second = keep(store), keep(store)
    store.undo(store.get("l4"))
    for one in (store, AdaptationStore(Place(tmp_path) / "measurements")):
        assert [s.undone for s in one.sets()] == [False, True]
        assert one.live() == (first,)
        assert one.get("l4", second.id).rows == second.rows
    store.undo(store.get("l4", second.id))
    store.undo(store.get("l4"))
    with pytest.raises(UnknownSet, match="l4 has no set of measurements in use"):
        store.get("l4")
    with pytest.raises(UnknownSet, match="nothing"):
        store.get("l4", "nothing")


class Earlier(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("source", ["adapt", "observe"])
def test_sets_sort_by_time_also_when_the_clock_is_set_back(store, monkeypatch, source):
    stored = keep if source == "adapt" else observe
    made = [stored(store)]
    monkeypatch.setattr(measurement_sets, "datetime", Earlier)
    made += [stored(store), stored(store)]
    assert list(store.sets("l4", source)) == made
    assert made[1].time - made[0].time == timedelta(microseconds=1)


def test_a_folder_of_an_earlier_version_is_read(tmp_path):
    name = "l4.20260102T030405000006-0a1b2c"
    row = rows(1.5)[0].model_dump_json(exclude_none=True)
    (tmp_path / "measurements").mkdir()
    (tmp_path / "measurements" / f"{name}.json").write_text(
        '{"format":"forerun.measurements/1","id":"20260102T030405000006-0a1b2c","device":"l4",'
        f'"time":"2026-01-02T03:04:05.000006Z","rows":[{row}]}}\n'
    )
    (stored,) = AdaptationStore(Place(tmp_path) / "measurements").sets()
    assert (stored.device, stored.rows, stored.undone) == ("l4", tuple(rows(1.5)), False)
    Records.of_texts(Place(tmp_path) / "measurements").mark(f"{name}.undone")
    assert AdaptationStore(Place(tmp_path) / "measurements").sets()[0].undone


def test_a_set_under_another_name_is_left_out(store, tmp_path, capsys):
    made = keep(store)
    texts = Records.of_texts(Place(tmp_path) / "measurements")
    texts.put(f"t4.{made.id}.json", texts.get(f"l4.{made.id}.json"))
    texts.delete(f"l4.{made.id}.json")
    assert store.sets() == ()
    assert "not what its name says" in capsys.readouterr().err


def test_there_is_a_most_of_rows_and_of_sets(store, monkeypatch):
    monkeypatch.setattr(measurement_sets, "MOST_ROWS_OF_A_DEVICE", 3)
    first = keep(store, "l4", 1.0, 2.0)
    with pytest.raises(StoreFull, match="l4 has 2 measurements"):
        keep(store, "l4", 1.0, 2.0)
    keep(store, "t4", 1.0, 2.0)
    store.undo(first)
    keep(store, "l4", 1.0, 2.0)
    monkeypatch.setattr(measurement_sets, "MOST_SETS", 3)
    with pytest.raises(StoreFull, match="3 sets"):
        keep(store, "a30")


REQUEST = RepeatableRequest.of("key-1", {"rows": 1})


def observe(store, *latencies, device="l4", request=None):
    given = rows(*(latencies or (1.0,)))
    made = store.new_observations(device, given, ["linear"] * len(given), request)
    store.put(made)
    return made


def kept(store, device="l4"):
    return [row.metrics["latency_ms"] for s in store.live(device, "observe") for row in s.rows]


def test_the_content_of_a_request_counts_and_not_the_order_of_its_fields():
    assert RepeatableRequest.of("k", {"a": 1, "b": 2}) == RepeatableRequest.of(
        "k", {"b": 2, "a": 1}
    )
    assert RepeatableRequest.of("k", {"a": 1}) != RepeatableRequest.of("k", {"a": 2})
    assert RepeatableRequest.of("k", {}).token != RepeatableRequest.of("j", {}).token


@pytest.mark.parametrize("source", ["adapt", "observe"])
def test_a_request_is_found_again_by_its_key_also_by_another_process(store, tmp_path, source):
    made = store.new("l4", rows(1.0), REQUEST)
    if source == "observe":
        made = store.new_observations("l4", rows(1.0), ["linear"], REQUEST)
    store.put(made.model_copy(update={"answer": '{"mape_after": null}'}))
    for one in (store, AdaptationStore(Place(tmp_path) / "measurements")):
        found = one.before("l4", REQUEST)
        assert (found.id, found.source) == (made.id, source)
        assert found.answer == '{"mape_after": null}'
        assert one.before("t4", REQUEST) is None, "keys are those of a device"
        assert one.before("l4", RepeatableRequest.of("key-2", {"rows": 1})) is None
        assert one.before("l4", None) is None


def test_a_key_with_other_content_is_refused(store):
    observe(store, request=REQUEST)
    other = RepeatableRequest.of("key-1", {"rows": 2})
    with pytest.raises(ReusedKey, match="Idempotency-Key") as refused:
        store.before("l4", other)
    assert refused.value.status == 422
    with pytest.raises(ReusedKey):
        observe(store, 2.0, request=other)
    with pytest.raises(ReusedKey):
        store.put(store.new("l4", rows(2.0), other))
    assert kept(store) == [1.0]
    assert store.live("l4") == ()


def test_of_the_same_requests_at_once_one_is_stored(tmp_path):
    stores = [AdaptationStore(Place(tmp_path) / "measurements") for _ in range(4)]

    def attempt(number):
        store = stores[number % 4]
        try:
            return observe(store, request=REQUEST).id
        except AlreadyStored as stored:
            return stored.before.id

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(attempt, range(24)))
    assert len(ids) == 1
    assert len(AdaptationStore(Place(tmp_path) / "measurements").sets("l4", "observe")) == 1


def test_a_damaged_file_does_not_stand_for_its_request(store, tmp_path):
    made = observe(store, request=REQUEST)
    Records.of_texts(Place(tmp_path) / "measurements" / "observed").put(f"l4.{made.id}.json", "{")
    again = AdaptationStore(Place(tmp_path) / "measurements")
    assert again.before("l4", REQUEST) is None
    assert observe(again, request=REQUEST).id != made.id


def test_files_of_others_are_no_observations_and_spoil_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setattr(measurement_sets, "WINDOW_SETS", 1)
    made = observe(store, 1.0)
    texts = Records.of_texts(Place(tmp_path) / "measurements" / "observed")
    content = texts.get(f"l4.{made.id}.json")
    others = [
        "l4.json",
        "l4.notes.json",
        "l4.20990101T000000000000-a.json",
        "readme",
        "l4.x-y-z.json",
    ]
    for name in others:
        texts.put(name, content)
    second = observe(store, 2.0, request=REQUEST)
    assert store.observed() == {"l4": [f"l4.{second.id}.json"]}
    assert kept(store) == [2.0]
    assert texts.names() >= set(others)


def test_a_file_with_too_few_families_is_damaged(store, tmp_path):
    made = observe(store, 1.0, 2.0)
    texts = Records.of_texts(Place(tmp_path) / "measurements" / "observed")
    name = f"l4.{made.id}.json"
    texts.put(name, texts.get(name).replace('["linear","linear"]', '["linear"]'))
    assert kept(AdaptationStore(Place(tmp_path) / "measurements")) == []


def test_observations_are_apart_from_what_is_adapted_to(store):
    stamp = store.stamp()
    made = observe(store, 1.0, 2.0)
    assert store.sets() == store.live("l4") == ()
    assert store.stamp() == stamp
    assert store.sets("l4", "observe") == (made,)
    assert store.sets("t4", "observe") == ()
    assert store.get("l4", made.id) == made
    with pytest.raises(UnknownSet):
        store.get("l4")
    store.check_device_unused("l4")
    assert made.families == ("linear", "linear")


def test_a_set_of_observations_is_rolled_back_like_any_other(store):
    first, second = observe(store, 1.0), observe(store, 2.0)
    store.undo(store.get("l4", first.id))
    store.undo(store.get("l4", first.id))
    assert kept(store) == [2.0]
    assert [each.undone for each in store.sets("l4", "observe")] == [True, False]
    assert store.observed() == {"l4": [f"l4.{second.id}.json"]}


def test_the_oldest_sets_leave_a_full_window_of_rows(store, monkeypatch, tmp_path):
    monkeypatch.setattr(measurement_sets, "WINDOW_ROWS", 5)
    first = observe(store, 1.0, 2.0)
    store.undo(first)
    observe(store, 3.0, 4.0, device="t4")
    for number in range(3):
        observe(store, 10.0 + number, 20.0 + number)
    assert kept(store) == [11.0, 21.0, 12.0, 22.0]
    assert kept(store, "t4") == [3.0, 4.0], "each device has a window of its own"
    names = Records.of_texts(Place(tmp_path) / "measurements" / "observed").names()
    assert not [name for name in names if first.id in name], "its mark left too"
    observe(store, *range(1, 9))
    assert kept(store) == list(range(1, 9)), "the newest set stays however large it is"


def test_the_oldest_sets_leave_a_full_window_of_sets(store, monkeypatch):
    monkeypatch.setattr(measurement_sets, "WINDOW_SETS", 2)
    for number in range(4):
        observe(store, float(number + 1))
    assert kept(store) == [3.0, 4.0]
