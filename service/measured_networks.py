"""Networks to measure, joined with their operator graphs, which stand beside the table."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from forerun.data.collectors.trial import Source, Trial
from forerun.data.graph import Operator, OperatorGraph
from forerun.features.costs import operator_cost
from forerun.features.readers import read_graph
from forerun.features.reference_operators import reference_operators
from forerun.service.measurement_files import graph_folder_of

REFERENCE_NETWORKS = (
    "light_squeezenet",
    "light_shufflenet",
    "light_inception_v1",
    "light_resnet50",
)
"""Networks that come with the onnx package, with weights made up: small to middle."""


def reference_networks() -> tuple[Path, ...]:
    """Files of `REFERENCE_NETWORKS`; empty where this build of the onnx package lacks them."""
    import onnx

    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    files = (folder / f"{name}.onnx" for name in REFERENCE_NETWORKS)
    return tuple(file for file in files if file.is_file())


def reference_trials(framework: str) -> tuple[Trial, ...]:
    """The reference operators, as trials of `onnxruntime` or of eager `torch`."""
    return operator_trials(reference_operators(), framework)


def operator_trials(
    operators: Iterable[Operator], framework: str, precisions: Sequence[str] = ("fp32",)
) -> tuple[Trial, ...]:
    """Operators in every precision, as trials of `onnxruntime` or of eager `torch`."""
    return tuple(
        Trial(
            operator,
            precision,
            framework="onnxruntime" if framework == "onnxruntime" else "torch",
            runtime="onnxruntime" if framework == "onnxruntime" else "eager",
            group=f"{operator.kind} {precision}",
            flops=operator_cost(operator).flops,
        )
        for precision in precisions
        for operator in operators
    )


def onnx_trials(files: Iterable[Path], table: Path) -> tuple[Trial, ...]:
    """ONNX files as trials at the batch size that each has; their graphs are put beside the table.

    Raises:
        UnreadableModel: a file is no sound model.
    """
    trials = []
    for file in files:
        graph = read_graph(file)
        keep_graph(graph, file.stem, table)
        source = Source(file.stem, str(file.resolve()), graph.digest, flops_of(graph))
        trials.append(
            Trial(
                source,
                batch_size=graph.batch_size,
                framework="onnxruntime",
                runtime="onnxruntime",
                group=f"network {file.stem}",
                flops=source.flops / graph.batch_size,
            )
        )
    return tuple(trials)


def keep_graph(graph: OperatorGraph, name: str, table: Path) -> None:
    """Write a graph where `forerun adapt` looks for it: `<table>-graphs/<name>.json`."""
    folder = graph_folder_of(table)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(graph.to_json()) + "\n")


def flops_of(graph: OperatorGraph) -> float:
    """FLOPs of one run at the graph's batch size."""
    return sum(operator_cost(operator).flops * operator.repeat for operator in graph.operators)
