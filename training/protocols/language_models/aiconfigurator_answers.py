"""AIConfigurator's own predictions for the serving runs that its repository publishes.

`arguments` translates a query to its public function `cli_estimate`, and `asked` calls it. This
needs the extra `peers`. The predictions are stored in `docs/results/aiconfigurator.csv`, so that a
comparison needs no extra.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil, nan
from typing import Final

from forerun.data.datasets.language_models.aiconfigurator_serving import AiConfiguratorServing
from forerun.data.errors import InputError
from forerun.data.language_models.feed_forward import Experts
from forerun.data.query import Query
from forerun.training.protocols.language_models.kernels import DEVICES

Arguments = dict[str, str | int]

MODELS: Final[Mapping[str, str]] = AiConfiguratorServing.facts["models"]
BLOCKWISE: Final = frozenset(AiConfiguratorServing.facts["blockwise"])
FORMATS: Final[Mapping[str, str]] = {"bf16": "bfloat16", "fp8": "fp8", "nvfp4": "nvfp4"}
"""Number format -> AIConfigurator's name; MXFP4 is left to its model configuration, but see
`BLACKWELL`."""
BLACKWELL: Final = frozenset({"b200-sxm-180gb", "gb200-186gb", "gb300-279gb"})
"""Devices where TensorRT-LLM multiplies MXFP4 weights by MXFP8 activations."""
_SYSTEMS: Final = {device: system for system, device in DEVICES.items()}


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """AIConfigurator's prediction for one run, or why there is none.

    Attributes:
        tpot_ms: time per further token; NaN if it refuses.
        ttft_ms: time to the first token; NaN if it refuses.
        tables: engine release whose tables it interpolates; empty if it refuses.
        refusal: its reason, in one line; empty if it answers.
    """

    tpot_ms: float = nan
    ttft_ms: float = nan
    tables: str = ""
    refusal: str = ""


def arguments(query: Query, network: str) -> Arguments:
    """Arguments of AIConfigurator's `cli_estimate` for an aggregated deployment.

    Its `batch_size` is the number of requests in flight on one data-parallel rank. Engine versions
    and the format of keys and values are left to AIConfigurator, which takes the newest tables of
    the engine.

    Args:
        query: a run, from `serving_runs`.
        network: its group `model`.

    Raises:
        InputError: the deployment is disaggregated, or its load is a rate.
    """
    deployment = query.deployment
    concurrency = deployment.load.concurrency
    if deployment.prefill is not None or concurrency is None:
        raise InputError(
            "AIConfigurator is asked about aggregated deployments at a concurrency only: it needs "
            "the batch and the workers of both pools, which the runs do not give."
        )
    split = deployment.pool.parallelism
    given: Arguments = {
        "model_path": MODELS[network],
        "system_name": _SYSTEMS[query.device.name],
        "backend_name": deployment.engine.name,
        "isl": int(deployment.load.input_tokens),
        "osl": int(deployment.load.output_tokens),
        "tp_size": split.tensor,
        "pp_size": split.pipeline,
        "attention_dp_size": split.attention_data,
        "batch_size": ceil(concurrency / (deployment.pool.workers * split.attention_data)),
    }
    parts = (part for layer in deployment.model.layers for part in layer.feed_forward)
    routed = any(isinstance(part, Experts) for part in parts)
    form = deployment.model.formats.of_layer(len(deployment.model.layers) - 1)
    if form.experts in FORMATS:
        given["gemm_quant_mode"] = _format(form.dense, network)
        if routed:
            given["moe_quant_mode"] = _format(form.experts, network)
    elif deployment.engine.name == "trtllm" and query.device.name in BLACKWELL:
        given["moe_quant_mode"] = "w4a8_mxfp4_mxfp8"
    if routed:
        given["moe_ep_size"] = split.expert
        given["moe_tp_size"] = split.tensor * split.attention_data // split.expert
    return given


def _format(name: str, network: str) -> str:
    return "fp8_block" if name == "fp8" and network in BLOCKWISE else FORMATS[name]


def asked(given: Arguments) -> PeerAnswer:
    """AIConfigurator's answer in its default mode, which interpolates in its measured tables.

    Args:
        given: what `arguments` returns.

    Raises:
        InputError: the package is not installed.
    """
    try:
        from aiconfigurator.cli.api import cli_estimate
    except ImportError as error:
        raise InputError(
            "AIConfigurator is not installed here: pip install 'forerun[peers]'."
        ) from error
    tables = _newest_tables(str(given["system_name"]), str(given["backend_name"]))
    try:
        found = cli_estimate(**given, backend_version=tables)
    except Exception as error:  # any exception counts as a refusal
        return PeerAnswer(refusal=" ".join(f"{type(error).__name__}: {error}".split())[:200])
    return PeerAnswer(float(found.tpot), float(found.ttft), str(found.backend_version))


@cache
def _newest_tables(system: str, engine: str) -> str | None:
    """Engine release that `cli_estimate` uses by default; finding it takes seconds."""
    from aiconfigurator.sdk.perf_database import get_latest_database_version

    found: str | None = get_latest_database_version(system=system, backend=engine)
    return found
