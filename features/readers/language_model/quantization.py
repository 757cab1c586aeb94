"""Number formats of weights from the quantisation block of a configuration, or by name.

Blocks name modules: those that are not converted, or those that are. The modules of each part of a
layer are therefore compared under the names that published checkpoints use.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import Any, Final

from forerun.data.errors import UnreadableModel
from forerun.data.facts import facts_of
from forerun.data.language_models.engine_formats import usual_cache
from forerun.data.language_models.model import LanguageModel
from forerun.data.language_models.weights import BYTES, LayerFormats, WeightFormats
from forerun.data.number_formats import GGUF
from forerun.features.deadline import check
from forerun.features.readers.language_model.fields import Fields, short

_NAMES: Final = facts_of(__file__)
_PARTS: Final[Mapping[str, list[str]]] = _NAMES["parts"]
"""Names, within a layer, of a module that stands for each part."""
_ALGORITHMS: Final[Mapping[str, str]] = _NAMES["algorithms"]
_EXPERT_TYPES: Final = {"fp4": "mxfp4", "fp8": "fp8"}
_HEADS: Final = ("lm_head", "head")
_OF_BITS: Final = {4: "int4", 8: "int8", 16: None, 32: None}
"""Bits of AutoRound's modules -> their format; None for that of what is not converted."""
_CLASS: Final = "Linear"
"""What targets of compressed-tensors name where they mean all modules; classes have capitals."""
MOST_PATTERNS, MOST_REPETITIONS = 2_000, 4
_SIMPLE: Final = re.compile(r"(?:\.\*|\\d\+|\\[.d]|[\w.$^/-]|\((?:\w+\|)*\w+\))*+")
"""Regular expressions of names, `.*`, `\\d+` and choices of names."""
_EXPERTS_ALONE: Final = frozenset({"mxfp4"})
"""Methods that convert routed experts and nothing else."""


@dataclass(frozen=True)
class Rules:
    """Which format a module has.

    Attributes:
        usual: format of modules that are converted.
        groups: whether a module, by its path, is of a group, and the format of the group; the first
            counts.
        kept: whether a module, by its path, is not converted.
        named: path of a module -> its format, where the block lists modules with formats.
        experts_alone: whether only routed experts are converted.
        listed_alone: whether only the modules of `named` are converted.
        rest: format of what `named` does not list.
    """

    usual: str
    kept: Callable[[str], bool]
    groups: Sequence[tuple[Callable[[str], bool], str]] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    experts_alone: bool = False
    listed_alone: bool = False
    rest: str = "bf16"

    def of(self, paths: Sequence[str], *, routed: bool) -> str:
        """Format of a part of a layer that goes by any of these paths."""
        check()
        for path in paths:
            for end in _ends(path):
                if end in self.named:
                    return self.named[end]
        if any(self.kept(path) for path in paths) or (self.experts_alone and not routed):
            return self.rest
        for belongs, form in self.groups:
            if any(map(belongs, paths)):
                return form
        return self.rest if self.listed_alone else self.usual


def formats_of(
    block: Fields | None,
    separate: Fields | None,
    *,
    unquantized: str,
    decoder: Fields | None,
    family: str,
    layers: int,
) -> WeightFormats:
    """Number formats of a model's weights.

    Args:
        block: `quantization_config`; None where there is none.
        separate: `quantization` of `hf_quant_config.json`; None where there is no such file.
        unquantized: format of the weights that are not converted.
        decoder: configuration of the decoder, whose `expert_dtype` is the format of routed experts;
            None where nothing says it.
        family: `model_type` of the decoder.
        layers: number of layers.

    Raises:
        UnreadableModel: the method or format is not known, or `expert_dtype` is no known text.
    """
    experts = None if decoder is None else decoder.text("expert_dtype")
    given = block if block is not None else separate
    if given is None:
        return WeightFormats(unquantized=unquantized, head=unquantized, cache=unquantized)
    rules = _rules(given, unquantized)
    parts = {**_PARTS, "experts": _NAMES["own_experts"].get(family, _PARTS["experts"])}
    made = tuple(
        LayerFormats(
            **{
                part: rules.of([f"layers.{n}.{name}" for name in names], routed=part == "experts")
                for part, names in parts.items()
            }
        )
        for n in range(layers)
    )
    if decoder is not None and experts is not None and not rules.named:
        if experts not in _EXPERT_TYPES:
            known = " and ".join(_EXPERT_TYPES)
            raise decoder.bad("expert_dtype", f"{short(experts)} is not known; known are {known}")
        made = tuple(replace(one, experts=_EXPERT_TYPES[experts]) for one in made)
    return WeightFormats(
        unquantized=unquantized,
        head=rules.of(_HEADS, routed=False) if _HEADS[0] in rules.named else unquantized,
        cache=_cache(given) or unquantized,
        layers=made,
    )


