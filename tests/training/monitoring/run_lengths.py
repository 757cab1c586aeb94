"""How long until a change is found, and how often one is found that is none, by simulation.

    python -m tests.training.monitoring.run_lengths --streams 100

prints both tables of docs/how-to/observations.md.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from forerun.training.monitoring.changes import changes
from tests.training.monitoring.streams import NOISES, Simulated

STEADY_ROWS = 10_000
SCATTERS = (0.02, 0.05, 0.1, 0.15, 0.2)
BEFORE = (100, 300, 1_000)
WITHIN = 200


def false_alarms(streams: int) -> Iterator[str]:
    """A line for each kind of noise: streams of 10,000 steady observations with an alarm."""
    for noise in NOISES:
        found = sum(
            bool(changes(*Simulated(STEADY_ROWS, noise, scatter, workloads).drawn(seed)))
            for seed in range(streams)
            for scatter in SCATTERS
            for workloads in (1, 20, 300)
        )
        yield f"| {noise} | {found} of {3 * len(SCATTERS) * streams} |"


def delays(streams: int) -> Iterator[str]:
    """A line for each scatter: median delay, and the share found within 200 observations."""
    for noise in ("normal", "autocorrelated"):
        for scatter in SCATTERS:
            cells = []
            for before in BEFORE:
                simulated = Simulated(before + 2 * WITHIN, noise, scatter, change_at=before)
                found = [_delay(simulated, seed) for seed in range(streams)]
                share = np.mean([delay <= WITHIN for delay in found])
                median = float(np.median(found))
                text = f"{median:.0f}" if median < float("inf") else "none"
                cells.append(f"{text} ({100 * share:.0f} %)")
            yield f"| {noise} | {100 * scatter:.0f} % | {' | '.join(cells)} |"


def _delay(simulated: Simulated, seed: int) -> float:
    """Observations after the change until it is noticed; infinite where it is not."""
    assert simulated.change_at is not None
    found = [change.noticed - simulated.change_at + 1 for change in changes(*simulated.drawn(seed))]
    return min((delay for delay in found if delay > 0), default=float("inf"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=20)
    count = parser.parse_args().streams
    for line in (*false_alarms(count), *delays(count)):
        print(line, flush=True)
