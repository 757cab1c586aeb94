"""Answers to example queries, sealed with predictors and checked when these are loaded.

They differ if the code or a library now gives other answers than when the predictors were sealed.
"""

import json
from collections.abc import Iterator
from math import isclose, isfinite
from pathlib import Path
from typing import Final

from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadArtifact
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Architecture, Kernel, Network, Workload
from forerun.models.predictor import Predictor

FILE: Final = "examples.json"
TOLERANCE: Final = 1e-6
"""Relative difference up to which answers count as equal; CPUs round differently."""
LINEAR: Final = Operator("linear", "linear", ((256, 512),), ((256, 512),), 512 * 512)
DEVICES: Final = ("l4", "core-i7-12700h")
"""A GPU and a CPU of the catalogue used in the example queries."""


def example_queries() -> Iterator[tuple[str, Query]]:
    """Names and example queries of several kinds, on a GPU and on a CPU."""
    graph, catalog = OperatorGraph((LINEAR,), batch_size=256), DeviceCatalog.load()
    for device in map(catalog.get, DEVICES):
        asked: list[tuple[str, Workload]] = [("kernel", Kernel(LINEAR, "fp32"))]
        for precision in ("fp32", "amp"):
            asked.append((f"network {precision}", Network(graph, 256, precision)))
            training = Network(graph, 256, precision, "training")
            asked.append((f"network training {precision}", training))
        asked.append(("architecture", Architecture("nb201", (0, 1, 2, 3, 4, 0))))
        yield from ((f"{name} on {device.name}", Query(work, device)) for name, work in asked)


def example_answers(predictor: Predictor) -> dict[str, dict[str, float]]:
    """Name of each example that the predictor answers -> metric -> best estimate."""
    return {
        name: {
            metric: estimate.value
            for metric, estimate in predictor.predict([query])[0].estimates.items()
        }
        for name, query in example_queries()
        if predictor.answers(query)
    }


def examples_text(predictor: Predictor) -> str:
    """The example answers as sealed text."""
    return json.dumps(example_answers(predictor), indent=1, sort_keys=True) + "\n"


def check_examples(folder: Path, predictor: Predictor) -> None:
    """Compare answers to the examples with those in a sealed folder, if it has any.

    Args:
        folder: the sealed folder.
        predictor: the predictor loaded from it.

    Raises:
        BadArtifact: an answer differs or is missing.
    """
    found, file = example_answers(predictor), folder / FILE
    if not file.is_file():
        return
    for name, answers in json.loads(file.read_text()).items():
        for metric, sealed in answers.items():
            now = found.get(name, {}).get(metric)
            if now is None or not isfinite(now) or not isclose(now, sealed, rel_tol=TOLERANCE):
                raise BadArtifact(
                    f"{folder}: {metric} of {name} is {now} and was {sealed:.6g} when it was "
                    "sealed; it was made with other versions of forerun or of a library. Train and "
                    "register it again with these."
                )
