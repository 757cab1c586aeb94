"""Both databases keep records alike: what one process acknowledged, the others find."""

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forerun.service.stores.database.connections import Database, FileDatabase
from forerun.service.stores.database.store import Records
from forerun.service.stores.places import DamagedRecord, Place
from tests.postgres import needs_postgres

WHERE = ("sqlite", pytest.param("postgresql", marks=needs_postgres))
NAMES = ("a.json", "b.json", "c.json", "a.undone")


def decode(name: str, content: bytes) -> list[int]:
    value = json.loads(content)
    if not isinstance(value, list):
        raise TypeError("it is no list")
    return value


@dataclass
class Shared:
    """One place that several processes share.

    Attributes:
        process: opens the place as one more process does; `room` as in `Records`.
    """

    process: Callable[..., Records[list[int]]]

    @staticmethod
    def settle(records: Records[list[int]]) -> None:
        """Let the process look at what others did, as it does every second."""
        records._database.look()


@pytest.fixture(params=WHERE)
def shared(request, tmp_path) -> Shared:
    reports: list[str] = []
    connect = opener(request)

    def process(report=lambda path, why: reports.append(path.name), **memory):
        return Records(Place(connect(), "numbers"), json.dumps, decode, report, **memory)

    return Shared(process)


def opener(request) -> Callable[[], Database]:
    """Opens the database of a test, as one more process does."""
    if request.param == "postgresql":
        return request.getfixturevalue("connect")
    folder = request.getfixturevalue("tmp_path")
    return lambda: FileDatabase(folder)


@pytest.fixture(params=["all in memory", "some in memory"])
def pair(request, shared) -> tuple[Records[list[int]], Records[list[int]]]:
    memory = {} if request.param == "all in memory" else {"weigh": len, "room": 3}
    return shared.process(**memory), shared.process(**memory)


def test_what_one_process_stores_the_others_find(pair):
    one, other = pair
    stamp = other.stamp()
    one.put("b.json", [2])
    one.put("a.json", [1])
    one.mark("a.undone")
    Shared.settle(other)
    assert not other.is_unchanged(stamp)
    assert other.names() == {"a.json", "b.json", "a.undone"} == one.names()
    assert list(other.values().items()) == [("a.json", [1]), ("b.json", [2])]
    assert one.get("a.json") == [1] == other.get("a.json")
    other.put("a.json", [3])
    assert other.get("a.json") == [3]
    Shared.settle(one)
    assert one.get("a.json") == [3]


def test_what_is_deleted_is_gone_everywhere(pair):
    one, other = pair
    one.put("a.json", [1])
    one.put("b.json", [2])
    Shared.settle(other)
    assert other.get("a.json") == [1]
    assert one.delete("a.json")
    assert not one.delete("a.json")
    Shared.settle(other)
    for each in pair:
        assert each.held("a.json") is None
        assert each.names() == {"b.json"}
        with pytest.raises(FileNotFoundError):
            each.get("a.json")


def test_a_place_is_used_from_its_first_record_on(shared):
    one, other = shared.process(), shared.process()
    assert not one.is_used()
    one.put("a.json", [1])
    one.delete("a.json")
    Shared.settle(other)
    assert one.is_used()
    assert other.is_used()


def test_who_writes_reads_what_others_wrote_a_moment_ago(pair):
    one, other = pair
    one.put("a.json", [1])
    with other.writing():
        assert other.names() == {"a.json"}
        assert other.get("a.json") == [1]
        other.put("b.json", [2])
        assert other.names() == {"a.json", "b.json"}
        assert other.get("b.json") == [2]
        other.delete("a.json")
        assert other.names() == {"b.json"}
        with pytest.raises(FileNotFoundError):
            other.get("a.json")
    assert other.names() == {"b.json"}
    Shared.settle(one)
    assert one.names() == {"b.json"}


def test_writers_exclude_each_other_over_threads_and_processes(pair):
    def add(records):
        for _ in range(5):
            with records.writing():
                before = records.get("a.json")[0] if "a.json" in records.names() else 0
                records.put("a.json", [before + 1])

    with ThreadPoolExecutor(4) as many:
        list(many.map(add, (*pair, *pair)))
    for each in pair:
        Shared.settle(each)
        assert each.get("a.json") == [20]


def test_a_stamp_stays_where_nothing_changes(shared):
    one = shared.process()
    one.put("a.json", [1])
    seen = one.stamp()
    assert one.is_unchanged(seen)
    one.get("a.json")
    Shared.settle(one)
    assert one.is_unchanged(seen)
    one.put("a.json", [1])
    assert not one.is_unchanged(seen)


