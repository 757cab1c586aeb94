"""The helper that starts servers leaves nothing behind, and says why one did not start."""

import httpx
import pytest

from tests.service.real_server import real_server
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(roofline_folder):
    return {"FORERUN_PREDICTOR_FOLDER": str(roofline_folder)}


def test_a_server_answers_and_is_gone_with_all_its_workers_after_a_crash(tmp_path, environment):
    with real_server(tmp_path, workers=2, environment=environment) as server:
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert server.memory_mib() > 0
        pids = server.pids()
        assert len(pids) >= 3
        assert pids[0] == server.pid
        server.kill()
        eventually(lambda: not server.pids())
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/healthz")


def test_a_server_is_stopped_at_the_end_and_where_a_test_fails(tmp_path, environment):
    with pytest.raises(ZeroDivisionError), real_server(tmp_path, environment=environment) as server:
        raise ZeroDivisionError
    assert not server.runs


def test_a_server_that_does_not_start_says_what_it_printed(tmp_path):
    with (
        pytest.raises(RuntimeError, match="FORERUN_GRAPHS_KEPT"),
        real_server(tmp_path, environment={"FORERUN_GRAPHS_KEPT": "none"}),
    ):
        pass
