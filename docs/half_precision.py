"""Compare answers in half precision with published figures: `python docs/half_precision.py`.

Prints the tables of docs/results/half-precision.md. It needs the pulled datasets `lambda_bench` and
`mlperf_inference`. Every GPU is predicted by `NetworkLatency` fitted on the rows of other GPUs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from forerun.data.bundle import find
from forerun.data.datasets.networks.published_networks import (
    PublishedNetworks,
    chips,
    micro_batch,
    step_ms,
)
from forerun.data.device import DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.published.zoo import read_graphs
from forerun.models.baselines.roofline import Roofline
from forerun.models.networks.half_precision import PRECISIONS, HalfPrecision
from forerun.models.networks.latency import NetworkLatency
from forerun.training.protocols.networks.lambda_steps import half_precision_steps, step_graphs
from forerun.training.protocols.networks.published_networks import bundled_latency
from forerun.training.protocols.networks.published_rows import published_measurements

CHIPS = ("a100", "h100", "l40s", "v100")
BOARDS = {
    "a100": "a100-sxm-80gb",
    "h100": "h100-sxm-80gb",
    "l40s": "l40s",
    "v100": "v100-sxm2-16gb",
}
TARGETS = ("resnet50-", "bert", "vit")
BATCHES = (1, 8, 32, 128, 256)
GRAPHS: Mapping[str, str] = {
    "resnet50": "resnet50-224",
    "bert_base-128": "bert_base-128-sdpa",
    "bert_base-384": "bert_base_squad-384-eager",
    "bert_large-128": "bert_large_pretraining-128-eager",
    "bert_large-384": "bert_large_squad-384-eager",
    "vit_base": "vit_base-224-eager",
}
"""Network of a cell -> operator graph of the answer."""
VERSIONS = {"resnet50": "1.9.0"}
"""Network -> version of PyTorch at the time of the published figures; otherwise a current one."""
ACCELERATORS = {
    "a100": "NVIDIA A100-SXM-80GB",
    "h100": "NVIDIA H100-SXM-80GB",
    "l40s": "NVIDIA L40S",
}
"""GPU -> its name in MLPerf's results; no submission of these rounds ran on a V100."""
SUITE = {"resnet50": "resnet50", "bert-99.9": "bert_large-384"}
"""Model of MLPerf -> network of a cell. bert-99.9 has the accuracy of half precision."""


@dataclass(frozen=True)
class Comparison:
    """Measured rows of all sources, and predictors fitted without one GPU.

    Attributes:
        rows: measured networks of published_networks and lambda_bench.
        table: published_networks' table, all frameworks.
        graphs: name -> operator graph.
        unfitted: predictor without what was fitted on published rows.
    """

    rows: Measurements
    table: pd.DataFrame
    graphs: Mapping[str, OperatorGraph]
    unfitted: NetworkLatency

    @cached_property
    def predictors(self) -> Mapping[str, NetworkLatency]:
        """GPU -> the predictor fitted on rows of other GPUs."""
        chip = self.rows.groups["chip"].astype(str)
        return {
            name: self.unfitted.fit(self.rows.take(~np.char.startswith(chip, name)))
            for name in CHIPS
        }

    def query(self, network: str, chip: str, batch: int, version: str | None = None) -> Query:
        """Inference by PyTorch in eager mode: ResNet-50 with channels last under autocast as in
        NVIDIA's examples, transformers with weights in fp16.
        """
        resnet = network == "resnet50"
        software = Software(layout="nhwc" if resnet else "nchw", version=version)
        run = Network(self.graphs[GRAPHS[network]], batch, "amp" if resnet else "fp16", "inference")
        return Query(run, DeviceCatalog.load().get(BOARDS[chip]), software)


def load() -> Comparison:
    """All rows, from the packaged dataset and the pulled ones.

    Raises:
        MissingData: a dataset was not pulled.
    """
    dataset, catalog = PublishedNetworks(), DeviceCatalog.load()
    tables = dataset.tidy(dataset.packaged())
    graphs = {**read_graphs(tables["graphs"]), **step_graphs()}
    published, _ = published_measurements(tables["table"], graphs, catalog)
    steps = half_precision_steps(find("lambda_bench").table("throughput"), catalog)
    return Comparison(published + steps, tables["table"], graphs, bundled_latency())


