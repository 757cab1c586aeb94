"""What a law is: comparisons of answers, each with how far it is from what must hold."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx

from forerun.data.datasets.networks.published_networks import PublishedNetworks
from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network, NumberFormat
from forerun.features.published.zoo import read_graphs
from forerun.features.readers import read_graph
from forerun.models.answers.answer import Answer, Asked, answers_to
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled

ALLOWED = 0.01
"""Share of violations of a law that needs no entry in `known.json`."""
KNOWN = Path(__file__).with_name("known.json")
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
CATALOG = DeviceCatalog.load()
LATENCY = "latency_ms"

Compared = tuple[str, float]
"""A question, and by what share its answer breaks the law; zero or less where it holds."""


@dataclass(frozen=True)
class Grid:
    """The questions that laws ask.

    Attributes:
        networks: names of graphs; all where empty.
        precisions: number formats.
        batches: ascending batch sizes.
        sample: questions of laws that draw them.
    """

    networks: tuple[str, ...]
    precisions: tuple[NumberFormat, ...]
    batches: tuple[int, ...]
    sample: int


SMALL = Grid(
    ("resnet50-224", "bert_base-128-sdpa", "efficientnet_b0-224"),
    ("fp32", "amp", "fp16", "bf16"),
    (1, 16, 256),
    150,
)
LARGE = Grid((), ("fp32", "tf32", "amp", "fp16", "bf16"), (1, 8, 64, 512), 3000)


@dataclass(frozen=True)
class Outcome:
    """How a law holds on a grid.

    Attributes:
        law: its name.
        pairs: comparisons.
        violations: those that break it.
        worst: by what share the worst breaks it.
        question: that one's question.
    """

    law: str
    pairs: int
    violations: int
    worst: float
    question: str

    @property
    def share(self) -> float:
        """Share of violations."""
        return self.violations / self.pairs if self.pairs else 0.0


LAWS: dict[str, Callable[[Grid], Iterable[Compared]]] = {}


def law(check: Callable[[Grid], Iterable[Compared]]) -> Callable[[Grid], Iterable[Compared]]:
    """Registers a law; its docstring is what must hold."""
    LAWS[check.__name__] = check
    return check


def outcome(name: str, grid: Grid) -> Outcome:
    """A law on a grid."""
    pairs = violations = 0
    worst = ("", 0.0)
    for question, excess in LAWS[name](grid):
        pairs += 1
        if excess > 0.0:
            violations += 1
            worst = max(worst, (question, excess), key=lambda one: one[1])
    return Outcome(name, pairs, violations, worst[1], worst[0])


@cache
def known() -> Mapping[str, Mapping[str, float | str]]:
    """Law -> `share` of violations today, and the `reason`."""
    content: dict[str, dict[str, float | str]] = json.loads(KNOWN.read_text(encoding="utf-8"))
    return content


@cache
def in_use() -> InUse:
    """The bundled predictors."""
    return InUse(bundled())


@cache
def networks() -> Mapping[str, OperatorGraph]:
    """Forty published networks: tables, traced modules and ONNX files."""
    dataset = PublishedNetworks()
    graphs = read_graphs(dataset.tidy(dataset.packaged())["graphs"])
    light = {path.stem: read_graph(path.read_bytes()) for path in sorted(LIGHT.glob("*.onnx"))}
    return {**{name: graphs[name] for name in PACKAGED}, **light}


def chosen(grid: Grid) -> tuple[str, ...]:
    """Names of the grid's networks."""
    return grid.networks or tuple(networks())


PACKAGED = (
    *("resnet50-224", "seresnext101_32x4d-224", "efficientnet_b0-224", "efficientnet_b4-380"),
    *("resnet18-224", "resnet34-224", "resnet101-224", "efficientnet_b1-224"),
    *("efficientnet_b3-224", "efficientnet_widese_b4-380", "ssd300_resnet50-300"),
    *("bert_large_squad-384-eager", "bert_base-128-eager", "bert_base-128-sdpa"),
    *("bert_base_mlm-512-sdpa", "albert_base-256-eager", "albert_base-512-sdpa"),
    *("biogpt-64-sdpa", "biogpt-256-eager", "pythia_410m-128-sdpa", "pythia_410m-512-eager"),
    *("pythia_410m-2048-sdpa", "vit_base-224-eager", "beit_base-224-sdpa", "resnet50_hf-224"),
    *("data2vec_base-224-eager", "convnext_large-224", "segformer_b0-512"),
    *("deeplabv3_mobilenet_v2-513", "sam_vit_b_encoder-1024", "detr_resnet50-800x1066"),
)

Mode = str
"""A runtime, or `training` in eager mode."""


@dataclass(frozen=True)
class Run:
    """A network on a device, as a key."""

    network: str
    device: str
    precision: NumberFormat
    batch: int
    mode: Mode = "eager"
    threads: int | None = None

    def query(self) -> Query:
        """The query."""
        training = self.mode == "training"
        runtime = "eager" if training else self.mode
        return Query(
            Network(
                networks()[self.network],
                self.batch,
                self.precision,
                "training" if training else "inference",
            ),
            CATALOG.get(self.device),
            Software(runtime=runtime, threads=self.threads),  # type: ignore[arg-type]
        )

    def __str__(self) -> str:
        threads = "" if self.threads is None else f" {self.threads} threads"
        words = f"{self.network} {self.device} {self.precision} batch {self.batch} {self.mode}"
        return words + threads


def answered(
    queries: Iterable[Query], metrics: tuple[str, ...] = (LATENCY,)
) -> list[Answer | None]:
    """The answer of the product; None where it refuses."""
    found = answers_to([Asked(query, metrics) for query in queries], in_use())
    return [own if isinstance(own, Answer) else None for own in found]


def value(answer: Answer | None, metric: str = LATENCY) -> float | None:
    """An estimate's value; None where nothing is answered."""
    if answer is None or metric not in answer.trust:
        return None
    return answer.estimates[metric].value


@cache
def milliseconds(grid: Grid) -> Mapping[Run, float]:
    """Latency of each run of a grid on each GPU with a sheet, as far as it is answered.

    Where a grid names its networks, those after the first run on every third GPU.
    """
    found: dict[Run, float] = {}
    for place, network in enumerate(chosen(grid)):
        runs = [
            Run(network, device.name, precision, batch, mode)
            for device in (gpus()[place::3] if place and grid.networks else gpus())
            for precision in grid.precisions
            for mode in ("eager", "compiled", "reduce-overhead", "training")
            for batch in grid.batches
            if precision != "tf32" or "tf32" in device.peak_tflops
        ]
        times = map(value, answered(run.query() for run in runs))
        found |= {run: ms for run, ms in zip(runs, times, strict=True) if ms is not None}
    return found


@cache
def gpus() -> tuple[Device, ...]:
    """All GPUs of the catalogue with a sheet."""
    return tuple(device for device in CATALOG if device.kind == "gpu" and device.has_sheet)


@cache
def processors() -> tuple[Device, ...]:
    """All processors of the catalogue with a sheet and a number of cores."""
    return tuple(
        device
        for device in CATALOG
        if device.kind == "cpu" and device.has_sheet and device.compute_units
    )


def pairs_by(
    times: Mapping[Run, float], others: Callable[[Run], Iterable[Run]]
) -> Iterator[tuple[Run, float, Run, float]]:
    """Runs with those that each is compared with, where both are answered."""
    for run, ms in times.items():
        for other in others(run):
            if other in times:
                yield run, ms, other, times[other]
