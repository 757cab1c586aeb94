"""published_networks: latency of networks in published tables, with a family or a GPU held out."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadArtifact
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.features.published.zoo import read_graphs
from forerun.models.artifact.loading import bundled
from forerun.models.networks.host_time import HostTime
from forerun.models.networks.latency import NetworkLatency
from forerun.models.predictor import Predictor
from forerun.models.router import Router
from forerun.training.protocols.networks.published_rows import published_measurements
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, split_rows

LONG: Final = 3.0
"""Latency over the expected host time from which on a run takes as long as its device: the norm of
`NetworkLatency` adds 0.3 % there."""


class PublishedNetworksProtocols(DatasetProtocols):
    """Latency of networks, scored by runtime, phase, precision and band of batch sizes."""

    dataset = "published_networks"
    held_out_by = MappingProxyType({"unseen_device": ("chip",), "unseen_model": ("family",)})

    def predictor(self, seed: int = 0) -> Predictor:
        """`NetworkLatency` with the bundled predictors of device time; the rest is unfitted.

        The bundled predictors were trained on other datasets. Those contain no row of this one, but
        most of its vision families on other GPUs, and fp32 operators of the V100 and the A100.
        """
        return bundled_latency()

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All usable rows with an operator graph."""
        return published_measurements(bundle.table("table"), graphs_of(bundle), catalog)[0]

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each held-out family and chip; tasks of a protocol are pooled by name."""
        table = bundle.table("table")
        measured, kept = published_measurements(table, graphs_of(bundle), catalog)
        for protocol, train, held_out in split_rows(
            PublishedNetworks().checked_splits(bundle), measured, kept
        ):
            yield Fold(protocol, train, list(_tasks(held_out, protocol)))

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Rows by what is not in the training set: the chip, the architecture family, or both."""
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


class LongRuns(PublishedNetworksProtocols):
    """Runs that take much longer than their host: training rows of `DeviceTime`."""

    part = "long"

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Runs of `MODELLED` runtimes that take `LONG` times the expected time of a host."""
        rows = super().training_rows(bundle, catalog)
        host_s, _ = HostTime().seconds(rows.queries)
        return rows.take(rows.values["latency_ms"] > 1e3 * LONG * host_s)


def graphs_of(bundle: Bundle) -> dict[str, OperatorGraph]:
    """Operator graphs of a bundle, by name; those of the package where the bundle has none."""
    return read_graphs(PublishedNetworks().table_of(bundle, "graphs"))


def _tasks(rows: Measurements, protocol: str) -> Iterator[Task]:
    for name in np.unique(rows.groups["part"]):
        yield Task(f"{protocol}/{name}", "latency_ms", rows.take(rows.groups["part"] == name))


def bundled_latency() -> NetworkLatency:
    """The bundled `NetworkLatency` without what was fitted on published tables.

    Raises:
        BadArtifact: the installation is damaged, or contains no `NetworkLatency`.
    """
    predictor = bundled().predictor
    parts = predictor.parts if isinstance(predictor, Router) else (predictor,)
    for part in parts:
        if isinstance(part, NetworkLatency):
            return part.without_published()
    raise BadArtifact("The bundled predictors hold no network_latency; fit them again.")