def uncorrected(predictor: NetworkLatency) -> NetworkLatency:
    """The predictor without its correction in half precision."""
    return replace(predictor, half_precision=HalfPrecision(width=predictor.widths[0]))


def compared_rows(data: Comparison) -> pd.DataFrame:
    """PyTorch's rows in half precision with bound, answers and interval, in milliseconds."""
    groups = data.rows.groups
    half = np.isin(groups["precision"], PRECISIONS)
    wanted = half & np.array([str(name).startswith(TARGETS) for name in groups["graph"]])
    frames = []
    for chip, predictor in data.predictors.items():
        rows = data.rows.take(wanted & np.char.startswith(groups["chip"].astype(str), chip))
        if len(rows):
            frames.append(_answers(rows, predictor))
    keys = ["device", "network", "phase", "precision", "batch", "source"]
    return pd.concat(frames).sort_values(keys, ignore_index=True)


def _answers(rows: Measurements, predictor: NetworkLatency) -> pd.DataFrame:
    def predicted(of: NetworkLatency | Roofline) -> np.ndarray:
        return of.predict(rows.queries).values["latency_ms"]

    answer = predictor.predict(rows.queries)
    return pd.DataFrame(
        {
            "device": rows.groups["device"],
            "network": rows.groups["graph"],
            "phase": rows.groups["phase"],
            "precision": rows.groups["precision"],
            "batch": [query.network.batch_size for query in rows.queries],
            "source": [_source(str(text)) for text in rows.groups["source"]],
            "published": rows.values["latency_ms"],
            "bound": predicted(Roofline()),
            "before": predicted(uncorrected(predictor)),
            "answer": answer.values["latency_ms"],
            "low": answer.low["latency_ms"],
            "high": answer.high["latency_ms"],
        }
    )


def _source(text: str) -> str:
    if "DeepLearningExamples" in text:
        return "NVIDIA examples"
    return "transformers" if "transformers" in text.lower() else "Lambda"


def cells(data: Comparison) -> pd.DataFrame:
    """Inference cells with figures of several frameworks: their range, and the answer.

    A cell is a network, a GPU chip and a batch size of at most 256. Figures are those of frameworks
    that run on one GPU in half precision; served ones and TensorRT's are in column `engines`.
    """
    table = data.table.assign(
        ms=step_ms(data.table), batch=micro_batch(data.table), chip=chips(data.table["gpu"])
    )
    table = table.assign(network=[_network(row) for row in table.to_dict("records")])
    kept = (
        table["precision"].isin(PRECISIONS)
        & table["chip"].isin(CHIPS)
        & table["network"].isin(list(GRAPHS))
        & (table["phase"] == "inference")
        & (table["gpu_count"] == 1)
        & (table["batch"] <= BATCHES[-1])
        & (table["ms"] > 0)
        & (table["scenario"] != "triton-online")
    )
    found = []
    keys = ["network", "chip", "batch"]
    for (network, chip, batch), rows in table[kept].groupby(keys):
        engine = rows["kind"].eq("served") | rows["runtime"].str.contains("tensorrt")
        own, engines = rows[~engine], rows[engine]
        if not len(own):
            continue
        query = data.query(network, chip, int(batch), VERSIONS.get(network))
        answer = data.predictors[chip].predict([query])
        frameworks = sorted({name.split(" ")[0] for name in own["framework"]})
        cell = {"network": network, "chip": chip, "batch": int(batch), "figures": len(own)}
        cell |= {"frameworks": ", ".join(frameworks), "least": own["ms"].min()}
        cell |= {"most": own["ms"].max(), "engines": engines["ms"].min()}
        found.append(cell | {"answer": answer.values["latency_ms"][0]} | _interval(answer))
    return pd.DataFrame(found)


def _interval(answer: object) -> dict[str, float]:
    sides = {name: getattr(answer, name)["latency_ms"][0] for name in ("low", "high")}
    return {name: float(value) for name, value in sides.items()}


def _network(row: Mapping[str, object]) -> str:
    """Network of a cell that a row of the table is of; empty where it is another."""
    model, side = str(row["model"]), str(row["sequence_or_image"])
    if model == "ResNet50-v1.5":
        return "resnet50"
    size = {"BERT-base": "bert_base", "BERT-large": "bert_large"}.get(model)
    if str(row["variant"]) == "google-bert/bert-base-uncased":
        size = "bert_base"
    return f"{size}-{side}" if size else ""


