"""The database: who may use its tables, what happens while it is away, and its password."""

import json
import logging
import time
from threading import Thread

import pytest

from forerun.data.errors import DiskFull
from forerun.service.settings import Settings
from forerun.service.stores.database.store import Records
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.keys import KeyStore
from forerun.service.stores.measurement_sets import AdaptationStore
from forerun.service.stores.places import Place, database_of, place_of
from tests.postgres import PASSWORD, needs_postgres, postgres_server
from tests.service.cli.conftest import forerun as forerun
from tests.service.conftest import GRAPH
from tests.service.stores.test_devices import card
from tests.service.stores.test_measurement_sets import keep

pytestmark = needs_postgres
NOBODY = f"postgresql://forerun:{PASSWORD}@127.0.0.1:1/forerun"
"""An address at which nothing answers."""


def numbers(database, **memory):
    place = Place(database, "numbers")
    return Records(place, json.dumps, lambda name, content: json.loads(content), **memory)


def settings_of(url, tmp_path) -> Settings:
    return Settings(home=tmp_path, database_url=url)


def test_a_database_tells_the_records_and_bytes_of_each_store(connect):
    database = connect()
    assert database.sizes() == {}
    place = Place(database)
    devices = DeviceStore(place / "devices")
    devices.register(card())
    GraphStore(place / "measurements" / "graphs", 10).put(GRAPH)
    sizes = database.sizes()
    text = devices.get("my-card").model_dump_json(exclude_none=True)
    assert sizes["devices"] == (1, len(text.encode()))
    assert sizes["measurements/graphs"][0] == 1


def test_all_stores_of_two_replicas_agree(connect):
    one, other = Place(connect()), Place(connect())
    devices, graphs = DeviceStore(one / "devices"), GraphStore(one / "graphs", 10)
    keys, sets = KeyStore(one / "keys"), AdaptationStore(one / "measurements")
    seen_devices = DeviceStore(other / "devices")
    seen_sets = AdaptationStore(other / "measurements")
    seen_keys, seen_graphs = KeyStore(other / "keys"), GraphStore(other / "graphs", 10)
    assert not seen_keys.is_used()

    devices.register(card())
    key, text = keys.create("scheduler", "read")
    digest = graphs.put(GRAPH)
    first, second = keep(sets), keep(sets)
    sets.undo(first)
    assert devices.get("my-card").tdp_w == card().tdp_w
    assert seen_graphs.get(digest) == GRAPH  # at once: a client may ask any replica next
    other.database.look()

    assert seen_devices.get("my-card").origin == "registered"
    assert seen_keys.is_used()
    assert seen_keys.holder(text) == key
    assert seen_sets.live() == (second,)
    assert seen_sets.get("l4", first.id).undone
    keys.revoke(key.id)
    devices.delete("my-card")
    graphs.delete(digest)
    other.database.look()
    assert seen_keys.holder(text) is None
    assert "my-card" not in seen_devices.catalog.names()
    assert seen_graphs.held(digest) is None


def test_a_refused_registration_leaves_nothing_behind(connect):
    devices = DeviceStore(Place(connect(), "devices"))
    devices.register(card(aliases=["shared"]))
    with pytest.raises(Exception, match="shared"):
        devices.register(card("another", aliases=["shared"]))
    again = DeviceStore(Place(connect(), "devices"))
    for each in (devices, again):
        assert "my-card" in each.catalog.names()
        assert "another" not in each.catalog.names()


def test_without_tables_with_older_and_with_newer_ones_it_is_said_what_to_do(postgres, opened):
    from sqlalchemy import text

    from forerun.service.stores.database.tables import OtherSchema
    from forerun.service.stores.database.upgrading import upgraded

    url = postgres.new_database()
    with pytest.raises(OtherSchema, match=r"no tables .*: run `forerun database upgrade`"):
        numbers(opened(url))
    assert upgraded(opened(url)) == (None, "0001")
    numbers(opened(url)).put("a.json", [1])
    assert upgraded(opened(url)) == ("0001", "0001")
    for version, remedy in (("0000", "`forerun database upgrade`"), ("9999", "install the newer")):
        database = opened(url)
        with database.transaction() as connection:
            connection.execute(text("UPDATE forerun_version SET version_num = :v"), {"v": version})
        with pytest.raises(OtherSchema, match=remedy):
            numbers(database)
        assert isinstance(database.problem, OtherSchema)
    with pytest.raises(OtherSchema, match="newer"):
        upgraded(opened(url))


