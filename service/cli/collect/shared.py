"""What the verbs of `forerun collect` share: progress, the table, and what is said of it."""

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
"""Spread from which on a row is measured again where time is left."""


def check_can(collector: "Collector", output: Path) -> None:
    """Refuse before anything is measured.

    Raises:
        InputError: the output is no table, or the collector cannot measure here.
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
    """Measure to a budget, write the table, and say how steady the figures are.

    What was measured is written too when the run is interrupted; the same command goes on.

    Args:
        collector: that can measure here.
        output: table.
        minutes: budget.
        sheet: makes the device where nothing has its name.
        json: print one JSON object in place of lines.
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
    found, is_new = local_device(DeviceStore(Settings.load().home / "devices"), name, sheet)
    if is_new:
        progress(f"{found.name} is registered as {found.title}")
    journal = Journal.for_table(output)
    try:
        collected = collect(collector, journal, 60 * minutes, unsteady=UNSTEADY, report=_tell)
    except Broken as error:
        raise InputError(
            f"The device is lost to this process; run again to go on: {error}"
        ) from None
    finally:
        # Also on the way out of an interruption: what was measured is a table.
        frame = journal.frame()
        if len(frame):
            write_measurements(frame.drop(columns=KEY), output)
    _report(frame, collected, output, found.name, json)


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
    there = len(frame) > 0
    good = frame[frame["status"] == "ok"] if there else frame
    spreads = sorted(float(value) for value in good.get("spread", []))
    high = spreads[int(0.9 * (len(spreads) - 1))] if spreads else None
    return {
        "table": str(output),
        "device": device,
        "rows": len(frame),
        "status": {str(k): int(v) for k, v in frame["status"].value_counts().items()}
        if there
        else {},
        "measured_now": collected.measured,
        "resumed": collected.resumed,
        "left_out": collected.left,
        "measured_again": collected.again,
        "median_spread": median(spreads) if spreads else None,
        "spread_of_nine_in_ten": high,
        "no_energy": sorted({r for r in frame.get("energy_reason", []) if isinstance(r, str)}),
    }
