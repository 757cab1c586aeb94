"""Releases of inference engines, and what the host of an old one takes for each iteration."""

import re
from math import log2
from typing import Final, NamedTuple

from forerun.data.language_models.deployment import Engine

_RELEASE: Final = re.compile(
    r"(\d+)\.(\d+)(?:\.(\d+))?(?:[.-]?rc(\d+))?(?:\.pre\d+)?(?:[.-]?post(\d+))?"
)
_CANDIDATES: Final = 50
"""Candidates of a release that are distinguished, and later patches of one."""
NEW_ENGINE: Final = 800.0
"""Release of vLLM, 0.8, from which on its rewritten engine (V1) serves by default."""


class HostTime(NamedTuple):
    """Time of the host beyond that of a current engine.

    Attributes:
        iteration_s: of an iteration, seconds.
        sequence_s: of each sequence in it, seconds.
    """

    iteration_s: float = 0.0
    sequence_s: float = 0.0


CURRENT: Final = HostTime()


def host_time(engine: Engine, devices: int) -> HostTime:
    """Further time of the host in vLLM before 0.8, which prepares each iteration after the last.

    Least squares over 40 rows of `llm_inference_bench`: two Llama 3 models with 1 or 16 sequences
    on one to four H100. Nothing was fitted to other devices, models and batches.

    Args:
        engine: the engine; one of an unknown release counts as current.
        devices: devices of one worker.
    """
    if not is_old(engine):
        return CURRENT
    return HostTime(0.6e-3 + 0.94e-3 * log2(devices), 54e-6)


def is_old(engine: Engine) -> bool:
    """Whether the engine is vLLM before 0.8."""
    return engine.name == "vllm" and release(engine) < NEW_ENGINE


def release(engine: Engine) -> float:
    """The engine's release as one number that rises with it; NaN where it is not known.

    Candidates (`1.2.0rc6`) come before their release, and patches of either (`post2`) after it.
    """
    found = _RELEASE.match(engine.version)
    if found is None:
        return float("nan")
    major, minor, patch = (float(part or 0) for part in found.groups()[:3])
    candidate, post = found.groups()[3:]
    later = min(float(post or 0), _CANDIDATES - 1.0) / _CANDIDATES
    if candidate is not None:
        later += min(float(candidate), _CANDIDATES - 1.0) - _CANDIDATES
    return major * 1e4 + minor * 1e2 + patch + later / (2.0 * _CANDIDATES)
