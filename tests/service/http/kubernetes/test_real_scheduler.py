"""A real kube-scheduler asks a real server, and puts pods where that says.

No control plane is needed, only the program: `go build k8s.io/kubernetes/cmd/kube-scheduler` in the
sources of Kubernetes, of which Debian has a package.
"""

import json
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.service.http.kubernetes.control_plane import control_plane, recorder, scheduler
from tests.service.http.kubernetes.requests import cluster_node, waiting_pod
from tests.service.real_server import real_server
from tests.waiting import eventually

PROGRAM = shutil.which("kube-scheduler")
MANIFEST = Path(__file__).parents[4] / "deploy/kubernetes/scheduler.yaml"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="needs kube-scheduler"),
]


def configuration(url: str, *, names_only: bool) -> dict:
    """Our configuration of a scheduler, in the version that this one reads."""
    printed = subprocess.run([str(PROGRAM), "--version"], capture_output=True, text=True).stdout
    minor = re.search(r"v1\.(\d+)", printed)
    given = yaml.safe_load(MANIFEST.read_text())
    if minor is None or int(minor[1]) < 25:
        given["apiVersion"] = "kubescheduler.config.k8s.io/v1beta1"
    given["extenders"][0] |= {
        "urlPrefix": url,
        "nodeCacheCapable": names_only,
        "httpTimeout": "30s",
    }
    return given


@pytest.mark.parametrize("names_only", [False, True])
def test_pods_are_put_where_the_extender_says(tmp_path, names_only):
    nodes = [
        cluster_node("large", "NVIDIA-H100-80GB-HBM3"),
        cluster_node("medium", "NVIDIA-L4"),
        cluster_node("small", "Tesla-T4"),
    ]
    pods = [
        waiting_pod("fast", {"objective": "latency_ms"}),
        waiting_pod("frugal", {"max-power-w": "80", "risk": "value"}),
    ]
    with (
        control_plane(nodes, pods) as plane,
        real_server(tmp_path / "home", environment={"FORERUN_KUBERNETES_API": plane.url}) as server,
        recorder(f"{server.url}/v1/kubernetes") as recorded,
        scheduler(
            str(PROGRAM),
            configuration(recorded.url, names_only=names_only),
            plane.url,
            tmp_path,
        ) as log,
    ):
        eventually(lambda: len(plane.bound) == 2 or "fatal" in log.read_text())
    assert plane.bound["fast"] == "large", log.read_text()
    assert plane.bound["frugal"] != "large"
    verbs = {verb for verb, _, _ in recorded.exchanged}
    assert verbs == {"filter", "prioritize"}
    for _, body, _ in recorded.exchanged:
        request = json.loads(body)
        assert set(request) == {"Pod", "Nodes", "NodeNames"}
        assert (request["Nodes"] is None) == names_only
        assert (request["NodeNames"] is None) != names_only


def test_pods_are_placed_while_the_extender_does_not_answer(tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nothing listens
        given = configuration(f"http://127.0.0.1:{silent.getsockname()[1]}", names_only=True)
        nodes = [cluster_node("only", "NVIDIA-L4")]
        pods = [waiting_pod("any", {"max-latency-ms": "0.001"})]
        with (
            control_plane(nodes, pods) as plane,
            scheduler(str(PROGRAM), given, plane.url, tmp_path) as log,
        ):
            eventually(lambda: plane.bound or "fatal" in log.read_text())
    assert plane.bound == {"any": "only"}, log.read_text()
