"""aiconfigurator_serving: latencies of serving runs, with deployments, GPUs or models held out.

Engine releases are held out as well, because all runs of a release share effects that runs of other
releases cannot reveal.

Each held-out run is predicted twice: from its requests in flight, as it was measured, and from the
request rate at which it was served. The second has no time to the first token: the clients of these
runs start all at once, whereas requests at a rate arrive one by one.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Positions
from forerun.data.datasets.language_models.aiconfigurator_serving import (
    QUERY,
    RUNS,
    AiConfiguratorServing,
    deployments,
    layout,
    networks,
    repeats,
)
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import (
    Engine,
    EngineName,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.language_models.engine_formats import usual_cache
from forerun.data.language_models.model import LanguageModel
from forerun.data.language_models.weights import LayerFormats, WeightFormats
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.llm_serving import LlmLatency
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.language_models.kernel_baseline import summed_kernels
from forerun.training.protocols.language_models.kernels import DEVICES

FORMATS: Final[Mapping[str, str]] = AiConfiguratorServing.facts["formats"]
ENGINES: Final[Mapping[str, EngineName]] = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm"}
VARIED: Final[Sequence[str]] = AiConfiguratorServing.facts["varied"]
SHORTEST: Final = 0.8
"""Length of the shortest requests of these campaigns, relative to the nominal length."""
RECIPES: Final[Sequence[Mapping[str, Any]]] = AiConfiguratorServing.facts["recipes"]
MANY: Final = 16.0
"""Requests in flight from which SGLang polls for new requests less often in these recipes."""
ACCEPTED: Final = 0.7
"""Assumed share of drafted tokens that are accepted; the source gives none. With this value, closed
forms are about as accurate for runs with drafts as for others."""
SPARE: Final = 64
"""Tokens of an iteration that recipes reserve beyond one prompt and the decoding sequences."""
NODE: Final = 8
"""A worker with more devices than this whose ranks are not stated has data-parallel attention."""
TIMES: Final = ("tpot_ms", "ttft_ms")
RELEASE_FOLDS: Final = 6
"""Number of folds that the engine releases are divided into."""

Row = Mapping[Hashable, object]


def serving_runs(table: pd.DataFrame, catalog: DeviceCatalog) -> tuple[Measurements, Positions]:
    """Rows of the table `e2e_serving` as measured queries, without repeats of a run.

    Returns:
        Measurements with groups `device`, `model`, `deployment`, `release` and `mode`, and the
        positions of their rows in the table, shape (n,).
    """
    loaded = (table["concurrency"].notna() | table["batch_size"].notna()).to_numpy(dtype=np.bool_)
    apart = (table["mode"] == "disagg") | _runs_apart(table)
    counted = ~apart | table["prefill_num_workers"].notna()
    kept = np.flatnonzero(loaded & counted.to_numpy(dtype=np.bool_) & ~repeats(table))
    rows = table.iloc[kept].reset_index(drop=True)
    names = networks(rows)
    rows["network"] = names
    pools = {phase: layout(rows, phase).to_dict("records") for phase in ("", "prefill_", "decode_")}
    queries = []
    for number, row in enumerate(rows.to_dict("records")):
        sizes = {phase: layouts[number] for phase, layouts in pools.items()}
        queries.append(_run_query(row, sizes, named_language_model(str(names[number])), catalog))
    releases = [
        f"{query.deployment.engine.name} {query.deployment.engine.version}" for query in queries
    ]
    groups = {
        "model": names,
        "deployment": deployments(table)[kept],
        "release": releases,
        "mode": rows["mode"],
    }
    return Measurements.of(queries, {name: rows[name] for name in TIMES}, groups), kept


def _runs_apart(table: pd.DataFrame) -> "pd.Series[bool]":
    """Whether each of n runs that the table calls aggregated had workers of its own for prompts."""
    wanted = AiConfiguratorServing.facts["disaggregated"]
    return (table[[*wanted]] == pd.Series(wanted)).all(axis=1)


def _run_query(
    row: Row, sizes: Mapping[str, Row], model: LanguageModel, catalog: DeviceCatalog
) -> Query:
    apart = row["mode"] == "disagg"
    pool = _pool(row, sizes, "decode_" if apart else "")
    in_flight = _number(row["concurrency"])
    if np.isnan(in_flight):
        in_flight = _number(row["batch_size"]) * pool.parallelism.attention_data
    deployment = LlmDeployment(
        replace(model, formats=_formats(row, model)),
        _load(row, in_flight),
        _engine(row, in_flight, pool.parallelism.attention_data),
        pool,
        _pool(row, sizes, "prefill_") if apart else None,
    )
    device = catalog.get(DEVICES[str(row["system"])])
    return Query(deployment, device, operation=Operation(deployment.devices))


def _load(row: Row, in_flight: float) -> RequestLoad:
    """The load of a run, whose request lengths may vary."""
    if row["source"] not in VARIED:
        return RequestLoad(_number(row["isl"]), _number(row["osl"]), concurrency=in_flight)
    mean, deviation = (1.0 + SHORTEST) / 2.0, (1.0 - SHORTEST) / 12.0**0.5
    return RequestLoad(
        mean * _number(row["isl"]),
        mean * _number(row["osl"]),
        concurrency=in_flight,
        input_variation=deviation / mean,
        output_variation=deviation / mean,
    )


def _recipe(row: Row) -> Mapping[str, Any]:
    """Settings of a run's recipe; empty if it has none."""
    found: dict[str, Any] = {}
    if row["source"] in VARIED and row["mode"] == "agg":
        for one in RECIPES:
            wanted = one["runs"].items()
            if all(row[name] in np.atleast_1d(value).tolist() for name, value in wanted):
                found |= one
    return found


