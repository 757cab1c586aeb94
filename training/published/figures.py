"""Published results of other systems on the same data, which every table lists for comparison.

Figures of other systems are copied from the publications cited. Figures marked `own` are results of
simple methods that we measured ourselves as a baseline.
"""

from dataclasses import dataclass

from forerun.training.published.architectures import HELP, NASFLAT
from forerun.training.published.architectures import Table as NasTable

_NEUSIGHT = (
    "Lee, Phanishayee, Mahajan: Forecasting GPU Performance for Deep Learning Training and "
    "Inference. ASPLOS 2025, arXiv:2407.13853"
)
_NEUSIGHT_ROWS = (
    "mean over the rows of sitar-lab/NeuSight@6945927d, scripts/asplos/results, that the bundle "
    "`neusight` holds"
)
_TIMM = "measured by forerun on huggingface/pytorch-image-models@aa4b5850, results/"
_GRAPHS = f"{_TIMM}, with operator graphs traced by timm and torch 2.13 on the meta device"


@dataclass(frozen=True, slots=True)
class Published:
    """One published result.

    Attributes:
        system: name of the predictor.
        dataset: name of the bundle.
        protocol: protocol whose training and held-out rows are the same as in the publication.
        part: held-out rows that are scored together; `protocol/part` is a task of `forerun
            evaluate`.
        score: name of the score, a field of `forerun.training.scores.errors.Score`.
        value: the score, in percent where it is a relative error or a share.
        over: the rows that the score is averaged over, in the source's words.
        citation: the publication.
        metric: column of measurements that is predicted.
        n: number of rows, where the source gives it.
        own: True for a baseline that we measured; False for another system's result.
    """

    system: str
    dataset: str
    protocol: str
    part: str
    score: str
    value: float
    over: str
    citation: str
    metric: str = "latency_ms"
    n: int | None = None
    own: bool = False

    @property
    def task(self) -> str:
        """`protocol/part`."""
        return f"{self.protocol}/{self.part}"


def _neusight(
    part: str, values: dict[str, float], over: str, citation: str, n: int | None = None
) -> tuple[Published, ...]:
    return tuple(
        Published(system, "neusight", "unseen_device", part, "mape", value, over, citation, n=n)
        for system, value in values.items()
    )


def _timm(system: str, values: dict[str, float], citation: str) -> tuple[Published, ...]:
    return tuple(
        Published(
            system=system,
            dataset="timm_bench",
            protocol=task.split("/")[0],
            part=task.split("/")[1],
            score="mape",
            value=value,
            over=_TIMM_OVER[task.split("/")[0]],
            citation=citation,
            own=True,
        )
        for task, value in values.items()
    )


_TIMM_OVER = {
    "unseen_device": "trained on RTX 3090 and RTX 4090, evaluated on RTX PRO 6000 Max-Q",
    "unseen_family": "families of models outside the training set",
}


def _nas(protocol: str, tables: NasTable, over: str, citation: str) -> tuple[Published, ...]:
    return tuple(
        Published(
            system=system,
            dataset="nas_latency",
            protocol=f"{protocol}_{space}",
            part=part,
            score="spearman",
            value=value,
            over=over,
            citation=citation,
        )
        for (space, system), values in tables.items()
        for part, value in values.items()
    )


PUBLISHED: tuple[Published, ...] = (
    *_neusight(
        "e2e",
        {"NeuSight": 8.9, "Roofline": 31.4, "Li et al.": 60.3, "Habitat": 385.0},
        "all NVIDIA points of the paper, GPUs and models seen and unseen",
        _NEUSIGHT,
        n=83,
    ),
    *_neusight(
        "e2e_shared",
        {"NeuSight": 9.71, "Roofline": 27.44, "Li et al.": 22.37, "Habitat": 15.38},
        "NVIDIA points on one GPU without fusion that the bundle holds",
        _NEUSIGHT_ROWS,
        n=38,
    ),
    *_neusight(
        "e2e_a100_80",
        {"NeuSight": 8.14, "Roofline": 28.24, "Li et al.": 24.44, "Habitat": 38.32},
        "A100-80GB, a GPU outside the training set",
        _NEUSIGHT_ROWS,
        n=7,
    ),
    *(
        figure
        for part, value in {
            "bmm": 13.8,
            "linear": 13.9,
            "elementwise": 19.3,
            "softmax": 13.9,
            "ln": 56.7,
        }.items()
        for figure in _neusight(
            part, {"NeuSight": value}, "unseen GPUs or unseen models", _NEUSIGHT
        )
    ),
    *_timm(
        "Roofline on totals",
        {"unseen_device/eager": 70.0, "unseen_device/compiled": 54.0},
        _TIMM,
    ),
    *_timm(
        "Roofline summed over operators",
        {"unseen_device/eager": 32.9, "unseen_device/compiled": 25.7},
        _GRAPHS,
    ),
    *_timm(
        "LightGBM on published totals",
        {
            "unseen_device/eager": 18.0,
            "unseen_device/compiled": 12.3,
            "unseen_family/eager": 27.5,
            "unseen_family/compiled": 16.8,
        },
        _TIMM,
    ),
    *_timm(
        "LightGBM on operator-class shares",
        {
            "unseen_device/eager": 17.2,
            "unseen_device/compiled": 13.1,
            "unseen_family/eager": 18.9,
            "unseen_family/compiled": 20.0,
        },
        _GRAPHS,
    ),
    *_nas(
        "nasflat",
        NASFLAT,
        "mean over the split's devices of Spearman over all architectures, 20 samples each",
        "Akhauri, Abdelfattah: On Latency Predictors for Neural Architecture Search. MLSys 2024; "
        "figures of nasflat_latency at 8292434",
    ),
    *_nas(
        "help",
        HELP,
        "1,000 architectures of the device less a tenth at either end",
        "Lee, Lee, Chong, Hwang: Hardware-adaptive Efficient Latency Prediction for NAS. "
        "NeurIPS 2021; README of HELP at 45f70eb9",
    ),
    *(
        Published(
            system="APEX",
            dataset="apex",
            protocol="replay",
            part=part,
            score="mape",
            value=10.7,
            over="average relative error that the authors state, not of these rows alone",
            citation="README of microsoft/apex_plus at 87690965",
            metric="request_latency_ms",
        )
        for part in ("request_latency_ms", "request_latency_ms/vllm")
    ),
)
"""All published results, by dataset."""


def published_for(dataset: str, task: str | None = None) -> tuple[Published, ...]:
    """Published results on a dataset, or on one of its tasks `protocol/part`; may be empty."""
    return tuple(
        figure for figure in PUBLISHED if figure.dataset == dataset and task in (None, figure.task)
    )
