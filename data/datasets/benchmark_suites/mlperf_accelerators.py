"""Accelerators as MLPerf submitters spell them: the part, and the share of it that is used."""

import re
from typing import Any, Final

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import UnknownDevice

_SLICE: Final = re.compile(r"\((\d+)x(\d)g\.\d+gb mig\)")
_SLICES: Final = {"a30": 4.0}
"""Compute slices of a part that can be divided; 7 for parts that are not listed."""

_NOISE: Final = re.compile(
    r"\([^)]*\)|virtualized|\bcts\b|nps1-spx|-750w|-02$|,.*$|\btensor core\b|[®™©]|\bgpu$"
)
_PARTS: Final = (
    (r"gb300", "gb300-279gb"),
    (r"gb200", "gb200-186gb"),
    (r"b300", "b300-sxm-288gb"),
    (r"b200", "b200-sxm-180gb"),
    (r"gh200.*144", "gh200-144gb"),
    (r"gh200", "gh200-96gb"),
    (r"h200.*nvl", "h200-nvl-141gb"),
    (r"h200", "h200-sxm-141gb"),
    (r"h100.*nvl", "h100-nvl-94gb"),
    (r"h100.*(pcie|80c)", "h100-pcie-80gb"),
    (r"h100", "h100-sxm-80gb"),
    (r"a100.*pcie.*40", "a100-pcie-40gb"),
    (r"a100.*pcie", "a100-pcie-80gb"),
    (r"a100.*sxm.*40", "a100-sxm-40gb"),
    (r"a100", "a100-sxm-80gb"),
    (r"l40s", "l40s"),
    (r"\bl40", "l40"),
    (r"\bl4\b", "l4"),
    (r"\ba10\b", "a10"),
    (r"\ba30\b", "a30"),
    (r"\ba40\b", "a40"),
    (r"\ba2\b", "a2"),
    (r"\bt4\b", "t4"),
    (r"rtx 4090", "rtx-4090"),
    (r"orin nx", "jetson-orin-nx-16gb"),
    (r"orin", "jetson-agx-orin-64gb"),
    (r"mi325x", "mi325x"),
    (r"mi300x", "mi300x"),
    (r"mi350x", "mi350x"),
    (r"mi355x", "mi355x"),
    (r"rtx pro 6000", "rtx-pro-6000-server"),
    (r"gaudi ?2", "gaudi2"),
    (r"gaudi ?3", "gaudi3"),
    (r"tpu v5e", "tpu-v5e"),
    (r"tpu v6", "tpu-v6e"),
    (r"(cloud ai|qaic) ?100.*ultra", "cloud-ai-100-ultra"),
    (r"(cloud ai|qaic) ?100.*pro", "cloud-ai-100-pro"),
    (r"(cloud ai|qaic) ?100.*standard", "cloud-ai-100-standard"),
    (r"(cloud ai|qaic) ?100.*lite", "cloud-ai-100-lite"),
)
"""Pattern in a submitter's text -> the part's name; the first that fits."""


def runs_on_cpu(accelerator: Any) -> bool:
    """Whether a row's accelerator column says that there is none."""
    return not isinstance(accelerator, str) or accelerator.strip() in ("", "-", "N/A")


def accelerator_key(accelerator: Any, cpu: Any) -> str:
    """Slug of the hardware of a row: its accelerator, or its CPU where it has none.

    >>> accelerator_key("NVIDIA A100-SXM-80GB (1x1g.10gb MIG)", "AMD EPYC 7742")
    'a100-sxm-80gb'
    """
    text = _plain(cpu if runs_on_cpu(accelerator) else accelerator)
    if not runs_on_cpu(accelerator):
        for pattern, name in _PARTS:
            if re.search(pattern, text):
                return name
    slug = re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:80].strip("-")
    return slug or "unknown"


def share_in_use(accelerator: Any) -> float:
    """Share of a part that a slice makes up; 1 for a whole part.

    >>> round(share_in_use("NVIDIA A30 (1x1g.6gb MIG)"), 2)
    0.25
    """
    found = _SLICE.search(str(accelerator).lower())
    if not found:
        return 1.0
    whole = _SLICES.get(accelerator_key(accelerator, ""), 7.0)
    return min(1.0, int(found[1]) * int(found[2]) / whole)


def accelerator(key: str, on_cpu: bool, catalog: DeviceCatalog) -> Device:
    """The spec sheet of a slug of `accelerator_key`; a device without figures where it has none."""
    try:
        return catalog.get(key)
    except UnknownDevice:
        return Device(name=key, vendor="unknown", kind="cpu" if on_cpu else "npu")


def _plain(text: Any) -> str:
    lower = re.sub(r"\((r|tm)\)", " ", str(text).lower())
    lower = re.sub(r"\s*(cpu\s*)?@.*$", "", lower)
    lower = re.sub(r"\b\d+-core processor\b", "", lower)
    return re.sub(r"\s+", " ", _NOISE.sub(" ", lower)).strip()
