"""apex: mean time of a request when traces are replayed on eight H100; nothing is fitted.

The query of a run has the requests of its trace. Their lengths are scaled so that prompts and
answers have the totals that the run states, since engines end answers at different tokens. The host
time of an iteration is that of vLLM in 2024 and was not calibrated on this dataset. The baseline is
the event model. The closed form adds 9 ms outside of the engine, a value derived from times to the
first token of this dataset; a request takes ten seconds or more.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Mask
from forerun.data.datasets.language_models.apex import QUERY, RUNS
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import (
    Engine,
    EngineName,
    LlmDeployment,
    Parallelism,
    Pool,
)
from forerun.data.language_models.requests import Requests
from forerun.data.language_models.traces import named_trace
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.llm_serving import LlmLatency
from forerun.models.llm_serving.replay import replay
from forerun.models.llm_serving.worker import Worker
from forerun.models.predictor import Predictor
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.language_models.kernel_baseline import summed_kernels

DEVICE: Final = "h100-sxm-80gb"
METRIC: Final = "request_latency_ms"
MAX_SEQUENCES: Final = 256
"""Default number of sequences of an iteration in engines of 2024."""
ENGINES: Final[Mapping[str, EngineName]] = {"vllm": "vllm", "sglang": "sglang"}
VERSIONS: Final[Mapping[str, str]] = {"vllm": "0.6"}
"""A release of 2024, before vLLM 0.8; the table does not give versions."""


class ApexProtocols(dp.DatasetProtocols):
    """Mean time of a request (ms) in runs with a known trace, by the closed form.

    It assumes Poisson arrivals at the trace's mean rate.
    """

    dataset = "apex"
    reads: ClassVar = {RUNS: (*QUERY, "output_tokens", "total_latency_s")}
    fits_any_folder = True

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        """The closed form alone."""
        return (self.predictor(seed),)

    def predictor(self, seed: int = 0) -> Predictor:
        """The closed form."""
        return LlmLatency(seed)

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """None: every row is held out."""
        return Measurements([], {METRIC: np.empty(0)}, {})

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """One fold without a training set."""
        yield dp.Fold("replay", self.training_rows(bundle, catalog), [*_tasks(bundle, catalog)])

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """The same tasks."""
        yield from _tasks(bundle, catalog)

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Runs whose requests are not published."""
        table = bundle.table(RUNS)
        return {"the requests of the trace are not published": ~_known(table)}


def _known(table: pd.DataFrame) -> Mask:
    return ~table["trace"].str.startswith("summarization").to_numpy(dtype=np.bool_)


def _tasks(bundle: Bundle, catalog: DeviceCatalog) -> dp.Tasks:
    """Tasks of all runs and of each engine; the event model and summed kernels are baselines."""
    table = bundle.table(RUNS)
    runs = [Run.of(row, catalog) for row in table[_known(table)].to_dict("records")]
    groups = {name: [getattr(run, name) for run in runs] for name in ("engine", "layout", "trace")}
    values = {METRIC: [run.measured_ms for run in runs]}
    rows = Measurements.of([run.query for run in runs], values, groups)
    rows = replace(rows, groups={name: rows.groups[name] for name in groups})
    replayed = {"event_model": np.array([run.replayed_ms() for run in runs])}
    simple = {**replayed, **summed_kernels(rows.queries, METRIC)}
    yield dp.Task(f"replay/{METRIC}", METRIC, rows, baselines=simple)
    yield from dp.tasks_by(rows, ("engine",), f"replay/{METRIC}/{{engine}}", METRIC, simple)


@dataclass(frozen=True, slots=True)
class Run:
    """One replica's share of a trace.

    Attributes:
        engine, layout, trace: as in the table.
        requests: the requests that the replica served.
        query: its deployment, with the mean load of these requests.
        measured_ms: mean time of a request.
    """

    engine: str
    layout: str
    trace: str
    requests: Requests
    query: Query
    measured_ms: float

    @classmethod
    def of(cls, row: Mapping[Hashable, object], catalog: DeviceCatalog) -> "Run":
        """The run of one row of `e2e_h100x8`."""
        engine, layout, trace = (str(row[name]) for name in ("engine", "layout", "trace"))
        replicas, parallelism = _layout(layout)
        requests = _requests(row, replicas)
        deployment = LlmDeployment(
            named_language_model(str(row["model"])),
            requests.load(),
            Engine(
                ENGINES[engine],
                VERSIONS.get(engine, ""),
                max_sequences=MAX_SEQUENCES,
                chunked_prefill=False,
            ),
            Pool(parallelism),
        )
        query = Query(deployment, catalog.get(DEVICE), operation=Operation(deployment.devices))
        total_s = float(str(row["total_latency_s"]))
        return cls(engine, layout, trace, requests, query, 1e3 * total_s / len(requests))

    def replayed_ms(self) -> float:
        """Mean time of a request in the event model."""
        deployment = self.query.deployment
        worker = Worker.of(deployment, self.query.device)
        return 1e3 * float(replay(self.requests, deployment, worker).latency_s.mean())


def _layout(layout: str) -> tuple[int, Parallelism]:
    """Number of replicas, and devices of each: `2DP4TP`, `8TP`, `tp_8` or `ep_8`."""
    if layout.startswith(("tp_", "ep_")):
        size = int(layout[3:])
        return 1, Parallelism(size, expert=size if layout.startswith("ep_") else 1)
    replicas, _, tensor = layout.rpartition("DP")
    return int(replicas or 1), Parallelism(int(tensor.removesuffix("TP")))


def _requests(row: Mapping[Hashable, object], replicas: int) -> Requests:
    """Requests of the row's replica, assigned round-robin, with the token totals of the row.

    Llama runs with several replicas served all texts of a creation trace. The trace in tokens of
    Llama lacks some of them, so the trace in tokens of Mistral is used instead.
    """
    trace = str(row["trace"])
    whole = replicas > 1 and trace.startswith("creation")
    family = "mistral" if whole or row["engine"] == "sglang" else "llama"
    requests = named_trace(f"{trace}_{family}")
    if replicas > 1:
        first = int(float(str(row["replica"])))
        requests = requests.take(np.arange(first, len(requests), replicas))
    lengths = []
    for name in ("input_tokens", "output_tokens"):
        tokens = getattr(requests, name)
        column = "prompt_tokens" if name == "input_tokens" else name
        total = float(str(row[column]))
        lengths.append(np.maximum(1, np.rint(tokens * total / tokens.sum())).astype(np.intp))
    return Requests(requests.arrival_s, *lengths)
