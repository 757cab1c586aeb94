"""Reads result files of load generators for language models.

Supported are

- the JSON of `vllm bench serve --save-result` and of its predecessor, `benchmark_serving.py`, in
  releases since the end of 2024, which write `max_concurrency`; SGLang's `bench_serving` uses the
  same names. Files of `--append-result` have one object per line;
- the report of GuideLLM, whose benchmarks name their strategy under `args` in early releases and
  under `config` in those of 2026 (0.7);
- `profile_export_aiperf.json` of AIPerf, whose schemas 1.0 to 1.5 have the same metric names, and
  of its predecessor GenAI-Perf, if `input_config` names the load under `loadgen` or
  `perf_analyzer`. Files that list phases instead are refused with a message;
- the tests of llama.cpp's `llama-bench`, in the output of `-o json` and `jsonl`, or its table.

Times are means. Facts that a file does not give, such as the device, are not guessed.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from forerun.data.errors import BadTable

BENCH_SERVE: Final = (
    *("completed", "total_input_tokens", "total_output_tokens"),
    *("mean_ttft_ms", "mean_tpot_ms"),
)
"""Fields of a result of `vllm bench serve`; the first three identify the format."""

WITHOUT_TIMES: Final[Mapping[str, str]] = {
    "avg_latency": "vllm bench latency",
    "num_requests": "vllm bench throughput",
}
"""Field -> the command whose results contain it but no times per token."""


@dataclass(frozen=True, slots=True)
class ServingResult:
    """Results of one run of a load generator.

    Attributes:
        tool: tool whose format the file has.
        input_tokens, output_tokens: mean lengths of prompts and answers.
        concurrency: requests in flight; None for open-loop load.
        requests_per_s: arrival rate; None for closed-loop load.
        ttft_ms: mean time to first token, ms; None if the run has none, as for the next two.
        tpot_ms: mean time per output token after the first, ms.
        model: the model as the file names it; empty if it does not.
        request_latency_ms: latency of a whole request, ms.
        cached_share: share of the input tokens that a prefix cache held before, 0 to 1.
        command: model and engine as a command of llama.cpp; empty for other tools.
        threads: processor threads that ran the model; None for a GPU, and if unknown.
    """

    tool: str
    input_tokens: float
    output_tokens: float
    concurrency: float | None
    requests_per_s: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    model: str = ""
    request_latency_ms: float | None = None
    cached_share: float = 0.0
    command: str = ""
    threads: int | None = None


def serving_results(content: Any, where: str) -> tuple[ServingResult, ...]:
    """The runs in a file; empty if it has none of the formats.

    Args:
        content: the parsed file; a list of objects if it has one per line.
        where: name of the file in messages.

    Raises:
        BadTable: the file has one of the formats, but a figure is missing or not positive; the
            message names the field.
    """
    if isinstance(content, list):
        parsed = [serving_results(run, f"{where}, run {i}") for i, run in enumerate(content, 1)]
        return tuple(run for runs in parsed for run in runs) if all(parsed) else ()
    if not isinstance(content, Mapping):
        return ()
    if "mean_ttft_ms" in content or set(BENCH_SERVE[:3]) <= set(content):
        return (_bench_serve(content, where),)
    if {"n_prompt", "n_gen", "avg_ts"} <= set(content):
        return (_llama_bench(content, where),)
    for name, command in WITHOUT_TIMES.items():
        if name in content:
            raise BadTable(
                f"{where}: a result of `{command}` has neither a time to the first token nor one "
                "per token; measure with `vllm bench serve --save-result`."
            )
    if isinstance(content.get("benchmarks"), list):
        runs = content["benchmarks"]
        return tuple(_guidellm(run, f"{where}, benchmarks.{i}") for i, run in enumerate(runs))
    if "time_to_first_token" in content:
        return (_aiperf(content, where),)
    return ()


def _bench_serve(run: Mapping[str, Any], where: str) -> ServingResult:
    """One result of vLLM or SGLang, which use the same names."""
    missing = [name for name in BENCH_SERVE if run.get(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise BadTable(
            f"{where}: {', '.join(missing)} {verb} missing in this result of `vllm bench serve` or "
            "SGLang's bench_serving; benchmark an endpoint that streams its answers."
        )
    completed = _number(run, where, "completed")
    in_flight, rate = run.get("max_concurrency"), run.get("request_rate")
    if in_flight is None and not _is_finite(rate):
        # All requests were sent at once, which is neither a closed loop nor an arrival rate.
        raise BadTable(
            f"{where}: neither max_concurrency nor a finite request_rate; run with one of them."
        )
    return ServingResult(
        "bench serve",
        _number(run, where, "total_input_tokens") / completed,
        _number(run, where, "total_output_tokens") / completed,
        None if in_flight is None else _number(run, where, "max_concurrency"),
        None if in_flight is not None else _number(run, where, "request_rate"),
        _number(run, where, "mean_ttft_ms"),
        _number(run, where, "mean_tpot_ms"),
        str(run.get("model_id") or run.get("model") or ""),
    )


_TEST: Final = re.compile(
    r"(?:pp ?(?P<n_prompt>\d+))?\+?(?:tg ?(?P<n_gen>\d+))?(?: @ d(?P<n_depth>\d+))?"
)
_COLUMNS: Final[Mapping[str, str]] = {
    **{"ngl": "n_gpu_layers", "backend": "backends", "model": "model_type", "t/s": "avg_ts"},
}
"""Column of the table of `llama-bench` -> its name in JSON."""


def llama_bench_table(text: str) -> list[dict[str, Any]]:
    """The tests in the Markdown table of `llama-bench`, as its JSON has them; empty for others."""
    lines = [line.strip(" |") for line in text.splitlines() if line.lstrip().startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    if not rows or not {"test", "t/s"} <= set(rows[0]):
        return []
    found = []
    for cells in (row for row in rows[1:] if len(row) == len(rows[0]) and "-" not in row[-1][:1]):
        named = dict(zip((_COLUMNS.get(name, name) for name in rows[0]), cells, strict=True))
        test = _TEST.fullmatch(named["test"])
        counts = {} if test is None else test.groupdict(default="0")
        rate = named["avg_ts"].partition("±")[0]
        found.append({**named, **counts, "avg_ts": _as_number(rate)})
    return found


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


PROCESSOR: Final = ("CPU", "BLAS")
"""Backends of llama.cpp that compute on the processor."""
_GGUF_TYPE: Final = re.compile(r"\b(I?Q\d\w*|BF16|F16|F32|MXFP4)\b(?: - (Small|Medium|Large))?")


def _llama_bench(run: Mapping[str, Any], where: str) -> ServingResult:
    """A test of `llama-bench`: a prompt, tokens after a context, or a prompt and then tokens."""
    counts = [_count(run, where, name) for name in ("n_prompt", "n_gen", "n_depth")]
    prompt, answer, depth = counts
    if not prompt and not answer:
        raise BadTable(f"{where}: n_prompt and n_gen are 0, so that nothing was timed.")
    total_ms = 1e3 * (prompt + answer) / _number(run, where, "avg_ts")
    layers = run.get("n_gpu_layers", -1)
    if str(layers) == "0" and run.get("backends", "CPU") not in PROCESSOR:
        raise BadTable(
            f"{where}: n_gpu_layers is 0 with the backend {run['backends']!s:.40}, which computes "
            "long prompts on the GPU and the rest on the processor; measure with all or no GPU."
        )
    kind = _GGUF_TYPE.search(str(run.get("model_type", "")))
    options = {
        "m": run.get("model_filename"),
        "quantization": kind and "_".join(filter(None, (kind[1], (kind[2] or "")[:1]))).lower(),
        **{"ngl": layers, "ub": run.get("n_ubatch"), "ctk": run.get("type_k")},
    }
    words = [w for name, v in options.items() if v is not None for w in (f"--{name}", str(v))]
    on_processor = run.get("backends") in PROCESSOR and run.get("n_threads") is not None
    return ServingResult(
        "llama-bench",
        prompt + depth or 1.0,
        answer or 1.0,
        1.0,
        None,
        ttft_ms=None if answer else total_ms,
        tpot_ms=None if prompt else total_ms / answer,
        request_latency_ms=total_ms if prompt and answer else None,
        cached_share=depth / (prompt + depth) if prompt else 0.0,
        command=shlex.join(["llama-bench", *words]),
        threads=int(_count(run, where, "n_threads")) if on_processor else None,
    )


def _count(run: Mapping[str, Any], where: str, name: str) -> float:
    """A number of tokens, which may be 0."""
    value = str(run.get(name, 0))
    if not value.isdecimal() or len(value) > 9:
        raise BadTable(f"{where}: {name} is {value:.40}, not a number of tokens.")
    return float(value)


def _guidellm(run: Any, where: str) -> ServingResult:
    """One benchmark of a report.

    Uses the inter-token latency: GuideLLM's time per output token includes the first token.
    """

    def mean(name: str) -> float:
        return _number(run, where, "metrics", name, "successful", "mean")

    kind, rate = _strategy(run)
    open_loop = kind in ("constant", "poisson", "async")
    return ServingResult(
        "GuideLLM",
        mean("prompt_token_count"),
        mean("output_token_count"),
        None if open_loop else mean("request_concurrency"),
        (rate if _is_finite(rate) else mean("requests_per_second")) if open_loop else None,
        mean("time_to_first_token_ms"),
        mean("inter_token_latency_ms"),
    )


def _strategy(run: Any) -> tuple[str, Any]:
    """Load strategy of a benchmark, and its arrival rate."""
    for part in ("config", "args"):
        strategy = _at(run, part, "strategy")
        if isinstance(strategy, Mapping):
            return str(strategy.get("type_", "")), strategy.get("rate")
    return "", None


def _aiperf(run: Mapping[str, Any], where: str) -> ServingResult:
    def mean(name: str) -> float:
        scale = 1e3 if _at(run, name, "unit") in ("s", "sec", "seconds") else 1.0
        return scale * _number(run, where, name, "avg")

    in_flight = _first(
        run,
        ("input_config", "loadgen", "concurrency"),
        ("input_config", "perf_analyzer", "stimulus", "concurrency"),
    )
    rate = _first(
        run,
        ("input_config", "loadgen", "request_rate"),
        ("input_config", "perf_analyzer", "stimulus", "request_rate"),
    )
    if not _is_finite(in_flight) and not _is_finite(rate):
        raise BadTable(f"{where}: input_config names neither concurrency nor request_rate.")
    closed = not _is_finite(rate)
    return ServingResult(
        "AIPerf",
        mean("input_sequence_length"),
        mean("output_sequence_length"),
        float(in_flight) if closed else None,
        None if closed else float(rate),
        mean("time_to_first_token"),
        mean("inter_token_latency"),
    )


def _first(run: Any, *paths: tuple[str, ...]) -> Any:
    return next((found for path in paths if (found := _at(run, *path)) is not None), None)


def _at(content: Any, *path: str) -> Any:
    """The value at a path; None if there is none."""
    for name in path:
        if not isinstance(content, Mapping):
            return None
        content = content.get(name)
    return content


def _is_finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and isfinite(value) and value > 0


def _number(content: Any, where: str, *path: str) -> float:
    """The positive number at a path.

    Raises:
        BadTable: it is missing, or not a positive number.
    """
    value = _at(content, *path)
    if not _is_finite(value):
        shown = "missing" if value is None else f"{str(value)[:40]}, not a positive number"
        raise BadTable(f"{where}: {'.'.join(path)} is {shown}.")
    return float(value)
