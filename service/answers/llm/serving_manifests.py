"""A deployment as manifests of Kubernetes.

These are a Deployment (apps/v1), an InferenceService of KServe (serving.kserve.io/v1beta1) with a
container of the engine, and an LLMInferenceService of KServe with llm-d, whose templates start vLLM
with the options in `VLLM_ADDITIONAL_ARGS` (serving.kserve.io/v1alpha1, as in
`llm_inference_service_types.go` and `docs/samples/llmisvc` of kserve/kserve), and values of the
chart of llm-d-incubation/llm-d-modelservice, which llm-d keeps for guides before its 0.7. The token
of Hugging Face stands in a Secret as in vLLM's guide, "Using Kubernetes".
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment, Pool

PORTS: Final[Mapping[str, int]] = {"vllm": 8000, "sglang": 30000}
RESOURCES: Final[Mapping[str, str]] = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Maker -> resource of its device plugin."""
PRODUCT: Final[Mapping[str, str]] = {
    "nvidia": "nvidia.com/gpu.product",
    "amd": "amd.com/gpu.product-name",
}
"""Maker -> label of its feature discovery with the name of the product."""
GKE, KARPENTER = "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name"
LABELS: Final[Mapping[str, tuple[str, str, str]]] = {
    "t4": ("Tesla-T4", "nvidia-tesla-t4", "t4"),
    "v100-sxm2-16gb": ("Tesla-V100-SXM2-16GB", "nvidia-tesla-v100", ""),
    "a10g": ("NVIDIA-A10G", "", "a10g"),
    "l4": ("NVIDIA-L4", "nvidia-l4", "l4"),
    "l40s": ("NVIDIA-L40S", "", "l40s"),
    "a100-sxm-40gb": ("NVIDIA-A100-SXM4-40GB", "nvidia-tesla-a100", ""),
    "a100-sxm-80gb": ("NVIDIA-A100-SXM4-80GB", "nvidia-a100-80gb", ""),
    "a100-pcie-80gb": ("NVIDIA-A100-80GB-PCIe", "", ""),
    "h100-sxm-80gb": ("NVIDIA-H100-80GB-HBM3", "nvidia-h100-80gb", "h100"),
    "h100-pcie-80gb": ("NVIDIA-H100-PCIe", "", ""),
    "h200-sxm-141gb": ("NVIDIA-H200", "nvidia-h200-141gb", "h200"),
    "b200-sxm-180gb": ("NVIDIA-B200", "nvidia-b200", "b200"),
    "gb200-186gb": ("NVIDIA-GB200", "nvidia-gb200", ""),
    "mi300x": ("AMD_Instinct_MI300X_OAM", "", ""),
}
"""Device -> value of the label of the maker's feature discovery, of GKE's and of Karpenter's; empty
where there is none, and where several devices share it."""
SECRET: Final = "hf-token-secret"  # noqa: S105 (the name of a Secret)
TOKEN: Final = f"gated models: kubectl create secret generic {SECRET} --from-literal=token=TOKEN"
CHART: Final = (
    "helm install NAME llm-d-modelservice --repo "
    "https://llm-d-incubation.github.io/llm-d-modelservice/ -f VALUES"
)
SHM: Final = {"name": "shm", "emptyDir": {"medium": "Memory"}}
"""Collectives of engines need more shared memory than containers have by default."""
PROXIED_PORT: Final = 8200
"""Port of vLLM behind the proxy of llm-d."""
STARTS_S, EVERY_S = 3600, 10
"""Longest time in which a server loads its weights, and time between probes."""


