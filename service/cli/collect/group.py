"""`forerun collect`: measure on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from forerun.data.errors import InputError
from forerun.data.plugins import plugin, plugins_by_name
from forerun.service.cli import options as o
from forerun.service.cli.collect.program import program, window
from forerun.service.cli.commands import DescribedCommands
from forerun.service.cli.output import print_json, progress, progress_bar, screen

if TYPE_CHECKING:
    from forerun.data.collectors.runner.collector import Collector
    from forerun.data.collectors.runner.trial import Trial
    from forerun.data.device import Device


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
    from forerun.service.stores.devices import devices_of

    devices = devices_of(Settings.load())
    collection = collect_table(collector, output, minutes, sheet, devices, progress)
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
        out.print(f"{facts['left_out']} left out for lack of time; repeat the command to continue")
    out.print(f"next: forerun adapt {table} --device {collection.device}", markup=False)


GROUP = "forerun.collectors"


class CollectGroup(TyperGroup):
    """The commands of `forerun collect`, and one for each collector of an installed package."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands; forerun's own come first and cannot be replaced."""
        return list(dict.fromkeys((*super().list_commands(ctx), *plugins_by_name(GROUP))))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None where there is none.

        Raises:
            BrokenPlugin: the collector of that name cannot be loaded.
        """
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        cls = plugin(GROUP, cmd_name)
        return None if cls is None else _command(cmd_name, cls)


def _command(name: str, cls: "type[Collector]") -> Any:
    """The command that measures with a collector, which is made without arguments."""

    def measure(
        output: Annotated[
            Path, typer.Option("--output", "-o", help="table to write, .parquet or .csv")
        ],
        budget_minutes: Annotated[
            float,
            typer.Option(help="time budget; no trial is started that would end later", min=0.05),
        ] = 30.0,
        json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    ) -> None:

        run_collector(cls(), output, budget_minutes, _unregistered, json)

    app = DescribedCommands(add_completion=False)
    app.command(name, help=(cls.__doc__ or "").partition("\n")[0])(measure)
    return typer.main.get_command(app)


def _unregistered(name: str) -> "Device":
    """Refuse a device without a spec sheet: forerun cannot tell what another package measures.

    Raises:
        InputError: always.
    """
    raise InputError(f"No device is named {name!r}; add its spec sheet by `forerun devices add`.")


BUSY = 0.3
"""Load per processor from which on other processes disturb the measured times."""


def cpu(
    output: Annotated[Path, typer.Option("--output", "-o")],
    quick: Annotated[bool, typer.Option("--quick")] = False,
    plan: Path | None = None,
    device: str = "my-cpu",
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    budget_minutes: Annotated[float | None, typer.Option(min=0.05)] = None,
    json: o.Json = False,
) -> None:
    """Measure this machine's processor: latency, memory beyond that of the runtime, energy.

    Args:
        output: table to write, .parquet or .csv
        quick: measure reference operators and networks only, in two minutes
        plan: measurement plan: .yaml file, or name of a packaged one [cpu-standard]
        device: name of this machine in the rows
        threads: computing threads [all that this process may use]
        budget_minutes: time budget; no trial is started that would end later
        json: print one JSON object
    """
    from forerun.data.collectors.system.host import library, load, usable_cpus
    from forerun.service.adaptation.collecting import processor_collector
    from forerun.service.stores.device_sheets import this_cpu

    if quick and plan is not None:
        raise InputError("Give --quick or --plan, not both.")
    collector, minutes = processor_collector(device, output, threads, plan, quick=quick)
    if library("torch") is None and len(collector.plan()) < len(collector.trials):
        progress("torch is not installed: measuring through onnxruntime alone")
    if (load() or 0.0) > BUSY * usable_cpus():
        progress("this machine is busy: times will be longer and noisy")
    progress(f"measuring {device} with {threads or usable_cpus()} threads into {output}")
    run_collector(collector, output, budget_minutes or minutes, this_cpu, json)


def gpu(
    output: Annotated[Path, typer.Option("--output", "-o")],
    budget_minutes: Annotated[float, typer.Option(min=0.05)] = 30.0,
    device: str = "",
    index: Annotated[int, typer.Option("--gpu", min=0)] = 0,
    only: Literal["operators", "networks", "recorded", "compiled"] | None = None,
    zoo: Literal["forerun", "timm"] = "forerun",
    step: Annotated[int, typer.Option(min=2, max=64)] = 2,
    power_seconds: Annotated[float, typer.Option(min=0, max=600)] = 2.0,
    json: o.Json = False,
) -> None:
    """Measure a GPU: latency, memory at three levels, power and energy, clocks and throttling.

    Args:
        output: table to write, .parquet or .csv
        budget_minutes: time budget; no trial is started that would end later
        device: name of the GPU in the rows [the product's name]
        index: index of the GPU
        only: part of the plan; recorded means as a CUDA graph [all]
        zoo: networks to measure: forerun's own, or those of the package timm
        step: factor from one operator size to the next
        power_seconds: length of windows in which power is measured; 0 measures no power
        json: print one JSON object
    """
    from forerun.data.collectors.latency.gpu import GpuCollector
    from forerun.data.collectors.latency.gpu_plan import Pacing
    from forerun.service.stores.device_sheets import nvidia_gpu

    pacing = Pacing.to_a_budget(power_seconds)
    collector = GpuCollector(index, device, None, step, only, pacing, zoo)
    try:
        run_collector(collector, output, budget_minutes, nvidia_gpu, json)
    finally:
        # The networks in the table need graphs, also after an interruption or a lost GPU.
        if output.is_file():
            graphs(output)


def graphs(table: Path) -> None:
    """Trace the zoo networks that a table names, for a table measured without graphs.

    Args:
        table: table of measurements that names networks of a zoo
    """
    from forerun.service.adaptation.collecting import keep_graphs_of
    from forerun.service.adaptation.measurement_files import graph_folder_of

    progress(f"{keep_graphs_of(table)} graphs in {graph_folder_of(table)}")


def probe(
    output: Annotated[Path, typer.Option("--output", "-o")],
    device: str = "",
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    json: o.Json = False,
) -> None:
    """Measure reference operators and small networks for one minute, the same on every device.

    Args:
        output: table to write, .parquet or .csv
        device: name of the device in the rows [the GPU's name, or my-cpu]
        threads: computing threads of a processor [all that this process may use]
        json: print one JSON object
    """
    from dataclasses import replace

    from forerun.data.collectors.latency.fingerprint import probe_collector, probe_trials
    from forerun.data.collectors.latency.gpu import GpuCollector
    from forerun.data.collectors.system.host import usable_cpus
    from forerun.service.adaptation.collecting import check_can
    from forerun.service.stores.device_sheets import nvidia_gpu, this_cpu

    collector = probe_collector(device, threads)
    check_can(collector, output)
    on_gpu = isinstance(collector, GpuCollector)
    trials = probe_trials(_networks(on_gpu, output), on_gpu=on_gpu)
    count = threads or usable_cpus()
    progress(f"probing the {'GPU' if on_gpu else f'processor with {count} threads'} into {output}")
    sheet = nvidia_gpu if on_gpu else this_cpu
    run_collector(replace(collector, trials=trials), output, 1.0, sheet, json)


def _networks(on_gpu: bool, output: Path) -> "tuple[Trial, ...]":
    from forerun.data.collectors.latency.fingerprint import zoo_trials
    from forerun.data.collectors.system.host import library
    from forerun.service.adaptation.collecting import built_trials, keep_zoo_graphs

    if on_gpu:
        trials = zoo_trials()
        keep_zoo_graphs((trial.subject.name for trial in trials), output)
        return trials
    return built_trials(output, quick=True)[:4] if library("onnxruntime") else ()


def circuit(
    output: Annotated[Path, typer.Option("--output", "-o")],
    plan: Path | None = None,
    jobs: Annotated[int, typer.Option(min=1)] = 1,
    budget_minutes: Annotated[float | None, typer.Option(min=0)] = None,
) -> None:
    """Make circuits with yosys and nextpnr-ice40: the delay of every net, frequency, resources.

    Args:
        output: folder of the collection; an existing one is resumed
        plan: plan of designs and seeds, a .yaml file [480 designs]
        jobs: designs made in parallel
        budget_minutes: time budget; no design is begun after it
    """
    from forerun.data.collectors.circuits.collection import Collection
    from forerun.data.collectors.circuits.tools import STANDARD

    collection = Collection.open(output, plan or STANDARD)
    try:
        with progress_bar("designs", len(collection.todo())) as step:
            for made in collection.run(jobs=jobs, budget_minutes=budget_minutes):
                if made.problem:
                    progress(made.problem)
                step()
    finally:
        # The tables are also written when the collection is interrupted.
        counts = collection.write_tables()
        rows = ", ".join(f"{name} {number:,}" for name, number in counts.items())
        left = len(collection.todo())
        progress(
            f"{rows or 'no'} rows in {output}" + (f"; {left:,} designs are left" if left else "")
        )


app = DescribedCommands(cls=CollectGroup, help="Measure on this machine.", no_args_is_help=True)
app.command("cpu")(cpu)
app.command("probe")(probe)
app.command("gpu")(gpu)
app.command("graphs")(graphs)
app.command("program")(program)
app.command("window")(window)
app.command("circuit")(circuit)


@app.command("contention")
def contention(
    plan: Annotated[Path, typer.Option()],
    output: Annotated[Path, typer.Option("--output", "-o")],
    budget_minutes: Annotated[float | None, typer.Option(min=0)] = None,
) -> None:
    """Measure how neighbours slow down work of known size, with metrics of the host.

    Args:
        plan: plan of victims and neighbours: .yaml file, quick, short or standard
        output: folder of the collection; an existing one is resumed
        budget_minutes: time budget; no run is started after it
    """
    from forerun.data.collectors.interference.collection import Collection

    collection = Collection.open(plan, output)
    for line in collection.limits():
        progress(line)
    try:
        with progress_bar("runs", len(collection.todo())) as step:
            for _ in collection.run(budget_minutes=budget_minutes):
                step()
    finally:
        # The tables are also written when the collection is interrupted.
        tables = collection.write_tables()
        counts = ", ".join(f"{name} {len(rows):,}" for name, rows in tables.items())
        progress(f"{counts or 'no'} rows in {output}")
