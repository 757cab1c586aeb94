"""A worker of a deployment, as a queueing simulation sees it: iteration times and limits."""

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
    """Iteration times and default limits of one worker of a pool.

    Attributes:
        time: iteration times.
        capacity_tokens: tokens that fit in the KV cache of one data-parallel rank.
        max_batched_tokens: default token budget of an iteration.
        max_sequences: default for the most sequences in an iteration.
    """

    time: IterationTime
    capacity_tokens: float
    max_batched_tokens: int = 8192
    max_sequences: int = 1024

    @classmethod
    def of(cls, deployment: LlmDeployment, device: Device, *, phase: Phase = "both") -> Self:
        """A worker of the deployment's pool, or of its prefill pool in phase `prefill`.

        The cache takes all memory that the engine may use and weights leave free. It is unlimited
        if the device's memory is unknown.

        Raises:
            UnknownBandwidth, UnknownPrecision: the device's spec sheet lacks a figure.
            UnanswerableQuery: the weights leave no room for a sequence.
        """
        disaggregated = phase == "prefill" and deployment.prefill is not None
        pool = deployment.prefill if disaggregated and deployment.prefill else deployment.pool
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
