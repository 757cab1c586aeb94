"""Devices of the catalogue that tests ask about."""

from forerun.data.device import Device, DeviceCatalog

CATALOG = DeviceCatalog.load()
A100, A100_PCIE = CATALOG.get("a100-sxm-80gb"), CATALOG.get("a100-pcie-40gb")
A10, A30, H100, L4, L40S, T4, V100 = map(
    CATALOG.get, ("a10", "a30", "h100-sxm-80gb", "l4", "l40s", "t4", "v100-pcie-32gb")
)
HOST = Device(name="host", vendor="nobody", kind="cpu")
"""A processor of which nothing is known."""
