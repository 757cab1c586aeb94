"""splitwise: rate of a static batch, with a pair of model and hardware held out, or a hardware."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.splitwise import QUERY, RUNS, TIMES, Splitwise
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.models.llm_serving.static_batch import RATE, StaticBatch
from forerun.training.protocols.language_models.static_batches import splitwise_rows
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, split_rows


class SplitwiseProtocols(DatasetProtocols):
    """Tokens written per second by a batch from end to end."""

    dataset = "splitwise"
    reads = MappingProxyType({RUNS: (*QUERY, *TIMES)})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All batches, the median of the repeats of each."""
        return splitwise_rows(bundle.table(RUNS), catalog)[0]

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each pair of model and hardware, and for each hardware."""
        rows, kept = splitwise_rows(bundle.table(RUNS), catalog)
        for protocol, train, held_out in split_rows(Splitwise().checked_splits(bundle), rows, kept):
            yield Fold(protocol, train, [_task(held_out, protocol)])

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """All batches."""
        yield _task(self.training_rows(bundle, catalog), "unseen_setup")


def _task(held_out: Measurements, protocol: str) -> Task:
    closed = StaticBatch().predict(held_out.queries).values[RATE]
    return Task(f"{protocol}/{RATE}", RATE, held_out, baselines={"closed_form": closed})
