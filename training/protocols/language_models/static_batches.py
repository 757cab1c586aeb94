"""Static batches of two datasets: an accelerator, a model or a pair of both held out.

`llm_inference_bench` holds out both names of one accelerator together, and the repeats of a row are
on its side. `splitwise` holds out pairs of model and hardware, or a hardware.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask, Matrix, Positions, rows_by
from forerun.data.datasets.language_models.llm_inference_bench import (
    QUERY as BENCHMARK_QUERY,
)
from forerun.data.datasets.language_models.llm_inference_bench import (
    RESULTS,
    SUPPORT_ROWS,
    LlmInferenceBench,
    accelerators,
)
from forerun.data.datasets.language_models.splitwise import (
    QUERY,
    RUNS,
    SIZES,
    TIMES,
)
from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import (
    Engine,
    EngineName,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.language_models.model import LanguageModel
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.features.llm_serving.operators import parameter_counts
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.llm_serving.static_batch import RATE, StaticBatch
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING, Predictor
from forerun.training.protocols.protocol import (
    NEW,
    DatasetProtocols,
    Kept,
    Seen,
    Support,
    Task,
    Tasks,
    Trained,
    counted,
    is_seen,
    tasks_by,
)

DEVICES: Final[Mapping[str, str]] = LlmInferenceBench.facts["devices"]
DIES: Final[Mapping[str, int]] = {"AMD MI250 GPU": 2}
"""Devices of the catalogue in one accelerator, where that is not one."""
SN40L: Final = Device(
    name="sn40l",
    title="SambaNova SN40L",
    vendor="sambanova",
    kind="npu",
    memory_gib=64,
    memory_bandwidth_gbs=1600,
    peak_tflops={"bf16": 638},
)
"""Prabhakar, "SambaNova SN40L RDU", Hot Chips 2024: figures of one of 16 sockets."""
ENGINES: Final[Mapping[str, EngineName]] = {
    "vLLM": "vllm",
    "TensorRT-LLM": "trtllm",
    "llama.cpp": "llama.cpp",
}
VERSIONS: Final[Mapping[str, str]] = {"vLLM": "0.6"}
"""Releases of autumn 2024, when the rows were published; the table does not give them."""
LAYERS_APART: Final = "llama.cpp"
"""Framework that runs one sequence, its layers on one device after the other, and whose batch size
is that of the tokens of a prompt that are processed at once."""
NETWORKS: Final[Mapping[str, str]] = {
    "llama2-70b": "meta-llama/Llama-2-70b-hf",
    "bloom-176b": "bigscience/bloom",
}
WRITTEN: Final = 0.8
"""Share of the tokens of an answer that must have been written, by the times of its phases."""
SPLITWISE_VERSION: Final = "0.2"
"""Release of vLLM in November 2023, when `splitwise` was published."""
SERVERS: Final[Mapping[str, str]] = {
    "a100-80gb": "a100-sxm-80gb",
    "h100-80gb": "h100-sxm-80gb",
    "h100-80gb-pcap": "h100-sxm-80gb",
}
"""Hardware of `perf_model` -> name in the catalogue."""

Row = Mapping[Hashable, object]


def benchmark_rows(table: pd.DataFrame, catalog: DeviceCatalog) -> tuple[Measurements, Positions]:
    """Rows of the table `results` as measured static batches.

    Returns:
        Measurements of `latency_ms` and `tokens_per_s` with groups `device`, `framework` and
        `model`, and the positions of their rows in the table, shape (n,).
    """
    kept = np.flatnonzero(known_networks(table))
    rows = table.iloc[kept]
    names = accelerators(rows)
    sheets = {name: _sheet(str(name), catalog) for name in np.unique(names)}
    queries = [
        _benchmark_query(row, str(name), sheets[name])
        for row, name in zip(rows.to_dict("records"), names, strict=True)
    ]
    values = {"latency_ms": 1e3 * rows["latency_s"], "tokens_per_s": rows["throughput_tok_s"] / 2.0}
    groups = {name: rows[name] for name in ("framework", "model")}
    return Measurements.of(queries, values, groups), kept


def known_networks(table: pd.DataFrame) -> Mask:
    """Flag of each of n rows whose model has a configuration in the package."""
    known = {str(name): _network(str(name)) is not None for name in table["model"].unique()}
    return table["model"].map(known).to_numpy(dtype=np.bool_)


def _network(name: str) -> LanguageModel | None:
    try:
        return named_language_model(name)
    except InputError:
        return None


def _sheet(accelerator: str, catalog: DeviceCatalog) -> Device:
    return catalog.get(DEVICES[accelerator]) if accelerator in DEVICES else SN40L


def _benchmark_query(row: Row, accelerator: str, device: Device) -> Query:
    framework, size = str(row["framework"]), int(str(row["batch_size"]))
    devices = int(str(row["num_devices"])) * DIES.get(accelerator, 1)
    tokens = float(str(row["in_out_len"]))
    apart = framework == LAYERS_APART
    deployment = LlmDeployment(
        named_language_model(str(row["model"])),
        RequestLoad(tokens, tokens, concurrency=1.0 if apart else float(size)),
        Engine(
            ENGINES.get(framework, "other"),
            VERSIONS.get(framework, ""),
            max_batched_tokens=size if apart else None,
        ),
        Pool(Parallelism(pipeline=devices) if apart else Parallelism(tensor=devices)),
    )
    software = Software(framework=framework)
    return Query(deployment, device, software, Operation(deployment.devices))


def splitwise_rows(table: pd.DataFrame, catalog: DeviceCatalog) -> tuple[Measurements, Positions]:
    """Rows of the table `perf_model` as measured static batches; a batch that was repeated is one.

    Batches whose answers ended before `token_size` are left out: nearly all of 1,024 and more
    tokens, which took no longer than those of 400 to 900.

    Returns:
        Measurements of `latency_ms` and `tokens_per_s`, medians over repeats, with groups `device`
        and `model`, and the positions of the first row of each batch in the table, shape (n,).
    """
    medians = table.groupby(list(QUERY), sort=False)[list(TIMES)].transform("median")
    prompts, each, whole = medians.to_numpy(dtype=np.float64).T
    asked = table["token_size"].to_numpy(dtype=np.float64)
    ended = (whole - prompts) / each < WRITTEN * (asked - 1.0)
    repeated = table.duplicated(list(QUERY)).to_numpy(dtype=np.bool_)
    kept = np.flatnonzero(~repeated & ~ended)
    rows = table.iloc[kept].to_dict("records")
    sheets = {name: _server(name, catalog) for name in SERVERS}
    queries = [_splitwise_query(row, sheets[str(row["hardware"])]) for row in rows]
    groups = {"model": [row["model"] for row in rows]}
    tokens = (asked * table["batch_size"].to_numpy(dtype=np.float64))[kept]
    values = {"latency_ms": whole[kept], "tokens_per_s": 1e3 * tokens / whole[kept]}
    return Measurements.of(queries, values, groups), kept


def _server(name: str, catalog: DeviceCatalog) -> Device:
    """Its GPU; one with less power, whose limit is not stated, has a name of its own."""
    device = catalog.get(SERVERS[name])
    if not name.endswith("-pcap"):
        return device
    return device.model_copy(update={"name": f"{device.name}-capped"})


def _splitwise_query(row: Row, device: Device) -> Query:
    tensor, prompt, answer, size = (float(str(row[name])) for name in SIZES)
    deployment = LlmDeployment(
        named_language_model(NETWORKS[str(row["model"])]),
        RequestLoad(prompt, answer, concurrency=size),
        Engine("vllm", SPLITWISE_VERSION),
        Pool(Parallelism(tensor=int(tensor))),
    )
    software = Software(framework="vLLM")
    return Query(deployment, device, software, Operation(deployment.devices))


TREES: Final = 300
SUPPORT_WEIGHT: Final = 20.0
"""Weight of a support row; that of a training row is 1."""
PARAMETERS: Final[Mapping[str, Any]] = {
    "objective": "l1",
    "num_leaves": 31,
    "learning_rate": 0.05,
    "min_data_in_leaf": 5,
}
FRAMEWORKS: Final = ("vLLM", "TensorRT-LLM", "llama.cpp", "Deepspeed-MII", "sambaflow")


@dataclass(frozen=True)
class ClosedFormFactor(StoredPredictor):
    """The closed form, times one factor of a device.

    Attributes:
        factors: device -> median of measured over closed-form rates; 1 where absent.
    """

    factors: Mapping[str, float] = field(default_factory=dict)
    name: ClassVar[str] = "static_batch_factor"
    metrics: ClassVar[tuple[str, ...]] = (RATE,)

    def answers(self, query: Query) -> bool:
        """What the predictor under test answers."""
        return StaticBatch().answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Nothing: a held-out device has no factor."""
        return replace(self, factors={})

    def adapt(self, measurements: Measurements) -> Self:
        """Set the factor of each device to the median of its rows."""
        closed = StaticBatch().predict(measurements.queries).values[RATE]
        ratios = measurements.column(RATE) / closed
        rows = rows_by(query.device.name for query in measurements.queries)
        found = {name: float(np.median(ratios[own])) for name, own in rows.items()}
        return replace(self, factors={**self.factors, **found})

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Rates without intervals."""
        factors = np.array([self.factors.get(query.device.name, 1.0) for query in queries])
        return Predictions({RATE: StaticBatch().predict(queries).values[RATE] * factors})


@dataclass(frozen=True)
class RawBooster(StoredPredictor):
    """LightGBM on sizes and figures of spec sheets, without the closed form.

    Attributes:
        seed: of the booster.
        matrix, target: training rows, and logarithms of their rates.
        booster: fitted to them; None if unfitted.
    """

    seed: int = field(default=0, metadata=SETTING)
    matrix: Matrix = field(default_factory=lambda: np.empty((0, 0)))
    target: Column = field(default_factory=lambda: np.empty(0))
    booster: BoosterBag | None = None
    name: ClassVar[str] = "static_batch_booster"
    metrics: ClassVar[tuple[str, ...]] = (RATE,)

    def answers(self, query: Query) -> bool:
        """What the predictor under test answers."""
        return self.booster is not None and StaticBatch().answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Fit to the rates of these rows."""
        matrix, target = _matrix(measurements.queries), np.log(measurements.column(RATE))
        booster = self._boosted(matrix, target, np.ones(len(target)))
        return replace(self, matrix=matrix, target=target, booster=booster)

    def adapt(self, measurements: Measurements) -> Self:
        """Fit anew to training rows and these, which weigh more."""
        matrix = np.vstack([self.matrix, _matrix(measurements.queries)])
        target = np.append(self.target, np.log(measurements.column(RATE)))
        weights = np.ones(len(target))
        weights[len(self.target) :] = SUPPORT_WEIGHT
        return replace(self, booster=self._boosted(matrix, target, weights))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Rates without intervals.

        Raises:
            ValueError: it is not fitted.
        """
        if self.booster is None:
            raise ValueError(f"{self.name} is not fitted")
        return Predictions({RATE: np.exp(self.booster.predict(_matrix(queries)))})

    def _boosted(self, matrix: Matrix, target: Column, weights: Column) -> BoosterBag:
        return BoosterBag.fit(
            matrix, target, parameters=PARAMETERS, trees=TREES, seeds=[self.seed], weights=weights
        )


def _matrix(queries: Sequence[Query]) -> Matrix:
    return np.array([_raw(query) for query in queries], dtype=np.float64)


def _raw(query: Query) -> list[float]:
    one, device = query.deployment, query.device
    weights, active = parameter_counts(one.model)
    context = one.load.input_tokens + one.load.output_tokens
    return [
        device.bandwidth_gbs,
        device.peak("bf16", matrix=True),
        device.memory_gib or 0.0,
        float(one.devices),
        float(one.pool.parallelism.pipeline),
        one.load.concurrency or 0.0,
        float(one.engine.max_batched_tokens or 0),
        one.load.input_tokens,
        one.load.output_tokens,
        weights,
        active,
        float(one.model.cache_bytes(int(context))),
        *(float(query.software.framework == name) for name in FRAMEWORKS),
    ]


class LlmInferenceBenchProtocols(DatasetProtocols):
    """Tokens written per second, with an accelerator or a model held out."""

    dataset = "llm_inference_bench"
    reads: ClassVar = {RESULTS: (*BENCHMARK_QUERY, "latency_s", "throughput_tok_s")}
    split_protocols = ("unseen_device", "unseen_model")
    unseen: ClassVar = {"unseen_device": {"device": NEW}}

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        """The predictor under test, and two baselines that adapt on the same support sets."""
        return self.predictor(seed), ClosedFormFactor(), RawBooster(seed)

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, Kept]:
        """All rows whose model is known."""
        return benchmark_rows(bundle.table(RESULTS), catalog)

    def tasks(self, protocol: str, held_out: Measurements, train: Trained) -> Tasks:
        """Rows of an accelerator also with a support set, by `suggest` and by lot."""
        name = f"{protocol}/{RATE}"
        closed = {"closed_form": StaticBatch().predict(held_out.queries).values[RATE]}
        if protocol == "unseen_model":
            yield Task(name, RATE, held_out, baselines=closed)
            return
        for task in tasks_by(held_out, ("device",), name, RATE, closed):
            yield task
            for rule in ("suggested", "random") if len(task.held_out) > SUPPORT_ROWS else ():
                adapted = f"{name}/{SUPPORT_ROWS}_{rule}"
                support = Support(SUPPORT_ROWS, suggested=rule == "suggested")
                yield replace(task, name=adapted, support=support)

    def left_out(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Mapping[str, int]:
        """Rows of models without a configuration, and of accelerators in the training set."""
        table = bundle.table(RESULTS)
        rows, _ = benchmark_rows(table, catalog)
        return counted(
            {
                "the model has no configuration here": ~known_networks(table),
                "this device is in the training set": is_seen(rows, "device", seen),
            }
        )


class SplitwiseProtocols(DatasetProtocols):
    """Tokens written per second by a batch from end to end."""

    dataset = "splitwise"
    reads: ClassVar = {RUNS: (*QUERY, *TIMES)}
    unseen: ClassVar = {"unseen_setup": {}}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, Kept]:
        """All batches, the median of the repeats of each."""
        return splitwise_rows(bundle.table(RUNS), catalog)

    def tasks(self, protocol: str, held_out: Measurements, train: Trained) -> Tasks:
        """The rate of all batches."""
        closed = StaticBatch().predict(held_out.queries).values[RATE]
        yield Task(f"{protocol}/{RATE}", RATE, held_out, baselines={"closed_form": closed})
