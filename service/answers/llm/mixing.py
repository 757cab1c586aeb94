"""Replicas of plans, and mixes of types of devices, as answers have them."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from forerun.data.language_models.deployment import RequestLoad
from forerun.data.language_models.model import LanguageModel
from forerun.models.llm_serving.mixes import Mix
from forerun.models.llm_serving.plans import ServingOption
from forerun.service.schemas.llm.answers import EngineOut, PoolOut
from forerun.service.schemas.llm.serving_plan_answers import MixedSizeOut, MixOut, MixPartOut


def replicas_of(option: ServingOption, formats: Mapping[LanguageModel, str]) -> dict[str, Any]:
    """Fields of replicas of one kind; `formats` has the number format of each model."""
    deployment = option.unit.query.deployment
    return {
        "device": option.unit.query.device.name,
        "devices": option.devices,
        "replicas": option.replicas,
        "pool": PoolOut.of(deployment.pool),
        "prefill": None if deployment.prefill is None else PoolOut.of(deployment.prefill),
        "engine": EngineOut.filled(deployment.engine),
        "format": formats[deployment.model],
        "usd_per_hour": known(option.usd_per_hour),
    }


def mix_out(
    found: Mix, loads: Sequence[RequestLoad], formats: Mapping[LanguageModel, str]
) -> MixOut:
    """A mix, which serves groups of requests."""
    parts = []
    for one, shares in zip(found.parts, found.shares.tolist(), strict=True):
        sizes = [
            MixedSizeOut(
                input_tokens=load.input_tokens,
                output_tokens=load.output_tokens,
                requests_per_s=share * (load.requests_per_s or 0.0),
            )
            for load, share in zip(loads, shares, strict=True)
            if share
        ]
        is_spot = one.unit.stock.is_spot
        parts.append(MixPartOut(**replicas_of(one, formats), sizes=sizes, spot=is_spot))
    usd = sum(one.usd_per_hour for one in found.parts)
    return MixOut(
        parts=parts,
        usd_per_hour=known(usd) if parts else None,
        devices=sum(one.devices for one in found.parts),
        single_types={name: known(cost) for name, cost in found.singles.items()},
        saving=found.saving,
        changes=None if found.changes is None else dict(found.changes),
    )


def known(cost: float) -> float | None:
    """A number; None where it is not finite."""
    return cost if isfinite(cost) else None
