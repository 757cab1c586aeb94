"""llm_inference_bench: rates of static batches on an accelerator that is held out.

Both names of one accelerator are held out together, and the repeats of a row are on its side.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.llm_inference_bench import (
    QUERY,
    RESULTS,
    SUPPORT_ROWS,
    LlmInferenceBench,
)
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.models.llm_serving.static_batch import RATE, StaticBatch
from forerun.models.predictor import Predictor
from forerun.training.protocols.language_models.static_baselines import ClosedFormFactor, RawBooster
from forerun.training.protocols.language_models.static_batches import (
    benchmark_rows,
    known_networks,
)
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, counted, split_rows

HELD_OUT: Mapping[str, str] = MappingProxyType({"unseen_device": "device", "unseen_model": "model"})


class LlmInferenceBenchProtocols(DatasetProtocols):
    """Tokens written per second, with an accelerator or a model held out."""

    dataset = "llm_inference_bench"
    reads = MappingProxyType({RESULTS: (*QUERY, "latency_s", "throughput_tok_s")})

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        """The predictor under test, and two baselines that adapt on the same support sets."""
        return self.predictor(seed), ClosedFormFactor(), RawBooster(seed)

    @property
    def predictor_names(self) -> tuple[str, ...]:
        """Names of `predictors`."""
        return StaticBatch.name, ClosedFormFactor.name, RawBooster.name

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows whose model is known."""
        return benchmark_rows(bundle.table(RESULTS), catalog)[0]

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each accelerator and each model."""
        rows, kept = benchmark_rows(bundle.table(RESULTS), catalog)
        splits = [
            split
            for split in LlmInferenceBench().checked_splits(bundle)
            if split.protocol.partition("/")[0] in HELD_OUT
        ]
        for protocol, train, held_out in split_rows(splits, rows, kept):
            tasks = [*_tasks(held_out)] if protocol == "unseen_device" else [_zero_shot(held_out)]
            yield Fold(protocol, train, tasks)

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Rows of accelerators that are not in the training set."""
        rows = self.training_rows(bundle, catalog)
        for device in np.unique(rows.groups["device"]):
            if device not in seen.get("device", ()):
                yield from _tasks(rows.take(rows.groups["device"] == device))

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Rows of models without a configuration, and of accelerators in the training set."""
        table = bundle.table(RESULTS)
        known = known_networks(table)
        rows, kept = benchmark_rows(table, catalog)
        same = np.zeros(len(table), dtype=np.bool_)
        same[kept] = np.isin(rows.groups["device"], list(seen.get("device", ())))
        return counted(
            {
                "the model has no configuration here": ~known,
                "this device is in the training set": same,
            }
        )


def _zero_shot(held_out: Measurements) -> Task:
    closed = StaticBatch().predict(held_out.queries).values[RATE]
    return Task(f"unseen_model/{RATE}", RATE, held_out, baselines={"closed_form": closed})


def _tasks(held_out: Measurements) -> Iterator[Task]:
    """Rows of one accelerator: unadapted, then with a support set by `suggest` and by lot."""
    device = str(held_out.groups["device"][0])
    closed = {"closed_form": StaticBatch().predict(held_out.queries).values[RATE]}
    yield Task(f"unseen_device/{RATE}", RATE, held_out, device, baselines=closed)
    if len(held_out) <= SUPPORT_ROWS:
        return
    for rule in ("suggested", "random"):
        yield Task(
            f"unseen_device/{RATE}/{SUPPORT_ROWS}_{rule}",
            RATE,
            held_out,
            device,
            baselines=closed,
            shots=SUPPORT_ROWS,
            suggested=rule == "suggested",
        )
