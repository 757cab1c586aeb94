"""Which number formats an inference engine supports on which GPUs.

The table is in `engine_formats.toml`, with the public documents that it comes from. It describes
current releases. An engine supports a format that the GPU cannot compute in if it unpacks the
weights to half precision (Marlin).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import chain
from typing import Any, Final

from forerun.data.device import Device
from forerun.data.facts import facts_of
from forerun.data.language_models.model import LanguageModel
from forerun.data.number_formats import GGUF

_FACTS: Final = facts_of(__file__)
CAPABILITY: Final[Mapping[str, float]] = _FACTS["capability"]
"""NVIDIA architecture -> compute capability of its oldest GPU."""
ENGINES: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = _FACTS["engines"]
"""Engine -> weight format (`gguf` for those of GGUF, `awq`), cache format with the prefix `cache-`,
or `any` -> vendor -> least compute capability, or list of architectures."""
FP8_CACHES: Final[Mapping[str, Sequence[str]]] = _FACTS["fp8_caches"]
MAKERS: Final[Mapping[str, str]] = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}


def usual_cache(engine: str, weights: str) -> str | None:
    """Cache format that an engine uses for checkpoints with a weight format.

    None if it is the format of the activations. An empty engine name stands for any.
    """
    return "fp8" if weights in FP8_CACHES.get(engine, FP8_CACHES["any"]) else None


def not_run(engine: str, device: Device, model: LanguageModel | None = None) -> str | None:
    """Why an engine does not run a model on a GPU; None if it does, if unknown, and for CPUs.

    Args:
        engine: name of the engine.
        device: the device.
        model: the model with its formats; None to only check whether the engine runs on the device.
    """
    return _not_run(engine, device, {"any": ""} | ({} if model is None else dict(_formats(model))))


def awq_not_run(engine: str, device: Device, model: LanguageModel) -> str | None:
    """Why an engine does not run a model's four-bit weights if they are AWQ's; None as above."""
    is_asked = "int4" in dict(_formats(model))
    return _not_run(engine, device, {"awq": "weights of AWQ "} if is_asked else {})


def _not_run(engine: str, device: Device, asked: Mapping[str, str]) -> str | None:
    known = ENGINES.get(engine, {}) if device.kind == "gpu" else {}
    for name, words in asked.items():
        needed = known.get(name, {}).get(device.vendor)
        if needed is not None and (end := _unmet(needed, device)) is not None:
            return f"{engine} runs {words}{end}"
    return None


def _formats(model: LanguageModel) -> Iterator[tuple[str, str]]:
    """Each format of a model: its key in the table, and a description."""
    formats = model.formats
    layers = formats.layers or (formats.of_layer(0),)
    of_layers = chain.from_iterable(map(astuple, set(layers)))
    for name in {formats.unquantized, formats.head, *of_layers}:
        yield "gguf" if name in GGUF else name, f"weights in {name} "
    yield f"cache-{formats.cache}", f"caches in {formats.cache} "


def _unmet(needed: Any, device: Device) -> str | None:
    """What a device lacks; None if it lacks nothing, or if its architecture is unknown."""
    architecture, maker = _architecture(device), MAKERS[device.vendor]
    if not needed:
        return f"on no GPU of {maker}, as {device.name} is"
    if isinstance(needed, list):
        listed = ", ".join(needed)
        if architecture is None or architecture in needed:
            return None
        return f"on {maker}'s {listed} alone, and {device.name} is {architecture}"
    has = CAPABILITY.get(architecture or "")
    if has is None or has >= needed:
        return None
    return f"from compute capability {needed} on, and {device.name} has {has}"


def _architecture(device: Device) -> str | None:
    """The architecture as spelt in the table; other catalogues write `RDNA 3.0` and the like."""
    if device.architecture is None:
        return None
    return device.architecture.replace(" ", "").removesuffix(".0")