def lower_bounds(data: Comparison) -> pd.DataFrame:
    """Best offline result of MLPerf for each GPU, and the answer at batch 256, per sample."""
    results = find("mlperf_inference").table("closed_division")
    results = results[(results["scenario"] == "Offline") & results["model"].isin(list(SUITE))]
    rate = results["result"] / (results["accelerators_per_node"] * results["nodes"])
    results = results.assign(rate=rate)
    found = []
    for chip, accelerator in ACCELERATORS.items():
        for model, network in SUITE.items():
            rows = results[(results["accelerator"] == accelerator) & (results["model"] == model)]
            best = rows.loc[rows["rate"].idxmax()]
            answer = data.predictors[chip].predict([data.query(network, chip, 256)])
            found.append(
                {
                    **{"chip": chip, "network": network, "results": len(rows)},
                    "best": f"{best['round']} {best['submitter']}",
                    "least": 1e3 / rows["rate"].max(),
                    "most": 1e3 / rows["rate"].min(),
                    "answer": answer.values["latency_ms"][0] / 256,
                    "low": answer.low["latency_ms"][0] / 256,
                }
            )
    return pd.DataFrame(found)


def answers_alone(data: Comparison, compared: pd.DataFrame) -> pd.DataFrame:
    """Answers for inference cells without a published figure."""
    known = set(zip(compared["network"], compared["chip"], compared["batch"], strict=True))
    found = []
    for network in ("resnet50", "bert_base-128", "bert_large-384", "vit_base"):
        for chip in CHIPS:
            batches = [b for b in BATCHES if (network, chip, b) not in known]
            if batches:
                answer = data.predictors[chip].predict(
                    [data.query(network, chip, batch) for batch in batches]
                )
                ends = (answer.values, answer.low, answer.high)
                columns = [side["latency_ms"].tolist() for side in ends]
                for batch, value, low, high in zip(batches, *columns, strict=True):
                    cell = {"network": network, "chip": chip, "batch": batch}
                    found.append(cell | {"answer": value, "low": low, "high": high})
    return pd.DataFrame(found)


def markdown(frame: pd.DataFrame) -> Iterator[str]:
    """Lines of a Markdown table; numbers to three significant digits or one decimal."""
    yield "| " + " | ".join(frame.columns) + " |"
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns]
    yield "| " + " | ".join("---:" if right else "---" for right in numeric) + " |"
    for row in frame.itertuples(index=False):
        yield "| " + " | ".join(map(_cell, row)) + " |"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.3g}" if value < 100 else f"{value:.0f}"
    return str(value)


def summary(rows: pd.DataFrame) -> str:
    """Errors of bound and answers, and coverage and width of the intervals."""
    errors = [(rows[name] / rows["published"] - 1).abs() for name in ("bound", "before", "answer")]
    held = (rows["low"] <= rows["published"]) & (rows["published"] <= rows["high"])
    bound, before, now = (f"{error.mean():.1%} (median {error.median():.1%})" for error in errors)
    return (
        f"{len(rows)} rows: bound {bound}, without the correction {before}, answer {now}; "
        f"intervals hold {held.mean():.1%}, high / low {(rows['high'] / rows['low']).mean():.2f}"
    )


def main(parts: Sequence[str] = ("rows", "cells", "bounds", "alone")) -> None:
    """Print the tables."""
    data = load()
    rows, compared = compared_rows(data), cells(data)
    within = (compared["least"] <= compared["answer"]) & (compared["answer"] <= compared["most"])
    several = compared["figures"] > 1
    tables = {
        "rows": rows,
        "cells": compared.assign(within=np.where(within, "yes", "no")),
        "bounds": lower_bounds(data),
        "alone": answers_alone(data, compared),
    }
    for part in parts:
        print(f"\n<!-- {part} -->", *markdown(tables[part]), sep="\n")
    for source, own in rows.groupby("source"):
        print(f"\n{source}: {summary(own)}")
    print(f"\nall: {summary(rows)}")
    spread = (compared["most"] / compared["least"])[several].median()
    near = np.abs(np.log(rows["answer"] / rows["published"])) <= np.log(spread)
    print(
        f"\n{several.sum()} cells with several figures (median most / least {spread:.2f}): "
        f"{within[several].sum()} answers within their range; {near.sum()} of {len(rows)} answers "
        f"within a factor of {spread:.2f} of PyTorch's figure"
    )


if __name__ == "__main__":
    main()
