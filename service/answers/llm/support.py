"""What can be asked about deployed language models, and where their metrics were measured."""

from collections.abc import Iterable
from typing import get_args

from forerun.data.device import Device
from forerun.data.language_models.deployment import EngineName
from forerun.data.language_models.weights import BYTES
from forerun.features.readers.language_model.families import ENCODER_DECODERS, FAMILIES
from forerun.features.readers.language_model.reader import named_models
from forerun.models.answers.deployments.metrics import (
    METRICS,
    datasets_behind,
    seen_in_training,
)
from forerun.models.answers.served_models import InUse
from forerun.service.requests.field_names import ALSO, NEGATED
from forerun.service.schemas.llm.answers import SupportedOut, SupportOut
from forerun.service.schemas.llm.model import CacheFormat


def support(devices: Iterable[Device], in_use: InUse) -> SupportOut:
    """What requests may name, and where each metric was measured.

    Args:
        devices: all devices with a spec sheet.
        in_use: the predictor in use, whose training record says what was measured.
    """
    names = {path: [*names] for path, names in ALSO.items()}
    for name, path in NEGATED.items():
        names.setdefault(path, []).append(f"not {name}")
    return SupportOut(
        models=list(named_models()),
        families=sorted({*FAMILIES, *ENCODER_DECODERS}),
        devices=[device.name for device in devices if is_answered(device)],
        engines=list(get_args(EngineName)),
        formats=list(BYTES),
        cache_formats=list(get_args(CacheFormat)),
        also=names,
        measured=[_measured(metric, in_use) for metric in METRICS],
    )


def is_answered(device: Device) -> bool:
    """Whether a deployment on a device can be answered: a GPU with rates and memory, or a
    processor with rates.
    """
    memory = device.kind == "cpu" or device.memory_gib is not None
    return device.kind in ("cpu", "gpu") and device.has_sheet and memory


def _measured(metric: str, in_use: InUse) -> SupportedOut:
    return SupportedOut(
        metric=metric,
        devices=sorted(seen_in_training(metric, "device", in_use)),
        models=sorted(seen_in_training(metric, "model", in_use)),
        datasets=datasets_behind(metric, in_use),
    )
