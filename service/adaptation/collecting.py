"""Measure with a collector into a table, within a time budget, and describe the table."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from forerun.data.collectors.runner.collector import (
    Broken,
    Collected,
    Collector,
    collect,
    progress_line,
)
from forerun.data.collectors.runner.journal import KEY, Journal
from forerun.data.collectors.runner.trial import Trial
from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.measurement import write_measurements
from forerun.service.adaptation.collection_plan import CollectionPlan, read_plan
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.local_device import local_device

if TYPE_CHECKING:
    import pandas as pd

UNSTEADY = 0.1
"""Relative spread of repeats from which on a row is measured again, if time remains."""
QUICK_MINUTES, QUICK_WINDOW_S = 2.0, 0.8


@dataclass(frozen=True, slots=True)
class Collection:
    """A table of measurements that a collector wrote.

    Attributes:
        table: path of the table.
        device: name of the device.
        frame: the rows.
        outcome: how many trials were measured, resumed and left.
    """

    table: Path
    device: str
    frame: "pd.DataFrame"
    outcome: Collected

    def facts(self) -> dict[str, Any]:
        """Numbers of rows by status, and the spread of their repeats, as plain values."""
        frame, has_rows = self.frame, len(self.frame) > 0
        good = frame[frame["status"] == "ok"] if has_rows else frame
        spreads = sorted(float(value) for value in good.get("spread", []))
        counts: dict[Any, Any] = dict(frame["status"].value_counts()) if has_rows else {}
        return {
            "table": str(self.table),
            "device": self.device,
            "rows": len(frame),
            "status": {str(k): int(v) for k, v in counts.items()},
            "measured_now": self.outcome.measured,
            "resumed": self.outcome.resumed,
            "left_out": self.outcome.left,
            "measured_again": self.outcome.again,
            "median_spread": median(spreads) if spreads else None,
            "spread_of_nine_in_ten": spreads[int(0.9 * (len(spreads) - 1))] if spreads else None,
            "no_energy": sorted({r for r in frame.get("energy_reason", []) if isinstance(r, str)}),
        }


def check_can(collector: Collector, output: Path) -> None:
    """Check the output and the collector before anything is measured.

    Raises:
        InputError: the output is not a table, or the collector cannot measure on this machine.
    """
    if output.suffix not in (".parquet", ".csv"):
        raise InputError(f"{output}: a table of measurements ends in .parquet or .csv.")
    why = collector.available()
    if why is not None:
        raise InputError(f"Cannot measure here: {why}.")


def collect_table(
    collector: Collector,
    output: Path,
    minutes: float,
    sheet: Callable[[str], Device],
    devices: DeviceStore,
    report: Callable[[str], None],
) -> Collection:
    """Measure within a time budget and write the table.

    The table is also written when the run is interrupted; the same call then resumes.

    Args:
        collector: a collector that can measure on this machine.
        output: path of the table.
        minutes: time budget, minutes.
        sheet: makes the spec sheet of a device whose name is not registered.
        devices: the store of devices.
        report: called with a line about each step.

    Raises:
        InputError: the collector cannot measure here, or the device is lost to this process.
    """
    check_can(collector, output)
    device, is_new = local_device(devices, str(collector.about()["device"]), sheet)
    if is_new:
        report(f"{device.name} is registered as {device.title}")
    journal = Journal.for_table(output)

    def tell(trial: Trial, row: dict[str, Any], left_s: float) -> None:
        report(f"  {progress_line(trial, row, left_s)}")

    try:
        outcome = collect(collector, journal, 60 * minutes, unsteady=UNSTEADY, report=tell)
    except Broken as error:
        raise InputError(
            f"The device is lost to this process; run again to go on: {error}"
        ) from None
    finally:
        # The table is also written when the run is interrupted.
        frame = journal.frame()
        if len(frame):
            write_measurements(frame.drop(columns=KEY), output)
    return Collection(output, device.name, frame, outcome)


def quick_trials(output: Path) -> tuple[tuple[Trial, ...], float, float]:
    """Trials of a collection of two minutes, its minutes, and the window of a row in seconds.

    Graphs of the networks are written next to the table.
    """
    from forerun.data.collectors.latency.fingerprint import reference_trials
    from forerun.data.collectors.system.host import library
    from forerun.data.collectors.workloads.operators import processor_trials
    from forerun.service.adaptation.measured_networks import built_trials

    if library("onnxruntime") is None:
        return reference_trials("torch"), QUICK_MINUTES, QUICK_WINDOW_S
    networks = built_trials(output, quick=True)
    return (*networks, *processor_trials(quick=True)), QUICK_MINUTES, QUICK_WINDOW_S


def planned_trials(plan: Path | None, output: Path) -> tuple[tuple[Trial, ...], float, float]:
    """Trials of a plan, its minutes, and the window of a row in seconds.

    Graphs of the networks are written next to the table.

    Args:
        plan: YAML file; the standard plan when None.
        output: path of the table.

    Raises:
        BadPlan: there is no such file, or it holds no valid plan.
    """
    from forerun.data.collectors.system.host import library
    from forerun.service.adaptation.measured_networks import keep_zoo_graphs

    chosen = CollectionPlan.standard() if plan is None else read_plan(plan)
    folder = Path() if plan is None else plan.parent
    trials = chosen.trials(output, folder)
    if library("torch") is not None:
        keep_zoo_graphs((name for part in chosen.networks for name in part.names), output)
    return trials, chosen.budget_minutes, chosen.window_s


def keep_graphs_of(table: Path) -> int:
    """Trace the networks of the zoos that a table names, next to it; returns their number.

    Raises:
        MissingExtra: torch is not installed, or timm where a network is one of timm's.
    """
    from forerun.data.collectors.workloads.torch_networks import definition_of
    from forerun.data.measurement import read_measurements
    from forerun.service.adaptation.measured_networks import keep_zoo_graphs

    named = {str(name) for name in read_measurements(table)["workload"] if definition_of(name)}
    keep_zoo_graphs(sorted(named), table)
    return len(named)
