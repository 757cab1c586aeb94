"""Commands of vLLM, SGLang and llama.cpp as requests: a server, a benchmark, or both.

Read are `vllm serve`, `vllm bench serve`, the Python modules and scripts behind them, the images
`vllm/vllm-openai` and `lmsysorg/sglang`, `sglang.launch_server`, `sglang.bench_serving`,
`llama-server`, `llama-cli` and `llama-bench`, with options as in their releases of 2026.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan, sqrt
from pathlib import PurePosixPath
from typing import Any, Final

from forerun.data.errors import UnknownLanguageModel
from forerun.features.readers.hugging_face_cache import cached_model
from forerun.features.readers.language_model.quantization import WEIGHTS
from forerun.features.readers.language_model.reader import named_language_model, named_model
from forerun.service.requests.faults import fault_in
from forerun.service.requests.field_names import NEGATED, PATHS
from forerun.service.requests.flat_fields import nested

SEPARATORS: Final = frozenset({"&&", "||", ";", "|", "&", ";;"})
PROGRAMS: Final[Sequence[tuple[str, str, str]]] = (
    (r"vllm bench serve|(\S*/)?benchmark_serving\.py", "vllm", "bench"),
    (r"vllm serve|(-m )?vllm\.entrypoints\.openai\.api_server", "vllm", "serve"),
    (r"(-m )?sglang\.bench_serving", "sglang", "bench"),
    (r"(-m )?sglang\.launch_server|sglang serve", "sglang", "serve"),
    (r"(\S*/)?llama-bench", "llama.cpp", "bench"),
    (r"(\S*/)?llama-(server|cli)", "llama.cpp", "serve"),
    (r"(\S*/)?vllm/vllm-openai(:\S+)?", "vllm", "serve"),
)
"""Pattern of the words of a program, its engine, and what it does; the first found counts."""
IMAGE: Final = re.compile(r"(?:vllm/vllm-openai|lmsysorg/sglang):v?(\d+(?:\.\d+)+)")
OF_LLAMA: Final[Mapping[str, str]] = {
    **{"m": "model", "hf": "model", "hf_repo": "model", "c": "ctx_size", "np": "parallel"},
    **{"ngl": "n_gpu_layers", "gpu_layers": "n_gpu_layers", "ctk": "kv_cache_dtype"},
    **{"cache_type_k": "kv_cache_dtype", "ub": "ubatch_size", "n": "n_predict", "p": "n_prompt"},
    **{"n_gen": "n_predict"},
}
"""Further name of an option of llama.cpp -> its name."""
SAME: Final[Mapping[str, str]] = {
    **{"model_path": "model", "q": "quantization"},
    **dict.fromkeys(("random_input", "input_len"), "random_input_len"),
    **dict.fromkeys(("random_output", "output_len"), "random_output_len"),
}
"""Further name of an option of vLLM and SGLang -> its name."""
SWITCHES: Final = frozenset(
    {"enforce_eager", "disable_cuda_graph", "enable_chunked_prefill", "enable_prefix_caching"}
    | {"enable_expert_parallel", "enable_dp_attention", "trust_remote_code", "disable_radix_cache"}
    | {"disable_log_requests", "disable_log_stats", "enable_auto_tool_choice", "ignore_eos"}
    | {"headless"}
)
"""Options that take no value, though a name may follow them."""
CACHES: Final = "enable_prefix_caching"
CACHES_NOTHING: Final = ("no_enable_prefix_caching", "disable_radix_cache")
"""Switches after which the prefix that a benchmark's prompts share is not cached."""
IGNORED: Final = "options of the command that do not change the answer are ignored: "
UNKNOWN: Final = "options of the command are ignored that may change the answer and are not read: "
WITHOUT_EFFECT: Final = frozenset(
    {"host", "port", "api_key", "served_model_name", "trust_remote_code", "seed", "revision"}
    | {"disable_log_requests", "disable_log_stats", "no_enable_log_requests", "download_dir"}
    | {"load_format", "tokenizer", "tokenizer_mode", "tokenizer_path", "chat_template", "jinja"}
    | {"enable_auto_tool_choice", "tool_call_parser", "reasoning_parser", "uvicorn_log_level"}
    | {"swap_space", "base_url", "endpoint", "dataset_name", "dataset_path", "ignore_eos", "alias"}
    | {"percentile_metrics", "metric_percentiles", "save_result", "result_dir", "result_filename"}
    | {"log_level", "hf_token", "metadata", "disable_tqdm", "flash_attn", "fa", "mlock", "output"}
    | {"distributed_executor_backend", "backend_of_bench", "num_warmups", "label", "o", "t"}
    | {"threads", "no_mmap", "no_warmup", CACHES}
    | {"nnodes", "node_rank", "master_addr", "dist_init_addr", "headless", "data_parallel_address"}
    | {"data_parallel_rpc_port", "data_parallel_size_local", "data_parallel_start_rank"}
)
"""Options that do not change times, or only which requests they are of."""
READABLE: Final = ("max_model_len", "max_num_batched_tokens")
"""Options of vLLM that may have a suffix (`human_readable_int` of its `arg_utils.py`)."""
SUFFIXES: Final[Mapping[str, int]] = {
    **{suffix: 1000**n for n, suffix in enumerate("kmgt", 1)},
    **{suffix: 1024**n for n, suffix in enumerate("KMGT", 1)},
}
UNSUPPORTED: Final[Mapping[str, str]] = {
    "cpu_offload_gb": "weights in the memory of the host are not answered",
    "kv_transfer_config": "transfers of keys and values are answered by `prefill` of a request",
    "disaggregation_mode": "workers for prompts alone are answered by `prefill` of a request",
    "enable_lora": "adapters are not answered",
    "lora_paths": "adapters are not answered",
    "lora": "adapters are not answered",
    "burstiness": "arrivals are answered as Poisson arrivals alone (burstiness 1)",
    "tensor_split": "layers that GPUs share unevenly are not answered",
}
"""Option that changes times and is not answered -> why."""
AT_ONCE: Final = "num_prompts"
DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "vllm": {"num_prompts": 1000, "random_input_len": 1024, "random_output_len": 128},
    "sglang": {"num_prompts": 1000, "random_input_len": 1024, "random_output_len": 1024},
    "llama.cpp": {"n_prompt": 512, "n_predict": 128},
}
"""Engine -> options of its benchmark where they are not given."""
_GGUF: Final = re.compile(r"[-.:](?:ud-)?((?:i?q\d\w*|bf16|f16|f32))(?:\.gguf)?$", re.IGNORECASE)


