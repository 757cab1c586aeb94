"""The device of a node by its labels, and slices of a GPU (MIG).

Labels are those of NVIDIA's GPU feature discovery, of AMD's node labeller, of GKE and of Karpenter.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from forerun.data.device import Device
from forerun.data.device_slices import slice_of
from forerun.service.http.kubernetes.extender import ClusterNode, Pod

OWN_LABEL: Final = "forerun.dev/device"
NVIDIA: Final = "nvidia.com/gpu"
PRODUCTS: Final = (
    OWN_LABEL,
    f"{NVIDIA}.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
"""Labels with the name of a product; the first one that a node has counts."""
COUNTS: Final = (
    f"{NVIDIA}.count",
    "cloud.google.com/gke-accelerator-count",
    "karpenter.k8s.aws/instance-gpu-count",
)
"""Labels with the number of GPUs; the first one that a node has counts."""
WHOLE_DEVICES: Final = (NVIDIA, "amd.com/gpu", "volcano.sh/vgpu-number")
"""Resources of which a pod requests a number of GPUs, or of shares of them."""
SHARES: Final = re.compile(r"(?:nvidia\.com/gpumem|volcano\.sh/vgpu-memory)(-percentage)?")
"""Resources that are a share of each GPU's memory, MiB or percent (HAMi, Volcano)."""
NAMED_OTHERWISE: Final = {
    "nvidia-tesla-a100": "a100-sxm-40gb",
    "nvidia-h100-mega-80gb": "h100-sxm-80gb",
}
"""Names of GKE that do not say which product they mean."""
SLICE_RESOURCE: Final = "nvidia.com/mig-"
MIB: Final = 2.0**10
DevicesNamed = Callable[[AbstractSet[str]], Mapping[str, Device]]
"""Names -> the device of each name that has one."""


def devices_of(
    nodes: Sequence[ClusterNode], slice_profile: str | None, devices_named: DevicesNamed
) -> dict[str, Device]:
    """Node -> device that a pod would use on it; nodes whose device is not known are left out.

    Args:
        nodes: the nodes; the products among their labels are looked up together, each once.
        slice_profile: profile of the slice that the pod requests, such as 1g.10gb; None where it
            requests whole devices, or as a node is divided evenly.
        devices_named: names -> the device of each name that has one.
    """
    products = {node.name: product for node in nodes if (product := product_of(node)) is not None}
    known = devices_named({*products.values()})
    if slice_profile is not None:
        slices = {name: slice_of(device, slice_profile) for name, device in known.items()}
        known = {name: device for name, device in slices.items() if device is not None}
    return {
        node.name: known[product]
        if slice_profile is not None
        else _with_memory(known[product], node.labels)
        for node in nodes
        if (product := products.get(node.name, "")) in known
    }


def product_of(node: ClusterNode) -> str | None:
    """The name of a node's device by its labels; None where none tells."""
    label = next((node.labels[name] for name in PRODUCTS if node.labels.get(name)), None)
    return None if label is None else NAMED_OTHERWISE.get(label, label)


def requested_slice(pod: Pod) -> str | None:
    """Profile of the slice or share that a pod's containers request; None for whole devices."""
    for name, amount in _requested(pod):
        if (share := SHARES.fullmatch(name)) is not None:
            return f"{amount}{'pct' if share[1] else 'mib'}"
        if name.startswith(SLICE_RESOURCE):
            return name.removeprefix(SLICE_RESOURCE).replace(".me", "+me")
    return None


def requested_devices(pod: Pod) -> int | None:
    """GPUs, slices or shares that a pod's containers request together; None for none."""
    counts = [
        count
        for name, count in _requested(pod)
        if name in WHOLE_DEVICES or name.startswith(SLICE_RESOURCE)
    ]
    return sum(int(count) for count in counts if count.isdecimal()) or None


def requested_resource(pod: Pod) -> str:
    """The resource by which a pod requests GPUs or slices; NVIDIA's where it requests none."""
    names = (name for name, _ in _requested(pod))
    return next((n for n in names if n in WHOLE_DEVICES or n.startswith(SLICE_RESOURCE)), NVIDIA)


def _requested(pod: Pod) -> list[tuple[str, str]]:
    """Name and amount of each resource that the containers of a pod are limited to."""
    containers = (pod.spec and pod.spec.containers) or ()
    limits = [(one.resources and one.resources.limits) or {} for one in containers]
    return [(name, str(amount)) for own in limits for name, amount in own.items()]


def named_products(pod: Pod) -> list[tuple[str, str]]:
    """Label and value of each product that a pod's node selector, else its affinity, requires."""
    spec = pod.spec
    selector = (spec and spec.node_selector) or {}
    named = [(name, selector[name]) for name in PRODUCTS if selector.get(name)]
    if named or spec is None or spec.affinity is None:
        return named[:1]
    nodes = spec.affinity.node_affinity
    terms = (nodes and nodes.required and nodes.required.node_selector_terms) or ()
    return [
        (one.key, value)
        for term in terms
        for one in term.match_expressions or ()
        if one.key in PRODUCTS and one.operator == "In"
        for value in one.values or ()
    ]


def devices_on(node: ClusterNode) -> int | None:
    """GPUs of a node by its labels; None where none tells."""
    texts = (node.labels[name] for name in COUNTS if name in node.labels)
    return next((int(text) for text in texts if text.isdecimal()), None)


def _with_memory(device: Device, labels: Mapping[str, str]) -> Device:
    """The device with the memory that its node states, where that is another than the sheet's."""
    text = labels.get(f"{NVIDIA}.memory", "")
    if not text.isdigit() or device.memory_gib is None or OWN_LABEL in labels:
        return device
    gib = float(text) / MIB
    if gib < 1.0 or abs(gib / device.memory_gib - 1.0) < 0.1:
        return device
    name = f"{device.name}-with-{round(gib)}-gib"
    return device.model_copy(update={"name": name, "aliases": (), "memory_gib": gib, "sources": {}})