@dataclass(frozen=True, slots=True)
class Served:
    """What manifests run.

    Attributes:
        deployment: one replica.
        device: its devices.
        model: the checkpoint.
        replicas: number of replicas.
        gpus: devices of a server.
    """

    deployment: LlmDeployment
    device: Device
    model: str
    replicas: int
    gpus: int

    @property
    def label(self) -> str:
        """Name of what is served, as Kubernetes takes it."""
        own = self.model.rpartition("/")[2].lower()
        return re.sub(r"[^a-z0-9]+", "-", own).strip("-")[:50].rstrip("-") or "model"

    def pool(self, role: str) -> Pool:
        """The pool of a role."""
        prefill = self.deployment.prefill
        return prefill if role == "prefill" and prefill is not None else self.deployment.pool

    @property
    def profile(self) -> str:
        """Profile of a MIG slice; empty for a whole GPU."""
        return self.device.name.partition("-mig-")[2].replace("-", ".")

    @property
    def labels(self) -> tuple[str, str, str] | None:
        """As in `LABELS`, of the whole GPU; None where they are not known."""
        return LABELS.get(self.device.name.partition("-mig-")[0])

    @property
    def resource(self) -> str:
        """Resource of the device plugin: of a MIG slice, that of its profile (strategy mixed)."""
        return f"nvidia.com/mig-{self.profile}" if self.profile else RESOURCES[self.device.vendor]

    def resources(self, devices: int) -> dict[str, Any]:
        """So many devices of a pod."""
        return {"limits": {self.resource: str(devices)}}

    def selector(self) -> dict[str, Any]:
        """Nodes with this type of device; empty where its label is not known.

        With the strategy mixed, nodes with MIG slices have the label of the whole GPU, and several
        GPUs have slices of the same profile.
        """
        own = self.labels
        return {} if own is None else {"nodeSelector": {PRODUCT[self.device.vendor]: own[0]}}

    def text(self, content: Mapping[str, Any], *notes: str) -> str:
        """A manifest, with other labels as comments where it selects nodes: those of clouds, and
        of a MIG slice that of the strategy single.
        """
        lines, product = [f"# {note}" for note in notes], PRODUCT[self.device.vendor]
        plain = json.loads(json.dumps(content))  # what stands twice would be a reference in YAML
        for line in yaml.safe_dump(plain, sort_keys=False).splitlines():
            lines.append(line)
            if self.labels is not None and line.strip().startswith(product):
                start = line[: len(line) - len(line.lstrip())]
                others = [*zip((GKE, KARPENTER), self.labels[1:], strict=True)]
                if self.profile:
                    single = f"{self.labels[0]}-MIG-{self.profile}"
                    others = [(product, f"{single}, and {RESOURCES['nvidia']} (strategy single)")]
                lines += [f"{start}# or {label}: {own}" for label, own in others if own]
        return "\n".join(lines) + "\n"


def manifests(served: Served, words: Sequence[str]) -> dict[str, str]:
    """Replicas that have one server each, as a Deployment and as an InferenceService.

    Args:
        served: what is run.
        words: the command of a replica.
    """
    devices = served.deployment.devices
    container, labels = _container(served, words, devices), {"app": served.label}
    pod = {**served.selector(), "containers": [container], "volumes": [SHM]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": served.label, "labels": dict(labels)},
        "spec": {
            "replicas": served.replicas,
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
        },
    }
    own = {**pod, "containers": [{**container, "name": "kserve-container"}]}
    number = {"minReplicas": served.replicas, "maxReplicas": served.replicas}
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": served.label},
        "spec": {"predictor": {**number, **own}},
    }
    return {"kubernetes": served.text(deployment, TOKEN), "kserve": served.text(service, TOKEN)}


