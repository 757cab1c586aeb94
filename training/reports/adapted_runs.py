"""Errors of `LlmLatency` on a GPU that was left out, by number of measured runs: a Markdown table.

`python -m forerun.training.reports.adapted_runs` fits on the aggregated runs of
`aiconfigurator_serving` on all other GPUs. Of each model and engine with at least `LEAST` runs on
the GPU, random support runs adapt the predictor, and errors are those of runs that are in no
support set. A class is a model and an engine.
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
"""Numbers of support runs."""
DRAWS: Final = 3
"""Random orders of the runs of a class."""
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
    """Number of support runs -> time -> errors, %, for each class and draw, in one order.

    Args:
        model: fitted to runs of other devices.
        runs: runs of one device.
    """
    found: dict[int, dict[str, list[Column]]] = {n: {name: [] for name in TIMES} for n in SHOTS}
    for own in _classes(runs):
        for draw in range(DRAWS):
            order = np.random.default_rng(draw).permutation(own)
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
    own = [query.deployment for query in runs.queries]
    names = ["-".join([one.engine.name, *map(str, sizes(one))]) for one in own]
    return (rows for rows in rows_by(names).values() if len(rows) >= LEAST)


def _cell(errors: list[Column], before: list[Column]) -> str:
    """Median error, and the most by which the median error of a class and draw rose."""
    median = np.median(np.concatenate(errors))
    if errors is before:
        return f"{median:.1f} %"
    rises = [np.median(own) - np.median(was) for own, was in zip(errors, before, strict=True)]
    return f"{median:.1f} % ({max(rises):+.1f})"


if __name__ == "__main__":
    main()
