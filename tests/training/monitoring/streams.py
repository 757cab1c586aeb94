"""Simulated observations: workloads with levels and noise of their own, in random order."""

from dataclasses import dataclass

import numpy as np

NOISES = ("normal", "laplace", "student", "skewed", "autocorrelated")


@dataclass(frozen=True)
class Simulated:
    """How observations are simulated.

    Attributes:
        rows: number of observations.
        noise: distribution of the noise, one of `NOISES`; autocorrelated is a first-order process
            with the coefficient 0.3 over all observations of the device.
        scatter: standard deviation of the logarithm; that of each workload differs around it.
        workloads: number of workloads, each with a level of its own.
        change_at: first row of a change.
        factor: by which runs take longer from then on.
    """

    rows: int
    noise: str = "normal"
    scatter: float = 0.05
    workloads: int = 20
    change_at: int | None = None
    factor: float = 1.15

    def drawn(self, seed: int):
        """Values of log(measured / answered) and the workloads, shape (rows,) each."""
        chance = np.random.default_rng(seed)
        workloads = chance.integers(self.workloads, size=self.rows)
        levels = chance.normal(0.0, 0.2, self.workloads)
        scatters = self.scatter * chance.lognormal(0.0, 0.4, self.workloads)
        noise = scatters[workloads] * _noise(chance, self.noise, self.rows)
        values = levels[workloads] + noise
        if self.change_at is not None:
            values[self.change_at :] += np.log(self.factor)
        return values, workloads


def _noise(chance, kind, rows):
    if kind == "normal":
        return chance.normal(size=rows)
    if kind == "laplace":
        return chance.laplace(size=rows) / np.sqrt(2)
    if kind == "student":
        return chance.standard_t(3, size=rows) / np.sqrt(3)
    if kind == "skewed":
        return chance.exponential(size=rows) - 1.0
    assert kind == "autocorrelated"
    steps = chance.normal(size=rows) * np.sqrt(1 - 0.3**2)
    for row in range(1, rows):
        steps[row] += 0.3 * steps[row - 1]
    return steps
