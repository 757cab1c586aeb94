"""Measure with a collector into a table, within a time budget, by a plan in YAML."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forerun.data.collectors.latency.cpu import CpuCollector, CpuRun
from forerun.data.collectors.plans import plan_content
from forerun.data.collectors.runner import collector as runner
from forerun.data.collectors.runner.journal import KEY, Journal
from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.onnx_networks import NETWORKS as ONNX_NETWORKS
from forerun.data.collectors.workloads.operators import flops, operator_sweep, processor_trials
from forerun.data.collectors.workloads.torch_networks import NETWORKS, definition_of
from forerun.data.device import Device
from forerun.data.errors import InputError, MissingExtra
from forerun.data.graph import OperatorGraph
from forerun.data.lazy import pd
from forerun.data.measurement import write_measurements
from forerun.data.workload import Phase
from forerun.features.operators.costs import operator_cost
from forerun.features.readers import read_graph
from forerun.service.adaptation.measurement_files import graph_folder_of
from forerun.service.problems import unfit
from forerun.service.stores.device_sheets import local_device
from forerun.service.stores.devices import DeviceStore


def built_trials(
    table: Path, quick: bool = False, batch_sizes: Sequence[int] = (1,)
) -> tuple[Trial, ...]:
    """Trials of the networks built for processors; their graphs are written next to the table.

    Args:
        table: path of the table of measurements.
        quick: only the networks that a collection of two minutes measures.
        batch_sizes: batch sizes of every network.
    """
    trials = []
    for name, definition in ONNX_NETWORKS.items():
        if quick and not definition.quick:
            continue
        graph = read_graph(definition.build())
        keep_graph(graph, name, table)
        for size in batch_sizes:
            group = f"network {name}" if size == 1 else f"batch {size}"
            trials.append(_network_trial(Source(name, "", graph.digest), graph, size, group))
    return tuple(trials)


def _network_trial(source: Source, graph: OperatorGraph, batch_size: int, group: str) -> Trial:
    return Trial(
        source,
        batch_size=batch_size,
        framework="onnxruntime",
        runtime="onnxruntime",
        group=group,
        flops=flops_of(graph) / graph.batch_size,
    )


def onnx_trials(files: Iterable[Path], table: Path) -> tuple[Trial, ...]:
    """Trials of ONNX files at their own batch size; their graphs are written next to the table.

    Raises:
        UnreadableModel: a file is not a readable model.
    """
    trials = []
    for file in files:
        graph = read_graph(file)
        keep_graph(graph, file.stem, table)
        source = Source(file.stem, str(file.resolve()), graph.digest)
        trials.append(_network_trial(source, graph, graph.batch_size, f"network {file.stem}"))
    return tuple(trials)


def keep_zoo_graphs(names: Iterable[str], table: Path) -> None:
    """Write the graphs of networks of the zoos next to the table, by name; existing files stay.

    Raises:
        MissingExtra: torch is not installed.
    """
    folder = graph_folder_of(table)
    for name in dict.fromkeys(names):
        if not (folder / f"{name}.json").is_file():
            keep_graph(zoo_graph(name), name, table)


def zoo_graph(name: str) -> OperatorGraph:
    """The graph of a network of a zoo at batch size 1, traced on the meta device.

    Raises:
        MissingExtra: torch is not installed, or timm where the network is one of timm's.
    """
    from forerun.features.readers.torch_trace import declare_operators, trace_module

    definition = definition_of(name)
    assert definition is not None, name

    def parts() -> tuple[object, Sequence[object]]:
        import torch

        with torch.device("meta"):
            return definition.build(), (definition.example(1, "meta"),)

    try:
        declare_operators()
        module, inputs = parts()
    except ImportError as error:
        if error.name == "timm":
            raise MissingExtra(f"Tracing {name}", "zoo") from error
        module, inputs = None, ()
    return trace_module(module, inputs)


def keep_graph(graph: OperatorGraph, name: str, table: Path) -> None:
    """Write a graph where `forerun adapt` looks for it: `<table>-graphs/<name>.json`."""
    folder = graph_folder_of(table)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(graph.to_json()) + "\n")


def flops_of(graph: OperatorGraph) -> float:
    """FLOPs of one run at the graph's batch size."""
    return sum(operator_cost(operator).flops * operator.repeat for operator in graph.operators)


