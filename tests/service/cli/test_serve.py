"""`forerun serve` and `forerun keys`: settings, sockets, and keys that are shown once."""

import json
import os
import socket
import stat
from pathlib import Path

import httpx
import pytest

from forerun.service.cli import serve
from forerun.service.cli.serve import NoAddress, reserved_port, unix_listener
from forerun.service.settings import OTHER_VARIABLES, Settings, misspelt
from forerun.service.stores.keys import KeyStore
from forerun.service.stores.places import Place
from tests.service.real_server import real_server


class Stopped(Exception):
    """Raised in place of a server."""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_connection_is_kept_for_as_long_as_is_set(workers, monkeypatch, tmp_path):
    given = {}

    def one(app, **options):
        given.update(options)
        raise Stopped

    def several(listeners, create, workers, graceful_s, options, ready):
        given.update(options)
        raise Stopped

    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    monkeypatch.setenv("FORERUN_KEEP_ALIVE_SECONDS", "93")
    monkeypatch.setattr("uvicorn.Config", one)
    monkeypatch.setattr("forerun.service.http.processes.serve_in_processes", several)
    monkeypatch.setattr("forerun.service.http.app.loaded_app", lambda settings: None)
    with pytest.raises(Stopped):
        serve.serve("127.0.0.1", 0, workers)
    assert given["timeout_keep_alive"] == 93


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # A socket's path has at most about 100 characters.
    return Path("f.sock")


def test_owner_and_group_may_use_it_and_it_goes_at_the_end(path):
    with unix_listener(path) as listener, socket.socket(socket.AF_UNIX) as client:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        client.connect(str(path))
        listener.accept()[0].close()
    assert not path.exists()


