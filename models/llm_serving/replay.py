"""Replays a trace of requests against a simulated deployment, and reports per-request times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from forerun.data.columns import Column, Positions
from forerun.data.language_models.deployment import LlmDeployment, Pool
from forerun.data.language_models.requests import Requests
from forerun.features.llm_serving.features import SERVER_S
from forerun.models.llm_serving.continuous_batching import Rank, Request, Scheduler
from forerun.models.llm_serving.iteration_table import IterationTable
from forerun.models.llm_serving.worker import Worker

Dispatch = Literal["round_robin", "least_loaded"]
"""How requests are dispatched to workers and ranks: in turn, or to one with fewest in flight."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Results for n requests; NaN for requests longer than the cache of a rank.

    Attributes:
        ttft_s: (n,) time from arrival to the first token, seconds.
        tpot_s: (n,) time per output token after the first, seconds; NaN if there is only one.
        latency_s: (n,) time from arrival to the last token, seconds.
        preemptions: (n,) how often each request was preempted.
        span_s: time from the first arrival to the last token, seconds.
        output_tokens: tokens generated for requests that were not refused.
        busy_share: mean utilisation of the decode pool's ranks over the span, 0 to 1.
        mean_sequences: mean decode batch of such a rank while it is busy.
        most_cache_share: peak share of such a rank's cache blocks in use.
    """

    ttft_s: Column
    tpot_s: Column
    latency_s: Column
    preemptions: Positions
    span_s: float
    output_tokens: int
    busy_share: float
    mean_sequences: float
    most_cache_share: float

    @property
    def refused(self) -> int:
        """Number of requests longer than the cache of a rank."""
        return int(np.isnan(self.latency_s).sum())

    @property
    def requests_per_s(self) -> float:
        """Throughput, requests/s."""
        return (len(self.ttft_s) - self.refused) / self.span_s if self.span_s else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Output throughput of all devices together, tokens/s."""
        return self.output_tokens / self.span_s if self.span_s else 0.0

    def times_ms(self) -> dict[str, Column]:
        """Metric -> times as seen by clients, (n,), milliseconds; NaN as above."""
        return {
            "ttft_ms": 1e3 * (self.ttft_s + SERVER_S),
            "tpot_ms": 1e3 * self.tpot_s,
            "request_latency_ms": 1e3 * (self.latency_s + SERVER_S),
        }


def replay(
    requests: Requests,
    deployment: LlmDeployment,
    worker: Worker,
    prefill: Worker | None = None,
    *,
    handover_s_per_token: float = 0.0,
    dispatch: Dispatch = "round_robin",
) -> Replay:
    """Serve requests, from the first arrival until the last is finished.

    Of the deployment's load, only the cached share is used.

    Args:
        requests: requests in the order of arrival.
        deployment: engine and pools.
        worker: a worker of `deployment.pool`.
        prefill: a worker of `deployment.prefill`; required if the deployment has one.
        handover_s_per_token: time to move the cache of one prompt token between pools, seconds.
        dispatch: how requests are dispatched to ranks.
    """
    if len(requests):
        requests = replace(requests, arrival_s=requests.arrival_s - requests.arrival_s[0])
    share = deployment.load.cached_share
    columns = (requests.arrival_s, requests.input_tokens, requests.output_tokens)
    served = [
        Request(arrival, tokens, output, min(int(share * tokens), tokens - 1))
        for arrival, tokens, output in zip(*(column.tolist() for column in columns), strict=True)
    ]
    if deployment.prefill is not None:
        if prefill is None:
            raise ValueError("A deployment with a pool for prompts needs the times of its workers.")
        served = _prefilled(served, deployment, prefill, handover_s_per_token, dispatch)
    ordered = sorted(served, key=lambda request: request.arrival_s)
    waiting = [request for request in ordered if not _done(request)]
    ranks = _run(waiting, deployment, deployment.pool, worker, dispatch)
    return _replay(requests, served, ranks)


def _done(request: Request) -> bool:
    return request.finished_s == request.finished_s or np.isnan(request.arrival_s)


def _prefilled(
    served: Sequence[Request],
    deployment: LlmDeployment,
    prefill: Worker,
    handover_s_per_token: float,
    dispatch: Dispatch,
) -> list[Request]:
    """The requests as they reach the decode pool, after the prefill pool."""
    assert deployment.prefill is not None
    first = [replace(request, output_tokens=1) for request in served]
    _run(first, deployment, deployment.prefill, prefill, dispatch)
    return [
        Request(
            one.finished_s + handover_s_per_token * request.input_tokens,
            request.input_tokens,
            request.output_tokens,
            request.input_tokens,
            written=1,
            first_token_s=one.first_token_s,
            finished_s=one.finished_s if request.output_tokens == 1 else float("nan"),
        )
        for request, one in zip(served, first, strict=True)
    ]


def _run(
    served: Sequence[Request],
    deployment: LlmDeployment,
    pool: Pool,
    worker: Worker,
    dispatch: Dispatch,
) -> list[Rank]:
    """The ranks of a pool after serving these requests."""
    scheduler = Scheduler.of(deployment.engine, worker)
    prompt = max((r.input_tokens + r.written for r in served), default=1)
    longest = max((r.input_tokens + r.output_tokens for r in served), default=1)
    tokens = scheduler.max_batched_tokens
    table = IterationTable.of(
        worker.time,
        min(tokens, longest * len(served)) if scheduler.chunked_prefill else max(tokens, prompt),
        min(scheduler.max_sequences, len(served)),
        longest,
    )
    count = pool.workers * pool.parallelism.attention_data
    ranks = [Rank(scheduler, table) for _ in range(count)]
    for position, request in enumerate(served):
        if dispatch == "round_robin":
            ranks[position % count].submit(request)
        else:
            for rank in ranks:
                rank.advance(request.arrival_s)
            min(ranks, key=lambda rank: rank.in_flight).submit(request)
    for rank in ranks:
        rank.advance()
    return ranks


def _replay(requests: Requests, served: Sequence[Request], ranks: Sequence[Rank]) -> Replay:
    arrival = requests.arrival_s
    first = np.array([request.first_token_s for request in served])
    last = np.array([request.finished_s for request in served])
    further = np.where(requests.output_tokens > 1, requests.output_tokens - 1.0, np.nan)
    known = ~np.isnan(last)
    span = float(last[known].max() - arrival[0]) if known.any() else 0.0
    busy = sum(rank.busy_s for rank in ranks)
    return Replay(
        np.where(known, first - arrival, np.nan),
        (last - first) / further,
        last - arrival,
        np.array([request.preemptions for request in served]),
        span,
        int(requests.output_tokens[known].sum()),
        busy / (span * len(ranks)) if span else 0.0,
        sum(rank.sequence_s for rank in ranks) / busy if busy else 0.0,
        max(rank.most_blocks / rank.scheduler.blocks for rank in ranks),
    )
