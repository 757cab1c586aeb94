"""Shared by the commands of `forerun collect`: running a collector, and reporting on its table."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.service.cli.output import print_json, progress, screen

if TYPE_CHECKING:
    from forerun.data.collectors.runner.collector import Collector
    from forerun.data.device import Device
    from forerun.service.adaptation.collecting import Collection


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
    from forerun.service.adaptation.collecting import collect_table
    from forerun.service.settings import Settings
    from forerun.service.stores.devices import DeviceStore
    from forerun.service.stores.places import place_of

    devices = DeviceStore(place_of(Settings.load()) / "devices")
    _report(collect_table(collector, output, minutes, sheet, devices, progress), json)


def _report(collection: "Collection", json: bool) -> None:
    facts = collection.facts()
    if json:
        print_json(facts)
        return
    out, table = screen(), collection.table
    counts = ", ".join(f"{n} {status}" for status, n in facts["status"].items())
    out.print(f"{facts['rows']} rows ({counts or 'nothing'}) in {table}", markup=False)
    if facts["median_spread"] is not None:
        out.print(
            "spread of repeats (interquartile range over median): "
            f"{100 * facts['median_spread']:.1f} % in the middle, "
            f"up to {100 * facts['spread_of_nine_in_ten']:.1f} % in nine rows of ten"
        )
    for reason in facts["no_energy"]:
        out.print(f"no energy: {reason}", markup=False)
    if facts["left_out"]:
        out.print(f"{facts['left_out']} left out for want of time; the same command goes on")
    out.print(f"next: forerun adapt {table} --device {collection.device}", markup=False)
