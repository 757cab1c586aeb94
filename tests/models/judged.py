"""How predictions compare with measured rows."""

import numpy as np


def errors(predictor, rows, metric="latency_ms"):
    """Absolute relative errors of n predictions."""
    return np.abs(predictor.predict(rows.queries).values[metric] / rows.values[metric] - 1.0)


def inside(answers, rows, metric="latency_ms"):
    """Which of n measured values lie within the intervals of their answers."""
    truth = rows.values[metric]
    return (answers.low[metric] <= truth) & (truth <= answers.high[metric])
