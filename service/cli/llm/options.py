"""Options of `forerun llm estimate`, and the request that they make."""

from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

Text = str | None
Number = float | None
Count = int | None
Switch = bool | None


@dataclass(frozen=True, kw_only=True)
class LlmOptions:
    """Load, engine and devices, as given on the command line. Each field is an option."""

    input_tokens: Annotated[
        Number, typer.Option("--input-tokens", "--isl", help="mean length of the prompts")
    ] = None
    output_tokens: Annotated[
        Number, typer.Option("--output-tokens", "--osl", help="mean length of the answers")
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
    cached_share: Annotated[
        Number, typer.Option(help="share of the input tokens in a prefix cache, 0 to 1")
    ] = None
    quantization: Annotated[
        Text, typer.Option(help="fp8, nvfp4, mxfp4, int8, int4, awq or gptq [as config.json says]")
    ] = None
    cache_format: Annotated[
        Text,
        typer.Option("--cache-format", "--kv-cache-dtype", help="format of keys and values"),
    ] = None
    engine: Annotated[
        Text, typer.Option("--engine", "--backend", help="vllm, sglang, trtllm or other [vllm]")
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
        Count, typer.Option(help="devices that share each layer in those copies")
    ] = None
    device_count: Annotated[Count, typer.Option(help="number of all devices")] = None
    usd_per_device_hour: Annotated[
        Number, typer.Option(help="price of a device [a list price, where one is known]")
    ] = None

    def request(self) -> dict[str, Any]:
        """The request without model and device; what was not given is left out."""
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


PATHS = {
    "quantization": "model.quantization",
    "cache_format": "model.cache_format",
    "engine": "engine.name",
    "engine_version": "engine.version",
    **{
        name: f"engine.{name}"
        for name in (
            *("max_batched_tokens", "max_sequences", "chunked_prefill", "graphs"),
            *("memory_share", "draft_tokens", "draft_acceptance"),
        )
    },
    **{name: f"parallelism.{name}" for name in ("tensor", "pipeline", "attention_data", "expert")},
    "prefill_workers": "prefill.workers",
    "prefill_tensor": "prefill.parallelism.tensor",
}
"""Option -> path of its field in a request, where the two differ."""