def _engine(row: Row, in_flight: float, ranks: int) -> Engine:
    """The engine of a run; its release is empty if the table names none."""
    release, recipe = row["backend_version"], _recipe(row)
    version = release if isinstance(release, str) else ""
    names = ("memory_share", "max_batched_tokens", "max_sequences", "hold_iterations")
    settings = {name: recipe[name] for name in names if name in recipe}
    drafts, sequences = 0, in_flight
    if "drafted" in recipe:
        drafts = recipe["drafted"][ranks > 1]
        settings |= {"draft_tokens": drafts, "draft_acceptance": ACCEPTED}
    if "by_rank" in recipe:
        sequences = in_flight / ranks
    if "one_prompt" in recipe:
        tokens = _number(row["isl"]) + (1 + drafts) * sequences + SPARE
        settings["max_batched_tokens"] = int(tokens)
    if "poll" in recipe:
        settings["hold_iterations"] = recipe["poll"][in_flight >= MANY] / 2.0
    return Engine(ENGINES[str(row["backend"])], version=version, **settings)


def _number(value: object) -> float:
    return float(str(value))


def _format(row: Row, column: str) -> str:
    """The format in a column, else the run's precision, else bf16."""
    found = (row[name] for name in (column, "precision"))
    return FORMATS[next((value for value in found if isinstance(value, str)), "bf16")]


def _formats(row: Row, model: LanguageModel) -> WeightFormats:
    """Weight formats of the run's copy of a model; the model's own if it has MXFP4 experts.

    The table does not give the format of keys and values. It is taken from the recipe, or is the
    usual format for checkpoints with such weights.
    """
    dense, experts = _format(row, "gemm_quant_mode"), _format(row, "moe_quant_mode")
    usual = [usual_cache(str(row["backend"]), name) for name in (dense, experts)]
    cache = _recipe(row).get("cache", "fp8" if any(usual) else "bf16")
    if model.formats.of_layer(len(model.layers) - 1).experts == "mxfp4":
        return replace(model.formats, cache=cache)
    layer = LayerFormats(dense, dense, dense, experts)
    return WeightFormats(cache=cache, layers=(layer,) * len(model.layers))


