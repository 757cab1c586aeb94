"""Compare serving runs with AIConfigurator's predictions of them.

`python docs/aiconfigurator_comparison.py` prints a Markdown table: errors on the
aggregated runs of `aiconfigurator_serving` that AIConfigurator answers, of its stored
predictions, of the closed form, and of `LlmLatency` with deployments, GPUs or models left out.
A second table has their medians by GPU and by model. `--ask` renews the stored predictions, which
needs the extra `peers`.
"""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.language_models.aiconfigurator_serving import RUNS, AiConfiguratorServing
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.models.llm_serving import LlmLatency
from forerun.training.protocols.language_models.aiconfigurator_answers import arguments, asked
from forerun.training.protocols.language_models.aiconfigurator_serving import serving_runs

STORED = Path(__file__).parent / "results" / "aiconfigurator.csv"
METRICS = ("tpot_ms", "ttft_ms")
SPLITS = {
    "unseen_deployment_aggregated": "deployments left out",
    "unseen_device_aggregated": "GPU left out",
    "unseen_model_aggregated": "model left out",
}
HEADER = (
    "| prediction | runs | TPOT, mean | TPOT, median | TTFT, mean | TTFT, median |",
    "| --- | ---: | ---: | ---: | ---: | ---: |",
)
GROUPS_HEADER = (
    "\n| runs of | runs | AIConfigurator | `llm_latency`, it left out |",
    "| --- | ---: | ---: | ---: |",
)


def main() -> None:
    """Ask AIConfigurator where that is wanted, then print the table and the reasons of refusals."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = AiConfiguratorServing().pull(folder=Path(folder) / "aiconfigurator_serving")
        runs, kept = serving_runs(bundle.table(RUNS), DeviceCatalog.load())
        names = bundle.table(RUNS)["id"].to_numpy(dtype=np.str_)[kept]
        if "--ask" in sys.argv:
            _ask(runs, names)
        stored = pd.read_csv(STORED).set_index("id").reindex(names)
        answered = stored["tpot_ms"].notna().to_numpy()
        peer: Mapping[str, Column] = {m: stored[m].to_numpy() for m in METRICS}
        predictions = {"AIConfigurator": peer}
        closed = LlmLatency().predict(runs.queries).values
        predictions["closed form"] = {m: closed[m] for m in METRICS}
        for split, title in SPLITS.items():
            predictions[f"`llm_latency`, {title}"] = left_out(bundle, runs, kept, split)
    aggregated = runs.groups["mode"] == "agg"
    lines = [line(title, runs, found, answered) for title, found in predictions.items()]
    print("\n".join((*HEADER, *lines)))
    print(f"\nAIConfigurator answers {answered.sum():,} of {aggregated.sum():,} runs.")
    print("\n".join(refusals(stored["refusal"].to_numpy()[aggregated & ~answered])))
    print("\n".join((*GROUPS_HEADER, *by_group(runs, predictions, answered))))


def by_group(
    runs: Measurements, predictions: Mapping[str, Mapping[str, Column]], answered: np.ndarray
) -> Iterator[str]:
    """Lines of medians (%) by GPU and by model, of the fits that each was left out of."""
    for key, title in (("device", "GPU left out"), ("model", "model left out")):
        names = runs.groups[key]
        for name in np.unique(names[answered]):
            rows = answered & (names == name)
            cells = [
                " / ".join(
                    f"{np.median(100 * np.abs(found[m] / runs.column(m) - 1)[rows]):.1f}"
                    for m in METRICS
                )
                for found in (predictions["AIConfigurator"], predictions[f"`llm_latency`, {title}"])
            ]
            yield f"| {name} | {rows.sum():,} | {' | '.join(cells)} |"


def refusals(reasons: np.ndarray) -> list[str]:
    """Number of runs for each reason, without the sizes that it names."""
    counts = Counter(re.split(r" for | '| \{", str(reason))[0] for reason in reasons)
    return [f"- {count:,}: {reason}" for reason, count in counts.most_common()]


def left_out(
    bundle: Bundle, runs: Measurements, kept: np.ndarray, protocol: str
) -> Mapping[str, Column]:
    """Predictions of each run by the fit that it was left out of; NaN for runs in no split."""
    found = {metric: np.full(len(runs), np.nan) for metric in METRICS}
    for split in AiConfiguratorServing().splits(bundle):
        held_out = np.flatnonzero(split.held_out[kept])
        if split.protocol.partition("/")[0] == protocol and len(held_out):
            fitted = LlmLatency(calibrated=False).fit(runs.take(np.flatnonzero(split.train[kept])))
            values = fitted.predict(runs.take(held_out).queries).values
            for metric in METRICS:
                found[metric][held_out] = values[metric]
    return found


def line(title: str, runs: Measurements, found: Mapping[str, Column], answered: np.ndarray) -> str:
    """Line of the table: errors (%) on the runs that are answered."""
    cells = []
    for metric in METRICS:
        error = 100 * np.abs(found[metric] / runs.column(metric) - 1)[answered]
        cells += [f"{np.mean(error):.1f}", f"{np.median(error):.1f}"]
    return f"| {title} | {answered.sum():,} | {' | '.join(cells)} |"


def _ask(runs: Measurements, names: np.ndarray) -> None:
    """Store AIConfigurator's answers about all aggregated runs."""
    pd.DataFrame([*_answers(runs, names)]).round(4).to_csv(STORED, index=False)


def _answers(runs: Measurements, names: np.ndarray) -> Iterator[Mapping[str, object]]:
    for index in np.flatnonzero(runs.groups["mode"] == "agg"):
        given = arguments(runs.queries[int(index)], str(runs.groups["model"][index]))
        yield {"id": names[index], **asdict(asked(given))}


if __name__ == "__main__":
    main()
