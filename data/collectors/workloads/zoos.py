"""The networks that collectors build by name: forerun's own, and those of the package timm."""

from collections.abc import Mapping
from typing import Literal

from forerun.data.collectors.workloads.timm_networks import TIMM_NETWORKS
from forerun.data.collectors.workloads.torch_networks import NETWORKS, Definition

Zoo = Literal["forerun", "timm"]
ZOOS: Mapping[Zoo, Mapping[str, Definition]] = {"forerun": NETWORKS, "timm": TIMM_NETWORKS}
"""Whose networks -> the networks by name; no name is in two of them."""


def definition_of(name: str) -> Definition | None:
    """A network of any zoo by its name; None where there is none."""
    return next((zoo[name] for zoo in ZOOS.values() if name in zoo), None)
