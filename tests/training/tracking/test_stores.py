"""Detecting that a registry changed, from its file or from MLflow's REST API."""

import json
import sqlite3
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from forerun.training.tracking.stores import stamp

MODEL = {
    "name": "forerun",
    "creation_timestamp": 1795987262623,
    "last_updated_timestamp": 1795987262667,
    "latest_versions": [{"name": "forerun", "version": "2", "current_stage": "None"}],
    "aliases": [{"alias": "champion", "version": "1"}, {"alias": "candidate", "version": "2"}],
}
"""What a server of MLflow 3.17 answers, shortened."""
ABSENT = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "... name=forerun not found"}
PATH = "/api/2.0/mlflow/registered-models/get?name=forerun"


@pytest.fixture
def server():
    """A server that gives `answer`, a status and a content, to a request of the model's name."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            made.given = self.headers.get("Authorization")
            status, content = made.answer if self.path == PATH else (400, {})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(
                content if isinstance(content, bytes) else json.dumps(content).encode()
            )

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def stamp_of(server, status, content):
    server.answer = status, content
    return stamp(f"http://127.0.0.1:{server.server_port}/", 30)


def test_the_stamp_of_a_server_only_changes_with_its_aliases(server):
    def of(**change):
        return stamp_of(server, 200, {"registered_model": {**MODEL, **change}})

    first = of()
    assert first is not None
    assert of(latest_versions=[], aliases=MODEL["aliases"][::-1]) == first
    for aliases in ([], MODEL["aliases"][:1], [{"alias": "champion", "version": "2"}]):
        assert of(aliases=aliases) not in (first, None)
    assert of(creation_timestamp=1) != first, "a model that was made anew has other versions"
    assert stamp_of(server, 404, ABSENT) not in (first, None)


@pytest.mark.parametrize("answer", [(401, "no entry"), (500, {}), (200, []), (200, "{")])
def test_a_server_without_an_answer_has_no_stamp(server, answer):
    assert stamp_of(server, *answer) is None


def test_the_server_is_asked_with_the_credentials_that_mlflow_reads(server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    stamp_of(server, 404, ABSENT)
    assert server.given == "Bearer secret"
    monkeypatch.delenv("MLFLOW_TRACKING_TOKEN")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "word")
    stamp_of(server, 404, ABSENT)
    assert server.given == "Basic bWU6d29yZA=="


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_the_stamp_of_a_file_changes_with_every_commit(tmp_path, mode):
    file = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"pragma journal_mode={mode}")
        database.execute("create table aliases (version)")
        database.commit()
        before = stamp(f"sqlite:///{file}", 1)
        assert stamp(f"sqlite:///{file}", 1) == before is not None
        for version in range(200):
            database.execute("insert into aliases values (?)", (f"{version:04096}",))
        database.commit()
        assert stamp(f"sqlite:///{file}", 1) != before


def test_an_unreadable_store_has_no_stamp(tmp_path):
    for uri in (f"sqlite:///{tmp_path}/missing.db", "databricks", "http://127.0.0.1:1"):
        assert stamp(uri, 1) is None
