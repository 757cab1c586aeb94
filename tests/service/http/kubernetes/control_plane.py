"""What a real kube-scheduler needs of a control plane, in this process; bindings are kept."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import yaml

from tests.service.http.served import Handler, served

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

    class Api(Handler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if "watch=" in query:
                self.send_response(200)
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.flush()
                plane.ended.wait()
                return
            self.answer(json.dumps(plane.got(path)).encode())

        def do_POST(self) -> None:
            content = json.loads(self.body())
            if found := BINDING.fullmatch(self.path.partition("?")[0]):
                plane.bound[found[1]] = content["target"]["name"]
                content = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
            self.answer(json.dumps(content).encode(), 201)

        def do_PATCH(self) -> None:
            self.body()
            self.answer(json.dumps(plane.got(self.path.partition("?")[0])).encode())

    with served(Api) as plane.url:
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

    class PassedOn(Handler):
        def do_POST(self) -> None:
            body = self.body()
            headers = {"Content-Type": self.headers["Content-Type"]}
            answer = httpx.post(extender + self.path, content=body, headers=headers, timeout=60)
            own.exchanged.append((self.path.removeprefix("/"), body, answer.content))
            self.answer(answer.content, answer.status_code)

    with served(PassedOn) as own.url:
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
