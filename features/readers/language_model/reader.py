"""A language model's `config.json` as the description of its layers, and known ones by name.

Nothing of the model is built, so that a description takes milliseconds and needs the base
installation alone. Of well-known public configurations, each with its source, the package has the
fields that sizes follow from. They are facts that the makers publish; each model's own licence
covers its weights.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from forerun.data.errors import (
    ModelTooLarge,
    UnknownLanguageModel,
    UnreadableModel,
    why_unreadable,
)
from forerun.data.language_models.model import LanguageModel, VisionTower
from forerun.features.readers.hugging_face_cache import HUGGING_FACE, cached_model
from forerun.features.readers.language_model.families import (
    DEFAULTS,
    ENCODER_DECODERS,
    FAMILIES,
    REFUSED,
    RELATIVE,
    TIED,
    known,
)
from forerun.features.readers.language_model.feed_forwards import WIDTHS
from forerun.features.readers.language_model.fields import (
    Fields,
    as_configuration,
    of_meaning,
    short,
    unknown_activations,
)
from forerun.features.readers.language_model.quantization import formats_of

MOST_BYTES: Final = 1 << 24
"""Largest file that is read; the largest published one has 3 MB."""
MOST_LAYERS: Final = 4096
_DECODERS: Final = ("text_config", "llm_config", "language_config")
_LENGTHS: Final = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "max_target_positions"),
)
_NUMBER_FORMATS: Final = {"float32": "fp16", "bfloat16": "bf16", "float16": "fp16"}
_OTHER_FORMATS: Final = frozenset({
    *("float64", "double", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("float4_e2m1fn_x2", "int8", "uint8", "int4"),
})  # fmt: skip
"""Formats of torch that say how weights are stored, and that no server computes in."""


def read_language_model(
    source: Path | bytes | Mapping[str, Any], quantization: Path | bytes | None = None
) -> LanguageModel:
    """Describe a language model.

    Args:
        source: `config.json`, or Mistral's `params.json`: the file, its bytes, or its object.
        quantization: `hf_quant_config.json`, which some quantised releases keep apart; a block
            of `source` takes precedence.

    Returns:
        The description. `unread_fields` names the fields whose meaning is not known here.

    Raises:
        UnreadableModel: a file is damaged, of an unknown family, or contradicts itself; the
            message names the field.
        ModelTooLarge: a file is too large to be a configuration.
    """
    where = source.name if isinstance(source, Path) else "the configuration"
    given = source if isinstance(source, Mapping) else json_object(source, where)
    whole = Fields(where, as_configuration(given, where))
    separate = None
    if quantization is not None:
        other = quantization.name if isinstance(quantization, Path) else "the quantisation"
        outer = Fields(other, json_object(quantization, other))
        separate = outer.part("quantization") or outer
    return _described(whole, separate)


def model_files(path: Path) -> dict[str, Any]:
    """The objects of a model's `config.json` and of the `hf_quant_config.json` next to it.

    Args:
        path: the first file, or Mistral's `params.json`, or the folder that holds one.

    Returns:
        `config`, and `quantization` where there is that file.

    Raises:
        UnreadableModel, ModelTooLarge: as `json_object` and `read_language_model`; the message
            names the file.
    """
    file = path
    if path.is_dir():
        file = path / "config.json"
        if not file.is_file() and (other := path / "params.json").is_file():
            file = other
    block = file.with_name("hf_quant_config.json")
    found = {"config": dict(json_object(file, None if path.is_file() else str(file)))}
    found |= {"quantization": dict(json_object(block))} if block.is_file() else {}
    try:
        read_language_model(found["config"])
    except UnreadableModel as error:
        # Other errors, and those of families that are refused whole, are raised where it is used.
        whole = found["config"].get("model_type") in ENCODER_DECODERS
        if type(error) is UnreadableModel and not whole:
            raise UnreadableModel(str(file), str(error).partition(": ")[2]) from None
    return found


def json_object(source: Path | bytes, where: str | None = None) -> Mapping[str, Any]:
    """The JSON object of a configuration.

    Args:
        source: the file, or its bytes.
        where: what it is called in errors; None for the name of the file.

    Raises:
        UnreadableModel: it is not there, is not JSON, is no object, or gives a field several times
            with different values.
        ModelTooLarge: it is too large to be a configuration.
    """
    where = where or (source.name if isinstance(source, Path) else "the configuration")
    try:
        content = _content(source, where) if isinstance(source, Path) else source
        if len(content) > MOST_BYTES:
            raise ModelTooLarge(where, f"it has over {MOST_BYTES:,} bytes.")
        given = json.loads(content, object_pairs_hook=partial(_unambiguous, where))
    except OSError as error:
        raise UnreadableModel(where, f"{error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableModel(where, f"not valid JSON: {why_unreadable(error)}.") from None
    if not isinstance(given, dict):
        raise UnreadableModel(where, "it is JSON, but not an object.")
    return given


def _unambiguous(where: str, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of these fields; JSON itself allows a name several times.

    Raises:
        UnreadableModel: a field is given several times, with different values.
    """
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    for name, value in pairs:
        if fields[name] != value:
            values = f"{short(value)} and {short(fields[name])}"
            raise UnreadableModel(where, f"{short(name)} is given twice, as {values}.")
    return fields


