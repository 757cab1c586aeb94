"""`forerun serve`: start the HTTP service."""

import gc
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.data.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from forerun.service.settings import Settings

UVICORN: dict[str, Any] = {
    "loop": "auto",
    "ws": "none",
    "http": "forerun.service.http.connections:LimitedConnection",
    "access_log": False,
    "log_level": "error",
}


class NoAddress(InputError):
    """The service cannot listen on the address."""

    slug = "no-address"


def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on [127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(help="port to listen on [8080]; 0 chooses a free port", max=65535)
    ] = None,
    workers: Annotated[int, typer.Option(help="number of worker processes", min=1)] = 1,
) -> None:
    """Start the HTTP service; FORERUN_* variables hold further settings."""
    # Until all is loaded, nothing of it is garbage.
    gc.disable()
    # Answers need no threads of BLAS, which numpy would start, and which do not survive a fork.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from forerun.service.settings import Settings

    settings = Settings.load()
    address = host if host is not None else settings.host
    settings = settings.model_copy(update={"host": address})
    with _listening(address, settings.port if port is None else port) as listener:
        if workers == 1:
            _serve_here(listener, settings)
        else:
            _serve_in_processes(listener, settings, workers)


def _serve_here(listener: socket.socket, settings: "Settings") -> None:
    import uvicorn

    from forerun.service.http.app import loaded_app

    app = loaded_app(settings)
    gc.collect()
    gc.freeze()  # so that what was loaded, which stays, is never examined again
    gc.enable()
    _greet(settings.host, listener.getsockname()[1])
    config = uvicorn.Config(app, timeout_graceful_shutdown=settings.graceful_seconds, **UVICORN)
    uvicorn.Server(config).run(sockets=[listener])


def _serve_in_processes(listener: socket.socket, settings: "Settings", workers: int) -> None:
    from forerun.service.http.processes import serve_in_processes

    number = listener.getsockname()[1]

    def create() -> "FastAPI":
        # Imported late, because its counters are set up for one process or for several.
        from forerun.service.http.app import loaded_app

        return loaded_app(settings, forks=True)

    serve_in_processes(
        listener,
        create,
        workers,
        settings.graceful_seconds,
        UVICORN,
        ready=lambda: _greet(settings.host, number),
    )


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket; it is opened first, so that an occupied port fails before any loading.

    Raises:
        NoAddress: the address does not belong to this machine, or the port is in use.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where[:2], family=family)
    except OSError as error:
        raise NoAddress(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose others with --host and "
            "--port."
        ) from None


def _greet(host: str, port: int) -> None:
    from forerun.service.presets import example_model

    model = example_model()
    url_host = f"[{host}]" if ":" in host else host
    typer.echo(f"forerun answers on http://{url_host}:{port}  (/docs lists the endpoints). Try:\n")
    file = model if model is not None else Path("model.onnx")
    typer.echo(
        f"  curl --data-binary @{file} \\\n"
        f"    'http://{url_host}:{port}/v1/predict/model?device=l4&precision=amp&batch_size=8'\n"
    )
    if model is not None:
        typer.echo(f"  forerun predict {model} --device l4,rtx-4090 --precision amp\n")
