"""A deployment as commands of engines and as manifests.

Options are those of `vllm serve` (docs.vllm.ai, engine arguments of 0.11) and of
`sglang.launch_server` (docs.sglang.io, server arguments of 0.5); data-parallel attention of SGLang
divides `--tp-size`. Manifests are a Deployment of Kubernetes (apps/v1) and an InferenceService of
KServe (serving.kserve.io/v1beta1) with a container of the engine.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import yaml

from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment
from forerun.features.links import NODE_DEVICES

Options = Iterator[tuple[str, object]]
IMAGES: Final[Mapping[str, tuple[str, str, int]]] = {
    "vllm": ("vllm/vllm-openai", "latest", 8000),
    "sglang": ("lmsysorg/sglang", "latest", 30000),
}
"""Engine -> image, its tag where no version is asked for, and port."""
LONGEST: Final[Mapping[str, str]] = {"vllm": "--max-model-len", "sglang": "--context-length"}
CONVERTED: Final = frozenset({"fp8"})
"""Formats to which engines convert weights as they load them; others need such a checkpoint."""


def commands(
    deployment: LlmDeployment,
    device: Device,
    name: str,
    weights: str,
    replicas: int,
    longest: int | None = None,
) -> dict[str, str]:
    """The replicas of a deployment as a command of its engine and as manifests.

    Empty for engines without such commands and where prompts have workers of their own; without
    manifests where a replica is larger than a server, or GPUs need another image than NVIDIA's.

    Args:
        deployment: one replica.
        device: its devices.
        name: the model as the engine is to load it.
        weights: format of its weights; empty for its own.
        replicas: number of replicas.
        longest: maximum context length; None for that of the model.
    """
    engine = deployment.engine.name
    if engine not in _OPTIONS or deployment.prefill is not None:
        return {}
    words = _words(deployment, name, weights)
    if longest is not None:
        words += [LONGEST[engine], str(longest)]
    found: dict[str, str] = {engine: shlex.join(words)}
    if deployment.devices > (device.node_devices or NODE_DEVICES) or device.vendor != "nvidia":
        return found
    container = _container(deployment, words, {"nvidia.com/gpu": str(deployment.devices)})
    label = re.sub(r"[^a-z0-9]+", "-", name.rpartition("/")[2].lower()).strip("-")[:50] or "model"
    found["kubernetes"] = _yaml(_deployment(label, container, replicas))
    found["kserve"] = _yaml(_inference_service(label, container, replicas))
    return found


def _words(deployment: LlmDeployment, name: str, weights: str) -> list[str]:
    engine = deployment.engine
    program = {
        "vllm": ["vllm", "serve"],
        "sglang": ["python3", "-m", "sglang.launch_server", "--model-path"],
    }[engine.name]
    found = [*program, name]
    if weights in CONVERTED:
        found += ["--quantization", weights]
    elif weights:
        found[-1] = f"{name}-{weights}"
    for option, value in _OPTIONS[engine.name](deployment):
        found += [f"--{option}"] if value is True else [f"--{option}", str(value)]
    return found


def _vllm(deployment: LlmDeployment) -> Options:
    own, engine = deployment.pool.parallelism, deployment.engine
    yield "tensor-parallel-size", own.tensor
    if own.pipeline > 1:
        yield "pipeline-parallel-size", own.pipeline
    if own.attention_data > 1:
        yield "data-parallel-size", own.attention_data
    if own.expert > 1:
        yield "enable-expert-parallel", True
    yield "gpu-memory-utilization", engine.memory_share
    if engine.max_sequences is not None:
        yield "max-num-seqs", engine.max_sequences
    if engine.max_batched_tokens is not None:
        yield "max-num-batched-tokens", engine.max_batched_tokens
    if not engine.chunked_prefill:
        yield "no-enable-chunked-prefill", True
    if not engine.graphs:
        yield "enforce-eager", True


def _sglang(deployment: LlmDeployment) -> Options:
    own, engine = deployment.pool.parallelism, deployment.engine
    yield "tp-size", own.tensor * own.attention_data
    if own.pipeline > 1:
        yield "pp-size", own.pipeline
    if own.attention_data > 1:
        yield "dp-size", own.attention_data
        yield "enable-dp-attention", True
    if own.expert > 1:
        yield "ep-size", own.expert
    yield "mem-fraction-static", engine.memory_share
    if engine.max_sequences is not None:
        yield "max-running-requests", engine.max_sequences
    if engine.max_batched_tokens is not None or not engine.chunked_prefill:
        yield "chunked-prefill-size", engine.max_batched_tokens if engine.chunked_prefill else -1
    if not engine.graphs:
        yield "disable-cuda-graph", True


_OPTIONS: Final[Mapping[str, Callable[[LlmDeployment], Options]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
}


def _container(
    deployment: LlmDeployment, words: list[str], resources: Mapping[str, str]
) -> dict[str, Any]:
    engine = deployment.engine
    image, tag, port = IMAGES[engine.name]
    version = f"v{engine.version}" if engine.version else tag
    return {
        "name": engine.name,
        "image": f"{image}:{version}",
        "command": [*words, "--host", "0.0.0.0", "--port", str(port)],  # noqa: S104 (in a pod)
        "ports": [{"containerPort": port}],
        "resources": {"limits": dict(resources)},
        "readinessProbe": {"httpGet": {"path": "/health", "port": port}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 (of the pod)
    }


def _deployment(label: str, container: Mapping[str, Any], replicas: int) -> dict[str, Any]:
    labels = {"app": label}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": label, "labels": dict(labels)},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "volumes": _SHARED},
            },
        },
    }


def _inference_service(label: str, container: Mapping[str, Any], replicas: int) -> dict[str, Any]:
    own = {**container, "name": "kserve-container"}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": label},
        "spec": {
            "predictor": {
                "minReplicas": replicas,
                "maxReplicas": replicas,
                "containers": [own],
                "volumes": _SHARED,
            }
        },
    }


_SHARED: Final = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
"""Collectives of engines need more shared memory than containers have by default."""


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False)
