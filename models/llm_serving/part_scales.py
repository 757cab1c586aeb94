"""Factors on the parts of the closed form, fitted to the logarithms of measured times.

The time for each token after the first is an iteration of decoding and the prompts that are
processed meanwhile. The time to the first token is the prompt's own work, waiting for a part of
an iteration, for prompts that started at the same time, for independent arrivals, and host time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column
from forerun.features.llm_serving.features import ENGINES, FIRST_MS, DeploymentRows
from forerun.features.llm_serving.steady_state import FIRST_WAVE
from forerun.features.llm_serving.step import PARTS

SCALE: Final = 0.15
"""Log error from which on a row counts less than by its square."""
PRIOR_ROWS: Final = 0.05
"""Weight of a factor of one, as a share of the weight of all rows, for a log factor of one."""
P: Final = len(PARTS)
E: Final = len(ENGINES)
EXTRA: Final = 2 * E + 4

Time = Callable[[Column, DeploymentRows], Column]


def token_seconds(logs: Column, rows: DeploymentRows) -> Column:
    """Time for each token after the first, shape (n,).

    Args:
        logs: (2 parts,) logarithms of the factors on parts of decoding and of prompts.
        rows: n deployments.
    """
    prompt = rows.prefill @ np.exp(logs[P : 2 * P])
    step = rows.decode @ np.exp(logs[:P])
    return np.asarray(step / rows.accepted + rows.per_token * prompt)


def first_token_seconds(logs: Column, rows: DeploymentRows) -> Column:
    """Time to the first token, shape (n,).

    Args:
        logs: (parts + `EXTRA`,) logarithms of the factors on parts of prompts; on host time and on
            prompts that start together, by engine; on host time where prompts have workers of
            their own, on an iteration, on waiting, and on an iteration for each further chunk.
        rows: n deployments.
    """
    prompt = rows.prefill @ np.exp(logs[:P])
    step = rows.decode.sum(axis=1)
    host = rows.engine @ np.exp(logs[P : P + E])
    together = rows.engine @ np.exp(logs[P + E : P + 2 * E])
    handover, iteration, arrivals, chunk = np.exp(logs[P + 2 * E :])
    waiting = together * FIRST_WAVE * rows.burst * prompt + arrivals * rows.waiting
    chunks = (iteration + chunk * (rows.chunks - 1.0)) * step
    fixed = np.where(rows.apart > 0.0, handover, host) * FIRST_MS
    return np.asarray(prompt + chunks + fixed + waiting)


FORMS: Final[tuple[tuple[str, Time, int], ...]] = (
    ("tpot_ms", token_seconds, 2 * P),
    ("ttft_ms", first_token_seconds, P + EXTRA),
)
"""Metric, its closed form, and the number of its factors."""


def as_started(metric: str, logs: Column, rows: DeploymentRows) -> Column:
    """Logarithms of a time, shape (n,), of requests that start as those of each deployment do.

    Prompts start together in the closed loops of the training set, and what is fitted to them holds
    that. The time to the first token of a prompt that starts alone is its time without queueing and
    the waiting of arrivals, in closed form.

    Args:
        metric: the time.
        logs: (n,) logarithms of the seconds of prompts that start together.
        rows: n deployments.
    """
    if metric != "ttft_ms":
        return logs
    alone = np.log(rows.service + rows.waiting)
    return np.asarray(alone + rows.together * (logs - alone))


@dataclass(frozen=True)
class PartScales:
    """Logarithms of the factors on the parts of one time.

    Attributes:
        logs: the logarithms.
    """

    logs: Column

    @classmethod
    def fit(cls, form: Time, number: int, rows: DeploymentRows, target: Column) -> Self:
        """Robust least squares on log errors, with a prior at factors of one.

        Args:
            form: closed form of the time.
            number: number of factors.
            rows: n deployments.
            target: (n,) logarithms of measured seconds.
        """
        from scipy.optimize import least_squares

        weight = float(np.sqrt(PRIOR_ROWS * len(rows)))

        def errors(logs: Column) -> Column:
            return np.append(np.log(form(logs, rows)) - target, weight * SCALE * logs)

        found = least_squares(errors, np.zeros(number), loss="soft_l1", f_scale=SCALE, max_nfev=25)
        return cls(found.x)
