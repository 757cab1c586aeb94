"""Mixes of types of devices, as plans of serving answer them."""

from collections.abc import Mapping, Sequence
from math import isfinite

from forerun.data.language_models.deployment import RequestLoad
from forerun.data.language_models.model import LanguageModel
from forerun.models.llm_serving.mixes import Mix, Part
from forerun.service.schemas.llm.answers import EngineOut, PoolOut
from forerun.service.schemas.llm.serving_plan_answers import MixedSizeOut, MixOut, MixPartOut


def mix_out(
    found: Mix, loads: Sequence[RequestLoad], formats: Mapping[LanguageModel, str]
) -> MixOut:
    """A mix as the answer has it.

    Args:
        found: the mix.
        loads: the groups of requests that it serves.
        formats: the model in each number format -> the format.
    """
    return MixOut(
        parts=[_part(one, loads, formats) for one in found.parts],
        usd_per_hour=_known(sum(one.usd_per_hour for one in found.parts)) if found.parts else None,
        devices=sum(one.devices for one in found.parts),
        single_types={name: _known(cost) for name, cost in found.singles.items()},
        saving=found.saving,
    )


def _part(
    one: Part, loads: Sequence[RequestLoad], formats: Mapping[LanguageModel, str]
) -> MixPartOut:
    deployment = one.unit.query.deployment
    return MixPartOut(
        device=one.unit.query.device.name,
        devices=one.devices,
        replicas=one.replicas,
        pool=PoolOut.of(deployment.pool),
        prefill=None if deployment.prefill is None else PoolOut.of(deployment.prefill),
        engine=EngineOut.model_validate(deployment.engine),
        format=formats[deployment.model],
        usd_per_hour=_known(one.usd_per_hour),
        sizes=[
            MixedSizeOut(
                input_tokens=load.input_tokens,
                output_tokens=load.output_tokens,
                requests_per_s=share * (load.requests_per_s or 0.0),
                share=share,
            )
            for load, share in zip(loads, one.shares.tolist(), strict=True)
            if share
        ],
    )


def _known(cost: float) -> float | None:
    return cost if isfinite(cost) else None
