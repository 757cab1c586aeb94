"""A worker of a deployment as a queue sees it: times of iterations, and its limits."""

from dataclasses import dataclass
from typing import Self

from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.deployment import LlmDeployment
from forerun.features.llm_serving.engine_settings import default_limits, sequences_in_memory
from forerun.features.llm_serving.iteration import IterationTime
from forerun.features.llm_serving.step import Phase, WorkerTime

_UNLIMITED_TOKENS = 1e9


@dataclass(frozen=True, slots=True)
class Worker:
    """What one worker of a pool can do.

    Attributes:
        time: times of its iterations.
        capacity_tokens: tokens whose keys and values one data-parallel rank holds.
        max_batched_tokens: most tokens of an iteration where the engine's settings do not say.
        max_sequences: most sequences of an iteration where the engine's settings do not say.
    """

    time: IterationTime
    capacity_tokens: float
    max_batched_tokens: int = 8192
    max_sequences: int = 1024

    @classmethod
    def of(cls, deployment: LlmDeployment, device: Device, *, phase: Phase = "both") -> Self:
        """A worker of the deployment's pool, or of its pool for prompts in phase `prefill`.

        The cache takes the memory that the engine may use and weights leave; it has no limit where
        the memory of the device is not known.

        Raises:
            UnknownBandwidth, UnknownPrecision: the device's sheet lacks a figure.
            UnanswerableQuery: weights leave no room for a sequence.
        """
        apart = phase == "prefill" and deployment.prefill is not None
        pool = deployment.prefill if apart and deployment.prefill else deployment.pool
        context = deployment.load.input_tokens + deployment.load.output_tokens / 2
        room = sequences_in_memory(deployment, device, pool.parallelism, context)
        if room is not None and room < 1:
            raise UnanswerableQuery(
                f"Weights and one sequence do not fit the memory of {pool.parallelism.devices} "
                f"{device.name}: divide the model over more devices."
            )
        tokens, sequences = default_limits(deployment.engine, device)
        return cls(
            WorkerTime.of(deployment, device, phase=phase),
            _UNLIMITED_TOKENS if room is None else room * context,
            tokens,
            sequences,
        )
