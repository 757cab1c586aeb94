"""Well-known public configurations of language models, by name, each with its source.

The package has the fields that sizes follow from. They are facts that the makers publish; each
model's own licence covers its weights.
"""

import json
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from forerun.data.errors import UnknownLanguageModel
from forerun.data.language_models.model import LanguageModel
from forerun.features.readers.language_model.reader import read_language_model

_WITHOUT_MEANING: Final = frozenset({"hf", "instruct", "chat", "it", "base", "meta"})
"""Parts of names that releases with the same layers differ in."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A configuration that is known by name.

    Attributes:
        name: owner and name of the model as on Hugging Face.
        also: releases with the same configuration, named in the same way.
        source: where the configuration was read.
        stated_parameters: number of parameters that its maker states; None where that counts parts
            that the configuration leaves out.
        config: the fields of `config.json` that sizes follow from.
    """

    name: str
    also: tuple[str, ...]
    source: str
    stated_parameters: float | None
    config: Mapping[str, Any]


def named_models() -> tuple[str, ...]:
    """The name of each configuration, in alphabetical order, without those of equal releases."""
    return tuple(sorted((model.name for model in _models()), key=str.lower))


def named_model(name: str) -> NamedModel:
    """The configuration of that name, with its source.

    Args:
        name: as on Hugging Face, in any case, with or without its owner; a part that says how the
            model was tuned may be left out, as in `llama-3.1-8b`.

    Raises:
        UnknownLanguageModel: no configuration has that name, or several have.
    """
    full, short = _names()
    lower = name.strip().lower()
    if lower in full:
        return full[lower]
    owner, _, rest = lower.rpartition("/")
    found = [one for one in short.get(_plain(rest), ()) if owner in ("", *_owners(one))]
    if len(found) != 1:
        raise UnknownLanguageModel(name, [one.name for one in found] or full)
    return found[0]


def named_config(name: str) -> Mapping[str, Any]:
    """The fields of the `config.json` of that name, as far as sizes follow from them.

    Args:
        name: as for `named_model`.

    Raises:
        UnknownLanguageModel: no configuration has that name, or several have.
    """
    return deepcopy(dict(named_model(name).config))


@lru_cache(maxsize=64)
def named_language_model(name: str) -> LanguageModel:
    """The description of the model of that name.

    Args:
        name: as for `named_model`.

    Raises:
        UnknownLanguageModel: no configuration has that name, or several have.
    """
    return read_language_model(named_model(name).config)


@cache
def _models() -> tuple[NamedModel, ...]:
    file = resources.files("forerun.data.language_models").joinpath("named.json")
    listed = json.loads(file.read_bytes())["models"]
    return tuple(
        NamedModel(
            name=one["name"],
            also=tuple(one.get("also", ())),
            source=one["source"],
            stated_parameters=one["billions"] * 1e9 if "billions" in one else None,
            config=MappingProxyType(one["config"]),
        )
        for one in listed
    )


@cache
def _names() -> tuple[Mapping[str, NamedModel], Mapping[str, tuple[NamedModel, ...]]]:
    """Full name, or name without an owner -> the model; what is left of names -> the models.

    Releases that differ in more than their tuning share a short name only by mistake, so that all
    of them are kept.
    """
    full: dict[str, NamedModel] = {}
    short: dict[str, tuple[NamedModel, ...]] = {}
    for model in _models():
        for name in (model.name, *model.also):
            full[name.lower()] = model
            full.setdefault(name.lower().rpartition("/")[2], model)
            key = _plain(name.lower().rpartition("/")[2])
            known = short.get(key, ())
            short[key] = known if model in known else (*known, model)
    return full, short


def _owners(model: NamedModel) -> Iterable[str]:
    return {name.lower().rpartition("/")[0] for name in (model.name, *model.also)}


def _plain(name: str) -> str:
    """A name without its owner, separators and what does not change the layers."""
    parts = [part for part in re.split(r"[-_:\s]+", name) if part not in _WITHOUT_MEANING]
    return "".join(parts)