def _rules(given: Fields, unquantized: str) -> Rules:
    listed = given.objects("quantized_layers")
    named = {
        _inner(name): _algorithm(given, entry, "quantized_layers", name)
        for name, entry in listed.items()
    }
    method, algorithm = given.text("quant_method"), given.text("quant_algo")
    mixed = (algorithm or "").upper() == "MIXED_PRECISION"
    if mixed and not named:
        raise given.bad("quantized_layers", "is missing, but quant_algo is MIXED_PRECISION")
    usual, groups = (unquantized, []) if mixed else _usual(given, method, algorithm, unquantized)
    # What a list of other formats leaves out stays in blockwise FP8.
    blockwise = mixed and method == "fp8"
    return Rules(
        usual=usual or unquantized,
        groups=groups,
        kept=_unconverted(given) if not blockwise else lambda _: False,
        named=named,
        experts_alone=method in _EXPERTS_ALONE,
        listed_alone=mixed,
        rest="fp8" if blockwise else unquantized,
    )


def _usual(
    given: Fields, method: str | None, algorithm: str | None, unquantized: str
) -> tuple[str | None, list[tuple[Callable[[str], bool], str]]]:
    """The format of what is converted, None for that of the rest; and groups with formats."""
    groups = given.raw("config_groups")
    if algorithm is not None:
        return _algorithm(given, {"quant_algo": algorithm}), []
    if isinstance(groups, Mapping) and groups:
        return _of_groups(given, groups)
    if method is not None and method.lower() in _ALGORITHMS:
        return _of_bits(given, _ALGORITHMS[method.lower()]), _exceptions(given, unquantized)
    if method is not None and method.lower() == "bitsandbytes":
        return _of_switches(given), []
    raise given.bad("quant_method", f"{short(method)} is not known")


def _of_groups(
    given: Fields, groups: Mapping[str, Any]
) -> tuple[str | None, list[tuple[Callable[[str], bool], str]]]:
    """Groups of compressed-tensors: a target is a class of modules, a name, or an expression."""
    formats = {name: _of_group(given, name, group) for name, group in groups.items()}
    usual, found = None, []
    for name, form in formats.items():
        targets = groups[name].get("targets", [_CLASS] if len(set(formats.values())) == 1 else None)
        texts = targets if isinstance(targets, list) else []
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise given.bad("config_groups", "holds targets that are no list of texts", (name,))
        named = [text for text in texts if not text[0].isupper()]
        if len(named) < len(texts):
            if usual not in (None, form):
                raise given.bad("config_groups", f"holds {usual} and {form} for all of {_CLASS}")
            usual = form
        found.append((_matcher(given, "config_groups", named), form))
    return usual, found


def _exceptions(given: Fields, unquantized: str) -> list[tuple[Callable[[str], bool], str]]:
    """Modules of AutoRound's `extra_config` that have other bits than the rest."""
    found = []
    for name, entry in given.objects("extra_config").items():
        bits = entry.get("bits") if isinstance(entry, Mapping) else None
        if bits is None:
            continue
        if not isinstance(bits, int) or bits not in _OF_BITS:
            raise given.bad("extra_config", f"holds bits {short(bits)}", (name,))
        form = _OF_BITS[bits] or unquantized
        found.append((_matcher(given, "extra_config", [name]), form))
    return found


