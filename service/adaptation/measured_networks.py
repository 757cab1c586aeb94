"""Trials of networks; their operator graphs are written next to the table of measurements."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.onnx_networks import NETWORKS as ONNX_NETWORKS
from forerun.data.collectors.workloads.torch_networks import definition_of
from forerun.data.errors import MissingExtra
from forerun.data.graph import OperatorGraph
from forerun.features.operators.costs import operator_cost
from forerun.features.readers import read_graph
from forerun.service.adaptation.measurement_files import graph_folder_of


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
        trials += [
            Trial(
                Source(name, "", graph.digest),
                batch_size=size,
                framework="onnxruntime",
                runtime="onnxruntime",
                group=f"network {name}" if size == 1 else f"batch {size}",
                flops=flops_of(graph) / graph.batch_size,
            )
            for size in batch_sizes
        ]
    return tuple(trials)


def onnx_trials(files: Iterable[Path], table: Path) -> tuple[Trial, ...]:
    """Trials of ONNX files at their own batch size; their graphs are written next to the table.

    Raises:
        UnreadableModel: a file is not a readable model.
    """
    trials = []
    for file in files:
        graph = read_graph(file)
        keep_graph(graph, file.stem, table)
        each = flops_of(graph) / graph.batch_size
        trials.append(
            Trial(
                Source(file.stem, str(file.resolve()), graph.digest),
                batch_size=graph.batch_size,
                framework="onnxruntime",
                runtime="onnxruntime",
                group=f"network {file.stem}",
                flops=each,
            )
        )
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