def test_the_tables_are_those_that_the_newest_migration_makes(connect):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    from forerun.service.stores.database.tables import METADATA, VERSION
    from forerun.service.stores.database.upgrading import configuration

    assert ScriptDirectory.from_config(configuration()).get_heads() == [VERSION]
    compared = {"include_name": lambda name, *_: name != "forerun_version"}
    with connect().transaction() as connection:
        context = MigrationContext.configure(connection, opts=compared)
        assert compare_metadata(context, METADATA) == []


def test_while_it_is_away_memory_answers_and_writes_are_refused_until_it_is_back(opened, capfd):
    from forerun.service.stores.database.tables import DatabaseAway
    from forerun.service.stores.database.upgrading import upgraded

    with postgres_server() as server:
        database = opened(server.url)
        upgraded(database)
        held, some = numbers(database), numbers(database, weigh=len, room=2)
        held.put("a.json", [1])
        held.put("b.json", [2])
        some.get("a.json")
        stamp = held.stamp()
        server.stop("immediate")
        for _ in range(2):
            with pytest.raises(DatabaseAway) as refused:
                held.put("c.json", [3])
            assert refused.value.retry_after_s == 1
            database.look()
        assert isinstance(database.problem, DatabaseAway)
        assert held.values() == {"a.json": [1], "b.json": [2]}
        assert held.is_unchanged(stamp)
        assert some.get("a.json") == [1]
        with pytest.raises(DatabaseAway):
            some.get("b.json")
        with pytest.raises(DatabaseAway):
            numbers(opened(server.url))
        server.start()
        time.sleep(1.1)  # in which nobody tries to connect
        held.put("c.json", [3])
        assert database.problem is None
        assert some.get("b.json") == [2]
        assert held.names() == {"a.json", "b.json", "c.json"}
        server.stop()
        server.start()
        held.put("d.json", [4])  # over no connection of before
    log = capfd.readouterr().err
    assert log.count("the database answers again") == 1
    assert PASSWORD not in log


def test_a_commit_of_unknown_outcome_is_refused_and_then_found(connect, monkeypatch):
    from sqlalchemy import text

    from forerun.service.stores.database.tables import DatabaseAway

    database, other = connect(), connect()
    records = numbers(database)
    records.put("a.json", [1])
    with pytest.raises(DatabaseAway), records.writing():
        records.put("a.json", [2])
        with other.transaction() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
    assert records.get("a.json") == [1]
    time.sleep(1.1)
    with records.writing():
        assert records.get("a.json") == [1]
        records.put("a.json", [3])
    assert numbers(connect()).values() == {"a.json": [3]}


def test_a_write_during_a_look_is_not_replaced_by_what_the_look_read_before(connect, monkeypatch):
    database = connect()
    records = numbers(database)
    numbers(connect()).put("a.json", [1])
    writer = Thread(target=lambda: records.put("a.json", [2]))
    lacks = records._lacks

    def interrupted(name: str, number: int) -> bool:
        if writer.ident is None:
            writer.start()
            writer.join(0.5)  # the write waits for the end of the look
        return lacks(name, number)

    monkeypatch.setattr(records, "_lacks", interrupted)
    with database.followed():
        database.look()
        writer.join()
        assert records.get("a.json") == [2]
        assert records.values() == {"a.json": [2]}


def test_questions_do_not_wait_for_the_database_while_it_is_followed(connect, monkeypatch):
    database = connect()
    records = numbers(database)
    records.put("a.json", [1])
    looks = []
    monkeypatch.setattr(database, "look", lambda: looks.append(1))
    monkeypatch.setattr(database, "_looked_s", float("-inf"))
    with database.followed():
        assert records.get("a.json") == records.held("a.json") == [1]
        assert records.names()
        assert records.is_unchanged(records.stamp())
        assert not looks
    records.stamp()
    assert looks


def test_a_process_that_nobody_follows_looks_once_a_second(connect, monkeypatch):
    one, database = connect(), connect()
    seen = numbers(database)
    numbers(one).put("a.json", [1])
    assert seen.held("a.json") is None
    monkeypatch.setattr("forerun.service.stores.database.connections.monotonic", lambda: 1e9)
    assert seen.held("a.json") == [1]