COMPILE_S = 30.0
"""A guess at the time that torch.compile takes, in seconds."""


class BadPlan(InputError):
    """A measurement plan is not valid."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SweepPlan(_Part):
    """A grid of single operators."""

    step: int = Field(default=4, ge=2, le=64)
    """factor from one size to the next"""
    largest_mib: float = Field(default=512, gt=0)
    """largest size of the operands in fp32, MiB"""
    runtimes: tuple[Literal["onnxruntime", "eager"], ...] = ("onnxruntime",)
    precisions: tuple[Literal["fp32", "bf16"], ...] = ("fp32",)

    def trials(self) -> Iterator[Trial]:
        """Every operator in each runtime and precision; onnxruntime runs fp32 only."""
        operators = operator_sweep(self.step, int(self.largest_mib * 2**18))
        for runtime, precision in product(self.runtimes, self.precisions):
            if runtime == "onnxruntime" and precision != "fp32":
                continue
            for op in operators:
                yield Trial(
                    op,
                    precision,
                    framework="onnxruntime" if runtime == "onnxruntime" else "torch",
                    runtime=runtime,
                    group=f"{op.kind} {precision} {runtime}",
                    flops=flops(op),
                )


class NetworksPlan(_Part):
    """Networks of the zoo, run with torch."""

    names: tuple[str, ...] = Field(min_length=1)
    """names of networks in the zoo"""
    batch_sizes: tuple[int, ...] = (1,)
    runtimes: tuple[Literal["eager", "compiled"], ...] = ("eager",)
    precisions: tuple[Literal["fp32", "bf16", "amp_bf16"], ...] = ("fp32",)
    phases: tuple[Phase, ...] = ("inference",)

    def trials(self) -> Iterator[Trial]:
        """Every network at each batch size, runtime, precision and phase.

        Raises:
            BadPlan: the zoo has no network of that name.
        """
        combinations = product(
            self.names, self.batch_sizes, self.runtimes, self.precisions, self.phases
        )
        for name, size, runtime, precision, phase in combinations:
            if name not in NETWORKS:
                raise BadPlan(f"The zoo has no network {name!r}; it has {', '.join(NETWORKS)}.")
            yield Trial(
                Source(name),
                precision,
                size,
                phase,
                runtime=runtime,
                group=f"{name} {runtime} {phase}",
                flops=1e9 * NETWORKS[name].gflops,
                setup_s=COMPILE_S if runtime == "compiled" else 2.0,
            )


class CollectionPlan(_Part):
    """What to measure, and for how long."""

    budget_minutes: float = Field(default=20, gt=0)
    """total time, minutes"""
    window_s: float = Field(default=2.0, gt=0, le=600)
    """measured time of one row, seconds"""
    operators: SweepPlan | None = None
    networks: tuple[NetworksPlan, ...] = ()
    reference_networks: bool = True
    """whether to measure the networks built for processors, with onnxruntime"""
    reference_batch_sizes: tuple[int, ...] = (1,)
    """batch sizes of the reference networks"""
    processor_operators: bool = False
    """whether to measure operators at batch size 1, with onnxruntime"""
    onnx_files: tuple[Path, ...] = ()
    """ONNX files to measure; paths are relative to the plan's folder"""

    def trials(self, table: Path, folder: Path) -> tuple[Trial, ...]:
        """Every trial of the plan; graphs of ONNX files are written next to the table.

        Args:
            table: path of the table of measurements.
            folder: folder of the plan.

        Raises:
            BadPlan: a network or a file does not exist.
            UnreadableModel: a file is not a readable model.
        """
        files = [folder / file for file in self.onnx_files]
        missing = [file for file in files if not file.is_file()]
        if missing:
            raise BadPlan(f"The plan names {missing[0]}, which is not there.")
        parts = [self.operators.trials()] if self.operators else []
        parts += [part.trials() for part in self.networks]
        # Before the reference networks, which take seconds to build: wrong names are refused first.
        single = [trial for part in parts for trial in part]
        sizes = self.reference_batch_sizes if self.reference_networks else ()
        built = built_trials(table, batch_sizes=sizes) if sizes else ()
        own = processor_trials() if self.processor_operators else ()
        trials = (*built, *own, *single, *onnx_trials(files, table))
        return tuple({trial.key: trial for trial in trials}.values())