@dataclass
class _Read:
    """What commands say: fields by path, notes, and the text for messages.

    Attributes:
        text: the commands.
        fields: path of a field -> its value.
        options: path of a field -> the option that sets it, as written.
        notes: what is said about the rest.
        written: name of an option -> how the command that is read writes it.
        uncached: the option that turns the prefix cache off, as written; empty for none.
    """

    text: str
    fields: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    uncached: str = ""

    def set(self, path: str, value: Any, name: str) -> None:
        self.fields[path], self.options[path] = value, self.option(name)

    def option(self, name: str) -> str:
        return self.written.get(name, f"--{name.replace('_', '-')}")

    def refuse(self, why: str) -> Exception:
        return fault_in("command", self.text, why)

    def number(self, name: str, value: Any) -> float:
        if value is True:
            raise self.refuse(f"{self.option(name)} has no value")
        try:
            found = float(value)
        except ValueError:
            found = nan
        if not 0.0 <= found <= 1e9:
            raise self.refuse(f"{self.option(name)} is {value!r:.40}, which is no such number")
        return found

    def readable(self, name: str, value: Any) -> Any:
        """A value of vLLM without its suffix: `4k` is 4000, `4K` 4096; others as they are."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT])", str(value))
        if found is None:
            return value
        number, suffix = found.groups()
        if suffix.isupper() and "." in number:
            lower = f"{number}{suffix.lower()}"
            raise self.refuse(
                f"{self.option(name)} {value}: vLLM takes no decimals here, but {lower}"
            )
        return int(float(number) * SUFFIXES[suffix])


def fields_of(command: str) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    """The fields of a request that commands set, by their parts; what is said about the rest; and
    path of each field -> the option that sets it, as written.

    Args:
        command: one command or several, as typed in a shell.

    Raises:
        ValidationError: it is none of the commands that are read, or an option that changes times
            is not supported; the message says which.
    """
    read = _Read(command)
    for words in _commands(read):
        _read(read, words)
    if not read.fields:
        named = "vllm serve, vllm bench serve, sglang.launch_server, llama-server, llama-bench"
        raise read.refuse(f"no command that is read is in it, such as {named}")
    if read.uncached:
        cached = read.fields.pop("cached_share", 0.0)
        why = "the prefix that prompts share is computed each time"
        read.notes.append(f"{read.uncached}: {why}" if cached else f"{IGNORED}{read.uncached}")
    return nested(read.fields), read.notes, read.options


def _commands(read: _Read) -> Iterator[list[str]]:
    """The words of each command."""
    for line in read.text.replace("\\\n", " ").replace("\\\r\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        try:
            for word in (*lexer, ";"):
                if word not in SEPARATORS:
                    words.append(word)
                elif words:
                    yield words
                    words = []
        except ValueError as error:
            raise read.refuse(f"it ends within quotes: {error}") from None


def _read(read: _Read, words: Sequence[str]) -> None:
    """Read one command; one of another program sets nothing."""
    for pattern, engine, kind in PROGRAMS:
        for start in range(len(words)):
            for end in range(start + 1, min(start + 4, len(words) + 1)):
                if re.fullmatch(pattern, " ".join(words[start:end])):
                    read.written = {"program": " ".join(words[start:end])}
                    options = dict(_options(words[end:], engine, read.written))
                    image = IMAGE.search(" ".join(words[: end + 1]))
                    if image is not None:
                        read.set("engine.version", image[1], "program")
                    _translate(read, options, engine, kind)
                    return


def _options(
    words: Sequence[str], engine: str, written: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    """Name and value of each option; True for one without a value, `model` for a bare word.

    How each option is written is put into `written`.
    """
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-"):
            written["model"] = "the model"
            yield "model", word
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_").replace(".", "_") if not equals else name.replace("-", "_")
        name = (OF_LLAMA if engine == "llama.cpp" else SAME).get(name, name)
        written[name] = word.partition("=")[0]
        if equals:
            yield name, value
        elif (
            name.removeprefix("no_") in SWITCHES
            or at == len(words)
            or re.match(r"-[-a-zA-Z]", words[at])
        ):
            yield name, True
        else:
            yield name, words[at]
            at += 1


def _translate(read: _Read, given: dict[str, Any], engine: str, kind: str) -> None:
    """Set the fields that the options of one command mean."""
    bench = kind == "bench"
    if not bench or engine == "llama.cpp":
        read.set("engine.name", engine, "program")
    if "model" in given:
        _name_model(read, str(given.pop("model")))
    if bench:
        given = _with_defaults(read, given, engine)
    off = [name for name in CACHES_NOTHING if given.pop(name, False)]
    read.uncached = read.option(off[0]) if off else read.uncached
    others: dict[str, list[str]] = {IGNORED: [], UNKNOWN: []}
    for name, value in _OWN[engine](read, given).items():
        plain = name.removeprefix("no_")
        path = PATHS.get(name, PATHS.get(plain, name if name == AT_ONCE else None))
        if name in UNSUPPORTED and value not in ("0", "1", "1.0"):
            raise read.refuse(f"{read.option(name)}: {UNSUPPORTED[name]}")
        if path is not None:
            read.set(path, _value(read, name, value), name)
        else:
            ignored = name in WITHOUT_EFFECT or name in UNSUPPORTED
            others[IGNORED if ignored else UNKNOWN].append(name)
    for why, names in others.items():
        if names:
            listed = ", ".join(read.option(name)[:40] for name in names[:20])
            read.notes.append(f"{why}{listed}")


def _name_model(read: _Read, given: str) -> None:
    """Set the model, unless a command before names one."""
    name, quantization = _model(given)
    if "model.name" not in read.fields:
        read.set("model.name", name, "model")
    elif read.fields["model.name"] != name:
        read.notes.append(f"the model is {read.fields['model.name']:.80}, not {name:.80}")
    if quantization:
        read.set("model.quantization", quantization, "model")


def _value(read: _Read, name: str, value: Any) -> Any:
    """What an option sets its field to: as given, or whether a switch is on."""
    if value is not True:
        return value
    plain = name.removeprefix("no_")
    if plain not in SWITCHES:
        raise read.refuse(f"{read.option(name)} has no value")
    return (plain == name) != (name in NEGATED)


def _with_defaults(read: _Read, given: dict[str, Any], engine: str) -> dict[str, Any]:
    """The options of a benchmark with those that it takes by default."""
    given.pop("backend", None)
    drawn = given.get("dataset_name", "random") in ("random", "random-ids")
    kept = DEFAULTS[engine] if drawn else [AT_ONCE]
    assumed = {n: v for n, v in DEFAULTS[engine].items() if n in kept and n not in given}
    if assumed:
        said = ", ".join(f"{read.option(n)} {v}" for n, v in assumed.items())
        read.notes.append(f"{said}, as the benchmark does by default")
    return {**assumed, **given}


def _of_vllm(read: _Read, given: dict[str, Any]) -> dict[str, Any]:
    """What is left of options of vLLM after those with a meaning of their own."""
    if given.pop("dtype", "auto") in ("float32", "float"):
        read.set("model.quantization", "fp32", "dtype")
    if given.get("max_model_len") in ("auto", "-1"):
        del given["max_model_len"]
    given |= {name: read.readable(name, given[name]) for name in READABLE if name in given}
    if given.pop("enable_expert_parallel", False):
        product = 1
        for name in ("tensor_parallel_size", "tp", "data_parallel_size", "dp"):
            product *= int(read.number(name, given.get(name, 1)))
        read.set("parallelism.expert", product, "enable_expert_parallel")
    if (drafts := given.pop("speculative_config", None)) is not None:
        try:
            given["num_speculative_tokens"] = json.loads(drafts)["num_speculative_tokens"]
            read.written["num_speculative_tokens"] = read.option("speculative_config")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise read.refuse("--speculative-config names no num_speculative_tokens") from None
    _of_random(read, given, lambda mean, ratio: (mean, ratio / sqrt(3.0)))
    # Its benchmark is greedy (temperature 0) unless --temperature is given.
    drawn = read.number("temperature", given.pop("temperature", 0.0)) > 0.0
    if "top_p" in given and read.number("top_p", given.pop("top_p")) < 1.0 and drawn:
        read.set("engine.sampling", "top_p", "top_p")
    return given


def _of_sglang(read: _Read, given: dict[str, Any]) -> dict[str, Any]:
    """As `_of_vllm`, of SGLang, whose data-parallel ranks are copies where attention is whole."""
    given.pop("dtype", None)
    together = given.pop("enable_dp_attention", False)
    for name in ("dp", "dp_size", "data_parallel_size"):
        if name in given and together:
            _divide(read, given, name)
        elif name in given:
            read.set("workers", int(read.number(name, given.pop(name))), name)
    if str(given.get("chunked_prefill_size")) == "-1":
        del given["chunked_prefill_size"]
        read.set("engine.chunked_prefill", False, "chunked_prefill_size")
    if (name := "speculative_num_draft_tokens") in given:
        # The first of these is the model's own next token. A tree is answered as its longest chain.
        drafts = int(read.number(name, given.pop(name))) - 1
        steps = int(
            read.number("speculative_num_steps", given.pop("speculative_num_steps", drafts))
        )
        if int(read.number("speculative_eagle_topk", given.pop("speculative_eagle_topk", 1))) > 1:
            read.notes.append(f"a tree of drafts is answered as a chain of {steps}")
        read.set("engine.draft_tokens", min(drafts, steps), name)
    if (name := "scheduler_recv_interval") in given:
        read.set("engine.hold_iterations", read.number(name, given.pop(name)) / 2.0, name)
    if "random_input_len" in given:
        given.setdefault("random_range_ratio", 0.0)
    # Lengths are drawn evenly from this share of the length up to all of it.
    _of_random(
        read,
        given,
        lambda mean, ratio: (mean * (1 + ratio) / 2, (1 - ratio) / (1 + ratio) / sqrt(3.0)),
    )
    return given


def _divide(read: _Read, given: dict[str, Any], ranks: str) -> None:
    """Data-parallel attention of SGLang: its ranks share the devices of tensor parallelism."""
    for name in ("tp", "tp_size", "tensor_parallel_size"):
        if name in given:
            devices, number = (int(read.number(n, given[n])) for n in (name, ranks))
            if number == 0 or devices % number:
                raise read.refuse(
                    f"{read.option(name)} {devices} is not divided by {read.option(ranks)} {number}"
                )
            given[name] = devices // number


def _of_random(
    read: _Read, given: dict[str, Any], drawn: Callable[[float, float], tuple[float, float]]
) -> None:
    """Lengths of random prompts: their mean and variation, and a prefix that all share."""
    if str(given.get("burstiness", 1)) in ("1", "1.0"):
        given.pop("burstiness", None)
    ratio = read.number("random_range_ratio", given.pop("random_range_ratio", 0.0) or 0.0)
    prefix = read.number("random_prefix_len", given.pop("random_prefix_len", 0.0))
    for side in ("input", "output"):
        name = f"random_{side}_len"
        if name in given:
            stated = read.number(name, given.pop(name))
            mean, variation = drawn(stated, ratio)
            if variation:
                read.notes.append(
                    f"{read.option(name)} {stated:g}: lengths vary, {mean:g} on average"
                )
            if side == "input" and prefix:
                read.set("cached_share", prefix / (mean + prefix), "random_prefix_len")
                mean += prefix
            read.set(f"{side}_tokens", mean, name)
            if variation:
                read.set(f"{side}_variation", variation, "random_range_ratio")


def _of_llama(read: _Read, given: dict[str, Any]) -> dict[str, Any]:
    """As `_of_vllm`, of llama.cpp, which is answered for one stream on one GPU or processor."""
    layers = str(given.pop("n_gpu_layers", "all"))
    if layers not in ("all", "auto", "-1") and not read.number("n_gpu_layers", layers) >= 99.0:
        known = _layers(read.fields.get("model.name"))
        if float(layers) > 0.0 and (known is None or float(layers) < known):
            raise read.refuse(
                f"{read.option('n_gpu_layers')} {layers}: a model that is divided between GPU and "
                "processor is not answered; leave it out for all layers on the device"
            )
    given.pop("cache_type_v", None)
    slots = max(1, int(read.number("parallel", given.pop("parallel", 1))))
    if (context := given.pop("ctx_size", None)) not in (None, "0"):
        longest = int(read.number("ctx_size", context)) // slots
        read.set("engine.max_request_tokens", longest, "ctx_size")
    for name, path in (("n_prompt", "input_tokens"), ("n_predict", "output_tokens")):
        value = given.pop(name, None)
        if value is not None and str(value) != "-1":
            read.set(path, read.number(name, value), name)
    if "ubatch_size" in given:
        read.set("engine.max_batched_tokens", given.pop("ubatch_size"), "ubatch_size")
    if slots > 1:
        read.set("engine.max_sequences", slots, "parallel")
    if "concurrency" not in read.fields:
        read.set("concurrency", slots, "parallel")
    return {name: value for name, value in given.items() if name not in ("b", "batch_size")}


_OWN: Final = {"vllm": _of_vllm, "sglang": _of_sglang, "llama.cpp": _of_llama}


def _model(given: str) -> tuple[str, str | None]:
    """The name of a model and its format, by what a command calls it."""
    try:
        return named_model(given).name, None
    except UnknownLanguageModel:
        name = given
    if cached_model(name) is not None:
        return name, None
    if (found := _GGUF.search(name)) is not None and "gguf" in name.lower():
        plain = PurePosixPath(name[: found.start()]).name
        return re.sub(r"[-_.]gguf$", "", plain, flags=re.IGNORECASE), found[1].lower()
    plain, _, last = name.rpartition("-")
    if last.lower() in WEIGHTS and "/" in plain:
        # Copies in another format belong to others than the maker.
        return plain.rpartition("/")[2], last.lower()
    return name, None


def _layers(name: Any) -> int | None:
    try:
        return len(named_language_model(name).layers)
    except (UnknownLanguageModel, AttributeError):
        return None