def _of_bits(given: Fields, usual: str) -> str:
    """The integers of AWQ and GPTQ, whose files say how many bits they have."""
    match given.maybe_integer("bits"):
        case None:
            return usual
        case 4 if usual == "int4":
            return usual
        case 8:
            return "int8" if usual == "int4" else usual
        case bits:
            raise given.bad("bits", f"is {bits}; weights of that width are not supported")


def _of_switches(given: Fields) -> str:
    """The format of bitsandbytes, which two flags say."""
    four, eight = given.flag("load_in_4bit"), given.flag("load_in_8bit")
    if four == eight:
        raise given.bad("load_in_4bit", f"and load_in_8bit are both {str(four).lower()}")
    return "int4" if four else "int8"


def _algorithm(given: Fields, entry: Any, *place: str) -> str:
    """The format of an entry, whose place in the block is given by keys; none for the block."""
    name = entry.get("quant_algo") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or name.lower() not in _ALGORITHMS:
        error = given.bad("quant_algo", f"{short(name)} is not known")
        if place:
            error.field = (*error.field[:-1], *place, "quant_algo")
        raise error
    return _ALGORITHMS[name.lower()]


def _of_group(given: Fields, name: str, group: Any) -> str:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        raise given.bad("config_groups", "holds a group without weights", (name,))
    match (weights.get("type"), weights.get("num_bits"), weights.get("group_size")):
        case ("float", 8, 32):
            return "mxfp8"
        case ("float", 8, _):
            return "fp8"
        case ("float", 4, 16):
            return "nvfp4"
        case ("float", 4, 32):
            return "mxfp4"
        case ("int", 4, _):
            return "int4"
        case ("int", 8, _):
            return "int8"
        case kind:
            raise given.bad("config_groups", f"holds weights of {short(kind)}", (name,))


def _cache(given: Fields) -> str | None:
    """Format of keys and values; None where they are not converted."""
    scheme, named = given.raw("kv_cache_scheme"), given.text("kv_cache_quant_algo")
    if isinstance(scheme, Mapping):
        return "fp8" if scheme.get("num_bits") == 8 else None
    text = scheme if isinstance(scheme, str) else named
    if text is None:
        return None
    if text.lower() not in _ALGORITHMS:
        name = "kv_cache_scheme" if isinstance(scheme, str) else "kv_cache_quant_algo"
        raise given.bad(name, f"{short(text)} is not known")
    return _ALGORITHMS[text.lower()]


def _expression(given: Fields, name: str, text: str) -> re.Pattern[str]:
    """A regular expression that a file brings; others could take hours to match."""
    refusal = given.bad(name, f"holds the regular expression {short(text)}, which is not supported")
    if not _SIMPLE.fullmatch(text) or text.count("*") + text.count("+") > MOST_REPETITIONS:
        raise refusal
    try:
        return re.compile(text)
    except re.error:
        raise refusal from None


def _inner(path: str) -> str:
    """A module's path from its layer on, so that prefixes of different programs do not matter."""
    found = re.search(r"layers\.\d+.*", path)
    return found.group() if found else path


