"""Which number formats an inference engine runs on which GPUs.

The table lies in `engine_formats.toml`, with the public documents that it was read from. It is
that of current releases; where a GPU has no arithmetic of a format and the engine unpacks weights
to half precision (Marlin), the engine runs it.
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
"""Architecture of NVIDIA -> compute capability of its oldest GPU."""
ENGINES: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = _FACTS["engines"]
"""Engine -> format of weights (GGUF's as `gguf`), of keys and values with `cache-` in front, or
`any` -> maker -> least compute capability, or architectures."""
FP8_CACHES: Final[Mapping[str, Sequence[str]]] = _FACTS["fp8_caches"]
MAKERS: Final[Mapping[str, str]] = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}


def usual_cache(engine: str, weights: str) -> str | None:
    """Format of keys and values that checkpoints with weights in a format have on an engine.

    None where it is that of activations. An empty engine stands for any.
    """
    return "fp8" if weights in FP8_CACHES.get(engine, FP8_CACHES["any"]) else None


def not_run(engine: str, device: Device, model: LanguageModel | None = None) -> str | None:
    """Why an engine does not run a model on a GPU, in words; None where it does, where nothing is
    known, and for processors.

    Args:
        engine: its name.
        device: the device.
        model: the model with its formats; None for that the engine runs on no such device at all.
    """
    asked = {"any": ""} | ({} if model is None else dict(_formats(model)))
    known = ENGINES.get(engine, {}) if device.kind == "gpu" else {}
    for name, words in asked.items():
        needed = known.get(name, {}).get(device.vendor)
        if needed is not None and (end := _unmet(needed, device)) is not None:
            return f"{engine} runs {words}{end}"
    return None


def _formats(model: LanguageModel) -> Iterator[tuple[str, str]]:
    """Each format of a model as the table names it, and in words."""
    own = model.formats
    layers = own.layers or (own.of_layer(0),)
    for name in {own.unquantized, own.head, *chain.from_iterable(map(astuple, set(layers)))}:
        yield "gguf" if name in GGUF else name, f"weights in {name} "
    yield f"cache-{own.cache}", f"caches in {own.cache} "


def _unmet(needed: Any, device: Device) -> str | None:
    """What a device lacks; None where it lacks nothing, or its architecture is not known."""
    own, maker = _architecture(device), MAKERS[device.vendor]
    if not needed:
        return f"on no GPU of {maker}, as {device.name} is"
    if isinstance(needed, list):
        listed = ", ".join(needed)
        known = own is not None and own not in needed
        return f"on {maker}'s {listed} alone, and {device.name} is {own}" if known else None
    has = CAPABILITY.get(own or "")
    if has is None or has >= needed:
        return None
    return f"from compute capability {needed} on, and {device.name} has {has}"


def _architecture(device: Device) -> str | None:
    """The architecture as the table writes it; other catalogues write `RDNA 3.0` and the like."""
    if device.architecture is None:
        return None
    return device.architecture.replace(" ", "").removesuffix(".0")
