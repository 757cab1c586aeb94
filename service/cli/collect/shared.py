"""Shared by the commands of `forerun collect`: running a collector, and reporting on its table."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from forerun.service.cli.output import print_json, progress, screen

if TYPE_CHECKING:
    import pandas as pd

    from forerun.data.collectors.runner.collector import Collected, Collector
    from forerun.data.collectors.runner.trial import Row, Trial
    from forerun.data.device import Device

UNSTEADY = 0.1
"""Relative spread of repeats from which on a row is measured again, if time remains."""


def check_can(collector: "Collector", output: Path) -> None:
    """Check the output and the collector before anything is measured.

    Raises:
        InputError: the output is not a table, or the collector cannot measure on this machine.
    """
    from forerun.data.errors import InputError

    if output.suffix not in (".parquet", ".csv"):
        raise InputError(f"{output}: a table of measurements ends in .parquet or .csv.")
    why = collector.available()
    if why is not None:
        raise InputError(f"Cannot measure here: {why}.")


def run_collector(
    collector: "Collector",
    output: Path,
    minutes: float,
    sheet: "Callable[[str], Device]",
    json: bool,
) -> None:
    """Measure within a time budget, write the table, and print the spread of the repeats.

    The table is also written when the run is interrupted; the same command then resumes.

    Args:
        collector: a collector that can measure on this machine.
        output: path of the table.
        minutes: time budget, minutes.
        sheet: makes the spec sheet of a device whose name is not registered.
        json: whether to print one JSON object in place of lines.
    """
    from forerun.data.collectors.runner.collector import Broken, collect
    from forerun.data.collectors.runner.journal import KEY, Journal
    from forerun.data.errors import InputError
    from forerun.data.measurement import write_measurements
    from forerun.service.settings import Settings
    from forerun.service.stores.devices import DeviceStore
    from forerun.service.stores.local_device import local_device

    check_can(collector, output)
    name = str(collector.about()["device"])
    device, is_new = local_device(DeviceStore(Settings.load().home / "devices"), name, sheet)
    if is_new:
        progress(f"{device.name} is registered as {device.title}")
    journal = Journal.for_table(output)
    try:
        collected = collect(collector, journal, 60 * minutes, unsteady=UNSTEADY, report=_tell)
    except Broken as error:
        raise InputError(
            f"The device is lost to this process; run again to go on: {error}"
        ) from None
    finally:
        # The table is also written when the run is interrupted.
        frame = journal.frame()
        if len(frame):
            write_measurements(frame.drop(columns=KEY), output)
    _report(frame, collected, output, device.name, json)


def _tell(trial: "Trial", row: "Row", left_s: float) -> None:
    from forerun.data.collectors.runner.collector import progress_line

    progress(f"  {progress_line(trial, row, left_s)}")


def _report(
    frame: "pd.DataFrame", collected: "Collected", output: Path, device: str, json: bool
) -> None:
    facts = _facts(frame, collected, output, device)
    if json:
        print_json(facts)
        return
    out = screen()
    counts = ", ".join(f"{n} {status}" for status, n in facts["status"].items())
    out.print(f"{len(frame)} rows ({counts or 'nothing'}) in {output}", markup=False)
    if facts["median_spread"] is not None:
        out.print(
            "spread of repeats (interquartile range over median): "
            f"{100 * facts['median_spread']:.1f} % in the middle, "
            f"up to {100 * facts['spread_of_nine_in_ten']:.1f} % in nine rows of ten"
        )
    for reason in facts["no_energy"]:
        out.print(f"no energy: {reason}", markup=False)
    if collected.left:
        out.print(f"{collected.left} left out for want of time; the same command goes on")
    out.print(f"next: forerun adapt {output} --device {device}", markup=False)


def _facts(
    frame: "pd.DataFrame", collected: "Collected", output: Path, device: str
) -> dict[str, Any]:
    has_rows = len(frame) > 0
    good = frame[frame["status"] == "ok"] if has_rows else frame
    spreads = sorted(float(value) for value in good.get("spread", []))
    high = spreads[int(0.9 * (len(spreads) - 1))] if spreads else None
    return {
        "table": str(output),
        "device": device,
        "rows": len(frame),
        "status": {str(k): int(v) for k, v in frame["status"].value_counts().items()}
        if has_rows
        else {},
        "measured_now": collected.measured,
        "resumed": collected.resumed,
        "left_out": collected.left,
        "measured_again": collected.again,
        "median_spread": median(spreads) if spreads else None,
        "spread_of_nine_in_ten": high,
        "no_energy": sorted({r for r in frame.get("energy_reason", []) if isinstance(r, str)}),
    }
