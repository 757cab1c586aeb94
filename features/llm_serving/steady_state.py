"""Closed-form steady state of deployments: looks up a load on the grids of `any_load`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Positions
from forerun.features.llm_serving.any_load import QUANTITIES, SCALARS, AnyLoad
from forerun.features.llm_serving.step import PARTS


@dataclass(frozen=True, slots=True)
class SteadyStates:
    """n deployments in steady state, each of shape (n,); times in seconds.

    Attributes:
        others: other sequences that decode on the same rank as a request.
        interfering: prompts of other requests processed while a request decodes.
        batch: prompts that share an iteration.
        batch_prefill: prefill time of the batch that a request's own prompt is in.
        together: share of closed-loop requests that start together.
        tpot: time per output token after the first.
        service: time to first token without queueing.
        waiting: queueing delay before the first token.
        requests_per_s: throughput of all devices together.
        busy: share of its time that a rank spends on prefill.
        overload: whether requests arrive faster than they can be answered.
        held: whether requests wait because iterations have no room for more sequences.
        fits: whether the weights and one sequence fit in memory.
        decode: part of an iteration -> its time in decode.
        prefill: part of an iteration -> time that one prompt adds.
        iterations: iterations that a prompt is split over.
    """

    others: Column
    interfering: Column
    batch: Column
    batch_prefill: Column
    together: Column
    tpot: Column
    service: Column
    waiting: Column
    requests_per_s: Column
    busy: Column
    overload: Mask
    held: Mask
    fits: Mask
    decode: Mapping[str, Column]
    prefill: Mapping[str, Column]
    iterations: Column

    @classmethod
    def of(
        cls,
        deployments: Sequence[AnyLoad],
        which: Positions,
        concurrency: Column,
        requests_per_s: Column,
    ) -> "SteadyStates":
        """Solve n loads of k deployments.

        Args:
            deployments: k deployments at any load.
            which: (n,) index of the deployment that each load belongs to.
            concurrency: (n,) requests in flight; NaN for open-loop loads.
            requests_per_s: (n,) arrival rate; NaN for closed-loop loads.
        """
        grids = np.stack([one.grid for one in deployments])
        closed = np.isfinite(concurrency)
        sought = np.where(closed, concurrency, requests_per_s)
        known = np.where(closed[:, None], grids[which, _IN_FLIGHT], grids[which, _RATE])
        rising = np.maximum.accumulate(known, axis=1)
        # A rate is a number of sequences over the time of an answer; interpolate both linearly.
        times = np.where(closed[:, None], 1.0, grids[which, _TPOT])
        positions = _positions(rising, times, sought)
        solved = dict(zip(QUANTITIES, _interpolated(grids, which, positions), strict=True))
        # Waiting grows by orders of magnitude between grid points, so interpolate its logarithm.
        logs = np.log1p(grids[:, [_WAITING]] / NO_WAITING)
        solved["waiting"] = NO_WAITING * np.expm1(_interpolated(logs, which, positions)[0])
        over = sought > rising[:, -1]
        answer, ranks, together, fits, iterations = np.array([
            (one.answer_tokens, one.prompt_ranks, one.together, one.fits, one.iterations)
            for one in deployments
        ], dtype=np.float64)[which].T  # fmt: skip
        waiting, rate = _waiting_and_rate(
            solved, answer, ranks, together, concurrency, requests_per_s, over
        )
        return cls(
            others=solved["others"],
            interfering=solved["interfering"],
            batch=solved["batch"],
            batch_prefill=solved["batch_prefill"],
            together=together,
            tpot=solved["tpot"],
            service=solved["service"],
            waiting=waiting,
            requests_per_s=rate,
            busy=solved["busy"],
            overload=over & ~closed,
            held=over,
            fits=fits > 0.0,
            decode={part: solved[f"decode {part}"] for part in PARTS},
            prefill={part: solved[f"prefill {part}"] for part in PARTS},
            iterations=iterations,
        )


_IN_FLIGHT, _RATE, _TPOT, _WAITING = (
    SCALARS.index(name) for name in ("in_flight", "rate", "tpot", "waiting")
)
NO_WAITING: Final = 1e-4
"""Waiting below this many seconds is interpolated about linearly, above it logarithmically."""


def _waiting_and_rate(
    solved: Mapping[str, Column],
    answer_tokens: Column,
    prompt_ranks: Column,
    together: Column,
    concurrency: Column,
    requests_per_s: Column,
    over: Mask,
) -> tuple[Column, Column]:
    """Queueing delay before the first token, seconds, and throughput, requests/s, each (n,).

    Args:
        solved: `SCALARS` interpolated on the grids, each (n,).
        answer_tokens: (n,) as in `AnyLoad`.
        prompt_ranks: (n,) as in `AnyLoad`.
        together: (n,) as in `AnyLoad`.
        concurrency: (n,) as in `SteadyStates.of`.
        requests_per_s: (n,) as in `SteadyStates.of`.
        over: (n,) whether the load exceeds what the grid covers.
    """
    closed, rate = np.isfinite(concurrency), solved["rate"]
    ahead = np.maximum(concurrency / prompt_ranks - solved["batch"], 0.0) / 2.0
    waiting = solved["waiting"] + together * ahead * solved["work"]
    answer = answer_tokens * solved["tpot"]
    # By Little's law, a request takes concurrency / rate; what is not service or decode is waiting.
    with np.errstate(divide="ignore", invalid="ignore"):
        remainder = np.maximum(waiting, concurrency / rate - answer - solved["service"])
    waiting = np.where(over & (rate > 0.0), remainder, waiting)
    answered = concurrency / (solved["service"] + waiting + answer)
    arriving = np.where(over, np.minimum(requests_per_s, rate), requests_per_s)
    return np.where(closed, waiting, solved["waiting"]), np.where(closed, answered, arriving)


def _positions(rising: Matrix, times: Matrix, values: Column) -> Column:
    """Fractional grid positions at which n quantities take the given values, (n,).

    Args:
        rising: (n, g) non-decreasing quantities.
        times: (n, g) factors that are linear between points, as is their product with `rising`.
        values: (n,) values of the quantities.
    """
    rows, last = np.arange(len(values)), rising.shape[1] - 1
    below = np.clip((rising <= values[:, None]).sum(axis=1) - 1, 0, last - 1)
    start = times[rows, below] * (values - rising[rows, below])
    end = times[rows, below + 1] * (rising[rows, below + 1] - values)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = start / (start + end)
    between = below + np.clip(share, 0.0, 1.0)
    return np.asarray(np.where(values >= rising[:, -1], float(last), between))


def _interpolated(grids: Matrix, which: Positions, positions: Column) -> Matrix:
    """Quantities at n fractional grid positions, by linear interpolation, (quantities, n).

    Args:
        grids: (k, quantities, g) grids.
        which: (n,) index of each position's grid.
        positions: (n,) fractional positions.
    """
    # Spec sheets with absurd figures yield NaN grids, hence NaN positions; the result stays NaN.
    low = np.clip(np.nan_to_num(positions).astype(np.intp), 0, grids.shape[2] - 2)
    share = positions - low
    return np.asarray(grids[which, :, low].T * (1.0 - share) + grids[which, :, low + 1].T * share)