def test_what_a_killed_service_left_is_replaced(path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with unix_listener(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_socket_in_use_is_left_alone(path):
    with unix_listener(path):
        with pytest.raises(NoAddress, match=r"f\.sock: .*in use\. Choose another path with --unix"):
            unix_listener(path).__enter__()
        assert path.exists()


def test_a_socket_in_use_whose_queue_is_full_is_left_alone(path):
    with (
        socket.socket(socket.AF_UNIX) as busy,
        socket.socket(socket.AF_UNIX) as first,
    ):
        busy.bind(str(path))
        busy.listen(0)
        first.connect(str(path))
        with pytest.raises(NoAddress):
            unix_listener(path).__enter__()
        assert path.exists()


def test_a_file_that_is_no_socket_is_left_alone(path):
    path.write_text("mine")
    with pytest.raises(NoAddress):
        unix_listener(path).__enter__()
    assert path.read_text() == "mine"


def test_a_folder_that_does_not_exist_is_named(path):
    with pytest.raises(NoAddress, match=r"no/f\.sock: No such file"):
        unix_listener(path.parent / "no" / path.name).__enter__()


def test_a_path_that_is_too_long_is_one_clear_line(path):
    with pytest.raises(NoAddress, match="path too long"):
        unix_listener(path.parent / ("a" * 200)).__enter__()


def test_a_process_that_was_forked_keeps_the_file(path):
    context = unix_listener(path)
    with context:
        child = os.fork()
        if child == 0:
            context.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        assert path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_service_answers_on_both_and_removes_it(path, tmp_path, workers):
    environment = {"FORERUN_UNIX_SOCKET": str(path)}
    transport = httpx.HTTPTransport(uds=str(path))
    with real_server(tmp_path, workers=workers, environment=environment) as server:
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=60) as client:
            assert client.get("/readyz").status_code == 200
            refused = client.get("/readyz", headers={"Host": "evil.example"})
            assert refused.status_code == 421
        server.stop()
        assert not path.exists()


def test_a_reserved_port_is_held_for_processes_of_this_service_alone():
    with reserved_port("127.0.0.1", 0) as held:
        host, port = held.getsockname()
        with pytest.raises(NoAddress, match=rf":{port}: .*in use.*--grpc-port\."):
            reserved_port(host, port)
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            own.bind((host, port))
            own.listen()
            socket.create_connection((host, port)).close()


def test_a_key_is_printed_alone_once_and_works(forerun, tmp_path):
    code, text, note = forerun("keys", "create", "scheduler", "--scope", "write")
    assert code == 0
    key = KeyStore(Place(tmp_path / "home") / "keys").holder(text.strip())
    assert key is not None
    assert (key.name, key.scope) == ("scheduler", "write")
    assert "not shown again" in note
    for words in (("keys", "list"), ("keys", "list", "--json")):
        _, listed, errors = forerun(*words)
        assert key.id in listed and "scheduler" in listed
        assert text.strip().split("_", 2)[2] not in listed + errors
        assert key.digest not in listed and key.salt not in listed


def test_a_key_may_read_unless_more_is_said(forerun):
    _, text, _ = forerun("keys", "create", "one", "--json")
    assert json.loads(text)["scope"] == "read"


def test_a_name_is_listed_as_it_was_given(forerun):
    forerun("keys", "create", "team [red]")
    assert "team [red]" in forerun("keys", "list")[1]


def test_a_revoked_key_is_gone(forerun, tmp_path):
    made = forerun.json("keys", "create", "one")
    code, text, _ = forerun("keys", "revoke", made["id"])
    assert (code, made["id"] in text) == (0, True)
    assert KeyStore(Place(tmp_path / "home") / "keys").holder(made["key"]) is None
    assert forerun.json("keys", "list") == {"keys": []}


def test_what_is_wrong_is_one_line(forerun):
    for words in (("create", "one", "--scope", "all"), ("revoke", "nothing")):
        err = forerun.refused("keys", *words)
        assert len(err.strip().splitlines()) == 1
    assert "read, write, admin" in forerun("keys", "create", "one", "--scope", "all")[2]


def test_a_public_address_without_keys_is_refused_before_anything_is_loaded(forerun, monkeypatch):
    monkeypatch.delenv("FORERUN_AUTH", raising=False)
    err = forerun.refused("serve", "--host", "0.0.0.0", "--port", "0")
    assert "forerun keys create" in err
    assert len(err.strip().splitlines()) == 1


def test_a_key_may_be_of_a_tenant(forerun, tmp_path):
    made = forerun.json("keys", "create", "one", "--tenant", "vision")
    assert made["tenant"] == "vision"
    key = KeyStore(Place(tmp_path / "home") / "keys").holder(made["key"])
    assert key is not None and key.tenant == "vision"
    assert "vision" in forerun("keys", "list")[1]


def test_a_tenant_of_a_key_is_a_valid_name_and_the_only_one(forerun, monkeypatch):
    code, _, err = forerun("keys", "create", "one", "--tenant", "Vision")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "lower-case letters" in err
    monkeypatch.setenv("FORERUN_TENANT", "speech")
    code, _, err = forerun("keys", "create", "one", "--tenant", "vision")
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "FORERUN_TENANT is speech" in err


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("FORERUN_MAX_UPLOD_MIB", "FORERUN_MAX_UPLOAD_MIB"),
        ("FORERUN_HOMES", "FORERUN_HOME"),
        ("FORERUN_DATABASE_URI", "FORERUN_DATABASE_URL"),
    ],
)
def test_a_variable_that_is_nearly_one_of_ours_is_named_with_it(written, meant):
    assert misspelt(["PATH", written, meant]) == {written: meant}


def test_variables_of_ours_and_of_others_are_not():
    ours = [f"FORERUN_{name.upper()}" for name in Settings.model_fields]
    # A Service of Kubernetes that is named forerun puts the last two into each pod.
    others = ["HOME", "MAX_UPLOD_MIB", "FORERUN_SERVICE_HOST", "FORERUN_PORT_8080_TCP_ADDR"]
    assert misspelt([*ours, *OTHER_VARIABLES, *others]) == {}
