"""Protocols of imported tables: random groups, unseen devices, unseen models; simple baselines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask
from forerun.data.datasets.imported import OwnTable
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.features.tables.own_tables import own_measurements
from forerun.models.baselines.roofline import Roofline
from forerun.models.own_tables import TableBoost
from forerun.models.predictor import Predictor
from forerun.training.protocols import protocol as dp


class OwnTableProtocols(dp.DatasetProtocols):
    """The protocols of one imported table, which fit a `TableBoost` to it.

    Args:
        source: the imported table.
    """

    unseen: ClassVar = {"new_rows": {"question": dp.NEW}}

    def __init__(self, source: OwnTable) -> None:
        self.table = source
        self.dataset = source.name

    def predictor(self, seed: int = 0) -> Predictor:
        """An unfitted predictor of this table."""
        return TableBoost(table=self.dataset, seed=seed)

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        """The one predictor of this table."""
        return (self.predictor(seed),)

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All rows; a row may lack some of the metrics."""
        return own_measurements(bundle, self.table.description), dp.EVERY

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows with at least one measured metric."""
        rows, _ = self.measured(bundle, catalog)
        measured = [np.isfinite(column) for column in rows.values.values()]
        return rows.take(np.any(measured, axis=0))

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each metric."""
        for metric in self.table.description.metrics:
            rows = held_out.take(np.isfinite(held_out.values[metric]))
            known = train is None or np.isfinite(train.values[metric]).any()
            if len(rows) and known:
                baselines = {} if train is None else simple_rules(train, rows, metric)
                yield dp.Task(f"{protocol}/{metric}", metric, rows, baselines=baselines)

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Rows whose question is in the training set."""
        rows, _ = self.measured(bundle, catalog)
        return {"this question is in the training set": dp.is_seen(rows, "question", seen)}


def simple_rules(train: Measurements, held_out: Measurements, metric: str) -> dict[str, Column]:
    """Baselines for n held-out rows: name -> predictions, shape (n,).

    `median` is the median of the training rows. `device_offset` is the roofline bound (1 for rows
    without one) times the median factor of the device; a device without training rows takes the
    median factor of all rows.
    """
    train = train.take(np.isfinite(train.values[metric]))
    measured = train.values[metric]
    factor = measured / _bound(train, metric)
    levels = [("device",), ()] if "device" in train.groups else [()]
    factors = replace(train, values={"factor": factor})
    offsets = dp.median_by(factors, held_out, "factor", *levels)
    return {
        "median": np.full(len(held_out), np.median(measured)),
        "device_offset": offsets * _bound(held_out, metric),
    }


def _bound(rows: Measurements, metric: str) -> Column:
    """Roofline bound of n rows in ms; 1 for other metrics, and if a row has no bound."""
    if metric != "latency_ms" or not all(query.has_bound for query in rows.queries):
        return np.ones(len(rows))
    return np.asarray(Roofline().predict(rows.queries).values[metric])