def _container(
    served: Served, words: Sequence[str], devices: int, port: int | None = None
) -> dict[str, Any]:
    """A container of the engine on so many devices."""
    engine = served.deployment.engine.name
    port = port or PORTS[engine]
    probe = {"httpGet": {"path": "/health", "port": port}, "periodSeconds": EVERY_S}
    secret = {"name": SECRET, "key": "token", "optional": True}
    return {
        "name": engine,
        "image": _image(served),
        "command": [*words, "--host", "0.0.0.0", "--port", str(port)],  # noqa: S104 (in a pod)
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": secret}}],
        "ports": [{"containerPort": port}],
        "resources": served.resources(devices),
        "startupProbe": {**probe, "failureThreshold": STARTS_S // EVERY_S},
        "readinessProbe": dict(probe),
        "livenessProbe": {**probe, "failureThreshold": 6},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 (of the pod)
    }


def _image(served: Served) -> str:
    """Image of the engine; SGLang's for AMD have no tag that follows releases."""
    engine, is_amd = served.deployment.engine, served.device.vendor == "amd"
    if engine.name == "vllm":
        tag = f"v{engine.version}" if engine.version else "latest"
        return f"vllm/vllm-openai{'-rocm' if is_amd else ''}:{tag}"
    if is_amd:
        family = "mi35x" if served.device.architecture == "cdna4" else "mi30x"
        return f"lmsysorg/sglang:v{engine.version or '0.5.9'}-rocm700-{family}"
    return f"lmsysorg/sglang:{f'v{engine.version}' if engine.version else 'latest'}"


def helm(
    served: Served, start: Sequence[str], options: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Replicas whose workers have one server each, as values of llm-d's modelservice chart.

    Args:
        served: what is run.
        start: the engine and the model.
        options: role of a pool -> options of one of its workers.
    """
    apart = served.deployment.prefill is not None
    labels = {"llm-d.ai/inferenceServing": "true", "llm-d.ai/model": served.label}
    content: dict[str, Any] = {
        "modelArtifacts": {
            **{"name": served.model, "uri": f"hf://{served.model}", "labels": labels}
        },
        "accelerator": {
            **{"type": served.device.vendor},
            "resources": {served.device.vendor: served.resource},
        },
        "routing": {
            **{"servicePort": PORTS["vllm"]},
            "proxy": {"enabled": apart, "targetPort": PROXIED_PORT},
        },
        "prefill": {"create": False},
    }
    for role, own in sorted(options.items()):
        pool = served.pool(role)
        split = pool.parallelism
        if split.devices > served.gpus:
            return {}
        added, env = _handover(apart=apart)
        port = PROXIED_PORT if role == "decode" else PORTS["vllm"]
        container = _container(served, [*start, *own, *added], split.devices, port)
        container |= {"modelCommand": "custom", "env": [*container["env"], *env]}
        ranks = split.attention_data
        content["prefill" if role == "prefill" else "decode"] = {
            "create": True,
            "replicas": served.replicas * pool.workers,
            "parallelism": {
                "tensor": split.tensor,
                "data": ranks,
                "dataLocal": ranks,
                "workers": 1,
            },
            **served.selector(),
            "containers": [container],
            "volumes": [SHM],
        }
    return {"helm": served.text(content, CHART, TOKEN)}


def _handover(*, apart: bool) -> tuple[list[str], list[dict[str, Any]]]:
    """Options and variables by which pools that are apart hand over caches."""
    if not apart:
        return [], []
    config = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    variable = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address}
    return ["--kv-transfer-config", config], [variable]


def llmisvc(served: Served, options: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Replicas as an LLMInferenceService with the default scheduler of llm-d.

    Empty where its templates cannot express how a replica is divided over servers: each stage of a
    pipeline has a pod there, and so has the same number of data-parallel ranks.

    Args:
        served: what is run.
        options: role of a pool -> options of one of its workers on one server.
    """
    deployment = served.deployment
    router: dict[str, Any] = {"route": {}, "gateway": {}, "scheduler": {}}
    spec: dict[str, Any] = {
        "model": {"uri": f"hf://{served.model}", "name": served.model},
        "router": router,
    }
    apart = deployment.prefill is not None
    for role, own in sorted(options.items()):
        workload = _workload(served, served.pool(role), own, apart=apart)
        if workload is None:
            return {}
        spec |= {"prefill": workload} if role == "prefill" else workload
    content = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": {"name": served.label},
        "spec": spec,
    }
    note = "gated models: serviceAccountName of an account whose secret has HF_TOKEN"
    return {"llmisvc": served.text(content, note)}


def _workload(
    served: Served, pool: Pool, options: Sequence[str], *, apart: bool
) -> dict[str, Any] | None:
    """The pods of one pool; None where they cannot be expressed."""
    split = pool.parallelism
    replicas = served.replicas * pool.workers
    pods, degrees = 1, {}
    if split.devices > served.gpus:
        pods = split.pipeline if split.attention_data == 1 else -(-split.devices // served.gpus)
        if split.devices // pods > served.gpus:
            return None
        degrees = {"tensor": split.tensor, "pipeline": split.pipeline}
        if split.attention_data > 1:
            local = split.attention_data // pods
            degrees = {"tensor": split.tensor, "data": split.attention_data, "dataLocal": local}
            degrees |= {"expert": True} if split.expert > 1 else {}
    added, env = _handover(apart=apart)
    words = [*options, *added]
    container: dict[str, Any] = {
        "name": "main",
        "env": [*env, {"name": "VLLM_ADDITIONAL_ARGS", "value": shlex.join(words)}],
        "resources": served.resources(split.devices // pods),
    }
    if served.device.vendor == "amd":
        container["image"] = "ghcr.io/llm-d/llm-d-rocm:v0.8.0"
    template = {**served.selector(), "containers": [container]}
    found: dict[str, Any] = {"replicas": replicas}
    found |= {"parallelism": degrees} if degrees else {}
    found |= {"template": template}
    return found | ({"worker": template} if pods > 1 else {})
