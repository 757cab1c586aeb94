"""Options of `forerun llm`, the request that they make, and how they name its fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from forerun.data.errors import BadRequest

Text = str | None
Number = float | None
Count = int | None
Switch = bool | None


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Lengths of requests and their load, as given on the command line. Each field is an option."""

    input_tokens: Annotated[
        Number,
        typer.Option(
            "--input-tokens", "--isl", "--random-input-len", help="mean length of the prompts"
        ),
    ] = None
    output_tokens: Annotated[
        Number,
        typer.Option(
            "--output-tokens", "--osl", "--random-output-len", help="mean length of the answers"
        ),
    ] = None
    concurrency: Annotated[
        Number,
        typer.Option("--concurrency", "--max-concurrency", help="requests in flight"),
    ] = None
    requests_per_s: Annotated[
        Number,
        typer.Option(
            "--requests-per-s", "--request-rate", help="rate of arrivals, in place of --concurrency"
        ),
    ] = None
    num_prompts: Annotated[
        Count, typer.Option(help="requests that all arrive at once, in place of both")
    ] = None


@dataclass(frozen=True, kw_only=True)
class DeploymentOptions:
    """Engine and devices, as given on the command line. Each field is an option."""

    cached_share: Annotated[
        Number, typer.Option(help="share of the input tokens in a prefix cache, 0 to 1")
    ] = None
    quantization: Annotated[
        Text, typer.Option(help="fp8, nvfp4, int4, awq, gptq, q4_k_m ... [as config.json says]")
    ] = None
    cache_format: Annotated[
        Text,
        typer.Option("--cache-format", "--kv-cache-dtype", help="format of keys and values"),
    ] = None
    engine: Annotated[
        Text,
        typer.Option("--engine", "--backend", help="vllm, sglang, trtllm, llama.cpp, other [vllm]"),
    ] = None
    engine_version: Annotated[Text, typer.Option(help="version of the engine")] = None
    max_batched_tokens: Annotated[
        Count,
        typer.Option(
            "--max-batched-tokens", "--max-num-batched-tokens", help="most tokens of one iteration"
        ),
    ] = None
    max_sequences: Annotated[
        Count,
        typer.Option("--max-sequences", "--max-num-seqs", help="most sequences of one iteration"),
    ] = None
    max_request_tokens: Annotated[
        Count,
        typer.Option(
            "--max-request-tokens",
            "--max-model-len",
            help="most tokens of a request and its answer",
        ),
    ] = None
    chunked_prefill: Annotated[
        Switch, typer.Option(help="whether prompts share iterations with decoding [yes]")
    ] = None
    graphs: Annotated[Switch, typer.Option(help="whether decoding replays CUDA graphs [yes]")] = (
        None
    )
    memory_share: Annotated[
        Number,
        typer.Option(
            "--memory-share",
            "--gpu-memory-utilization",
            help="share of the memory for weights and cache [0.9]",
        ),
    ] = None
    draft_tokens: Annotated[
        Count,
        typer.Option(
            help="tokens drafted in an iteration by speculative decoding; needs "
            "--draft-acceptance [0]"
        ),
    ] = None
    draft_acceptance: Annotated[
        Number, typer.Option(help="probability that a drafted token is accepted, 0 to 1")
    ] = None
    tensor: Annotated[
        Count,
        typer.Option(
            "--tensor",
            "--tp",
            "--tp-size",
            "--tensor-parallel-size",
            help="devices that share each layer [the smallest number that fits]",
        ),
    ] = None
    pipeline: Annotated[
        Count,
        typer.Option(
            "--pipeline", "--pp", "--pipeline-parallel-size", help="groups of successive layers [1]"
        ),
    ] = None
    attention_data: Annotated[
        Count,
        typer.Option(
            "--attention-data",
            "--dp",
            "--data-parallel-size",
            help="data-parallel ranks of attention [1]",
        ),
    ] = None
    expert: Annotated[
        Count,
        typer.Option("--expert", "--ep", help="devices that experts are spread over whole [1]"),
    ] = None
    workers: Annotated[Count, typer.Option(help="copies of the model [1]")] = None
    prefill_workers: Annotated[
        Count, typer.Option(help="further copies for prompts alone: disaggregated serving")
    ] = None
    prefill_tensor: Annotated[
        Count,
        typer.Option(help="devices that share each layer in those copies; needs --prefill-workers"),
    ] = None
    device_count: Annotated[Count, typer.Option(help="number of all devices")] = None

    def request(self) -> dict[str, Any]:
        """The request without model and device; what was not given is left out.

        Raises:
            BadRequest: an option is of workers for prompts, and there are none.
        """
        if self.prefill_workers is None and self.prefill_tensor is not None:
            raise BadRequest(
                "--prefill-tensor is of workers for prompts alone: give --prefill-workers too."
            )
        content: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            *outer, name = PATHS.get(field.name, field.name).split(".")
            holder = content
            for part in outer:
                holder = holder.setdefault(part, {})
            holder[name] = value
        return content


@dataclass(frozen=True, kw_only=True)
class LlmOptions(DeploymentOptions, LoadOptions):
    """Load, engine, devices and price, as given on the command line. Each field is an option."""

    command: Annotated[
        Text,
        typer.Option(
            help="commands of vLLM, SGLang or llama.cpp, in quotes; other options replace what "
            "they say"
        ),
    ] = None
    usd_per_device_hour: Annotated[
        Number, typer.Option(help="price of a device [a list price, where one is known]")
    ] = None


PATHS = {
    "quantization": "model.quantization",
    "cache_format": "model.cache_format",
    "engine": "engine.name",
    "engine_version": "engine.version",
    **{
        name: f"engine.{name}"
        for name in (
            *(
                "max_batched_tokens",
                "max_sequences",
                "max_request_tokens",
                "chunked_prefill",
                "graphs",
            ),
            *("memory_share", "draft_tokens", "draft_acceptance"),
        )
    },
    **{name: f"parallelism.{name}" for name in ("tensor", "pipeline", "attention_data", "expert")},
    "prefill_workers": "prefill.workers",
    "prefill_tensor": "prefill.parallelism.tensor",
}
"""Option -> path of its field in a request, where the two differ."""
WORDS: Final = "forerun.words"
"""Key under which a context keeps the words that a command was called with."""


class NamingCommand(TyperCommand):
    """A command that keeps the words that it was called with, for `option_names`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words after the options."""
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)


def option_names(context: typer.Context) -> Callable[[str], str]:
    """Path of a field of the request -> the option that sets it, as it was typed.

    An option that was not typed has the first of its names; a field without one has its path.
    """
    words = context.meta.get(WORDS, ())
    known: dict[str, str] = {}
    typed: dict[str, str] = {}
    for option in context.command.params:
        if option.param_type_name == "option":
            path = PATHS.get(str(option.name), str(option.name))
            flags = (*option.opts, *option.secondary_opts)
            known[path] = flags[0]
            given = [flag for flag in flags if _is_among(flag, words)]
            if given:
                typed[path] = given[-1]
    return partial(_name, typed, known)


def _is_among(flag: str, words: Sequence[str]) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)


def _name(typed: Mapping[str, str], known: Mapping[str, str], path: str) -> str:
    """The option of a field; of a part, one that was typed and sets a field of it."""
    inner = (name for of, name in typed.items() if of.startswith(f"{path}."))
    return typed.get(path) or next(inner, known.get(path, path))
