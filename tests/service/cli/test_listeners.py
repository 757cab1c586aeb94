"""The Unix socket of `forerun serve`: who may use it, what it replaces, when it goes."""

import os
import socket
import stat
from pathlib import Path

import httpx
import pytest

from forerun.service.cli.serve import NoAddress, reserved_port, unix_listener
from tests.service.real_server import real_server


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
