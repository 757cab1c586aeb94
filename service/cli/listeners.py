"""The sockets that `forerun serve` listens on."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forerun.data.errors import InputError

SOCKET_MODE = 0o660
BACKLOG = 2048


class NoAddress(InputError):
    """The service cannot listen on the address."""

    slug = "no-address"


def tcp_listener(host: str, port: int, option: str = "--port") -> socket.socket:
    """A listening socket; it is opened first, so that an occupied port fails before any loading.

    Args:
        host: address to listen on.
        port: port to listen on; 0 chooses a free one.
        option: option of the command line that sets the port, for messages.

    Raises:
        NoAddress: the address does not belong to this machine, or the port is in use.
    """
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
