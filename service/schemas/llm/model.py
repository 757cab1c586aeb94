"""A language model in a request: by its name, or by its configuration."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, model_validator

from forerun.data.errors import InputError, in_field
from forerun.data.language_models.engine_formats import usual_cache
from forerun.data.language_models.model import LanguageModel
from forerun.features.readers.language_model.quantization import CACHE, WEIGHTS, with_formats
from forerun.features.readers.language_model.reader import named_files, read_language_model
from forerun.service.schemas.fields import Name
from forerun.service.schemas.language_model import ModelSizesOut
from forerun.service.schemas.llm.deployment import NamedPart

CacheFormat = Literal["bf16", "fp16", "fp32", "fp8", "int8", "nvfp4"]
MARKS: Final = frozenset({"architectures", "model_type", "hidden_size", "num_hidden_layers"})
"""Fields of a configuration that are no fields of a request."""
MOST_KEPT_CHARACTERS: Final = 1 << 16
"""Longest configuration whose description is kept for the next request."""


def _cache_format(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    return None if given.lower() == "auto" else CACHE.get(given.lower(), given)


class LanguageModelIn(NamedPart):
    """A language model, given by its name or its configuration."""

    PART: ClassVar[str] = "model"

    name: Name | None = None
    """name of a public model, as in GET /v1/llm/support, or ORG/MODEL in the local cache of Hugging
    Face"""
    config: dict[str, Any] | None = None
    """content of the model's config.json, from which parameters, architecture, experts and cache
    follow, and `weights` unless they are given"""
    quantization: Name | dict[str, Any] | None = None
    """number format of the weights (fp8, nvfp4, mxfp4, int8, int4, awq, gptq, or of GGUF files such
    as q4_k_m); needed where `config` does not give it; also the content of hf_quant_config.json"""
    cache_format: Annotated[CacheFormat | None, BeforeValidator(_cache_format)] = None
    """number format of keys and values; when absent or auto, that of the configuration, or fp8
    where the engine uses it for checkpoints in `quantization`"""

    @model_validator(mode="before")
    @classmethod
    def _is_no_configuration(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and not MARKS.isdisjoint(given):
            raise ValueError("this is the content of a config.json, which belongs in model.config")
        return given

    def language_model(self, engine: str = "") -> LanguageModel | None:
        """The layers of the model; None where neither its name nor its configuration is given.

        Args:
            engine: name of the engine that serves it, where it is known.

        Raises:
            UnreadableModel: the name is not known, or the configuration is damaged, of an unknown
                family, or contradicts itself.
        """
        described = self._described(engine)
        return None if described is None else described.model

    def chosen(self, engine: str) -> tuple[str, ...]:
        """What is assumed of the model on an engine, in words."""
        if self.cache_format is not None or not isinstance(self.quantization, str):
            return ()
        cache = usual_cache(engine, WEIGHTS.get(self.quantization.lower(), ""))
        if cache is None:
            return ()
        return (f"keys and values in {cache}, as checkpoints in {self.quantization} have them",)

    def encoded_tokens(self) -> float | None:
        """As of a request; also None of what is no model, which is said where it is read."""
        try:
            model = self.language_model()
        except InputError:
            return None
        encoder = None if model is None else model.encoder
        return None if encoder is None else encoder.tokens

    def sizes(self, engine: str = "") -> ModelSizesOut | None:
        """Parameters, experts and cache of the model; as `language_model`."""
        described = self._described(engine)
        return None if described is None else described.sizes

    def _described(self, engine: str = "") -> "_Described | None":
        if self.config is None and self.name is None:
            return None
        field, given = "config", {"config": self.config}
        if self.config is None:
            field = "name"
            with in_field(field):
                given = named_files(self.name or "")
        config = json.dumps(given["config"], sort_keys=True)
        block = self.quantization or given.get("quantization")
        asked = block if block is None or isinstance(block, str) else json.dumps(block)
        long = len(config) + len(asked or "") > MOST_KEPT_CHARACTERS
        read = _read.__wrapped__ if long else _read
        return read(field, config, asked, self.cache_format, engine)


@dataclass(frozen=True, slots=True)
class _Described:
    """The layers of a model, and the sizes that follow from them."""

    model: LanguageModel
    sizes: ModelSizesOut


@lru_cache(maxsize=64)
def _read(
    field: str, config: str, quantization: str | None, cache: CacheFormat | None, engine: str
) -> _Described:
    """The model of the text of a configuration, which a field of the request gives or names."""
    with in_field(field):
        model = read_language_model(json.loads(config))
    with in_field("quantization"):
        is_file = quantization is not None and quantization.startswith("{")
        weights = json.loads(quantization or "") if is_file else quantization
        model = with_formats(model, weights=weights, cache=cache, engine=engine)
    return _Described(model, ModelSizesOut.of(model))
