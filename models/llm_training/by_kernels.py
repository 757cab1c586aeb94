"""Training steps that are answered as networks: by their kernels and the memory of their graph.

A step in eager PyTorch is the same run whether it is asked as a language model or as a network.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from forerun.data.columns import Mask, Matrix
from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.language_models.training import LlmTraining
from forerun.data.level import USUAL
from forerun.data.query import Query
from forerun.features.llm_training.graph import are_networks, networks
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.step import EAGER
from forerun.models.answers.answer import Answer, Asked, answers_to
from forerun.models.answers.served_models import InUse
from forerun.models.limit import LATENCY, PEAK_MEMORY, POWER
from forerun.models.llm_training.step_time import mean_cost
from forerun.models.prediction import Estimate

MEMORY: Final = ("allocated_memory_mib", "reserved_memory_mib", PEAK_MEMORY)
METRICS: Final = (LATENCY, POWER, *MEMORY)
PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{"linear": "linear", "bmm": "attention", "attention": "attention"},
        **{"messages": "data_messages", "host": "waiting"},
    }
)
"""Class of operators -> part of a step; all others read and write memory."""
REST: Final = "elementwise"


def are_by_kernels(run: LlmTraining, layouts: Layouts) -> Mask:
    """Which of n layouts of a run are answered by their kernels, (n,).

    Those that are eager PyTorch alone: of FSDP on one device, and adapters on data-parallel
    devices. Where several devices train all weights, hundreds of such runs were measured, and they
    answer better about families and GPUs that are left out
    (`docs/how-to/train-large-models.md`); none was published on one device or with adapters.
    """
    alone = run.framework == "fsdp" and run.devices == 1
    if not (alone or (run.framework in EAGER and run.lora_rank)):
        return np.zeros(len(layouts), dtype=np.bool_)
    return are_networks(run, layouts)


def answers_by_kernels(
    run: LlmTraining,
    device: Device,
    layouts: Layouts,
    in_use: InUse,
    metrics: Sequence[str] = METRICS,
    level: float = USUAL,
) -> list[Answer | InputError]:
    """What is known of n layouts as networks, by the predictor in use."""
    asked = [
        Asked(Query(own, device, level=level), tuple(metrics)) for own in networks(run, layouts)
    ]
    return answers_to(asked, in_use)


def columns_by_kernels(
    run: LlmTraining, device: Device, layouts: Layouts, in_use: InUse, metric: str
) -> Matrix:
    """Best estimates and ends of a metric for n layouts, (3, n); NaN where not known."""
    found = answers_by_kernels(run, device, layouts, in_use, (metric,))
    rows = [None if isinstance(own, InputError) else own.estimates.get(metric) for own in found]
    ends = np.array([_ends(own) for own in rows], dtype=np.float64).reshape(len(rows), 3).T
    return ends * mean_cost(run, device, layouts) if metric == LATENCY else ends


def parts_s(answer: Answer) -> dict[str, float]:
    """Part of a step -> seconds, which add up to the step."""
    found: dict[str, float] = {}
    for name, own in answer.breakdown_ms.items():
        part = PARTS.get(name, REST)
        found[part] = found.get(part, 0.0) + own / 1e3
    return {name: own for name, own in found.items() if own > 0.0}


def _ends(own: Estimate | None) -> tuple[float, float, float]:
    if own is None:
        return (np.nan, np.nan, np.nan)
    low, high = (own.value if end is None else end for end in (own.low, own.high))
    return (own.value, low, high)
