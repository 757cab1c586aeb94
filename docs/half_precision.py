"""Compare answers in half precision with published figures: `python docs/half_precision.py`.

Prints a Markdown table: ResNet-50, BERT and ViT on data-centre GPUs of `published_networks`. Every
GPU is judged by `NetworkLatency` fitted on the published rows of the other GPUs.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.training.protocols.networks.published_networks import bundled_latency, graphs_of
from forerun.training.protocols.networks.published_rows import published_measurements

GRAPHS = ("resnet50", "bert", "vit")
CHIPS = ("a100", "h100", "l40s", "v100")
PRECISIONS = ("amp", "bf16", "fp16")
HEADER = (
    "| GPU | network | phase | runtime | precision | batch | published ms | predicted ms "
    "| 90 % interval |",
    "| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: |",
)


def main() -> None:
    """Print the table, and error and coverage over its rows."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = PublishedNetworks().pull(folder=Path(folder) / "published_networks")
        lines, ratios, covered = zip(*compared(bundle), strict=True)
    print("\n".join((*HEADER, *sorted(lines))))
    error = np.abs(np.asarray(ratios) - 1)
    print(
        f"\n{len(error)} rows: mean absolute percentage error {error.mean():.1%}, "
        f"median {np.median(error):.1%}, intervals hold {np.mean(covered):.1%}"
    )


def compared(bundle: Bundle) -> Iterator[tuple[str, float, bool]]:
    """Table line, predicted over published time, and whether the interval holds, for each row."""
    rows, _ = published_measurements(bundle.table("table"), graphs_of(bundle), DeviceCatalog.load())
    groups = rows.groups
    half = np.isin(groups["precision"], PRECISIONS)
    wanted = half & np.array([str(name).startswith(GRAPHS) for name in groups["graph"]])
    for chip in CHIPS:
        held = groups["chip"] == chip
        if (held & wanted).any():
            yield from _lines(rows.take(~held), rows.take(held & wanted))


def _lines(train: Measurements, judged: Measurements) -> Iterator[tuple[str, float, bool]]:
    answers = bundled_latency().fit(train).predict(judged.queries)
    for index, query in enumerate(judged.queries):
        keys = ("device", "graph", "phase", "runtime", "precision")
        published = float(judged.column("latency_ms")[index])
        value, low, high = (
            float(column["latency_ms"][index])
            for column in (answers.values, answers.low, answers.high)
        )
        cells = [str(judged.groups[key][index]) for key in keys]
        cells += [f"{query.network.batch_size:>4}", f"{published:.2f}", f"{value:.2f}"]
        line = f"| {' | '.join((*cells, f'{low:.2f} to {high:.2f}'))} |"
        yield line, value / published, low <= published <= high


if __name__ == "__main__":
    main()
