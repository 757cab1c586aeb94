"""Latencies of deployments in steady state, in closed form: their grids solved for a load."""

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
        met: prompts of others that are processed while a request writes its tokens.
        batch: prompts that share an iteration.
        own: time that these take.
        together: share of the requests of a closed loop that start together.
        tpot: time for each token after the first.
        service: time to the first token without queueing.
        waiting: further time to the first token, by queueing.
        requests_per_s: requests answered, all devices together.
        busy: share of its time that a rank spends on prompts.
        overload: whether requests arrive faster than they can be answered.
        held: whether requests wait for a place among the sequences of an iteration.
        fits: whether weights and one sequence fit the memory.
        decode: part of an iteration -> its time in decoding.
        prefill: part of an iteration -> its further time for one prompt.
        iterations: number of iterations that a prompt is divided over.
    """

    others: Column
    met: Column
    batch: Column
    own: Column
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
        """Those of n loads of k deployments.

        Args:
            deployments: k deployments with any load.
            which: (n,) position of the deployment of each load among them.
            concurrency: (n,) requests in flight; NaN where they arrive at a rate of their own.
            requests_per_s: (n,) that rate; NaN where the number in flight is given.
        """
        grids = np.stack([one.grid for one in deployments])
        closed = np.isfinite(concurrency)
        sought = np.where(closed, concurrency, requests_per_s)
        known = np.where(closed[:, None], grids[which, _IN_FLIGHT], grids[which, _RATE])
        rising = np.maximum.accumulate(known, axis=1)
        # A rate is a number of sequences over the time of an answer; both are linear in between.
        times = np.where(closed[:, None], 1.0, grids[which, _TPOT])
        positions = _positions(rising, times, sought)
        found = dict(zip(QUANTITIES, _at(grids, which, positions), strict=True))
        # Waiting grows by orders of magnitude from one point to the next.
        logs = np.log1p(grids[:, [_WAITING]] / NO_WAITING)
        found["waiting"] = NO_WAITING * np.expm1(_at(logs, which, positions)[0])
        over = sought > rising[:, -1]
        answer, ranks, together, fits, iterations = np.array([
            (one.answer_tokens, one.prompt_ranks, one.together, one.fits, one.iterations)
            for one in deployments
        ], dtype=np.float64)[which].T  # fmt: skip
        waiting, rate = _waiting_and_rate(
            found, answer, ranks, together, concurrency, requests_per_s, over
        )
        return cls(
            others=found["others"],
            met=found["met"],
            batch=found["batch"],
            own=found["own"],
            together=together,
            tpot=found["tpot"],
            service=found["service"],
            waiting=waiting,
            requests_per_s=rate,
            busy=found["busy"],
            overload=over & ~closed,
            held=over,
            fits=fits > 0.0,
            decode={part: found[f"decode {part}"] for part in PARTS},
            prefill={part: found[f"prefill {part}"] for part in PARTS},
            iterations=iterations,
        )


_IN_FLIGHT, _RATE, _TPOT, _WAITING = (
    SCALARS.index(name) for name in ("in_flight", "rate", "tpot", "waiting")
)
NO_WAITING: Final = 1e-4
"""Seconds that count as none."""


def _waiting_and_rate(
    found: Mapping[str, Column],
    answer_tokens: Column,
    prompt_ranks: Column,
    together: Column,
    concurrency: Column,
    requests_per_s: Column,
    over: Mask,
) -> tuple[Column, Column]:
    """Waiting before the first token, seconds, and requests a second of all devices, each (n,).

    Args:
        found: solutions on the grids, by `SCALARS`, each (n,).
        answer_tokens: (n,) as of `AnyLoad`.
        prompt_ranks: (n,) as there.
        together: (n,) as there.
        concurrency: (n,) requests in flight, as in `SteadyStates.of`.
        requests_per_s: (n,) rates of arrivals, as there.
        over: (n,) whether the load is larger than what the grid covers.
    """
    closed, rate = np.isfinite(concurrency), found["rate"]
    others = np.maximum(concurrency / prompt_ranks - found["batch"], 0.0) / 2.0
    waiting = found["waiting"] + together * others * found["work"]
    answer = answer_tokens * found["tpot"]
    # By Little's law a cycle takes as long as all requests in flight need.
    with np.errstate(divide="ignore", invalid="ignore"):
        cycle = np.maximum(waiting, concurrency / rate - answer - found["service"])
    waiting = np.where(over & (rate > 0.0), cycle, waiting)
    answered = concurrency / (found["service"] + waiting + answer)
    arriving = np.where(over, np.minimum(requests_per_s, rate), requests_per_s)
    return np.where(closed, waiting, found["waiting"]), np.where(closed, answered, arriving)


def _positions(rising: Matrix, times: Matrix, values: Column) -> Column:
    """Where n values lie between the points of n grids, as fractions of points, (n,).

    Args:
        rising: (n, g) quantities that do not fall.
        times: (n, g) what is linear between points, as is its product with the quantity.
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


def _at(grids: Matrix, which: Positions, positions: Column) -> Matrix:
    """Quantities at n fractions of points, by linear interpolation, (quantities, n).

    Args:
        grids: (k, quantities, g) grids.
        which: (n,) grid of each.
        positions: (n,) fractions of its points.
    """
    # Absurd sheets have grids that are no numbers; what follows from them is none either.
    low = np.clip(np.nan_to_num(positions).astype(np.intp), 0, grids.shape[2] - 2)
    share = positions - low
    return np.asarray(grids[which, :, low].T * (1.0 - share) + grids[which, :, low + 1].T * share)
