"""Servers of HTTP in this process, in place of what a service talks to."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Handler(BaseHTTPRequestHandler):
    """Reads bodies and answers JSON; it logs nothing."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, content: bytes, status: int = 200) -> None:
        """Send an answer whole."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(handler: type[Handler]) -> Iterator[str]:
    """The address of a server that is stopped at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
