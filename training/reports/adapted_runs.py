"""Errors of `LlmLatency` on a held-out GPU by the number of measured runs, as a Markdown table.

`python -m forerun.training.reports.adapted_runs` fits on the aggregated runs of
`aiconfigurator_serving` on all other GPUs. A class is a model and an engine; only classes with at
least `LEAST` runs on the GPU take part. The predictor adapts to random support runs of a class, and
is scored on runs of the class that are in no support set.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from forerun.data.bundle import find
from forerun.data.columns import Column, Positions, rows_by
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.models.llm_serving.domain import sizes
from forerun.models.llm_serving.latency import LlmLatency
from forerun.training.protocols.language_models.aiconfigurator_serving import (
    AiConfiguratorServingProtocols,
)

GPUS: Final = ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb")
SHOTS: Final = (0, 1, 3, 10)
"""Sizes of the support set."""
DRAWS: Final = 3
"""Number of random orders of the runs of a class."""
LEAST: Final = 20
"""Fewest runs of a class that takes part."""
TIMES: Final[Mapping[str, str]] = {"tpot_ms": "per output token", "ttft_ms": "to the first token"}
HEADER: Final = (
    f"| GPU left out | time | {' | '.join(map(str, SHOTS))} |",
    f"|---|---|{'---:|' * len(SHOTS)}",
)


def main() -> None:
    """Print the table."""
    bundle = find("aiconfigurator_serving", None)
    runs = AiConfiguratorServingProtocols().training_rows(bundle, DeviceCatalog.load())
    print(*HEADER, *lines(runs), sep="\n")


def lines(runs: Measurements) -> Iterator[str]:
    """Two lines of the table for each of `GPUS`."""
    aggregated = runs.take(runs.group("mode") == "agg")
    for gpu in GPUS:
        out = aggregated.group("device") == gpu
        model = LlmLatency(calibrated=False).fit(aggregated.take(~out))
        errors = errors_by_shots(model, aggregated.take(out))
        for metric, words in TIMES.items():
            cells = (_cell(errors[shots][metric], errors[0][metric]) for shots in SHOTS)
            yield f"| {gpu} | {words} | {' | '.join(cells)} |"


def errors_by_shots(model: LlmLatency, runs: Measurements) -> dict[int, dict[str, list[Column]]]:
    """Number of support runs -> time -> errors in percent, for each class and draw in order.

    Args:
        model: fitted to runs on other devices.
        runs: runs on one device.
    """
    found: dict[int, dict[str, list[Column]]] = {n: {name: [] for name in TIMES} for n in SHOTS}
    for class_rows in _classes(runs):
        for draw in range(DRAWS):
            order = np.random.default_rng(draw).permutation(class_rows)
            held_out = runs.take(order[max(SHOTS) :])
            for shots in SHOTS:
                adapted = model.adapt(runs.take(order[:shots])) if shots else model
                values = adapted.predict(held_out.queries).values
                for metric, errors in found[shots].items():
                    measured = held_out.column(metric)
                    errors.append(100.0 * np.abs(values[metric] / measured - 1.0))
    return found


def _classes(runs: Measurements) -> Iterator[Positions]:
    """Positions of the runs of each class that takes part."""
    deployments = [query.deployment for query in runs.queries]
    names = [
        "-".join([deployment.engine.name, *map(str, sizes(deployment))])
        for deployment in deployments
    ]
    return (rows for rows in rows_by(names).values() if len(rows) >= LEAST)


def _cell(errors: list[Column], before: list[Column]) -> str:
    """Median error, and the largest increase of the median error over classes and draws."""
    median = np.median(np.concatenate(errors))
    if errors is before:
        return f"{median:.1f} %"
    rises = [
        np.median(after) - np.median(earlier) for after, earlier in zip(errors, before, strict=True)
    ]
    return f"{median:.1f} % ({max(rises):+.1f})"


if __name__ == "__main__":
    main()