@pytest.mark.parametrize(
    "state, problem",
    [("53100", "DiskFull"), ("42501", "DatabaseRefused"), ("57014", "DatabaseAway")],
)
def test_what_the_database_refuses_is_a_problem_with_a_remedy(connect, state, problem):
    from sqlalchemy import text

    from forerun.data.errors import CannotStore

    database = connect()
    with pytest.raises(CannotStore) as refused, database.transaction() as connection:
        raising = f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$"
        connection.execute(text(raising))
    assert type(refused.value).__name__ == problem
    assert isinstance(refused.value, DiskFull) == (state == "53100")
    with database.transaction() as connection:  # the next one is not refused
        assert connection.execute(text("SELECT 1")).scalar() == 1
    assert database.problem is None


@pytest.mark.parametrize("url", ["", "nonsense", "sqlite:///file.db", f"mysql://a:{PASSWORD}@b/c"])
def test_another_address_is_refused_in_one_line_without_its_password(url, tmp_path):
    from forerun.service.stores.database.tables import BadDatabaseUrl

    with pytest.raises(BadDatabaseUrl, match="postgresql://USER:PASSWORD@HOST:PORT") as refused:
        place_of(settings_of(url, tmp_path))
    assert PASSWORD not in str(refused.value)


def test_the_password_is_in_no_text_about_settings_places_and_problems(tmp_path, capfd, caplog):
    from forerun.data.errors import CannotStore

    settings = settings_of(NOBODY, tmp_path)
    place = place_of(settings)
    with caplog.at_level(logging.DEBUG), pytest.raises(CannotStore) as refused:
        DeviceStore(place / "devices")
    said = [repr(settings), str(settings), settings.model_dump_json(), repr(place), caplog.text]
    said += [str(refused.value), repr(refused.value), repr(database_of(settings))]
    said += [capfd.readouterr().err]
    assert not [text for text in said if PASSWORD in text]
    assert "cannot be used" in said[-1]


def test_a_process_has_one_pool_for_each_database(connect, tmp_path):
    one, other = settings_of(NOBODY, tmp_path), settings_of(NOBODY, tmp_path / "other")
    assert database_of(one) is database_of(other)
    assert database_of(Settings(home=tmp_path)) is database_of(Settings(home=tmp_path))
    assert place_of(Settings(home=tmp_path)) == Place(tmp_path)
    place = Place(connect()) / "measurements"
    assert not Records.of_texts(place).is_used()
    keep(AdaptationStore(place))
    assert Records.of_texts(place).is_used()
    assert not Records.of_texts(Place(tmp_path) / "measurements").is_used()


def test_files_are_copied_once_and_what_the_database_holds_stays(connect, tmp_path):
    from forerun.service.stores.database.upgrading import imported

    DeviceStore(Place(tmp_path) / "devices").register(card())
    _, text = KeyStore(Place(tmp_path) / "keys").create("scheduler", "read")
    sets = AdaptationStore(Place(tmp_path) / "measurements")
    first, second = keep(sets), keep(sets)
    sets.undo(first)
    digest = GraphStore(Place(tmp_path) / "measurements" / "graphs", 1).put(GRAPH)
    database = connect()
    counts = imported(tmp_path, database)
    assert counts == {"devices": 1, "keys": 1, "measurements": 3, "measurements/graphs": 1}

    place = Place(connect())
    KeyStore(place / "keys").revoke(text.split("_")[1])
    devices = DeviceStore(place / "devices")
    devices.register(card(tdp_w=123.0))
    assert set(imported(tmp_path, database).values()) == {0, 1}  # the key alone
    place.database.look()
    assert devices.get("my-card").tdp_w == 123.0
    assert AdaptationStore(place / "measurements").live() == (second,)
    assert GraphStore(place / "measurements" / "graphs", 1).get(digest) == GRAPH


def test_the_command_makes_the_tables_and_fills_them_from_the_files(
    forerun, postgres, tmp_path, monkeypatch
):
    said, printed = forerun("database", "upgrade")[2], forerun("keys", "create", "ours")[1]
    assert "Set FORERUN_DATABASE_URL" in said
    monkeypatch.setenv("FORERUN_DATABASE_URL", postgres.new_database())
    code, _, said = forerun("keys", "list")
    assert code == 2
    assert "run `forerun database upgrade`" in said
    assert "there were none before" in forerun("database", "upgrade")[1]
    assert "already" in forerun("database", "upgrade")[1]
    identifier = printed.split("_")[1]
    assert identifier not in forerun("keys", "list")[1]
    assert "keys: 1 copied" in forerun("database", "import")[1]
    assert identifier in forerun("keys", "list")[1]
    assert forerun("keys", "revoke", identifier)[0] == 0
    kept = Records.of_texts(Place(tmp_path / "home") / "keys")
    assert kept.names() == {f"{identifier}.json"}, "what is copied stays"
