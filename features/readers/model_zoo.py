"""Networks of timm by name: built on the meta device, without weights and without a network."""

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from forerun.data.errors import MissingExtra, UnreadableModel
from forerun.data.graph import OperatorGraph
from forerun.features.readers.eager_trace import EagerCall, eager_calls
from forerun.features.readers.torch_trace import trace_module
from forerun.features.readers.torchvision_operators import declare_operators

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "timm:"
_CHANNELS = 3
_PACKAGES = ("timm", "torch", "torchvision")


def is_installed() -> bool:
    """Whether the packages of the `zoo` extra are installed; nothing is imported."""
    return all(find_spec(name) is not None for name in _PACKAGES)


def versions() -> dict[str, str]:
    """Versions of the packages on which a trace depends.

    Raises:
        MissingExtra: one of them is not installed.
    """
    if not is_installed():
        raise MissingExtra("Tracing timm's networks", "zoo")
    return {name: version(name).partition("+")[0] for name in ("timm", "torch")}


def build(name: str, image_size: int) -> Any:
    """An `nn.Module` on the meta device, with no weights.

    Args:
        name: a name of `timm.list_models()`, or a retired name that timm still maps.
        image_size: height and width in pixels; networks that fix their input are built for it.

    Raises:
        MissingExtra: timm, torchvision or torch is not installed.
        UnreadableModel: timm has no such network, or cannot build it at that size.
    """
    timm, torch = _timm()
    if ":" in name:
        # `hf-hub:` and `local-dir:` would read a configuration from outside timm.
        raise UnreadableModel(PREFIX + name, "only timm's own architectures are built.")
    try:
        with torch.device("meta"), warnings.catch_warnings():
            # timm warns of retired names.
            warnings.simplefilter("ignore")
            try:
                return timm.create_model(name, pretrained=False, img_size=image_size)
            except TypeError:
                # Networks that take any size have no such argument.
                return timm.create_model(name, pretrained=False)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnreadableModel(
            PREFIX + name, f"timm cannot build it: {lines[0][:200].rstrip('.')}."
        ) from None


def zoo_graph(name: str, image_size: int, *, batch_size: int = 1) -> OperatorGraph:
    """The graph of a network by `torch.export`, as for any torch module.

    Raises:
        MissingExtra, UnreadableModel: as in `build`, or `torch.export` cannot trace it.
    """
    module = build(name, image_size)
    return trace_module(module, _images(image_size), batch_size=batch_size)


def zoo_calls(name: str, image_size: int) -> list[EagerCall]:
    """Rows of the timm benchmark's `graphs` table for one network, at batch 1.

    Raises:
        MissingExtra, UnreadableModel: as in `build`, or it does not run on the meta device.
    """
    return eager_calls(build(name, image_size), _images(image_size))


def networks_of(bench: "pd.DataFrame") -> list[tuple[str, int]]:
    """Model and image size of every network that a `bench` table times in inference, sorted.

    The reference table has these. About 40 others are timed only in training, on one old version
    of torch, under names that timm has retired.
    """
    pairs = bench.loc[bench["phase"] == "inference", ["model", "img_size"]].drop_duplicates()
    return sorted(zip(pairs["model"].astype(str), pairs["img_size"].astype(int), strict=True))


def _images(size: int) -> Sequence[Any]:
    import torch

    return (torch.empty(1, _CHANNELS, size, size, device="meta"),)


def _timm() -> tuple[Any, Any]:
    if not is_installed():
        raise MissingExtra("Building a network of timm", "zoo")
    import torch

    declare_operators()
    import timm

    return timm, torch