def read_plan(path: Path) -> CollectionPlan:
    """Read a plan from a YAML file, or the packaged plan of that name.

    Raises:
        MissingData: there is no such file or name.
        BadPlan, BadTable: it holds no valid plan, or is not YAML.
    """
    try:
        return CollectionPlan.model_validate(plan_content(path) or {})
    except ValidationError as error:
        raise BadPlan(f"{path}: {unfit(error.errors()).detail}") from None


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
    outcome: runner.Collected

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


def check_can(collector: runner.Collector, output: Path) -> None:
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
    collector: runner.Collector,
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
        report(f"  {runner.progress_line(trial, row, left_s)}")

    try:
        outcome = runner.collect(collector, journal, 60 * minutes, unsteady=UNSTEADY, report=tell)
    except runner.Broken as error:
        raise InputError(f"This process lost the device; run again to continue: {error}") from None
    finally:
        # The table is also written when the run is interrupted.
        frame = journal.frame()
        if len(frame):
            write_measurements(frame.drop(columns=KEY), output)
    return Collection(output, device.name, frame, outcome)


def processor_collector(
    device: str, output: Path, threads: int | None, plan: Path | None, *, quick: bool
) -> tuple[CpuCollector, float]:
    """The collector of this machine's processor with its trials, and its time budget in minutes.

    Args:
        device: name of this machine in the rows.
        output: path of the table.
        threads: computing threads; all that this process may use when None.
        plan: as for `planned_trials`.
        quick: whether a collection takes two minutes, without a plan.

    Raises:
        InputError: it cannot measure here, or the plan is not valid.
    """
    from forerun.data.collectors.system.host import usable_cpus

    check_can(CpuCollector(device), output)
    trials, minutes, window_s = quick_trials(output) if quick else planned_trials(plan, output)
    return CpuCollector(device, trials, CpuRun(threads or usable_cpus(), window_s)), minutes


def quick_trials(output: Path) -> tuple[tuple[Trial, ...], float, float]:
    """Trials of a collection of two minutes, its minutes, and the window of a row in seconds.

    Graphs of the networks are written next to the table.
    """
    from forerun.data.collectors.latency.fingerprint import reference_trials
    from forerun.data.collectors.system.host import library

    if library("onnxruntime") is None:
        return reference_trials("torch"), QUICK_MINUTES, QUICK_WINDOW_S
    networks = built_trials(output, quick=True)
    return (*networks, *processor_trials(quick=True)), QUICK_MINUTES, QUICK_WINDOW_S


def planned_trials(plan: Path | None, output: Path) -> tuple[tuple[Trial, ...], float, float]:
    """Trials of a plan, its minutes, and the window of a row in seconds.

    Graphs of the networks are written next to the table.

    Args:
        plan: YAML file; the packaged `cpu-standard` when None.
        output: path of the table.

    Raises:
        BadPlan: there is no such file, or it holds no valid plan.
    """
    from forerun.data.collectors.system.host import library

    chosen = read_plan(plan or Path("cpu-standard"))
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
    from forerun.data.measurement import read_measurements

    named = {str(name) for name in read_measurements(table)["workload"] if definition_of(name)}
    keep_zoo_graphs(sorted(named), table)
    return len(named)
