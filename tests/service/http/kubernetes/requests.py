"""Requests of a kube-scheduler to an extender, as Go's encoder writes them."""

from typing import Any


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
