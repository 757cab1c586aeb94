"""Which training rows were measured on which device: the record of a predictor as plain rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forerun.models.artifact.training_record import TrainingRecord


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured values of one device in the training set, alike in all that is named here.

    Attributes:
        device: name of the device, as the dataset gives it.
        dataset: name of the bundle.
        kind: kind of workload; empty where it was not recorded.
        metric: name of the metric; empty likewise.
        phase: `inference` or `training`; empty where the workload has none.
        precision: number format of the run; empty likewise.
        runtime: how the operators are executed; empty likewise.
        values: number of measured values; None where only their presence was recorded.
    """

    device: str
    dataset: str
    kind: str = ""
    metric: str = ""
    phase: str = ""
    precision: str = ""
    runtime: str = ""
    values: int | None = None


FIELDS = ("dataset", "kind", "metric", "phase", "precision", "runtime")
"""Fields of `Measured` that distinguish measured values of one device."""


def measured(record: TrainingRecord) -> tuple[Measured, ...]:
    """All measured values of a training set.

    A dataset whose values were not counted by device has one row for each of its devices, without
    a number; one without devices has none.
    """
    found = [
        Measured(
            setting.device,
            dataset,
            setting.kind,
            setting.metric,
            setting.phase,
            setting.precision,
            setting.runtime,
            values,
        )
        for dataset, counted in record.counts.items()
        for setting, values in counted.items()
    ]
    found += [
        Measured(device, dataset)
        for dataset, keys in record.keys.items()
        if dataset not in record.counts
        for device in keys.get("device", ())
    ]
    return tuple(found)


def values_by_device(rows: Iterable[Measured]) -> Counter[str]:
    """Device -> number of its measured values; 0 where only their presence is known."""
    counted: Counter[str] = Counter()
    for row in rows:
        counted[row.device] += row.values or 0
    return counted


@dataclass(frozen=True)
class Pivot:
    """Numbers of measured values by device and by one field.

    Attributes:
        by: the field.
        columns: values of the field, the one with the most measured values first.
        devices: names of devices, the one with the most measured values first.
        cells: (device, column) -> number of values; None where only their presence is known.
    """

    by: str
    columns: Sequence[str]
    devices: Sequence[str]
    cells: dict[tuple[str, str], int | None]


def pivot(rows: Sequence[Measured], by: str) -> Pivot:
    """Count measured values by device and by one of `FIELDS`; rows without the field are left out.

    Args:
        rows: measured values.
        by: name of the field.
    """
    cells: dict[tuple[str, str], int | None] = {}
    by_column: Counter[str] = Counter()
    by_device: Counter[str] = Counter()
    for row in rows:
        column = getattr(row, by)
        if not column:
            continue
        before = cells.get((row.device, column))
        known = [number for number in (before, row.values) if number is not None]
        cells[row.device, column] = sum(known) if known else None
        by_column[column] += row.values or 0
        by_device[row.device] += row.values or 0
    return Pivot(
        by,
        [name for name, _ in by_column.most_common()],
        [name for name, _ in by_device.most_common()],
        cells,
    )
