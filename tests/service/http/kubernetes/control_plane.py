"""What a real kube-scheduler needs of a control plane, in this process; bindings are kept."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import yaml

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
BINDING = re.compile(r"/api/v1/namespaces/\w+/pods/([\w-]+)/binding")
POD = re.compile(r"/api/v1/namespaces/\w+/pods/([\w-]+)(/status)?")


@dataclass
class ControlPlane:
    """Pods that wait, the nodes they may run on, and where the scheduler put them.

    Attributes:
        objects: path of a list -> its objects.
        bound: pod -> node.
        url: address of the API.
    """

    objects: Mapping[str, Sequence[dict[str, Any]]]
    bound: dict[str, str] = field(default_factory=dict)
    url: str = ""
    ended: Event = field(default_factory=Event)

    def got(self, path: str) -> dict[str, Any]:
        """A list of objects, or one pod."""
        if found := POD.fullmatch(path):
            named = (pod for pod in self.objects[PODS] if pod["metadata"]["name"] == found[1])
            return next(named)
        return {"metadata": {"resourceVersion": "100"}, "items": list(self.objects.get(path, ()))}


@contextmanager
def control_plane(
    nodes: Sequence[dict[str, Any]], pods: Sequence[dict[str, Any]]
) -> Iterator[ControlPlane]:
    """A running API with these objects; every watch is silent."""
    plane = ControlPlane({NODES: nodes, PODS: pods})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if "watch=" in query:
                self.send_response(200)
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.flush()
                plane.ended.wait()
                return
            self._answer(200, plane.got(path))

        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if found := BINDING.fullmatch(self.path.partition("?")[0]):
                plane.bound[found[1]] = content["target"]["name"]
                content = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
            self._answer(201, content)

        def do_PATCH(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(200, plane.got(self.path.partition("?")[0]))

        def _answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _served(Handler) as plane.url:
        try:
            yield plane
        finally:
            plane.ended.set()


@dataclass
class Recorder:
    """Requests that a scheduler sent to its extender, and the answers.

    Attributes:
        url: where the scheduler sends them.
        exchanged: verb, body of the request and body of the answer, in order.
    """

    url: str = ""
    exchanged: list[tuple[str, bytes, bytes]] = field(default_factory=list)


@contextmanager
def recorder(extender: str) -> Iterator[Recorder]:
    """Passes requests on to an extender, with what it needs to be asked by that name."""
    own = Recorder()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {"Content-Type": self.headers["Content-Type"]}
            answer = httpx.post(extender + self.path, content=body, headers=headers, timeout=60)
            own.exchanged.append((self.path.removeprefix("/"), body, answer.content))
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _served(Handler) as own.url:
        yield own


@contextmanager
def scheduler(
    program: str, configuration: Mapping[str, Any], plane: str, folder: Path
) -> Iterator[Path]:
    """A running kube-scheduler; the file that it logs to.

    Args:
        program: path of kube-scheduler.
        configuration: its `KubeSchedulerConfiguration`, without clients and leader election.
        plane: address of the API.
        folder: place for its files.
    """
    account, config, log = folder / "account.yaml", folder / "config.yaml", folder / "log"
    named = {"name": "here"}
    access = {
        "kind": "Config",
        "apiVersion": "v1",
        "clusters": [named | {"cluster": {"server": plane}}],
        "users": [named | {"user": {}}],
        "contexts": [named | {"context": {"cluster": "here", "user": "here"}}],
        "current-context": "here",
    }
    account.write_text(yaml.safe_dump(access))
    client = {"kubeconfig": str(account), "contentType": "application/json"}
    added = {"clientConnection": client, "leaderElection": {"leaderElect": False}}
    config.write_text(yaml.safe_dump({**configuration, **added}))
    options = ["--config", str(config), "--secure-port=0", "--v=2"]
    with log.open("wb") as printed:
        process = subprocess.Popen([program, *options], stdout=printed, stderr=printed)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