def _pool(row: Row, sizes: Mapping[str, Row], phase: str) -> Pool:
    own = sizes[phase]
    devices, ranks = int(_number(own["devices"])), int(_number(own["data_parallel"]))
    if ranks == 1 and devices > NODE:
        ranks = devices
    stages = _number(row[f"{phase}pp_size"])
    split = Parallelism(
        tensor=max(devices // ranks, 1),
        pipeline=int(stages) if stages > 0 else 1,
        attention_data=ranks,
        expert=int(_number(own["expert_parallel"])),
    )
    workers = _number(row[f"{phase}num_workers"]) if phase else _replicas(row, devices)
    return Pool(split, int(workers) if workers > 0 else 1)


def _replicas(row: Row, devices: int) -> float:
    """Workers of an aggregated run: more than one if its concurrency exceeds that of one worker.

    In campaigns whose batch is below the concurrency, the batch counts the requests per device.
    """
    ratio = _number(row["concurrency"]) / (_number(row["batch_size"]) * devices)
    return float(round(ratio)) if np.isfinite(ratio) else 1.0


class AiConfiguratorServingProtocols(dp.DatasetProtocols):
    """Time to the first token and time per further token (ms) of serving runs."""

    dataset = "aiconfigurator_serving"
    reads: ClassVar = {RUNS: (*QUERY, "id", "source", *TIMES)}
    unseen: ClassVar = {
        "unseen_model": {"model": dp.NEW, "device": dp.KNOWN},
        "unseen_device": {"device": dp.NEW},
    }

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All runs, without repeats."""
        return serving_runs(bundle.table(RUNS), catalog)

    def sides(self, bundle: Bundle, rows: Measurements, kept: dp.Kept = dp.EVERY) -> dp.Sides:
        """The bundle's splits; for aggregated runs also six folds of held-out releases."""
        yield from super().sides(bundle, rows, kept)
        runs = rows.take(rows.groups["mode"] == "agg")
        releases, which = np.unique(runs.groups["release"], return_inverse=True)
        for fold in range(min(RELEASE_FOLDS, len(releases))):
            out = which % RELEASE_FOLDS == fold
            if not out.all():
                yield "unseen_release_aggregated", runs.take(~out), runs.take(out)

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """Both times; in folds also the time per token, predicted from the request rate."""
        yield from _tasks(held_out, protocol)
        if train is not None:
            yield from _tasks(asked_by_rate(held_out), f"{protocol}_by_rate", TIMES[:1])


def asked_by_rate(runs: Measurements) -> Measurements:
    """Closed-loop runs with both times, as queries by the request rate at which they were served.

    By Little's law, this rate is the requests in flight over the measured time of a request.
    """
    latency_ms = runs.values["ttft_ms"] + runs.values["tpot_ms"] * [
        max(query.deployment.load.output_tokens - 1.0, 0.0) for query in runs.queries
    ]
    rows = runs.take(np.isfinite(latency_ms))
    queries = []
    for query, milliseconds in zip(rows.queries, latency_ms[np.isfinite(latency_ms)], strict=True):
        load = query.deployment.load
        assert load.concurrency is not None, "the runs are closed loops"
        rate = 1e3 * load.concurrency / float(milliseconds)
        load = replace(load, concurrency=None, requests_per_s=rate)
        queries.append(replace(query, workload=replace(query.deployment, load=load)))
    return replace(rows, queries=queries)


def _tasks(rows: Measurements, protocol: str, metrics: Sequence[str] = TIMES) -> dp.Tasks:
    """Tasks of times over all rows; the baselines are the closed form alone and summed kernels."""
    plain = LlmLatency().predict(rows.queries).values
    for metric in metrics:
        simple = {"closed_form": plain[metric], **summed_kernels(rows.queries, metric)}
        yield dp.Task(f"{protocol}/{metric}", metric, rows, baselines=simple)
