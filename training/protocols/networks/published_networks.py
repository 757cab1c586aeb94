"""published_networks: whole networks of published tables, a family or a GPU left out."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadArtifact
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.features.published.zoo import read_graphs
from forerun.models.artifact.loading import bundled
from forerun.models.networks.latency import NetworkLatency
from forerun.models.predictor import Predictor
from forerun.models.router import Router
from forerun.training.protocols.networks.published_rows import published_measurements
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task


class PublishedNetworksProtocols(DatasetProtocols):
    """Latency of whole networks, by runtime, phase, precision and batch band; none is mixed."""

    dataset = "published_networks"
    predictor_name = NetworkLatency.name

    def predictor(self, seed: int = 0) -> Predictor:
        """`NetworkLatency` with the bundled predictors of the device's time, the rest unfitted.

        Those were trained on other tables. These hold no row of this one, but most of its vision
        families on other GPUs, and kernels of the V100 and the A100 in fp32.
        """
        return bundled_latency()

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows that take part and have a graph."""
        return published_measurements(bundle.table("table"), graphs_of(bundle), catalog)[0]

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One exam a family and one a chip left out; tasks of one protocol are pooled by name."""
        table = bundle.table("table")
        measured, kept = published_measurements(table, graphs_of(bundle), catalog)
        place = np.full(len(table), -1)
        place[kept] = np.arange(len(kept))
        for split in PublishedNetworks().splits(bundle):
            protocol = split.protocol.partition("/")[0]
            train = place[split.train & (place >= 0)]
            judged = place[split.judged & (place >= 0)]
            if len(train) and len(judged):
                tasks = list(_tasks(measured.take(judged), protocol))
                yield Fold(protocol, measured.take(train), tasks)

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Rows by what is new in them: the GPU's chip, the architecture family, or both."""
        table = bundle.table("table")
        measured, _ = published_measurements(table, graphs_of(bundle), catalog)
        new = {
            key: ~np.isin(measured.groups[key], list(seen.get(key, ())))
            for key in ("chip", "family")
        }
        parts = {
            "unseen_device": new["chip"] & ~new["family"],
            "unseen_device_and_model": new["chip"] & new["family"],
            "unseen_model": ~new["chip"] & new["family"],
        }
        for protocol, rows in parts.items():
            if rows.any():
                yield from _tasks(measured.take(rows), protocol)


def graphs_of(bundle: Bundle) -> dict[str, OperatorGraph]:
    """The graphs of a bundle; those that come with the package where it has none."""
    if bundle.has("graphs"):
        return read_graphs(bundle.table("graphs"))
    dataset = PublishedNetworks()
    return read_graphs(dataset.tidy(dataset.packaged())["graphs"])


def _tasks(rows: Measurements, protocol: str) -> Iterator[Task]:
    for name in np.unique(rows.groups["part"]):
        yield Task(f"{protocol}/{name}", "latency_ms", rows.take(rows.groups["part"] == name))


def bundled_latency() -> NetworkLatency:
    """The bundled predictor of networks without what it knows of published tables.

    Raises:
        BadArtifact: the installation is damaged, or bundles no predictor of networks.
    """
    predictor = bundled().predictor
    parts = predictor.parts if isinstance(predictor, Router) else (predictor,)
    for part in parts:
        if isinstance(part, NetworkLatency):
            return part.without_published()
    raise BadArtifact("The bundled predictors hold no network_latency; fit them again.")
