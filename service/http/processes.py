"""Several worker processes, forked from a parent that has loaded the predictors."""

import gc
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from uvicorn import Config
from uvicorn_worker import UvicornWorker

from forerun.service.http import shared_folder
from forerun.service.log import log

PARENT_CHECK_S = 1
HUNG_S = 120
"""A worker whose event loop did not turn for so long is killed and replaced, seconds."""


def serve_in_processes(
    listeners: Sequence[socket.socket],
    create: Callable[[], FastAPI],
    workers: int,
    graceful_s: int,
    options: dict[str, Any],
    ready: Callable[[], None],
) -> None:
    """Answer until SIGTERM or SIGINT, in processes that share the memory of what was loaded.

    The parent creates the application once and forks; it has no threads, and replaces each worker
    that dies. On SIGHUP it creates the application anew and replaces all workers.

    Args:
        listeners: the listening sockets.
        create: creates the application with its predictors loaded.
        workers: number of worker processes.
        graceful_s: time for open requests after SIGTERM, seconds.
        options: settings of uvicorn.
        ready: called once, when the application is loaded and before it answers.
    """
    _Worker.CONFIG_KWARGS = {
        **options,
        "timeout_graceful_shutdown": graceful_s,
        "timeout_notify": PARENT_CHECK_S,
    }
    hooks = {
        "when_ready": lambda arbiter: ready(),
        "child_exit": _counted_out,
        "on_exit": lambda arbiter: shared_folder.remove(),
    }
    settings = {
        "bind": [f"fd://{each.detach()}" for each in listeners],
        "workers": workers,
        "worker_class": _Worker,
        "preload_app": True,
        "timeout": HUNG_S,
        "graceful_timeout": graceful_s + 1,
        "loglevel": "warning",
        "control_socket_disable": True,
        "worker_tmp_dir": str(shared_folder.make()),
    }
    try:
        arbiter = Arbiter(_Application(create, settings | hooks))
    except BaseException:
        shared_folder.remove()
        raise
    arbiter.run()


class _Worker(UvicornWorker):  # type: ignore[misc]
    """A worker that ends when its parent has died, so that no orphan keeps the port."""

    def handle_exit(self, *_: object) -> None:
        """End at SIGQUIT, by which the parent passes on SIGINT."""
        signal.raise_signal(signal.SIGINT)

    async def callback_notify(self) -> None:
        await super().callback_notify()
        if os.getppid() != self.ppid:
            shared_folder.remove()
            os.kill(os.getpid(), signal.SIGTERM)


class _Application(BaseApplication):  # type: ignore[misc]
    """Gunicorn's view of the service: its settings, and how to create the application."""

    def __init__(self, create: Callable[[], FastAPI], settings: Mapping[str, Any]) -> None:
        self._create, self._settings = create, settings
        self._in_use: FastAPI | None = None
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> FastAPI:
        """Create the application, and import all that serving it needs, before any fork."""
        app = self._create()
        config = Config(app, log_config=None, **_Worker.CONFIG_KWARGS)
        config.load()
        config.get_loop_factory()
        gc.collect()
        gc.freeze()  # The collector writes to all that it examines, which would copy it.
        gc.enable()
        self._in_use = app
        return app

    def reload(self) -> None:
        """Create the application anew; where that fails, the one in use stays."""
        super().reload()
        self.callable: FastAPI | None = None
        gc.unfreeze()  # so that what is replaced can be collected
        try:
            self.wsgi()
        except Exception as error:
            log().error("the service was not loaded anew", exc_info=error)
            self.callable = self._in_use


def _counted_out(arbiter: Arbiter, worker: UvicornWorker) -> None:
    """Remove the gauges of a process that has ended; its counters stay."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