def _content(path: Path, where: str) -> bytes:
    """The bytes of a file, one more than are allowed at most: a pipe has no size beforehand.

    Raises:
        ModelTooLarge: the file system says that it is too large, so that it is not opened.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ModelTooLarge(where, f"it has {size:,} bytes; the limit is {MOST_BYTES:,}.")
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _described(whole: Fields, separate: Fields | None) -> LanguageModel:
    decoder = _decoder(whole)
    family = _family(whole, decoder)
    decoder.complete(DEFAULTS.get(family, {}))
    hidden = decoder.integer(*WIDTHS)
    encoder = None
    if family in ENCODER_DECODERS:
        encoder, layers = ENCODER_DECODERS[family](decoder)
    else:
        layers = FAMILIES[family](decoder, _count(decoder))
    block = whole.part("quantization_config") or decoder.part("quantization_config")
    vision, most_tokens = whole.part("vision_config"), _most_tokens(decoder)
    formats = formats_of(
        block,
        separate,
        unquantized=_unquantized(whole, decoder),
        decoder=decoder,
        family=family,
        layers=len(layers),
    )
    model = LanguageModel(
        family=family,
        hidden_size=hidden,
        vocabulary=decoder.integer("vocab_size"),
        layers=layers,
        tied_embeddings=_tied(whole, decoder, family),
        most_tokens=None if family in RELATIVE else most_tokens,
        vision=None if vision is None else _vision(vision, hidden),
        formats=formats,
        draft_layers=_drafts(decoder),
        encoder=encoder,
    )
    read = [whole, *([] if decoder is whole else [decoder])]
    unread = of_meaning(dict.fromkeys(name for one in read for name in one.unread()))
    misspelt = [line for one in read for line in one.misspelt() if line.split()[0] in unread]
    misspelt += [line for one in read for line in unknown_activations(one)]
    return replace(model, unread_fields=unread, misspelt_fields=tuple(misspelt))


def _most_tokens(decoder: Fields) -> int | None:
    """The longest context, by scaled positions where the configuration scales them."""
    most = decoder.maybe_integer(*_LENGTHS)
    for name in ("rope_scaling", "rope_parameters"):
        scaling = decoder.raw(name)
        if scaling is not None and not isinstance(scaling, Mapping):
            raise decoder.bad(name, f"is {short(scaling)}, not an object")
        if scaling is None:
            continue
        for field in ("factor", "original_max_position_embeddings"):
            value = scaling.get(field)
            if value is not None and not _is_positive(value):
                raise decoder.bad(name, f"has {field} {short(value)}, not a positive number")
        if most is None:
            continue
        factor, own = scaling.get("factor"), scaling.get("original_max_position_embeddings", most)
        if all(isinstance(x, int | float) and 1 <= x <= 1e9 for x in (factor, own)):
            most = max(most, int(factor * own))
    return most


def _is_positive(value: object) -> bool:
    """Whether a value of a configuration is a number above zero."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _count(decoder: Fields) -> int:
    """Number of layers; files that list the kind of each layer may leave it out."""
    names = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    listed = decoder.raw("layers_block_type")
    default = len(listed) if isinstance(listed, list) and listed else None
    return decoder.integer(*names, default=default, most=MOST_LAYERS)


