"""What `forerun serve` hands to the server that runs the application."""

import pytest

from forerun.service.cli import serve


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
