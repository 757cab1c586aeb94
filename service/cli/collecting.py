"""What the verbs of `forerun collect` share: progress, the table, and what is said of it."""

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from forerun.service.cli.output import print_json, progress, screen

if TYPE_CHECKING:
    import pandas as pd

    from forerun.data.collectors.collector import Collected, Collector


def run_collector(
    collector: "Collector", output: Path, minutes: float, *, threads: int, json: bool
) -> None:
    """Measure to a budget, write the table, and say how steady the figures are.

    What was measured is written too when the run is interrupted; the same command goes on.
    """
    from forerun.data.collectors.collector import collect
    from forerun.data.collectors.journal import Journal
    from forerun.data.errors import InputError
    from forerun.data.measurement import write_measurements
    from forerun.service.device_store import DeviceStore
    from forerun.service.local_device import local_device
    from forerun.service.settings import Settings

    if output.suffix not in (".parquet", ".csv"):
        raise InputError(f"{output}: a table of measurements ends in .parquet or .csv.")
    why = collector.available()
    if why is not None:
        raise InputError(f"Cannot measure here: {why}.")
    name = str(collector.about()["device"])
    found, is_new = local_device(DeviceStore(Settings.load().home / "devices"), name, threads)
    if is_new:
        progress(f"{found.name} is registered as {found.title}")
    journal = Journal.beside(output)
    try:
        collected = collect(collector, journal, 60 * minutes, tell=_tell)
    finally:
        # Also on the way out of an interruption: what was measured is a table.
        frame = journal.frame()
        if len(frame):
            write_measurements(frame.drop(columns="trial"), output)
    _report(frame, collected, output, name, json)


def _tell(trial: Any, row: dict[str, Any], left_s: float) -> None:
    if row["status"] in ("ok", "throttled"):
        spread = f"spread {100 * row['spread']:.1f} %"
        found = f"{row['latency_ms']:.4g} ms, {spread}, {row['repeats']} runs"
    else:
        found = f"{row['status']}: {row.get('reason', '')}"
    progress(f"  {trial.name}: {found} ({left_s:.0f} s left)")


def _report(
    frame: "pd.DataFrame", collected: "Collected", output: Path, device: str, json: bool
) -> None:
    good = frame[frame["status"] == "ok"]
    spreads = sorted(float(value) for value in good.get("spread", []))
    reasons = sorted({str(r) for r in frame.get("energy_reason", []) if isinstance(r, str)})
    facts: dict[str, Any] = {
        "table": str(output),
        "device": device,
        "rows": len(frame),
        "status": {str(k): int(v) for k, v in frame["status"].value_counts().items()},
        "measured_now": collected.measured,
        "resumed": collected.resumed,
        "left_out": collected.left,
        "median_spread": median(spreads) if spreads else None,
        "largest_spread": spreads[-1] if spreads else None,
        "no_energy": reasons,
    }
    if json:
        print_json(facts)
        return
    out = screen()
    counts = ", ".join(f"{n} {status}" for status, n in facts["status"].items())
    out.print(f"{len(frame)} rows ({counts}) in {output}", markup=False)
    if spreads:
        high = spreads[int(0.9 * (len(spreads) - 1))]
        out.print(
            f"spread of repeats (interquartile range over median): {100 * median(spreads):.1f} % "
            f"in the middle, under {100 * high:.1f} % in nine rows of ten"
        )
    for reason in reasons:
        out.print(f"no energy: {reason}", markup=False)
    if collected.left:
        out.print(f"{collected.left} left out for want of time; the same command goes on")
    out.print(f"next: forerun adapt {output} --device {device}", markup=False)
