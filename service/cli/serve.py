"""`forerun serve`: start the HTTP service."""

import socket
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.data.errors import InputError

if TYPE_CHECKING:
    from forerun.models.artifact.loading import LoadedPredictor
    from forerun.service.settings import Settings

UVICORN: dict[str, Any] = {
    "loop": "auto",
    "http": "forerun.service.http.connections:LimitedConnection",
    "access_log": False,
    "log_level": "warning",
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
    from forerun.service.loading import load_predictors
    from forerun.service.settings import Settings

    settings = Settings.load()
    address = host if host is not None else settings.host
    with _listening(address, settings.port if port is None else port) as listener:
        loaded = load_predictors(settings)
        number = listener.getsockname()[1]
        _greet(address, number)
        if workers == 1:
            _serve_here(listener, settings, loaded)
    if workers > 1:
        _serve_in_processes(address, number, workers)


def _serve_here(listener: socket.socket, settings: "Settings", loaded: "LoadedPredictor") -> None:
    import uvicorn

    from forerun.service.http.app import create_app

    app = create_app(settings, loaded)
    uvicorn.Server(uvicorn.Config(app, **UVICORN)).run(sockets=[listener])


def _serve_in_processes(address: str, port: int, workers: int) -> None:
    import uvicorn

    uvicorn.run(
        "forerun.service.http.app:create_app",
        factory=True,
        host=address,
        port=port,
        workers=workers,
        **UVICORN,
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


def example_model() -> Path | None:
    """A real network from the files of the onnx package; None if they are not installed."""
    spec = find_spec("onnx")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "backend/test/data/light"
    file = folder / "light_squeezenet.onnx"
    return file if file.is_file() else None
