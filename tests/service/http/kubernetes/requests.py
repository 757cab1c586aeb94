"""Requests of a kube-scheduler to an extender, as Go's encoder writes them."""

from collections.abc import Set as AbstractSet
from typing import Any

from msgspec import Raw

from forerun.data.device import Device
from forerun.service.http.kubernetes.extender import ClusterNode
from forerun.service.http.kubernetes.nodes import devices_of
from tests.devices import CATALOG


def named(names: AbstractSet[str]) -> dict[str, Device]:
    """The device of each name that the catalogue has."""
    return {name: device for name in names if (device := CATALOG.find(name))}


def device_of(labels: dict[str, str], profile: str | None = None) -> Device | None:
    """The device of a node with these labels, or a slice of it."""
    return devices_of([ClusterNode("a", labels, {}, Raw())], profile, named).get("a")


def node(name: str, product: str | None = None, **more: str) -> dict[str, Any]:
    """A node with the label of a product, and with annotations `forerun.dev/*`."""
    labels = {"kubernetes.io/hostname": name}
    if product is not None:
        labels |= {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": "8"}
    return {
        "metadata": {
            "name": name,
            "uid": "5f0c9d8e-0000-4000-8000-000000000000",
            "creationTimestamp": "2026-11-01T10:00:00Z",
            "labels": labels,
            "annotations": {f"forerun.dev/{key}": text for key, text in more.items()},
        },
        "spec": {"podCIDR": "10.244.0.0/24"},
        "status": {
            "capacity": {"cpu": "64", "nvidia.com/gpu": "8"},
            "images": [{"names": ["registry.example/train:1"], "sizeBytes": 7_000_000_000}],
        },
    }


def pod(annotations: dict[str, str], limits: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod with annotations `forerun.dev/*`, and with the resources of its one container."""
    return {
        "metadata": {
            "name": "job-0",
            "namespace": "team",
            "creationTimestamp": None,
            "annotations": {f"forerun.dev/{key}": text for key, text in annotations.items()},
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits or {}}}]},
        "status": {},
    }


def args(pod: dict[str, Any], nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """`ExtenderArgs` of a scheduler whose extender has no cache of nodes."""
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}


def names(pod: dict[str, Any], nodes: list[str]) -> dict[str, Any]:
    """`ExtenderArgs` of a scheduler whose extender has `nodeCacheCapable`."""
    return {"Pod": pod, "Nodes": None, "NodeNames": nodes}


def cluster_node(name: str, product: str) -> dict[str, Any]:
    """A node as the API of a cluster holds it, with all that a scheduler reads and sends on."""
    own = node(name, product)
    size = {"cpu": "64", "memory": "263Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    size |= {"nvidia.com/gpu": "8"}
    fields = {"f:labels": {".": {}, "f:kubernetes.io/hostname": {}}}
    own["metadata"] |= {
        "resourceVersion": "90",
        "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        "managedFields": [
            {
                "manager": "kubelet",
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2026-11-01T10:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": fields},
            }
        ],
    }
    own["spec"] |= {"podCIDRs": ["10.244.0.0/24"], "providerID": f"example://{name}"}
    own["status"] |= {
        "capacity": size,
        "allocatable": size,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "lastHeartbeatTime": "2026-11-01T10:05:00Z",
                "lastTransitionTime": "2026-11-01T10:00:30Z",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
            }
        ],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {"kubeletVersion": "v1.30.2", "operatingSystem": "linux"},
    }
    return {"kind": "Node", "apiVersion": "v1", **own}


def waiting_pod(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    """A pod of ResNet-50 that waits for a node, as the API of a cluster holds it."""
    asked = {"graph": "resnet50", "batch-size": "64", "precision": "amp", **annotations}
    own = pod(asked, {"nvidia.com/gpu": "1"})
    own["metadata"] |= {
        "name": name,
        "uid": f"5f0c9d8e-0000-4000-8000-{len(name):012}",
        "resourceVersion": "95",
        "creationTimestamp": "2026-11-01T10:10:00Z",
        "labels": {"app": name},
        "managedFields": [
            {
                "manager": "kubectl",
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2026-11-01T10:10:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}},
            }
        ],
    }
    own["spec"] |= {
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "priority": 0,
    }
    own["spec"]["containers"][0] |= {"image": "registry.example/train:1"}
    own["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    return {"kind": "Pod", "apiVersion": "v1", **own}
