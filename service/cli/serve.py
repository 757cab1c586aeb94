"""`forerun serve`: start the HTTP service."""

import gc
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.data.errors import InputError
from forerun.service.cli.output import progress

if TYPE_CHECKING:
    from fastapi import FastAPI

    from forerun.service.settings import Settings

SOCKET_MODE = 0o660
BACKLOG = 2048


class NoAddress(InputError):
    """The service cannot listen on the address."""


def tcp_listener(host: str, port: int, option: str = "--port") -> socket.socket:
    """A listening socket; it is opened first, so that an occupied port fails before any loading.

    Args:
        host: address to listen on.
        port: port to listen on; 0 chooses a free one.
        option: option of the command line that sets the port, for messages.

    Raises:
        NoAddress: the address does not belong to this machine, or the port is in use or none.
    """
    if not 0 <= port <= 65_535:
        raise NoAddress(f"{option} {port}: a port is from 1 to 65535, or 0 for a free one.")
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(where[:2], family=family)
    except OSError as error:
        raise NoAddress(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose others with --host and "
            f"{option}."
        ) from None


def reserved_port(host: str, port: int) -> socket.socket:
    """A socket that holds a port, on which each process of this service then listens by itself.

    Raises:
        NoAddress: the address does not belong to this machine, or the port is in use.
    """
    with tcp_listener(host, port, "--grpc-port") as first:  # shares the port with nobody
        family, where = first.family, first.getsockname()[:2]
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(where)
    return held


@contextmanager
def unix_listener(path: Path) -> Iterator[socket.socket]:
    """A listening socket of the file system, for its owner and group; its file goes at the end.

    A file that a service left when it was killed is replaced.

    Raises:
        NoAddress: a program listens there, something else than a socket is there, or the folder
            cannot be written.
    """
    owner = os.getpid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            _bind(listener, path)
        except OSError as error:
            raise NoAddress(
                f"Cannot listen on the socket {path}: {error.strerror or error}. Choose another "
                "path with --unix-socket."
            ) from None
        try:
            yield listener
        finally:
            if os.getpid() == owner:  # A worker process ends here too.
                path.unlink(missing_ok=True)


def _bind(listener: socket.socket, path: Path) -> None:
    if _is_left_over(path):
        path.unlink()
    listener.bind(str(path))
    path.chmod(SOCKET_MODE)
    listener.listen(BACKLOG)  # No one connects before this, whatever the mode was.


def _is_left_over(path: Path) -> bool:
    """Whether the path is a socket that nothing listens on."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return True
        except BlockingIOError:
            return False
    return False


UVICORN: dict[str, Any] = {
    "loop": "auto",
    "ws": "none",
    "http": "forerun.service.http.limits:Connection",
    "access_log": False,
    "log_level": "error",
}


def serve(
    host: str | None = None,
    port: int | None = None,
    workers: Annotated[int, typer.Option(min=1)] = 1,
    unix_socket: Path | None = None,
    grpc_port: int | None = None,
) -> None:
    """Start the HTTP service; FORERUN_* variables hold further settings.

    Args:
        host: address to listen on [127.0.0.1]
        port: port to listen on [8080]; 0 chooses a free port
        workers: number of worker processes
        unix_socket: path of a Unix socket to also listen on, mode 0660
        grpc_port: port for the Open Inference Protocol over gRPC; 0 chooses one
    """
    # Until all is loaded, nothing of it is garbage.
    gc.disable()
    # Answers need no threads of BLAS, which numpy would start, and which do not survive a fork.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from forerun.service.settings import Settings, misspelt

    settings = Settings.load()
    for name, known in misspelt(os.environ).items():
        progress(f"{name} is not a setting and was ignored; did you mean {known}?")
    address = host if host is not None else settings.host
    settings = settings.model_copy(update={"host": address})
    from forerun.service.http.access import check_address

    check_address(settings)
    number = settings.port if port is None else port
    path = unix_socket if unix_socket is not None else settings.unix_socket
    over_grpc = settings.grpc_port if grpc_port is None else grpc_port
    with ExitStack() as stack:
        listeners = [stack.enter_context(tcp_listener(address, number))]
        if over_grpc is not None:
            held = stack.enter_context(reserved_port(address, over_grpc))
            settings = settings.model_copy(update={"grpc_port": held.getsockname()[1]})
        if path is not None:
            listeners.append(stack.enter_context(unix_listener(path)))
        if workers == 1:
            _serve_here(listeners, settings, stack.close)
        else:
            _serve_in_processes(listeners, settings, workers)


def _serve_here(
    listeners: list[socket.socket], settings: "Settings", release: Callable[[], None]
) -> None:
    import uvicorn

    from forerun.service.http.app import loaded_app

    app = loaded_app(settings)
    gc.collect()
    gc.freeze()  # so that what was loaded, which stays, is never examined again
    gc.enable()
    _greet(settings, listeners[0].getsockname()[1])
    config = uvicorn.Config(
        app,
        timeout_graceful_shutdown=settings.graceful_seconds,
        timeout_keep_alive=settings.keep_alive_seconds,
        **UVICORN,
    )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            release()  # uvicorn then raises the signal again, which ends the process

    Server(config).run(sockets=listeners)


def _serve_in_processes(listeners: list[socket.socket], settings: "Settings", workers: int) -> None:
    from forerun.service.http.processes import serve_in_processes

    number = listeners[0].getsockname()[1]

    def create() -> "FastAPI":
        # Imported late, because its counters are set up for one process or for several.
        from forerun.service.http.app import loaded_app

        return loaded_app(settings, forks=True)

    serve_in_processes(
        listeners,
        create,
        workers,
        settings.graceful_seconds,
        {**UVICORN, "timeout_keep_alive": settings.keep_alive_seconds},
        ready=lambda: _greet(settings, number),
    )


def _greet(settings: "Settings", port: int) -> None:
    from forerun.service.presets import example_model

    model, host = example_model(), settings.host
    url_host = f"[{host}]" if ":" in host else host
    if settings.grpc_port is not None:
        typer.echo(f"Open Inference Protocol over gRPC on {url_host}:{settings.grpc_port}")
    typer.echo(f"forerun answers on http://{url_host}:{port}  (/docs lists the endpoints). Try:\n")
    file = model if model is not None else Path("model.onnx")
    typer.echo(
        f"  curl --data-binary @{file} \\\n"
        f"    'http://{url_host}:{port}/v1/predict/model?device=l4&precision=amp&batch_size=8'\n"
    )
    if model is not None:
        typer.echo(f"  forerun predict {model} --device l4,rtx-4090 --precision amp\n")
