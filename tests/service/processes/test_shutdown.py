"""SIGTERM ends the service within its time, whatever its clients do."""

import os
import signal
import socket
from contextlib import ExitStack, closing

import pytest

from tests.service.processes.conftest import answering
from tests.service.real_server import real_server

pytestmark = pytest.mark.slow

CLIENTS = 200
UNFINISHED = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


@pytest.mark.parametrize("number", [1, 2])
def test_slow_clients_do_not_keep_it(tmp_path, roofline_folder, number):
    environment = answering(roofline_folder) | {"FORERUN_GRACEFUL_SECONDS": "1"}
    with (
        real_server(tmp_path, workers=number, environment=environment) as server,
        ExitStack() as open_sockets,
    ):
        for _ in range(CLIENTS):
            client = socket.create_connection(("127.0.0.1", server.port))
            open_sockets.enter_context(closing(client))
            client.sendall(UNFINISHED)
        running = {server.pid, *server.workers()}
        server.stop()
        assert not running & set(server.pids())


def test_workers_end_by_themselves_when_the_parent_is_interrupted(tmp_path, roofline_folder):
    with real_server(tmp_path, workers=2, environment=answering(roofline_folder)) as server:
        os.kill(server.pid, signal.SIGINT)
        server.wait()
        assert "SIGKILL" not in server.log.read_text()
