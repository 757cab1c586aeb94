"""How good the layouts are that plans recommend: a Markdown table.

`python -m forerun.training.reports.training_plans` takes the settings of `published_training` of
which several layouts were measured: a model, a device, a number of devices, lengths, a framework
and a number format. The predictor is fitted without all runs of the model on the device. Of the
measured layouts, the one that it ranks first is compared with the one that was fastest, and the
place of the fastest among the layouts that a plan searches and that fit by the best estimate of
their memory is given. Where layouts were measured in different releases of the framework, releases
are compared too: settings of one release are counted once more by themselves.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pandas as pd

from forerun.data.bundle import find
from forerun.data.columns import rows_by
from forerun.data.datasets.language_models.published_training import configurations
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.training import LlmTraining
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_training.layouts import Layouts
from forerun.models.llm_training.plans import layouts_of
from forerun.models.llm_training.predictors import LlmTrainingMemory
from forerun.models.llm_training.step_time import LlmTrainingStep
from forerun.training.protocols.language_models.published_training import (
    PublishedTrainingProtocols,
)

STEP: Final = "latency_ms"
CLOSE: Final = 1.05
"""Ratio of times up to which a recommended layout is as good as the fastest."""
FIRST: Final = 0.05


def main() -> None:
    """Print a line for each setting, and the shares."""
    bundle = find("published_training", None)
    rows = PublishedTrainingProtocols().training_rows(bundle, DeviceCatalog.load())
    found = list(settings(rows, releases(bundle.table("table"))))
    print("| setting | layouts | releases | slower than the fastest | place among those that fit |")
    print("|---|---:|---:|---:|---:|")
    for name, layouts, count, ratio, place in found:
        figures = f"{layouts} | {count} | {100 * (ratio - 1):.1f} % | {100 * place:.1f} %"
        print(f"| {name} | {figures} |")
    counts, ratios, places = np.array([one[2:] for one in found]).T
    close, first = np.mean(ratios <= CLOSE), np.mean(places[~np.isnan(places)] <= FIRST)
    same = ratios[counts == 1]
    print(
        f"\n{len(found)} settings: {100 * close:.0f} % of the recommended layouts are within 5 % "
        f"of the fastest, {100 * np.mean(same <= CLOSE):.0f} % of the {len(same)} of one release; "
        f"{100 * first:.0f} % of the fastest are in the first 5 % of the search (median "
        f"{100 * np.nanmedian(places):.1f} %)."
    )


def releases(table: pd.DataFrame) -> Mapping[str, frozenset[str]]:
    """Configuration -> releases of the framework in which it was measured."""
    named = table["framework_version"].fillna("").astype(str)
    return dict(named.groupby(configurations(table)).agg(frozenset))


def settings(
    rows: Measurements, known: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, int, int, float, float]]:
    """Name, layouts, releases, time of the recommended one over the fastest, and that one's place.

    Args:
        rows: measured steps.
        known: configuration -> releases in which it was measured.
    """
    memory = LlmTrainingMemory().fit(rows)
    rows = rows.take(np.isfinite(rows.column(STEP)))
    keys = [_setting(query) for query in rows.queries]
    models, devices = rows.group("model"), rows.group("device")
    for key, own in rows_by(keys).items():
        if len({rows.queries[row].llm_training.layout for row in own}) < 2:
            continue
        held = (models == models[own[0]]) & (devices == devices[own[0]])
        step = LlmTrainingStep().fit(rows.take(~held))
        queries = [rows.queries[row] for row in own]
        tokens = np.array([_tokens(query.llm_training) for query in queries])
        measured, predicted = 1e3 * tokens / rows.column(STEP)[own], step.predict(queries)
        chosen = measured[int(np.argmax(tokens / predicted.values[STEP]))]
        fastest = own[int(np.argmax(measured))]
        ratio = float(measured.max() / chosen)
        count = len(frozenset().union(*(known[name] for name in rows.group("config")[own])))
        yield key, len(own), count, ratio, place(rows.queries[fastest], step, memory)


def place(query: Query, step: LlmTrainingStep, memory: LlmTrainingMemory) -> float:
    """Share of the layouts of a run that fit and are predicted to be faster than its own."""
    run = query.llm_training
    table = Layouts.of(run, [run.layout, *layouts_of(run, query.device)])
    times = step.of_layouts(run, query.device, table).seconds
    fit = memory.of_layouts(run, query.device, table).device <= 1024.0 * (
        query.device.memory_gib or 0.0
    )
    return float(np.mean((times < times[0] * (1.0 - 1e-9))[fit])) if fit.any() else np.nan


def _tokens(run: LlmTraining) -> float:
    return float(run.global_batch * run.sequence_tokens)


def _setting(query: Query) -> str:
    run = query.llm_training
    model = f"{run.model.parameters() / 1e9:.1f} B"
    return (
        f"{run.model.family} {model}, {run.devices} x {query.device.name}, {run.sequence_tokens} "
        f"tokens, {run.framework}, {run.precision}{', LoRA' if run.lora_rank else ''}"
    )


if __name__ == "__main__":
    main()