def _ends(path: str) -> Iterable[str]:
    """The path, and those of the modules that contain it, down to a layer's part."""
    parts = path.split(".")
    return (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def _unconverted(given: Fields) -> Callable[[str], bool]:
    """Whether a module, by its path within the layers, is among those that are not converted."""
    names = ("ignore", "exclude_modules", "modules_to_not_convert")
    matchers = [_matcher(given, name, given.texts(name)) for name in names]
    return lambda path: any(matches(path) for matches in matchers)


def _matcher(given: Fields, name: str, texts: Iterable[str]) -> Callable[[str], bool]:
    """Whether a module, by its path within the layers, is among those of a list.

    A plain name is that of a module or of one that contains it; `*` stands for anything, and what
    follows `re:` is a regular expression.

    Raises:
        UnreadableModel: a regular expression is not of the simple kind that is used here, or there
            are too many patterns.
    """
    plain: set[str] = set()
    regular: list[re.Pattern[str]] = []
    for text in texts:
        if text.startswith("re:"):
            regular.append(_expression(given, name, text.removeprefix("re:")))
        elif "*" in text:
            regular.append(re.compile(translate(_inner(text))))
        else:
            plain.add(_inner(text))
        if len(regular) > MOST_PATTERNS:
            raise given.bad(name, f"holds over {MOST_PATTERNS:,} patterns")

    def listed(path: str) -> bool:
        if any(end in plain for end in _ends(path)):
            return True
        return any(one.match(path) or one.match(f"model.{path}") for one in regular)

    return listed


WEIGHTS: Final[Mapping[str, str]] = {**{name: name for name in BYTES}, **_NAMES["weights"]}
"""Name of a number format, or of a method of quantisation -> format of the weights."""
BLOCK: Final = 256
"""Weights of a block of the formats of GGUF files with `k` in their name."""
OF_BLOCKS: Final[Mapping[str, str]] = _NAMES["of_blocks"]
"""Such a format -> that of blocks of 32 which is nearest to what llama.cpp stores where a width is
no multiple of `BLOCK`."""
OF_LLAMA_CPP: Final[Mapping[str, str]] = {
    name: own
    for name, own in WEIGHTS.items()
    if own in {*GGUF, "fp32", "bf16", "fp16", "mxfp4", "nvfp4"} or name in ("int8", "int4")
}
"""Those of GGUF files."""
CACHE: Final[Mapping[str, str]] = _NAMES["cache"]
"""Name of a number format -> format of keys and values."""


def with_formats(
    model: LanguageModel,
    *,
    weights: str | Mapping[str, Any] | None = None,
    cache: str | None = None,
    engine: str = "",
) -> LanguageModel:
    """The same layers in other number formats.

    Args:
        model: the description.
        weights: a name such as `fp8`, `nvfp4`, `int4`, `awq`, for the matrices of all layers, while
            embeddings, output matrix and routers stay, which a format of GGUF files such as
            `q4_k_m` converts too; or the content of `hf_quant_config.json`,
            which says which modules are converted; None for those of the description.
        cache: name of the format of keys and values; None or `auto` for that of the description,
            or that of checkpoints with such weights (`usual_cache`).
        engine: name of the engine that serves them, where it is known.

    Raises:
        UnreadableModel: a name is not known, or the content is not understood; it names the field.
    """
    formats = model.formats
    if isinstance(weights, str):
        known = OF_LLAMA_CPP if engine == "llama.cpp" else WEIGHTS
        name = _known(weights, known, "weights")
        if name in OF_BLOCKS and model.hidden_size % BLOCK:
            name = OF_BLOCKS[name]
        layers = (LayerFormats.all_in(name),) * len(model.layers)
        held = usual_cache(engine, name) or formats.cache
        formats = replace(formats, layers=layers, cache=held)
        if name in GGUF:
            formats = replace(formats, unquantized=name, head=name)
    elif weights is not None:
        whole = Fields("the quantisation", weights)
        formats = formats_of(
            None,
            whole.part("quantization") or whole,
            unquantized=formats.unquantized,
            decoder=None,
            family=model.family,
            layers=len(model.layers),
        )
    if cache is not None and cache.lower() != "auto":
        formats = replace(formats, cache=_known(cache, CACHE, "cache"))
    return replace(model, formats=formats)


def _known(name: str, known: Mapping[str, str], field: str) -> str:
    if name.lower() not in known:
        raise UnreadableModel(
            "the quantisation", f"{field} {short(name)} is not known; known are {', '.join(known)}."
        )
    return known[name.lower()]