def _decoder(whole: Fields) -> Fields:
    """The fields of the language model itself, which stand apart where there are several parts."""
    for name in _DECODERS:
        part = whole.part(name)
        if part is not None:
            return part
    return whole


def _family(whole: Fields, decoder: Fields) -> str:
    outer = whole.text("model_type")
    named = decoder.text("model_type") or outer
    if decoder is not whole and decoder.text("model_type") is None and outer is not None:
        # Some files leave it to the outer part: `minimax_m3_vl` holds a `minimax_m3_text`.
        named = outer.removesuffix("_vl") + "_text"
    if named is None:
        raise whole.bad("model_type", "is missing: is this the config.json of a model?")
    if named in REFUSED:
        raise whole.bad("model_type", f"is {short(named)}, which is not read: {REFUSED[named]}")
    if named not in FAMILIES and named not in ENCODER_DECODERS:
        raise whole.bad(
            "model_type", f"{short(named)} is not known; known are {', '.join(known())}"
        )
    return named


def _tied(whole: Fields, decoder: Fields, family: str) -> bool:
    default = whole.flag("tie_word_embeddings", default=family in TIED)
    return decoder.flag("tie_word_embeddings", default=default)


def _unquantized(whole: Fields, decoder: Fields) -> str:
    """The format that weights are served in where they are not quantised; bf16 unless said.

    By default (`--dtype auto`), vLLM and SGLang load FP32 checkpoints in 16 bits.
    """
    for fields in (decoder, whole):
        for name in ("dtype", "torch_dtype"):
            written = fields.text(name)
            found = None if written is None else written.removeprefix("torch.")
            if found is None or found == "auto" or found in _OTHER_FORMATS:
                continue
            if found not in _NUMBER_FORMATS:
                raise fields.bad(name, f"is {short(written)}; it is {_listed(_NUMBER_FORMATS)}")
            return _NUMBER_FORMATS[found]
    return "bf16"


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"


def _drafts(decoder: Fields) -> int:
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    found = [decoder.maybe_integer(name, least=0) for name in names]
    decoder.skip("mtp_transformer_layers", "use_mtp", "mtp_use_dedicated_embeddings")
    return next((count for count in found if count), 0)


def _vision(part: Fields, output_size: int) -> VisionTower | None:
    """The encoder of images, under the names that its makers use."""
    hidden = part.maybe_integer("vt_hidden_size", "hidden_size", "embed_dim")
    layers = part.maybe_integer("vt_num_hidden_layers", "depth", "num_hidden_layers")
    width = part.maybe_integer("vt_intermediate_size", "intermediate_size")
    if hidden is None or layers is None:
        return None
    merged = part.raw("merge_kernel_size")
    side = merged[0] if isinstance(merged, list) and merged else None
    deep = part.raw("deepstack_visual_indexes")
    return VisionTower(
        layers=layers,
        hidden_size=hidden,
        attention_width=part.integer("qkv_hidden_size", default=hidden),
        width=width or 4 * hidden,
        patch_pixels=part.integer("patch_size", default=14),
        merged=side if isinstance(side, int) else part.integer("spatial_merge_size", default=1),
        output_size=output_size,
        merges=1 + (len(deep) if isinstance(deep, list) else 0),
    )


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
    lower = name.strip().lower().removeprefix(HUGGING_FACE)
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


def named_files(name: str) -> dict[str, Any]:
    """What `model_files` gives of the model of that name: by the fields that sizes follow from,
    where they come with the package, else from the local cache of Hugging Face.

    Args:
        name: as for `named_model`, or as on Hugging Face.

    Raises:
        UnknownLanguageModel: no configuration has that name, or several have.
        UnreadableModel: that of the cache is damaged, or of an unknown family.
    """
    try:
        return {"config": named_config(name)}
    except UnknownLanguageModel:
        folder = cached_model(name)
        if folder is None:
            raise
    return model_files(folder)


@lru_cache(maxsize=64)
def named_language_model(name: str) -> LanguageModel:
    """The description of the model of that name.

    Args:
        name: as for `named_model`.

    Raises:
        UnknownLanguageModel: no configuration has that name, or several have.
    """
    return read_language_model(named_model(name).config)


def known_language_model(name: str) -> LanguageModel | None:
    """As `named_language_model`; None where no configuration has that name."""
    try:
        return named_language_model(name)
    except UnknownLanguageModel:
        return None


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