@pytest.mark.parametrize("memory", [{}, {"weigh": len, "room": 3}])
def test_a_damaged_record_is_reported_once_left_out_and_replaced(shared, memory):
    texts = shared.process()
    texts._encode = str  # what no store writes
    texts.put("a.json", {"no": "list"})
    texts.put("b.json", [2])
    reported = []
    other = shared.process(lambda path, why: reported.append(path.name), **memory)
    for _ in range(2):
        assert other.values() == {"b.json": [2]}
        with pytest.raises(DamagedRecord, match=r"a\.json"):
            other.get("a.json")
    assert reported[:1] == ["a.json"]
    assert len(reported) == (1 if not memory else len(reported))
    assert other.names() == {"a.json", "b.json"}
    other.put("a.json", [1])
    assert other.get("a.json") == [1]


def test_what_does_not_fit_in_memory_is_read_again(shared):
    records = shared.process(weigh=len, room=4)
    for number in range(4):
        records.put(f"{number}.json", [number] * 2)
    assert [records.held(f"{number}.json") for number in range(4)] == [None, None, [2, 2], [3, 3]]
    assert records.get("0.json") == [0, 0]
    assert records.held("2.json") is None
    records.put("heavy.json", [1] * 9)
    assert records.held("heavy.json") == [1] * 9


@pytest.fixture(params=WHERE)
def anywhere(request) -> Callable[[], Database]:
    return opener(request)


@pytest.mark.parametrize("room", [0, 3])
def test_memory_is_what_the_database_holds_after_writes_and_looks_at_once(anywhere, room):
    connect = anywhere
    databases = connect(), connect()
    pair = [
        Records(Place(each, "numbers"), json.dumps, decode, weigh=len, room=room)
        for each in databases
    ]

    def write(number: int) -> None:
        chance, records = random.Random(number), pair[number % 2]
        for step in range(25):
            name = chance.choice(NAMES[:3])
            if chance.random() < 0.4:
                records.delete(name)
            else:
                records.put(name, [number, step])

    def follow(number: int) -> None:
        for _ in range(40):
            databases[number].look()
            with suppress(FileNotFoundError):
                pair[number].get("a.json")

    with ThreadPoolExecutor(8) as many:
        done = [many.submit(write, number) for number in range(4)]
        done += [many.submit(follow, number) for number in (0, 1, 0, 1)]
    assert not any(each.exception() for each in done)
    truth = Records(Place(connect(), "numbers"), json.dumps, decode).values()
    for each in pair:
        Shared.settle(each)
        assert each.values() == truth
        assert each.names() == truth.keys()


@needs_postgres
def test_a_record_that_changes_while_the_changes_are_read_is_not_called_damaged(connect):
    from sqlalchemy.event import listens_for

    looking, writing = connect(), connect()
    one, other = (
        Records(Place(each, "numbers"), json.dumps, decode) for each in (looking, writing)
    )
    other.put("a.json", [1])
    other.put("b.json", [1])
    meanwhile = [lambda: other.put("a.json", [2]), lambda: other.delete("b.json")]

    def write_first(*given) -> None:
        if "records.content" in given[2]:
            while meanwhile:
                meanwhile.pop()()

    listens_for(looking._engine, "before_cursor_execute")(write_first)
    looking.look()
    assert not meanwhile
    assert one.values() == {"a.json": [1], "b.json": [1]}
    looking.look()
    assert one.values() == {"a.json": [2]}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "mark", "delete", "fail"]),
        st.integers(0, 1),
        st.sampled_from(NAMES),
    ),
    max_size=12,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, room=st.sampled_from([0, 2]))
def test_two_processes_on_a_database_do_what_one_dictionary_does(two, fresh, steps, room):
    path = f"numbers-{next(fresh)}"
    processes = [
        Records(Place(each, path), json.dumps, decode, weigh=len, room=room) for each in two
    ]
    model: dict[str, list[int]] = {}
    for number, (step, which, name) in enumerate(steps):
        records = processes[which]
        if step == "put" and name.endswith(".json"):
            records.put(name, [number])
            model[name] = [number]
        elif step == "mark" and not name.endswith(".json"):
            records.mark(name)
            model[name] = []
        elif step == "delete":
            assert records.delete(name) == (model.pop(name, None) is not None)
        elif step == "fail":
            with suppress(KeyError), records.writing():
                records.put("a.json", [-1])
                records.delete("b.json")
                raise KeyError("given up")
        Shared.settle(processes[1 - which])
        kept = {n: v for n, v in sorted(model.items()) if n.endswith(".json")}
        for each in processes:
            assert each.names() == model.keys()
            assert each.values() == kept


@pytest.fixture
def two(anywhere):
    return anywhere(), anywhere()


@pytest.fixture
def fresh() -> "count[int]":
    return count()
